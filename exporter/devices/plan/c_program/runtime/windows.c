/* Convolutions and pooling over up to three dimensions; missing ones have size 1. */
#include "kernels.h"

/* Reads the numbers from `at` on, in the order of a window. */
int read_window(const context *c, int64_t at, window *w) {
  int64_t index;
  memcpy(w, c->numbers + at, sizeof *w);
  /* Sizes are 0 or more, steps 1 or more; no product of two overflows. */
  for (index = 0; index < 21; index++) {
    const int64_t number = c->numbers[at + index], least = index < 6 ? 0 : index / 3 == 5 ? -INT32_MAX : 1;
    REQUIRE(number >= least && number <= INT32_MAX);
  }
  return 0;
}

int64_t volume(const int64_t *sizes) { return size_product(size_product(sizes[0], sizes[1]), sizes[2]); }

int64_t source_of(const window *w, int axis, int64_t result, int64_t element) {
  const int64_t at = result * w->stride[axis] - w->pad[axis] + element * w->dilation[axis], spread = w->spread[axis];
  if (at < 0 || at >= w->in[axis] * spread) return -1;
  return spread == 1 ? at : at % spread ? -1 : at / spread;
}

/* Adds convolutions of float32 to the result, or sets those of 8-bit integers. Numbers: batch, groups, channels and filters
   of each group, and those of the window. */
int run_conv(context *c) {
  const int64_t *n = c->numbers, batch = n[0], groups = n[1], channels = n[2], filters = n[3];
  const opsetta_tensor *weight = &c->in[1], *out = &c->out[0];
  const int is_float = weight->type == FLOAT;
  int64_t number, f, d, inner, pixels, size, index;
  window w;
  product s;
  memset(&s, 0, sizeof s);
  for (index = 0; index < 4; index++) REQUIRE(n[index] >= 0 && n[index] <= INT32_MAX);
  if (read_window(c, 4, &w) || (!is_float && check_scales(c, groups * filters))) return -1;
  inner = volume(w.in);
  pixels = volume(w.out);
  size = volume(w.kernel);
  REQUIRE(size_product(size_product(batch, groups), size_product(channels, inner)) == c->in[0].count);
  REQUIRE(size_product(size_product(groups, filters), size_product(channels, size)) == weight->count);
  REQUIRE(size_product(size_product(batch, groups), size_product(filters, pixels)) == out->count && (is_float || channels > 0));
  if (c->is_check || !out->count || !channels) return 0;
  s.c = c, s.m = filters, s.n = pixels, s.k = channels * size, s.y_row = pixels, s.is_by_row = 1;
  s.a.tensor = weight, s.a.row = s.k, s.a.column = 1, s.a.zeros = has(c, 4) ? &c->in[4] : NULL;
  s.b.tensor = &c->in[0], s.b.row = inner, s.b.column = 1, s.b.zeros = has(c, 3) ? &c->in[3] : NULL;
  /* Of a kernel of one element the patches are the image. */
  if (size != 1 || inner != pixels || volume(w.stride) != 1 || w.pad[0] || w.pad[1] || w.pad[2]) s.b.patches = &w;
  for (number = 0; number < batch * groups; number++) {
    s.filter = s.a.zero = number % groups * filters;
    s.a.at = s.filter * s.k;
    s.b.at = number * channels * inner;
    s.y_at = number * filters * pixels;
    s.y = is_float ? floats(out) + s.y_at : NULL;
    if (filters >= 4 || !is_float || !fits_plane(&w)) multiply(&s);
    else
      for (f = 0; f < filters; f++)
        for (d = 0; d < channels; d++)
          combine_plane(&w, floats(&c->in[0]) + s.b.at + d * inner, floats(weight) + s.a.at + (f * channels + d) * size, 0, s.y + f * pixels);
  }
  return 0;
}

/* Combines the elements of one window, one after the other; the first of equal maxima is at `at`. */
static float combine_window(const window *w, const float *image, const int64_t *result, int is_max, int64_t *at) {
  float total = is_max ? -INFINITY : 0;
  int64_t x, y, z;
  *at = 0;
  for (z = 0; z < w->kernel[0]; z++)
    for (y = 0; y < w->kernel[1]; y++)
      for (x = 0; x < w->kernel[2]; x++) {
        const int64_t p = source_of(w, 0, result[0], z), r = source_of(w, 1, result[1], y), q = source_of(w, 2, result[2], x);
        const int64_t source = (p * w->in[1] + r) * w->in[2] + q;
        if (p < 0 || r < 0 || q < 0 || (is_max && !(image[source] > total))) continue;
        total = is_max ? image[source] : total + image[source];
        *at = source;
      }
  return total;
}

/* MaxPool and AveragePool. Numbers: the planes, those of the window, whether indices are by columns; and for averages the
   elements of each window along each axis. */
int run_pool(context *c) {
  const opsetta_tensor *indices = c->node->out_count > 1 && c->out[1].memory != OMITTED ? &c->out[1] : NULL;
  const int64_t *n = c->numbers, planes = n[0], *counts = n + 23;
  const int is_max = !strcmp(c->type, "MaxPool");
  int64_t plane, inner, pixels, size, number, at = 0;
  window w;
  if (read_window(c, 1, &w)) return -1;
  inner = volume(w.in);
  pixels = volume(w.out);
  size = volume(w.kernel);
  REQUIRE(size_product(planes, inner) == c->in[0].count && size_product(planes, pixels) == c->out[0].count && size > 0 && size <= 1 << 24);
  REQUIRE((!indices || indices->count == c->out[0].count) && (is_max || c->node->number_count == 23 + w.out[0] + w.out[1] + w.out[2]));
  for (plane = 0; plane < planes && pixels && !c->is_check; plane++) {
    const float *image = floats(&c->in[0]) + plane * inner;
    float *y = floats(&c->out[0]) + plane * pixels;
    const int is_band = !indices && fits_plane(&w);
    if (is_band) combine_plane(&w, image, NULL, is_max, y);
    for (number = 0; number < pixels && !(is_band && is_max); number++) {
      const int64_t result[] = {number / w.out[2] / w.out[1], number / w.out[2] % w.out[1], number % w.out[2]};
      if (!is_band) y[number] = combine_window(&w, image, result, is_max, &at);
      if (!is_max) y[number] /= (float)(counts[result[0]] * counts[w.out[0] + result[1]] * counts[w.out[0] + w.out[1] + result[2]]);
      if (!indices) continue;
      if (n[22]) at = (at % w.in[2] * w.in[1] + at / w.in[2] % w.in[1]) * w.in[0] + at / w.in[2] / w.in[1];
      set_integer(indices, plane * pixels + number, plane * inner + at);
    }
  }
  return 0;
}
