/* Operators that combine the elements of rows: normalizations, reductions, and searches. */
#include "kernels.h"

int run_softmax(context *c) {
  int64_t axis = axis_of(c, "axis", -1, c->in[0].rank), outer, size, inner, row, column, index;
  int is_log = !strcmp(c->type, "LogSoftmax");
  REQUIRE(axis >= 0 && same_shape(&c->in[0], &c->out[0]));
  if (c->is_check) return 0;
  outer = span(&c->in[0], 0, axis);
  size = c->in[0].shape[axis];
  inner = span(&c->in[0], axis + 1, c->in[0].rank);
  for (row = 0; row < outer; row++)
    for (column = 0; column < inner; column++) {
      const float *x = floats(&c->in[0]) + row * size * inner + column;
      float *y = floats(&c->out[0]) + row * size * inner + column, most = -INFINITY, total = 0;
      for (index = 0; index < size; index++) most = x[index * inner] > most ? x[index * inner] : most;
      if (inner == 1)
        INDEPENDENT for (index = 0; index < size; index++) y[index] = is_log ? x[index] - most : exponential(x[index] - most);
      else
        for (index = 0; index < size; index++)
          y[index * inner] = is_log ? x[index * inner] - most : exponential(x[index * inner] - most);
      for (index = 0; index < size; index++) total += is_log ? exponential(y[index * inner]) : y[index * inner];
      total = is_log ? logf(total) : 1.0f / total;
      for (index = 0; index < size; index++) y[index * inner] = is_log ? y[index * inner] - total : y[index * inner] * total;
    }
  return 0;
}

/* Mean (0 without one) and the reciprocal of the standard deviation. */
static void moments(const float *x, int64_t size, float epsilon, int has_mean, float *mean, float *factor) {
  double total = 0, squares = 0;
  int64_t index;
  if (has_mean)
    for (index = 0; index < size; index++) total += x[index];
  *mean = (float)(total / (double)size);
  for (index = 0; index < size; index++) {
    float shifted = x[index] - *mean;
    squares += shifted * shifted;
  }
  *factor = (float)(1.0 / sqrt(squares / (double)size + epsilon));
}

/* LayerNormalization and RMSNormalization. */
int run_layer_normalization(context *c) {
  int64_t axis = axis_of(c, "axis", -1, c->in[0].rank), outer, size, row, index;
  float epsilon = float_of(c, "epsilon", 1e-5), mean, factor;
  REQUIRE(axis >= 0 && same_shape(&c->in[0], &c->out[0]));
  outer = span(&c->in[0], 0, axis);
  size = span(&c->in[0], axis, c->in[0].rank);
  REQUIRE(c->in[1].count == size && (!has(c, 2) || c->in[2].count == size));
  for (row = 0; row < outer && !c->is_check; row++) {
    const float *x = floats(&c->in[0]) + row * size, *scale = floats(&c->in[1]);
    float *y = floats(&c->out[0]) + row * size;
    moments(x, size, epsilon, !strcmp(c->type, "LayerNormalization"), &mean, &factor);
    INDEPENDENT for (index = 0; index < size; index++) y[index] = (x[index] - mean) * factor * scale[index];
    for (index = 0; index < size && has(c, 2); index++) y[index] += floats(&c->in[2])[index];
  }
  return 0;
}

