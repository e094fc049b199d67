/* Convolutions and pooling over up to three dimensions; missing ones have size 1. */
#include "kernels.h"

/* Numbers from `at` on: of each axis the sizes of source, result and window, stride, dilation, and elements before the
   source. */
int read_window(const context *c, int64_t at, window *w) {
  int64_t axis;
  for (axis = 0; axis < 3; axis++) {
    const int64_t *n = c->numbers + at + 6 * axis;
    w->in[axis] = n[0];
    w->out[axis] = n[1];
    w->kernel[axis] = n[2];
    w->stride[axis] = n[3];
    w->dilation[axis] = n[4];
    w->pad[axis] = n[5];
    /* Then no product of two of them overflows. */
    REQUIRE(n[0] >= 0 && n[0] <= INT32_MAX && n[1] >= 0 && n[1] <= INT32_MAX && n[2] > 0 && n[2] <= INT32_MAX);
    REQUIRE(n[3] > 0 && n[3] <= INT32_MAX && n[4] > 0 && n[4] <= INT32_MAX && n[5] <= INT32_MAX && n[5] >= -INT32_MAX);
  }
  return 0;
}

static int64_t volume(const int64_t *sizes) { return size_product(size_product(sizes[0], sizes[1]), sizes[2]); }

void valid_range(const window *w, int64_t offset, int64_t *first, int64_t *last) {
  int64_t low = w->pad[2] - offset, high = w->in[2] - 1 + low, stride = w->stride[2];
  *first = low <= 0 ? 0 : (low + stride - 1) / stride;
  *last = high < 0 ? 0 : high / stride + 1;
  *last = *last < w->out[2] ? *last : w->out[2];
}

/* The elements at one position of the windows of a row of results: those of results `first` to before `last` are at
   `from + index * stride`, and the results at `to + index`. */
typedef struct {
  int64_t y, z, row, plane, offset, first, last, from, to;
} span;

/* Begins with position `element` of the windows. */
static span start_spans(const window *w, int64_t element) {
  span s = {-1, 0, 0, 0, 0, 0, 0, 0, 0};
  s.offset = element % w->kernel[2] * w->dilation[2] - w->pad[2];
  s.row = element / w->kernel[2] % w->kernel[1] * w->dilation[1] - w->pad[1];
  s.plane = element / w->kernel[2] / w->kernel[1] * w->dilation[0] - w->pad[0];
  valid_range(w, s.offset + w->pad[2], &s.first, &s.last);
  return s;
}

static int next_span(const window *w, span *s) {
  while (s->first < s->last) {
    int64_t y, z;
    if (++s->y >= w->out[1]) s->y = 0, s->z++;
    if (s->z >= w->out[0] || !w->out[1]) return 0;
    y = s->y * w->stride[1] + s->row;
    z = s->z * w->stride[0] + s->plane;
    s->from = (z * w->in[1] + y) * w->in[2] + s->offset;
    s->to = (s->z * w->out[1] + s->y) * w->out[2];
    if (y >= 0 && y < w->in[1] && z >= 0 && z < w->in[0]) return 1;
  }
  return 0;
}

/* One channel of a filter: sums of elements of the image, or, transposed, elements that are spread over it. */
static void filter_plane(const window *w, const float *weight, float *image, float *result, int is_transposed) {
  const int64_t size = volume(w->kernel), stride = w->stride[2];
  int64_t element, x;
  for (element = 0; element < size; element++) {
    const float factor = weight[element];
    span s = start_spans(w, element);
    while (next_span(w, &s)) {
      float *from = image + s.from, *to = result + s.to;
      if (is_transposed)
        INDEPENDENT for (x = s.first; x < s.last; x++) from[x * stride] += factor * to[x];
      else if (stride == 1)
        INDEPENDENT for (x = s.first; x < s.last; x++) to[x] += factor * from[x];
      else
        INDEPENDENT for (x = s.first; x < s.last; x++) to[x] += factor * from[x * stride];
    }
  }
}

/* Adds convolutions of float32 to the result, or sets those of 8-bit integers. The source of a transposed one has the
   sizes of the window's results. Numbers: batch, groups, channels and filters of each group, and those of the window. */
