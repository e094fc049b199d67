/* Operators that move elements of any type. */
#include "kernels.h"

/* Reshape and other views whose result is in other memory; Dropout. */
int run_copy(context *c) {
  REQUIRE(c->in[0].bytes == c->out[0].bytes);
  if (!c->is_check && c->out[0].bytes) memmove(c->out[0].data, c->in[0].data, c->out[0].bytes);
  return 0;
}

/* Transpose, Expand, Slice, DepthToSpace and SpaceToDepth: the result, seen with `shape`, has the elements at
   `start` + the sum of index * step over the axes. */
int run_strided(context *c) {
  opsetta_tensor *out = &c->out[0], seen = *out;
  int64_t steps[OPSETTA_RANK], rank = length_of(c, "steps"), start = int_of(c, "start", 0), low = start, high = start;
  int64_t axis, index, step;
  size_t size = item_size(out->type);
  uint8_t *to = out->data;
  walk w;
  REQUIRE(rank >= 0 && rank <= OPSETTA_RANK && rank == length_of(c, "shape"));
  seen.rank = (uint32_t)rank;
  for (axis = 0; axis < rank; axis++) {
    seen.shape[axis] = item_of(c, "shape", axis, 0);
    steps[axis] = step = item_of(c, "steps", axis, 0);
    REQUIRE(seen.shape[axis] >= 0 && seen.shape[axis] <= out->count);
    REQUIRE(step <= c->in[0].count && step >= -c->in[0].count);
    REQUIRE(!out->count || (seen.shape[axis] - 1) <= INT32_MAX / ((step < 0 ? -step : step) + 1) * (int64_t)INT32_MAX);
    *(step < 0 ? &low : &high) += (seen.shape[axis] - 1) * step;
  }
  if (!out->count) return 0;
  seen.count = span(&seen, 0, rank);
  REQUIRE(seen.count == out->count && low >= 0 && high < c->in[0].count);
  if (c->is_check) return 0;
  start_walk(&w, &seen);
  add_steps(&w, start, steps);
  join_axes(&w);
  do {
    const uint8_t *from = c->in[0].data + (size_t)w.offset[0] * size;
    step = w.steps[0][w.rank - 1];
    if (step == 1) memmove(to, from, (size_t)w.length * size);
    else if (size == 4)
      for (index = 0; index < w.length; index++)
        ((uint32_t *)(void *)to)[index] = ((const uint32_t *)(const void *)from)[index * step];
    else
      for (index = 0; index < w.length; index++) memmove(to + (size_t)index * size, from + index * step * (int64_t)size, size);
    to += (size_t)w.length * size;
  } while (next_row(&w));
  return 0;
}

/* Concat, and Split the other way round. */
int run_concat(context *c) {
  int is_split = !strcmp(c->type, "Split");
  const opsetta_tensor *whole = is_split ? &c->in[0] : &c->out[0];
  int64_t axis = axis_of(c, "axis", 0, whole->rank), outer, length, row, at = 0;
  size_t item = item_size(whole->type);
  uint32_t number, other;
  REQUIRE(axis >= 0);
  outer = span(whole, 0, axis);
  length = span(whole, axis, whole->rank);
  for (number = 0; number < (is_split ? c->out_count : c->in_count); number++) {
    opsetta_tensor part;
    int64_t size;
    if (tensor_at(c, is_split, number, &part)) return -1;
    REQUIRE(part.rank == whole->rank && part.type == whole->type && part.memory);
    for (other = 0; other < part.rank; other++) REQUIRE(other == axis || part.shape[other] == whole->shape[other]);
    size = span(&part, axis, part.rank);
    REQUIRE(size <= length - at);
    for (row = 0; row < outer && !c->is_check; row++) {
      uint8_t *joined = whole->data + (size_t)(row * length + at) * item;
      uint8_t *single = part.data + (size_t)(row * size) * item;
      if (size) memmove(is_split ? single : joined, is_split ? joined : single, (size_t)size * item);
    }
    at += size;
  }
  REQUIRE(at == length || is_split);
  return 0;
}

int run_gather(context *c) {
  const opsetta_tensor *in = &c->in[0], *indices = &c->in[1];
  int64_t axis = axis_of(c, "axis", 0, in->rank), outer, size, row, index;
  size_t bytes;
  uint8_t *to = c->out[0].data;
  REQUIRE(axis >= 0);
  outer = span(in, 0, axis);
  size = in->shape[axis];
  bytes = (size_t)span(in, axis + 1, in->rank) * item_size(in->type);
  REQUIRE(c->out[0].count == outer * indices->count * span(in, axis + 1, in->rank));
  for (row = 0; row < outer && !c->is_check; row++)
    for (index = 0; index < indices->count; index++, to += bytes) {
      int64_t number = integer(indices, index);
      number += number < 0 ? size : 0;
      REQUIRE(number >= 0 && number < size);
      if (bytes) memmove(to, in->data + (size_t)(row * size + number) * bytes, bytes);
    }
  return 0;
}

