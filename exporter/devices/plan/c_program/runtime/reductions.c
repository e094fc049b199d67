/* Operators that combine elements: reductions and searches. */
#include "kernels.h"

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
  int order;
  if (tensor->type == FLOAT) {
    const float a = floats(tensor)[i], b = floats(tensor)[j];
    order = a != a ? b == b : b != b ? -1 : (a > b) - (a < b); /* NaN is the largest number, as in PyTorch */
  } else
    order = (integer(tensor, i) > integer(tensor, j)) - (integer(tensor, i) < integer(tensor, j));
  if (order) return is_ascending ? order < 0 : order > 0;
  return is_last ? i > j : i < j;
}

/* Finds one element after another, so that no other memory is needed; ArgMax and ArgMin need the indices of one. Numbers:
   the lines outside, the elements of each line, the lines next to one another; how many elements, whether they ascend,
   whether the last of equal ones comes first. */
int run_top_k(context *c) {
  const opsetta_tensor *in = &c->in[0], *values = &c->out[0], *indices = &c->out[1];
  const int64_t *n = c->numbers, size = n[1], inner = n[2], count = n[3], lines = size_product(n[0], inner);
  const size_t item = item_size(in->type);
  int64_t line, index, rank;
  REQUIRE(inner >= 0 && size_product(lines, size) == in->count && indices->count == size_product(lines, count));
  REQUIRE(count <= size && (!values->memory || values->count == indices->count));
  for (line = 0; line < lines && !c->is_check; line++) {
    int64_t start = line / inner * size * inner + line % inner, last = -1, to = line / inner * count * inner + line % inner;
    for (rank = 0; rank < count; rank++, to += inner) {
      int64_t best = -1;
      for (index = start; index < start + size * inner; index += inner)
        if ((last < 0 || is_before(in, last, index, n[4] != 0, n[5] != 0)) && index != last &&
            (best < 0 || is_before(in, index, best, n[4] != 0, n[5] != 0)))
          best = index;
      REQUIRE(best >= 0);
      last = best;
      if (values->memory) memmove(values->data + (size_t)to * item, in->data + (size_t)best * item, item);
      set_integer(indices, to, (best - start) / inner);
    }
  }
  return 0;
}
