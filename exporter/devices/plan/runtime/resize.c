/* Resize: each element is a weighted sum over up to four neighbours along each axis. */
#include "kernels.h"

typedef struct {
  int count;
  int64_t index[4];
  float weight[4];
} taps;

static double source_position(const context *c, int64_t at, int64_t in, int64_t out, double scale) {
  if (is_text(c, "coordinate_transformation_mode", "align_corners", "half_pixel"))
    return out == 1 ? 0 : (double)(at * (in - 1)) / ((double)in * scale - 1);
  if (is_text(c, "coordinate_transformation_mode", "asymmetric", "half_pixel")) return (double)at / scale;
  if (is_text(c, "coordinate_transformation_mode", "pytorch_half_pixel", "half_pixel") && out == 1) return 0;
  return ((double)at + 0.5) / scale - 0.5;
}

static void find_taps(const context *c, double x, int64_t size, taps *t) {
  double base = floor(x), part = x - base, sum = 0, a = float_of(c, "cubic_coeff_a", -0.75);
  int64_t first = (int64_t)base;
  int number, is_cubic = is_text(c, "mode", "cubic", "nearest");
  if (is_text(c, "mode", "nearest", "nearest")) {
    const char *mode = "nearest_mode", *otherwise = "round_prefer_floor";
    double nearest = is_text(c, mode, "floor", otherwise)  ? base
                     : is_text(c, mode, "ceil", otherwise) ? ceil(x)
                     : is_text(c, mode, "round_prefer_ceil", otherwise) ? floor(x + 0.5) : ceil(x - 0.5);
    t->count = 1;
    t->index[0] = (int64_t)nearest;
    t->weight[0] = 1;
  } else {
    t->count = is_cubic ? 4 : 2;
    for (number = 0; number < t->count; number++) {
      double s = is_cubic ? fabs(part + 1 - number) : fabs(part - number), weight = 1 - s;
      if (is_cubic) weight = s <= 1 ? ((a + 2) * s - (a + 3)) * s * s + 1 : ((a * s - 5 * a) * s + 8 * a) * s - 4 * a;
      t->index[number] = first + number - is_cubic;
      if (is_cubic && int_of(c, "exclude_outside", 0) && (t->index[number] < 0 || t->index[number] >= size)) weight = 0;
      t->weight[number] = (float)weight;
      sum += weight;
    }
    for (number = 0; number < t->count && is_cubic; number++) t->weight[number] /= (float)sum;
  }
  for (number = 0; number < t->count; number++)
    t->index[number] = t->index[number] < 0 ? 0 : t->index[number] >= size ? size - 1 : t->index[number];
}

int run_resize(context *c) {
  const opsetta_tensor *in = &c->in[0], *out = &c->out[0];
  int64_t position[OPSETTA_RANK] = {0}, index;
  double scale[OPSETTA_RANK];
  uint32_t axis;
  taps t[OPSETTA_RANK];
  REQUIRE(in->rank == out->rank && (in->count > 0 || !out->count) && in->rank > 0);
  REQUIRE(!has(c, 2) || c->in[2].count == 0 || c->in[2].count == in->rank);
  if (c->is_check || !out->count) return 0;
  for (axis = 0; axis < in->rank; axis++) {
    scale[axis] = (double)out->shape[axis] / (double)in->shape[axis];
    if (has(c, 2) && c->in[2].count) scale[axis] = floats(&c->in[2])[axis];
    REQUIRE(scale[axis] > 1e-6 && scale[axis] < 1e6);
    find_taps(c, source_position(c, 0, in->shape[axis], out->shape[axis], scale[axis]), in->shape[axis], &t[axis]);
  }
  for (index = 0; index < out->count; index++) {
    int number[OPSETTA_RANK] = {0};
    float total = 0;
    do {
      float weight = 1;
      int64_t from = 0;
      for (axis = 0; axis < in->rank; axis++) {
        weight *= t[axis].weight[number[axis]];
        from = from * in->shape[axis] + t[axis].index[number[axis]];
      }
      if (weight != 0) total += weight * floats(in)[from];
      for (axis = in->rank; axis-- > 0 && ++number[axis] >= t[axis].count;) number[axis] = 0;
    } while (axis < in->rank);
    floats(out)[index] = total;
    for (axis = in->rank; axis-- > 0;) {
      int is_end = ++position[axis] >= out->shape[axis];
      if (is_end) position[axis] = 0;
      find_taps(c, source_position(c, position[axis], in->shape[axis], out->shape[axis], scale[axis]), in->shape[axis], &t[axis]);
      if (!is_end) break;
    }
  }
  return 0;
}
