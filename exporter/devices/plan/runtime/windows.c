/* Convolutions and pooling over one or two dimensions; one dimension is a row of height 1. */
#include "kernels.h"

int window_of(const context *c, window *w, const opsetta_tensor *weight) {
  int64_t spatial = (int64_t)c->in[0].rank - 2, axis, at;
  REQUIRE((spatial == 1 || spatial == 2) && c->out[0].rank == c->in[0].rank);
  REQUIRE(!weight || weight->rank == c->in[0].rank);
  for (axis = 0; axis < 2; axis++) {
    w->in[axis] = w->out[axis] = w->kernel[axis] = w->stride[axis] = w->dilation[axis] = 1;
    w->pad[axis] = w->pad_end[axis] = 0;
  }
  for (axis = 0; axis < spatial; axis++) {
    at = axis + 2 - spatial;
    w->in[at] = c->in[0].shape[axis + 2];
    w->out[at] = c->out[0].shape[axis + 2];
    w->kernel[at] = weight ? weight->shape[axis + 2] : item_of(c, "kernel_shape", axis, 1);
    w->stride[at] = item_of(c, "strides", axis, 1);
    w->dilation[at] = item_of(c, "dilations", axis, 1);
    w->pad[at] = item_of(c, "pads", axis, 0);
    w->pad_end[at] = item_of(c, "pads", axis + spatial, 0);
    /* Then no product of two of them overflows. */
    REQUIRE(w->kernel[at] > 0 && w->stride[at] > 0 && w->dilation[at] > 0);
    REQUIRE(w->kernel[at] <= INT32_MAX && w->stride[at] <= INT32_MAX && w->dilation[at] <= INT32_MAX);
    REQUIRE(w->pad[at] <= INT32_MAX && w->pad[at] >= -INT32_MAX && w->pad_end[at] <= INT32_MAX);
    /* The kernel of a pooling is no larger than what it is over, which bounds the time, too. */
    REQUIRE(weight || w->kernel[at] <= w->in[at] + w->pad[at] + w->pad_end[at] || !strncmp(c->type, "Global", 6));
  }
  return 0;
}

void valid_range(const window *w, int axis, int64_t offset, int64_t *first, int64_t *last) {
  int64_t low = w->pad[axis] - offset, high = w->in[axis] - 1 + low, stride = w->stride[axis];
  *first = low <= 0 ? 0 : (low + stride - 1) / stride;
  *last = high < 0 ? 0 : high / stride + 1;
  *last = *last < w->out[axis] ? *last : w->out[axis];
}

/* The checks of all convolutions whose weight is [filters, channels / groups, ...]. */
int check_conv(const context *c, const opsetta_tensor *weight, const opsetta_tensor *bias, window *w, int64_t *groups) {
  int64_t filters = c->out[0].shape[1];
  *groups = int_of(c, "group", 1);
  if (window_of(c, w, weight)) return -1;
  REQUIRE(*groups > 0 && filters % *groups == 0 && weight->shape[0] == filters);
  REQUIRE(weight->shape[1] * *groups == c->in[0].shape[1] && *groups <= c->in[0].shape[1]);
  REQUIRE(c->out[0].shape[0] == c->in[0].shape[0] && (!bias || bias->count == filters));
  return 0;
}

/* One filter over one image. */
static void filter_image(const window *w, int64_t channels, const float *image, const float *weight, float *y) {
  int64_t row, d, i, j, x, top, bottom, first, last;
  for (d = 0; d < channels; d++, image += w->in[0] * w->in[1])
    for (i = 0; i < w->kernel[0]; i++) {
      valid_range(w, 0, i * w->dilation[0], &top, &bottom);
      for (j = 0; j < w->kernel[1]; j++, weight++) {
        valid_range(w, 1, j * w->dilation[1], &first, &last);
        for (row = top; row < bottom; row++) {
          int64_t at = row * w->stride[0] - w->pad[0] + i * w->dilation[0];
          const float *from = image + at * w->in[1] - w->pad[1] + j * w->dilation[1], factor = *weight;
          float *to = y + row * w->out[1];
          if (w->stride[1] == 1)
            INDEPENDENT for (x = first; x < last; x++) to[x] += factor * from[x];
          else
            INDEPENDENT for (x = first; x < last; x++) to[x] += factor * from[x * w->stride[1]];
        }
      }
    }
}