int run_conv(context *c) {
  const int64_t *n = c->numbers, batch = n[0], groups = n[1], channels = n[2], filters = n[3];
  const opsetta_tensor *weight = &c->in[1], *out = &c->out[0];
  const int is_transposed = !strcmp(c->type, "ConvTranspose"), is_float = weight->type == FLOAT;
  int64_t number, f, d, inner, pixels, size, index;
  window w;
  product s;
  memset(&s, 0, sizeof s);
  for (index = 0; index < 4; index++) REQUIRE(n[index] >= 0 && n[index] <= INT32_MAX);
  if (read_window(c, 4, &w) || (!is_float && check_scales(c, groups * filters))) return -1;
  inner = volume(is_transposed ? w.out : w.in);
  pixels = volume(is_transposed ? w.in : w.out);
  size = volume(w.kernel);
  REQUIRE(size_product(size_product(batch, groups), size_product(channels, inner)) == c->in[0].count);
  REQUIRE(size_product(size_product(groups, filters), size_product(channels, size)) == weight->count);
  REQUIRE(size_product(size_product(batch, groups), size_product(filters, pixels)) == out->count && (is_float || channels > 0));
  if (c->is_check || !out->count || !channels) return 0;
  s.c = c, s.m = filters, s.n = pixels, s.k = channels * size, s.y_row = pixels, s.is_by_row = 1;
  s.a.tensor = weight, s.a.row = s.k, s.a.column = 1, s.a.zeros = has(c, 4) ? &c->in[4] : NULL;
  s.b.tensor = &c->in[0], s.b.row = inner, s.b.column = 1, s.b.zeros = has(c, 3) ? &c->in[3] : NULL;
  /* Of a kernel of one element the patches are the image. */
  if (size != 1 || inner != pixels || w.stride[0] * w.stride[1] * w.stride[2] != 1 || w.pad[0] || w.pad[1] || w.pad[2]) s.b.patches = &w;
  for (number = 0; number < batch * groups; number++) {
    s.filter = s.a.zero = number % groups * filters;
    s.a.at = s.filter * s.k;
    s.b.at = number * channels * inner;
    s.y_at = number * filters * pixels;
    s.y = is_float ? floats(out) + s.y_at : NULL;
    if ((filters >= 4 || !is_float) && !is_transposed) multiply(&s);
    else
      for (f = 0; f < filters; f++)
        for (d = 0; d < channels; d++) {
          float *x = floats(&c->in[0]) + s.b.at + d * inner, *y = s.y + f * pixels;
          const float *factors = floats(weight) + s.a.at + (is_transposed ? d * filters + f : f * channels + d) * size;
          filter_plane(&w, factors, is_transposed ? y : x, is_transposed ? x : y, is_transposed);
        }
  }
  return 0;
}

/* MaxPool and AveragePool. Numbers: the planes, those of the window, whether indices are by columns; and for averages the
   elements of each window along each axis. */
int run_pool(context *c) {
  const opsetta_tensor *indices = c->node->out_count > 1 && c->out[1].memory != OMITTED ? &c->out[1] : NULL;
  const int64_t *n = c->numbers, planes = n[0], *counts = n + 20;
  const int is_max = !strcmp(c->type, "MaxPool");
  int64_t plane, inner, pixels, size, element, x;
  window w;
  if (read_window(c, 1, &w)) return -1;
  inner = volume(w.in);
  pixels = volume(w.out);
  size = volume(w.kernel);
  REQUIRE(size_product(planes, inner) == c->in[0].count && size_product(planes, pixels) == c->out[0].count && size > 0 && size <= 1 << 24);
  REQUIRE((!indices || indices->count == c->out[0].count) && (is_max || c->node->number_count == 20 + w.out[0] + w.out[1] + w.out[2]));
  for (plane = 0; plane < planes && pixels && !c->is_check; plane++) {
    const float *image = floats(&c->in[0]) + plane * inner;
    float *y = floats(&c->out[0]) + plane * pixels;
    for (x = 0; x < pixels; x++) y[x] = is_max ? -INFINITY : 0;
    for (x = 0; indices && x < pixels; x++) set_integer(indices, plane * pixels + x, 0);
    for (element = 0; element < size; element++) {
      span s = start_spans(&w, element);
      while (next_span(&w, &s)) {
        const float *from = image + s.from;
        float *to = y + s.to;
        for (x = s.first; indices && x < s.last; x++)
          if (from[x * w.stride[2]] > to[x]) {
            int64_t at = s.from + x * w.stride[2], column = at % w.in[2], row = at / w.in[2] % w.in[1], z = at / w.in[2] / w.in[1];
            if (n[19]) at = (column * w.in[1] + row) * w.in[0] + z;
            set_integer(indices, plane * pixels + s.to + x, plane * inner + at);
          }
        if (is_max)
          INDEPENDENT for (x = s.first; x < s.last; x++) to[x] = from[x * w.stride[2]] > to[x] ? from[x * w.stride[2]] : to[x];
        else
          INDEPENDENT for (x = s.first; x < s.last; x++) to[x] += from[x * w.stride[2]];
      }
    }
    for (x = 0; x < pixels && !is_max; x++) {
      const int64_t row = x / w.out[2], *across = counts + w.out[0], *along = across + w.out[1];
      y[x] /= (float)(counts[row / w.out[1]] * across[row % w.out[1]] * along[x % w.out[2]]);
    }
  }
  return 0;
}
