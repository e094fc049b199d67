/* Operators that combine the elements of rows: normalizations, reductions, and searches. */
#include "kernels.h"

/* Lines of `size` elements, which are `inner` apart. */
typedef struct {
  int64_t count, size, inner;
} lines;

/* Reads numbers: the lines outside, the elements of each line, and the lines next to one another. */
static int read_lines(const context *c, const opsetta_tensor *tensor, lines *l) {
  l->size = c->numbers[1];
  l->inner = c->numbers[2];
  l->count = size_product(c->numbers[0], l->inner);
  REQUIRE(l->inner >= 0 && size_product(l->count, l->size) == tensor->count);
  return 0;
}

static int64_t start_of(const lines *l, int64_t line, int64_t size) { return line / l->inner * size * l->inner + line % l->inner; }

int run_softmax(context *c) {
  int is_log = !strcmp(c->type, "LogSoftmax");
  int64_t line, index;
  lines l;
  REQUIRE(c->in[0].count == c->out[0].count);
  if (read_lines(c, &c->in[0], &l)) return -1;
  for (line = 0; line < l.count && !c->is_check; line++) {
    const int64_t start = start_of(&l, line, l.size), step = l.inner;
    const float *x = floats(&c->in[0]) + start;
    float *y = floats(&c->out[0]) + start, most = -INFINITY, total = 0;
    for (index = 0; index < l.size; index++) most = x[index * step] > most ? x[index * step] : most;
    if (step == 1)
      INDEPENDENT for (index = 0; index < l.size; index++) y[index] = is_log ? x[index] - most : exponential(x[index] - most);
    else
      for (index = 0; index < l.size; index++)
        y[index * step] = is_log ? x[index * step] - most : exponential(x[index * step] - most);
    for (index = 0; index < l.size; index++) total += is_log ? exponential(y[index * step]) : y[index * step];
    total = is_log ? logf(total) : 1.0f / total;
    for (index = 0; index < l.size; index++) y[index * step] = is_log ? y[index * step] - total : y[index * step] * total;
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

/* All normalizations, whose operands are the source, scale, and optionally bias, mean and variance. Numbers: rows, the
   elements of each, the neighbouring elements that share a scale, whether there is a mean, epsilon. */
int run_normalize(context *c) {
  const int64_t rows = c->numbers[0], size = c->numbers[1], inner = c->numbers[2], scales = c->in[1].count;
  const float epsilon = (float)real_number(c, 4), *scale = floats(&c->in[1]), *bias = has(c, 2) ? floats(&c->in[2]) : NULL;
  int64_t row, start, index;
  float mean, factor;
  REQUIRE(size_product(rows, size) == c->in[0].count && c->in[0].count == c->out[0].count && inner > 0 && size % inner == 0);
  REQUIRE((scales > 0 || !c->in[0].count) && (!bias || c->in[2].count == scales));
  REQUIRE(has(c, 3) == has(c, 4) && (!has(c, 3) || (c->in[3].count == scales && c->in[4].count == scales)));
  for (row = 0; row < rows && size && !c->is_check; row++) {
    const float *x = floats(&c->in[0]) + row * size;
    float *y = floats(&c->out[0]) + row * size;
    if (has(c, 3)) mean = floats(&c->in[3])[row % scales], factor = 1.0f / sqrtf(floats(&c->in[4])[row % scales] + epsilon);
    else moments(x, size, epsilon, c->numbers[3] != 0, &mean, &factor);
    if (inner == 1 && scales == size)
      INDEPENDENT for (index = 0; index < size; index++) y[index] = (x[index] - mean) * factor * scale[index] + (bias ? bias[index] : 0);
    else
      for (start = 0; start < size; start += inner) {
        const int64_t channel = (row * size + start) / inner % scales;
        const float own = factor * scale[channel], shift = bias ? bias[channel] : 0;
        INDEPENDENT for (index = start; index < start + inner; index++) y[index] = (x[index] - mean) * own + shift;
      }
  }
  return 0;
}

typedef struct {
  double real;
  int64_t whole;
} total;

enum { SUM, MAX, MIN, PROD };                     /* how elements are combined */
enum { PLAIN, ABSOLUTE, SQUARE, EXPONENTIAL };    /* what is combined */
enum { NOTHING, MEAN, ROOT, LOGARITHM };          /* what follows */

/* Combines the elements that a walk visits from `start` on; exponentials are relative to `most`. */
static total reduce_all(const opsetta_tensor *in, int64_t combination, int64_t operand, walk w, int64_t start, double most) {
  static const total FIRST[] = {{0, 0}, {-INFINITY, INT64_MIN}, {INFINITY, INT64_MAX}, {1, 1}};
  total sum = FIRST[combination];
  int64_t index;
  while (next_row(&w)) {
    const int64_t step = w.step[0], at = start + w.offset[0];
    if (in->type == FLOAT && combination == SUM && operand == PLAIN)
      for (index = 0; index < w.length; index++) sum.real += floats(in)[at + index * step];
    else if (in->type == FLOAT)
      for (index = 0; index < w.length; index++) {
        double x = floats(in)[at + index * step];
        x = operand == ABSOLUTE ? fabs(x) : operand == SQUARE ? x * x : operand == EXPONENTIAL ? exp(x - most) : x;
        if (combination == SUM) sum.real += x;
        else if (combination == PROD) sum.real *= x;
        else if (x != x || (combination == MAX ? x > sum.real : x < sum.real)) sum.real = x;
      }
    else
      for (index = 0; index < w.length; index++) {
        int64_t n = integer(in, at + index * step);
        uint64_t x = (uint64_t)n;
        x = operand == SQUARE ? x * x : operand == ABSOLUTE && n < 0 ? 0 - x : x;
        if (combination == SUM) sum.whole = (int64_t)((uint64_t)sum.whole + x);
        else if (combination == PROD) sum.whole = (int64_t)((uint64_t)sum.whole * x);
        else if (combination == MAX ? n > sum.whole : n < sum.whole) sum.whole = n;
      }
  }
  return sum;
}

/* Numbers: combination, operand, what follows; a walk over the result and the first elements that it reads, and a walk
   over what is reduced from there on. */
int run_reduce(context *c) {
  const opsetta_tensor *in = &c->in[0], *out = &c->out[0];
  const int64_t combination = c->numbers[0], operand = c->numbers[1], last = c->numbers[2];
  int64_t at = 3, index, axis, limits[] = {out->count, in->count};
  walk outer, inner;
  REQUIRE(combination >= 0 && combination <= PROD && operand >= 0 && operand <= EXPONENTIAL && (in->type == FLOAT || last <= MEAN));
  if (read_walk(c, &at, &outer, 2, limits) || read_walk(c, &at, &inner, 1, limits + 1)) return -1;
  limits[0] = outer.offset[1];
  for (axis = 0; axis < MOST_AXES; axis++) {
    REQUIRE(outer.steps[1][axis] >= 0 && inner.steps[0][axis] >= 0);
    limits[0] += outer.shape[axis] ? (outer.shape[axis] - 1) * outer.steps[1][axis] : 0;
    limits[0] += inner.shape[axis] ? (inner.shape[axis] - 1) * inner.steps[0][axis] : 0;
  }
  REQUIRE(inner.count > 0 && inner.offset[0] == 0 && limits[0] < in->count);
  while (!c->is_check && next_row(&outer))
    for (index = 0; index < outer.length; index++) {
      int64_t start = outer.offset[1] + index * outer.step[1], to = outer.offset[0] + index * outer.step[0];
      double most = operand == EXPONENTIAL ? reduce_all(in, MAX, PLAIN, inner, start, 0).real : 0;
      total sum;
      most = most - most == 0 ? most : 0;
      sum = reduce_all(in, combination, operand, inner, start, most);
      if (last == MEAN) sum.real /= (double)inner.count, sum.whole /= inner.count;
      if (last == ROOT) sum.real = sqrt(sum.real);
      if (last == LOGARITHM) sum.real = log(sum.real) + most;
      if (out->type == FLOAT) floats(out)[to] = (float)sum.real;
      else set_integer(out, to, sum.whole);
    }
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

/* Finds one element after another, so that no other memory is needed; ArgMax and ArgMin need the indices of one. Numbers:
   those of lines, how many elements, whether they ascend, whether the last of equal ones comes first. */
int run_top_k(context *c) {
  const opsetta_tensor *in = &c->in[0], *values = &c->out[0], *indices = &c->out[1];
  const int64_t count = c->numbers[3];
  const int is_ascending = c->numbers[4] != 0, is_last = c->numbers[5] != 0;
  const size_t item = item_size(in->type);
  int64_t line, index, rank;
  lines l;
  if (read_lines(c, in, &l)) return -1;
  REQUIRE(indices->count == size_product(l.count, count) && count <= l.size && (!values->memory || values->count == indices->count));
  for (line = 0; line < l.count && !c->is_check; line++) {
    int64_t start = start_of(&l, line, l.size), last = -1, to = start_of(&l, line, count);
    for (rank = 0; rank < count; rank++, to += l.inner) {
      int64_t best = -1;
      for (index = start; index < start + l.size * l.inner; index += l.inner)
        if ((last < 0 || is_before(in, last, index, is_ascending, is_last)) && index != last &&
            (best < 0 || is_before(in, index, best, is_ascending, is_last)))
          best = index;
      REQUIRE(best >= 0);
      last = best;
      if (values->memory) memmove(values->data + (size_t)to * item, in->data + (size_t)best * item, item);
      set_integer(indices, to, (best - start) / l.inner);
    }
  }
  return 0;
}