/* Sets a channel of the result to its bias. */
static void fill_plane(const context *c, int64_t plane, int64_t pixels) {
  float *y = floats(&c->out[0]) + plane * pixels, bias = has(c, 2) ? floats(&c->in[2])[plane % c->out[0].shape[1]] : 0;
  int64_t index;
  for (index = 0; index < pixels; index++) y[index] = bias;
}

int run_conv(context *c) {
  const opsetta_tensor *weight = &c->in[1], *out = &c->out[0];
  int64_t groups, channels, filters, pixels, n, g, f, index;
  window w;
  matrix patches = {NULL, 0, 1, NULL};
  if (check_conv(c, weight, has(c, 2) ? &c->in[2] : NULL, &w, &groups)) return -1;
  if (c->is_check) return 0;
  channels = weight->shape[1];
  filters = out->shape[1] / groups;
  pixels = w.out[0] * w.out[1];
  for (index = 0; index < out->shape[0] * out->shape[1]; index++) fill_plane(c, index, pixels);
  /* Of a 1 x 1 kernel the patches are the image. */
  patches.row = w.in[0] * w.in[1];
  if (w.kernel[0] * w.kernel[1] != 1 || w.stride[0] * w.stride[1] != 1 || patches.row != pixels || w.pad[0] || w.pad[1])
    patches.patches = &w;
  for (n = 0; n < out->shape[0]; n++)
    for (g = 0; g < groups; g++) {
      const float *image = floats(&c->in[0]) + (n * groups + g) * channels * w.in[0] * w.in[1];
      int64_t size = channels * w.kernel[0] * w.kernel[1];
      const float *filter = floats(weight) + g * filters * size;
      float *y = floats(out) + (n * groups + g) * filters * pixels;
      patches.data = image;
      if (filters >= 4) multiply(filters, pixels, size, filter, size, 1, &patches, y, pixels);
      else
        for (f = 0; f < filters; f++) filter_image(&w, channels, image, filter + f * size, y + f * pixels);
    }
  return 0;
}

/* Adds what each input element spreads over the result: a window of the result at the element's place. */
int run_conv_transpose(context *c) {
  const opsetta_tensor *weight = &c->in[1], *out = &c->out[0];
  int64_t groups = int_of(c, "group", 1), channels, filters, n, f, d, y, x, i, j, index;
  window w;
  if (window_of(c, &w, weight)) return -1;
  REQUIRE(groups > 0 && weight->shape[0] == c->in[0].shape[1] && weight->shape[1] <= out->shape[1]);
  REQUIRE(weight->shape[1] * groups == out->shape[1] && weight->shape[0] % groups == 0);
  REQUIRE(out->shape[0] == c->in[0].shape[0] && (!has(c, 2) || c->in[2].count == out->shape[1]));
  if (c->is_check) return 0;
  channels = weight->shape[0] / groups;
  filters = weight->shape[1];
  for (index = 0; index < out->shape[0] * out->shape[1]; index++) fill_plane(c, index, w.out[0] * w.out[1]);
  for (n = 0; n < out->shape[0] * groups; n++)
    for (d = 0; d < channels; d++)
      for (f = 0; f < filters; f++) {
        const float *image = floats(&c->in[0]) + (n * channels + d) * w.in[0] * w.in[1];
        const float *factors = floats(weight) + ((n % groups * channels + d) * filters + f) * w.kernel[0] * w.kernel[1];
        float *to = floats(out) + (n * filters + f) * w.out[0] * w.out[1];
        for (y = 0; y < w.in[0]; y++)
          for (i = 0; i < w.kernel[0]; i++) {
            int64_t row = y * w.stride[0] - w.pad[0] + i * w.dilation[0];
            if (row < 0 || row >= w.out[0]) continue;
            for (x = 0; x < w.in[1]; x++)
              for (j = 0; j < w.kernel[1]; j++) {
                int64_t column = x * w.stride[1] - w.pad[1] + j * w.dilation[1];
                if (column >= 0 && column < w.out[1])
                  to[row * w.out[1] + column] += image[y * w.in[1] + x] * factors[i * w.kernel[1] + j];
              }
          }
      }
  return 0;
}