/* GroupNormalization and InstanceNormalization, whose groups are channels. Scales are by channel or by group. */
int run_group_normalization(context *c) {
  int64_t channels = c->in[0].shape[1], groups = int_of(c, "num_groups", channels), size, row, index;
  float epsilon = float_of(c, "epsilon", 1e-5), mean, factor;
  REQUIRE(c->in[0].rank >= 2 && same_shape(&c->in[0], &c->out[0]) && groups > 0 && channels % groups == 0);
  REQUIRE(c->in[1].count == channels || c->in[1].count == groups);
  REQUIRE(c->in[2].count == c->in[1].count);
  if (c->is_check || !c->in[0].count) return 0;
  size = c->in[0].count / c->in[0].shape[0] / groups;
  for (row = 0; row < c->in[0].shape[0] * groups; row++) {
    const float *x = floats(&c->in[0]) + row * size;
    float *y = floats(&c->out[0]) + row * size;
    int64_t inner = size / (channels / groups), per_group = c->in[1].count / groups;
    moments(x, size, epsilon, 1, &mean, &factor);
    for (index = 0; index < size; index++) {
      int64_t scale = row % groups * per_group + (per_group > 1 ? index / inner : 0);
      y[index] = (x[index] - mean) * factor * floats(&c->in[1])[scale] + floats(&c->in[2])[scale];
    }
  }
  return 0;
}

int run_batch_normalization(context *c) {
  const float *x = floats(&c->in[0]);
  float epsilon = float_of(c, "epsilon", 1e-5), *y = floats(&c->out[0]);
  int64_t channels = c->in[0].rank > 1 ? c->in[0].shape[1] : 1, inner = span(&c->in[0], 2, c->in[0].rank), row, index;
  uint32_t number;
  REQUIRE(c->in[0].rank >= 1 && same_shape(&c->in[0], &c->out[0]));
  for (number = 1; number < 5; number++) REQUIRE(c->in[number].count == channels);
  if (c->is_check || !c->in[0].count) return 0;
  for (row = 0; row < c->in[0].shape[0] * channels; row++, x += inner, y += inner) {
    int64_t channel = row % channels;
    float factor = floats(&c->in[1])[channel] / sqrtf(floats(&c->in[4])[channel] + epsilon);
    float mean = floats(&c->in[3])[channel], bias = floats(&c->in[2])[channel];
    INDEPENDENT for (index = 0; index < inner; index++) y[index] = (x[index] - mean) * factor + bias;
  }
  return 0;
}

typedef struct {
  double real;
  int64_t whole;
} total;

/* Adds `count` elements of a row to a total; exponentials are relative to `most`. */
static void reduce_row(const char *type, const opsetta_tensor *in, int64_t at, int64_t step, int64_t count, total *sum,
                       double most) {
  int64_t index;
  for (index = 0; index < count; index++, at += step) {
    double x = in->type == FLOAT ? floats(in)[at] : 0;
    int64_t n = in->type == FLOAT ? 0 : integer(in, at);
    if (!strcmp(type, "Max")) {
      sum->real = x > sum->real || x != x ? x : sum->real;
      sum->whole = n > sum->whole ? n : sum->whole;
    } else if (!strcmp(type, "Min")) {
      sum->real = x < sum->real || x != x ? x : sum->real;
      sum->whole = n < sum->whole ? n : sum->whole;
    } else if (!strcmp(type, "Prod")) {
      sum->real *= x;
      sum->whole = (int64_t)((uint64_t)sum->whole * (uint64_t)n);
    } else {
      if (!strcmp(type, "L1")) x = fabs(x), n = n < 0 ? (int64_t)(0 - (uint64_t)n) : n;
      else if (!strcmp(type, "L2") || !strcmp(type, "SumSquare")) x *= x, n = (int64_t)((uint64_t)n * (uint64_t)n);
      else if (!strcmp(type, "LogSumExp")) x = exp(x - most);
      sum->real += x;
      sum->whole = (int64_t)((uint64_t)sum->whole + (uint64_t)n);
    }
  }
}

static total reduce_all(const opsetta_tensor *in, const char *type, walk w, int64_t start, double most) {
  total sum = {0, 0};
  if (!strcmp(type, "Max")) sum.real = -INFINITY, sum.whole = INT64_MIN;
  if (!strcmp(type, "Min")) sum.real = INFINITY, sum.whole = INT64_MAX;
  if (!strcmp(type, "Prod")) sum.real = 1, sum.whole = 1;
  do {
    int64_t step = w.steps[0][w.rank - 1], index, at = start + w.offset[0];
    if ((!strcmp(type, "Sum") || !strcmp(type, "Mean")) && in->type == FLOAT)
      for (index = 0; index < w.length; index++) sum.real += floats(in)[at + index * step];
    else reduce_row(type, in, at, step, w.length, &sum, most);
  } while (next_row(&w));
  return sum;
}