/* Combines an update with an element as the reduction says. */
static void reduce_item(const context *c, const opsetta_tensor *out, int64_t at, const opsetta_tensor *updates,
                        int64_t from) {
  size_t size = item_size(out->type);
  int is_float = out->type == FLOAT;
  float a = is_float ? floats(out)[at] : 0, b = is_float ? floats(updates)[from] : 0;
  int64_t m = is_float ? 0 : integer(out, at), n = is_float ? 0 : integer(updates, from);
  if (is_text(c, "reduction", "none", "none")) memmove(out->data + (size_t)at * size, updates->data + (size_t)from * size, size);
  else if (is_text(c, "reduction", "add", "")) a += b, m = (int64_t)((uint64_t)m + (uint64_t)n);
  else if (is_text(c, "reduction", "mul", "")) a *= b, m = (int64_t)((uint64_t)m * (uint64_t)n);
  else if (is_text(c, "reduction", "max", "")) a = b > a ? b : a, m = n > m ? n : m;
  else a = b < a ? b : a, m = n < m ? n : m;
  if (is_text(c, "reduction", "none", "none")) return;
  if (is_float) floats(out)[at] = a;
  else set_integer(out, at, m);
}

/* GatherElements, and ScatterElements, which writes updates into a copy. */
int run_gather_elements(context *c) {
  const opsetta_tensor *in = &c->in[0], *indices = &c->in[1], *out = &c->out[0];
  int64_t axis = axis_of(c, "axis", 0, in->rank), steps[OPSETTA_RANK], index, at = 0;
  int is_scatter = !strcmp(c->type, "ScatterElements");
  size_t size = item_size(in->type);
  uint32_t other;
  walk w;
  REQUIRE(axis >= 0 && indices->rank == in->rank && same_shape(indices, is_scatter ? &c->in[2] : out));
  REQUIRE(!is_scatter || same_shape(in, out));
  for (other = 0; other < in->rank; other++) {
    REQUIRE(other == axis || indices->shape[other] <= in->shape[other]);
    steps[other] = other == axis ? 0 : span(in, other + 1, in->rank);
  }
  if (c->is_check) return 0;
  if (is_scatter && out->bytes) memmove(out->data, in->data, out->bytes);
  if (!indices->count) return 0;
  start_walk(&w, indices);
  add_steps(&w, 0, steps);
  do {
    for (index = 0; index < w.length; index++, at++) {
      int64_t number = integer(indices, at), element = w.offset[0] + index * w.steps[0][w.rank - 1];
      number += number < 0 ? in->shape[axis] : 0;
      REQUIRE(number >= 0 && number < in->shape[axis]);
      element += number * span(in, axis + 1, in->rank);
      if (is_scatter) reduce_item(c, out, element, &c->in[2], at);
      else memmove(out->data + (size_t)at * size, in->data + (size_t)element * size, size);
    }
  } while (next_row(&w));
  return 0;
}

/* GatherND, and ScatterND, which writes updates into a copy. */
int run_gather_nd(context *c) {
  const opsetta_tensor *in = &c->in[0], *indices = &c->in[1], *out = &c->out[0];
  int64_t shared = int_of(c, "batch_dims", 0), width, rows, block, row, element, index, number;
  int is_scatter = !strcmp(c->type, "ScatterND");
  size_t size = item_size(in->type);
  int64_t axis;
  REQUIRE(indices->rank >= 1 && shared >= 0 && shared < indices->rank);
  width = indices->shape[indices->rank - 1];
  rows = span(indices, 0, indices->rank - 1);
  REQUIRE(width >= 0 && shared + width <= in->rank);
  block = span(in, shared + width, in->rank);
  REQUIRE((is_scatter ? c->in[2].count : out->count) == rows * block && (!is_scatter || same_shape(in, out)));
  for (axis = 0; axis < shared; axis++) REQUIRE(in->shape[axis] == indices->shape[axis]);
  if (c->is_check) return 0;
  if (is_scatter && out->bytes) memmove(out->data, in->data, out->bytes);
  for (row = 0; row < rows; row++) {
    element = row / (rows / span(in, 0, shared));
    for (axis = 0; axis < width; axis++) {
      number = integer(indices, row * width + axis);
      number += number < 0 ? in->shape[shared + axis] : 0;
      REQUIRE(number >= 0 && number < in->shape[shared + axis]);
      element = element * in->shape[shared + axis] + number;
    }
    for (index = 0; index < block; index++) {
      if (is_scatter) reduce_item(c, out, element * block + index, &c->in[2], row * block + index);
      else memmove(out->data + (size_t)(row * block + index) * size, in->data + (size_t)(element * block + index) * size, size);
    }
  }
  return 0;
}

/* Where an element of the padded axis comes from; -1 outside. */
static int64_t padded_index(const context *c, int64_t at, int64_t size) {
  if (at >= 0 && at < size) return at;
  if (is_text(c, "mode", "edge", "constant")) return at < 0 ? 0 : size - 1;
  if (is_text(c, "mode", "wrap", "constant")) return (at % size + size) % size;
  if (is_text(c, "mode", "constant", "constant")) return -1;
  if (size == 1) return 0;
  at = (at % (2 * size - 2) + 2 * size - 2) % (2 * size - 2); /* reflect */
  return at < size ? at : 2 * size - 2 - at;
}