/* How many elements of a window are in the image, or in the padded image. */
static int64_t elements_inside(const window *w, int axis, int64_t at, int counts_padding) {
  int64_t low = counts_padding ? -w->pad[axis] : 0, high = w->in[axis] + (counts_padding ? w->pad_end[axis] : 0), count = 0, i;
  for (i = 0; i < w->kernel[axis]; i++) {
    int64_t element = at * w->stride[axis] - w->pad[axis] + i * w->dilation[axis];
    count += element >= low && element < high;
  }
  return count;
}

/* MaxPool, AveragePool, and their global forms. */
int run_pool(context *c) {
  window w;
  int64_t planes = c->in[0].shape[0] * c->in[0].shape[1], row, x, i, j, first, last;
  const opsetta_tensor *indices = c->out_count > 1 && c->out[1].memory != OMITTED ? &c->out[1] : NULL;
  int is_max = strstr(c->type, "Max") != NULL, counts_padding = int_of(c, "count_include_pad", 0) != 0, axis;
  int by_columns = int_of(c, "storage_order", 0) != 0;
  float *y = floats(&c->out[0]);
  if (window_of(c, &w, NULL)) return -1;
  REQUIRE(c->in[0].shape[0] == c->out[0].shape[0] && c->in[0].shape[1] == c->out[0].shape[1]);
  for (axis = 0; axis < 2 && !strncmp(c->type, "Global", 6); axis++) w.kernel[axis] = w.in[axis];
  REQUIRE(!indices || indices->count == c->out[0].count);
  if (c->is_check) return 0;
  for (row = 0; row < planes * w.out[0]; row++, y += w.out[1]) {
    int64_t top = row % w.out[0];
    const float *image = floats(&c->in[0]) + row / w.out[0] * w.in[0] * w.in[1];
    for (x = 0; x < w.out[1]; x++) y[x] = is_max ? -INFINITY : 0;
    for (x = 0; indices && x < w.out[1]; x++) set_integer(indices, row * w.out[1] + x, 0);
    for (i = 0; i < w.kernel[0]; i++) {
      int64_t at = top * w.stride[0] - w.pad[0] + i * w.dilation[0];
      if (at < 0 || at >= w.in[0]) continue;
      for (j = 0; j < w.kernel[1]; j++) {
        const float *from = image + at * w.in[1] - w.pad[1] + j * w.dilation[1];
        valid_range(&w, 1, j * w.dilation[1], &first, &last);
        for (x = first; indices && x < last; x++)
          if (from[x * w.stride[1]] > y[x]) {
            int64_t column = x * w.stride[1] + j * w.dilation[1] - w.pad[1];
            int64_t inside = by_columns ? column * w.in[0] + at : at * w.in[1] + column;
            set_integer(indices, row * w.out[1] + x, row / w.out[0] * w.in[0] * w.in[1] + inside);
          }
        if (is_max)
          INDEPENDENT for (x = first; x < last; x++) y[x] = from[x * w.stride[1]] > y[x] ? from[x * w.stride[1]] : y[x];
        else
          INDEPENDENT for (x = first; x < last; x++) y[x] += from[x * w.stride[1]];
      }
    }
    for (x = 0; x < w.out[1] && !is_max; x++)
      y[x] /= (float)(elements_inside(&w, 0, top, counts_padding) * elements_inside(&w, 1, x, counts_padding));
  }
  return 0;
}