int run_reduce(context *c) {
  const opsetta_tensor *in = &c->in[0], *out = &c->out[0];
  opsetta_tensor kept = *in, reduced = *in;
  const char *type = c->type + strlen("Reduce");
  int64_t steps[OPSETTA_RANK], index, count = has(c, 1) ? c->in[1].count : length_of(c, "axes"), at = 0, number;
  int is_reduced[OPSETTA_RANK] = {0};
  uint32_t axis;
  walk outer, inner;
  if (c->is_check && has(c, 1)) return 0;
  for (axis = 0; axis < in->rank; axis++) is_reduced[axis] = count <= 0 && !int_of(c, "noop_with_empty_axes", 0);
  for (index = 0; index < count; index++) {
    number = has(c, 1) ? integer(&c->in[1], index) : item_of(c, "axes", index, 0);
    number += number < 0 ? in->rank : 0;
    REQUIRE(number >= 0 && number < in->rank);
    is_reduced[number] = 1;
  }
  for (axis = 0; axis < in->rank; axis++) {
    steps[axis] = span(in, axis + 1, in->rank);
    *(is_reduced[axis] ? &kept.shape[axis] : &reduced.shape[axis]) = 1;
  }
  kept.count = span(&kept, 0, kept.rank);
  reduced.count = span(&reduced, 0, reduced.rank);
  REQUIRE(kept.count == out->count);
  if (c->is_check || !out->count) return 0;
  REQUIRE(reduced.count > 0 || (strcmp(type, "Max") && strcmp(type, "Min")));
  start_walk(&outer, &kept);
  add_steps(&outer, 0, steps);
  start_walk(&inner, &reduced);
  add_steps(&inner, 0, steps);
  join_axes(&inner);
  do {
    for (index = 0; index < outer.length; index++, at++) {
      int64_t start = outer.offset[0] + index * outer.steps[0][outer.rank - 1];
      double most = strcmp(type, "LogSumExp") ? 0 : reduce_all(in, "Max", inner, start, 0).real;
      total sum = {0, 0};
      if (reduced.count) sum = reduce_all(in, type, inner, start, most - most == 0 ? most : 0);
      else if (!strcmp(type, "Prod")) sum.real = 1, sum.whole = 1;
      if (!strcmp(type, "Mean")) sum.real /= (double)reduced.count, sum.whole /= reduced.count ? reduced.count : 1;
      if (!strcmp(type, "L2")) sum.real = sqrt(sum.real);
      if (!strncmp(type, "Log", 3)) sum.real = log(sum.real) + (most - most == 0 ? most : 0);
      if (out->type == FLOAT) floats(out)[at] = (float)sum.real;
      else set_integer(out, at, sum.whole);
    }
  } while (next_row(&outer));
  return 0;
}

/* Whether element i comes before element j in descending (or ascending) order; equal ones keep theirs. */
static int is_before(const opsetta_tensor *tensor, int64_t i, int64_t j, int is_ascending, int is_last) {
  int is_more, is_less;
  if (tensor->type == FLOAT) {
    float a = floats(tensor)[i], b = floats(tensor)[j];
    is_more = a > b || (a != a && b == b); /* NaN is the largest number, as in PyTorch */
    is_less = a < b || (a == a && b != b);
  } else {
    is_more = integer(tensor, i) > integer(tensor, j);
    is_less = integer(tensor, i) < integer(tensor, j);
  }
  return is_ascending ? is_less || (!is_more && (is_last ? i > j : i < j))
                      : is_more || (!is_less && (is_last ? i > j : i < j));
}