/* Pad; and Tile, which wraps around. */
int run_pad(context *c) {
  const opsetta_tensor *in = &c->in[0], *out = &c->out[0];
  int64_t before[OPSETTA_RANK] = {0}, position[OPSETTA_RANK] = {0}, index, number, from, count;
  size_t size = item_size(in->type);
  int is_tile = !strcmp(c->type, "Tile");
  uint32_t axis;
  REQUIRE(in->rank == out->rank && (is_tile || !has(c, 2) || c->in[2].count == 1));
  if (c->is_check) return 0;
  count = is_tile ? 0 : c->in[1].count / 2;
  REQUIRE(count <= in->rank && (!has(c, 3) || c->in[3].count == count));
  for (index = 0; index < count; index++) {
    number = has(c, 3) ? integer(&c->in[3], index) : index;
    number += number < 0 ? in->rank : 0;
    REQUIRE(number >= 0 && number < in->rank);
    before[number] = integer(&c->in[1], index);
    REQUIRE(before[number] >= -in->shape[number] && before[number] <= out->shape[number]);
  }
  for (axis = 0; axis < in->rank; axis++)
    REQUIRE(in->shape[axis] > 0 || !out->count || (!is_tile && is_text(c, "mode", "constant", "constant")));
  for (index = 0; index < out->count; index++) {
    for (axis = 0, from = 0; axis < in->rank && from >= 0; axis++) {
      int64_t at = position[axis] - before[axis];
      at = is_tile ? at % in->shape[axis] : padded_index(c, at, in->shape[axis]);
      from = at < 0 ? -1 : from * in->shape[axis] + at;
    }
    if (from >= 0) memmove(out->data + (size_t)index * size, in->data + (size_t)from * size, size);
    else if (has(c, 2)) memmove(out->data + (size_t)index * size, c->in[2].data, size);
    else memset(out->data + (size_t)index * size, 0, size);
    for (axis = in->rank; axis-- > 0 && ++position[axis] >= out->shape[axis];) position[axis] = 0;
  }
  return 0;
}

/* Shape, Size. */
int run_shape(context *c) {
  int64_t rank = c->in[0].rank, start = int_of(c, "start", 0), index;
  start += start < 0 ? rank : 0;
  start = start < 0 ? 0 : start;
  if (!strcmp(c->type, "Size")) {
    REQUIRE(c->out[0].count == 1);
    if (!c->is_check) set_integer(&c->out[0], 0, c->in[0].count);
    return 0;
  }
  REQUIRE(start <= rank && c->out[0].count <= rank - start);
  for (index = 0; index < c->out[0].count && !c->is_check; index++)
    set_integer(&c->out[0], index, c->in[0].shape[start + index]);
  return 0;
}

/* ConstantOfShape. */
int run_fill(context *c) {
  int64_t index;
  for (index = 0; index < c->out[0].count && !c->is_check; index++) {
    if (c->out[0].type == FLOAT) floats(&c->out[0])[index] = float_of(c, "value", 0);
    else set_integer(&c->out[0], index, int_of(c, "value", 0));
  }
  return 0;
}

/* Trilu. */
int run_triangle(context *c) {
  const opsetta_tensor *in = &c->in[0];
  int64_t rows, columns, index, diagonal;
  size_t size = item_size(in->type);
  int is_upper = int_of(c, "upper", 1) != 0;
  REQUIRE(in->rank >= 2 && same_shape(in, &c->out[0]) && (!has(c, 1) || c->in[1].count == 1));
  if (c->is_check) return 0;
  rows = in->shape[in->rank - 2];
  columns = in->shape[in->rank - 1];
  diagonal = has(c, 1) ? integer(&c->in[1], 0) : 0;
  diagonal = diagonal > columns ? columns : diagonal < -rows ? -rows : diagonal;
  for (index = 0; index < in->count; index++) {
    int64_t distance = index % columns - index / columns % rows - diagonal;
    uint8_t *to = c->out[0].data + (size_t)index * size;
    if (is_upper ? distance < 0 : distance > 0) memset(to, 0, size);
    else memmove(to, in->data + (size_t)index * size, size);
  }
  return 0;
}

int run_one_hot(context *c) {
  const opsetta_tensor *out = &c->out[0];
  int64_t axis = axis_of(c, "axis", -1, out->rank), outer, depth, inner, row, column, index;
  size_t size = item_size(out->type);
  REQUIRE(axis >= 0 && c->in[2].count == 2);
  outer = span(out, 0, axis);
  depth = out->shape[axis];
  inner = span(out, axis + 1, out->rank);
  REQUIRE(c->in[0].count == outer * inner);
  for (row = 0; row < outer && !c->is_check; row++)
    for (index = 0; index < depth; index++)
      for (column = 0; column < inner; column++) {
        int64_t number = integer(&c->in[0], row * inner + column);
        int is_on = number == index || number + depth == index;
        memmove(out->data + (size_t)((row * depth + index) * inner + column) * size, c->in[2].data + (is_on ? size : 0), size);
      }
  return 0;
}
