/* Operators that move elements of any type. */
#include "kernels.h"

/* Numbers: a walk over the result and the operand; what it leaves out of the result stays as it is. */
int run_copy(context *c) {
  const opsetta_tensor *in = &c->in[0], *out = &c->out[0];
  int64_t at = 0, index, limits[] = {out->count, in->count};
  const size_t size = item_size(out->type);
  walk w;
  if (read_walk(c, &at, &w, 2, limits)) return -1;
  while (!c->is_check && next_row(&w)) {
    uint8_t *to = out->data + (size_t)w.offset[0] * size;
    const uint8_t *from = in->data + (size_t)w.offset[1] * size;
    int64_t to_step = w.step[0], step = w.step[1];
    if (to_step == 1 && step == 1) memmove(to, from, (size_t)w.length * size);
    else if (to_step == 1 && size == 4 && step == 0) {
      const uint32_t item = *(const uint32_t *)(const void *)from;
      for (index = 0; index < w.length; index++) ((uint32_t *)(void *)to)[index] = item;
    } else if (to_step == 1 && size == 4)
      for (index = 0; index < w.length; index++)
        ((uint32_t *)(void *)to)[index] = ((const uint32_t *)(const void *)from)[index * step];
    else
      for (index = 0; index < w.length; index++) memmove(to + index * to_step * (int64_t)size, from + index * step * (int64_t)size, size);
  }
  return 0;
}

/* Combines an update with an element: 0 replaces it, 1 adds, 2 multiplies, 3 and 4 are the maximum and the minimum. */
static void reduce_item(const opsetta_tensor *out, int64_t at, const opsetta_tensor *updates, int64_t from, int64_t reduction) {
  const size_t size = item_size(out->type);
  if (reduction == 0) memmove(out->data + (size_t)at * size, updates->data + (size_t)from * size, size);
  else if (out->type == FLOAT) {
    float a = floats(out)[at], b = floats(updates)[from];
    floats(out)[at] = reduction == 1 ? a + b : reduction == 2 ? a * b : reduction == 3 ? (b > a ? b : a) : b < a ? b : a;
  } else {
    int64_t a = integer(out, at), b = integer(updates, from), sum = (int64_t)((uint64_t)a + (uint64_t)b);
    int64_t result = (int64_t)((uint64_t)a * (uint64_t)b);
    result = reduction == 1 ? sum : reduction == 2 ? result : (reduction == 3) == (b > a) ? b : a;
    set_integer(out, at, result);
  }
}

/* Gather copies blocks of the operand that indices select, and Scatter writes updates to such blocks of its result.
   Numbers: the reduction, the elements of a block, the indices that select one, for each of them the size of its axis
   and the step along it; and a walk over the blocks of the result or the updates, their first elements without the
   indices, and the first indices. */
int run_gather(context *c) {
  int is_scatter = !strcmp(c->type, "Scatter");
  const opsetta_tensor *selected = is_scatter ? &c->out[0] : &c->in[0], *indices = &c->in[!is_scatter];
  const opsetta_tensor *plain = is_scatter ? &c->in[1] : &c->out[0];
  const int64_t reduction = c->numbers[0], block = c->numbers[1], width = c->numbers[2], *axes = c->numbers + 3;
  int64_t at = 3 + 2 * width, index, number, element, limits[3], k;
  const size_t size = item_size(plain->type);
  walk w;
  REQUIRE(block >= 0 && block <= MOST_ELEMENTS && width >= 0 && width <= MOST_AXES && c->node->number_count >= at);
  REQUIRE(reduction == 0 || plain->type == FLOAT || plain->type == INT32 || plain->type == INT64 || plain->type == INT8 || plain->type == UINT8);
  limits[0] = plain->count - block + 1;
  limits[1] = selected->count - block + 1;
  limits[2] = indices->count - width + 1;
  for (k = 0; k < width; k++) {
    REQUIRE(axes[2 * k] > 0 && axes[2 * k] <= INT32_MAX && axes[2 * k + 1] >= 0 && axes[2 * k + 1] <= INT32_MAX);
    limits[1] -= (axes[2 * k] - 1) * axes[2 * k + 1];
    REQUIRE(limits[1] > -MOST_ELEMENTS);
  }
  if (read_walk(c, &at, &w, 3, limits)) return -1;
  while (!c->is_check && next_row(&w))
    for (index = 0; index < w.length; index++) {
      int64_t from = w.offset[0] + index * w.step[0];
      element = w.offset[1] + index * w.step[1];
      for (k = 0; k < width; k++) {
        number = integer(indices, w.offset[2] + index * w.step[2] + k);
        number += number < 0 ? axes[2 * k] : 0;
        REQUIRE(number >= 0 && number < axes[2 * k]);
        element += number * axes[2 * k + 1];
      }
      for (k = 0; is_scatter && k < block; k++) reduce_item(selected, element + k, plain, from + k, reduction);
      if (!is_scatter && block) memmove(plain->data + (size_t)from * size, selected->data + (size_t)element * size, (size_t)block * size);
    }
  return 0;
}

/* Each element is a sum of elements along each axis, with weights; or, without weights, one of them. The operands are
   the indices along all axes and their weights. Numbers: the rank, and of each axis the sizes of the operand and of the
   result and the elements that are summed. */
int run_resample(context *c) {
  const opsetta_tensor *in = &c->in[0], *indices = &c->in[1], *out = &c->out[0];
  const int64_t rank = c->numbers[0], *n = c->numbers + 1;
  int64_t position[MOST_AXES] = {0}, number[MOST_AXES] = {0}, start[MOST_AXES], sizes[2] = {1, 1}, total = 0, axis, index;
  const size_t size = item_size(in->type);
  const int has_weights = has(c, 2);
  REQUIRE(rank > 0 && rank <= MOST_AXES && c->node->number_count == 1 + 3 * rank && (!has_weights || in->type == FLOAT));
  for (axis = 0; axis < rank; axis++) {
    start[axis] = total;
    sizes[0] = size_product(sizes[0], n[3 * axis]);
    sizes[1] = size_product(sizes[1], n[3 * axis + 1]);
    REQUIRE(size_product(n[3 * axis + 1], n[3 * axis + 2]) >= 0 && n[3 * axis + 2] > 0 && (has_weights || n[3 * axis + 2] == 1));
    total += n[3 * axis + 1] * n[3 * axis + 2];
  }
  REQUIRE(sizes[0] == in->count && sizes[1] == out->count && total == indices->count && (!has_weights || c->in[2].count == total));
  for (index = 0; index < out->count && !c->is_check; index++) {
    float sum = 0;
    do {
      int64_t from = 0;
      float weight = 1;
      for (axis = 0; axis < rank; axis++) {
        int64_t at = start[axis] + position[axis] * n[3 * axis + 2] + number[axis], source = integer(indices, at);
        REQUIRE(source >= 0 && source < n[3 * axis]);
        from = from * n[3 * axis] + source;
        weight *= has_weights ? floats(&c->in[2])[at] : 1;
      }
      if (!has_weights) memmove(out->data + (size_t)index * size, in->data + (size_t)from * size, size);
      else if (weight != 0) sum += weight * floats(in)[from];
      for (axis = rank; axis-- > 0 && ++number[axis] >= n[3 * axis + 2];) number[axis] = 0;
    } while (axis >= 0);
    if (has_weights) floats(out)[index] = sum;
    for (axis = rank; axis-- > 0 && ++position[axis] >= n[3 * axis + 1];) position[axis] = 0;
  }
  return 0;
}