/* ArgMax, ArgMin. */
int run_arg(context *c) {
  int64_t axis = axis_of(c, "axis", 0, c->in[0].rank), outer, size, inner, row, column, index, at = 0;
  int is_last = int_of(c, "select_last_index", 0) != 0, is_ascending = !strcmp(c->type, "ArgMin");
  REQUIRE(axis >= 0);
  outer = span(&c->in[0], 0, axis);
  size = c->in[0].shape[axis];
  inner = span(&c->in[0], axis + 1, c->in[0].rank);
  REQUIRE(c->out[0].count == outer * inner && size > 0);
  for (row = 0; row < outer && !c->is_check; row++)
    for (column = 0; column < inner; column++, at++) {
      int64_t start = row * size * inner + column, best = 0;
      for (index = 1; index < size; index++)
        if (is_before(&c->in[0], start + index * inner, start + best * inner, is_ascending, is_last)) best = index;
      set_integer(&c->out[0], at, best);
    }
  return 0;
}

/* Finds one element after another, so that no other memory is needed. */
int run_top_k(context *c) {
  const opsetta_tensor *in = &c->in[0], *values = &c->out[0], *indices = &c->out[1];
  int64_t axis = axis_of(c, "axis", -1, in->rank), outer, size, inner, count, row, column, index, rank;
  int is_ascending = !int_of(c, "largest", 1);
  size_t item = item_size(in->type);
  REQUIRE(axis >= 0 && values->rank == in->rank && same_shape(values, indices));
  outer = span(in, 0, axis);
  size = in->shape[axis];
  inner = span(in, axis + 1, in->rank);
  count = values->shape[axis];
  REQUIRE(values->count == outer * count * inner && count <= size);
  for (row = 0; row < outer && !c->is_check; row++)
    for (column = 0; column < inner; column++) {
      int64_t start = row * size * inner + column, last = -1;
      for (rank = 0; rank < count; rank++) {
        int64_t best = -1, at = (row * count + rank) * inner + column;
        for (index = start; index < start + size * inner; index += inner)
          if ((last < 0 || is_before(in, last, index, is_ascending, 0)) && index != last &&
              (best < 0 || is_before(in, index, best, is_ascending, 0)))
            best = index;
        REQUIRE(best >= 0);
        last = best;
        memmove(values->data + (size_t)at * item, in->data + (size_t)best * item, item);
        set_integer(indices, at, (best - start) / inner);
      }
    }
  return 0;
}

int run_cumulative_sum(context *c) {
  int64_t axis, outer, size, inner, row, column, index;
  int is_exclusive = int_of(c, "exclusive", 0) != 0, is_reverse = int_of(c, "reverse", 0) != 0;
  REQUIRE(same_shape(&c->in[0], &c->out[0]) && c->in[1].count == 1);
  if (c->is_check) return 0;
  axis = integer(&c->in[1], 0);
  axis += axis < 0 ? c->in[0].rank : 0;
  REQUIRE(axis >= 0 && axis < c->in[0].rank);
  outer = span(&c->in[0], 0, axis);
  size = c->in[0].shape[axis];
  inner = span(&c->in[0], axis + 1, c->in[0].rank);
  for (row = 0; row < outer; row++)
    for (column = 0; column < inner; column++) {
      float sum = 0;
      uint64_t whole = 0;
      for (index = 0; index < size; index++) {
        int64_t at = (row * size + (is_reverse ? size - 1 - index : index)) * inner + column;
        float x = c->in[0].type == FLOAT ? floats(&c->in[0])[at] : 0;
        uint64_t n = c->in[0].type == FLOAT ? 0 : (uint64_t)integer(&c->in[0], at);
        if (!is_exclusive) sum += x, whole += n;
        if (c->in[0].type == FLOAT) floats(&c->out[0])[at] = sum;
        else set_integer(&c->out[0], at, (int64_t)whole);
        if (is_exclusive) sum += x, whole += n;
      }
    }
  return 0;
}
