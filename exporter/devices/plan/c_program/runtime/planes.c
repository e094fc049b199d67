/* Windows over one plane, which is computed in parts: what the windows of a part are in is copied, with padding. */
#include "kernels.h"

/* A part of a plane: the results of `rows` and `columns`, from row y and column x on. Their windows are in `height` rows
   of `pitch` elements for each element along the first axis. */
enum { BAND = 3072 };
typedef struct {
  int64_t z, y, x, rows, columns, height, pitch;
} band;

/* Sets the sizes of the largest parts that fit into BAND elements; 0 if a window does not. */
static int fit_band(const window *w, band *b) {
  const int64_t high = (w->kernel[1] - 1) * w->dilation[1] + 1, wide = (w->kernel[2] - 1) * w->dilation[2] + 1, depth = w->kernel[0];
  if (depth > BAND || high > BAND || depth * high > BAND || wide > BAND / (depth * high)) return 0;
  b->columns = (BAND / (depth * high) - wide) / w->stride[2] + 1;
  b->columns = b->columns < w->out[2] ? b->columns : w->out[2];
  b->pitch = (b->columns - 1) * w->stride[2] + wide;
  b->rows = (BAND / (depth * b->pitch) - high) / w->stride[1] + 1;
  b->rows = b->rows < w->out[1] ? b->rows : w->out[1];
  b->height = (b->rows - 1) * w->stride[1] + high;
  return 1;
}

int fits_plane(const window *w) {
  band b;
  return fit_band(w, &b);
}

/* Copies what the windows of a part are in, with `fill` outside of the image. */
static void copy_band(const window *w, const band *b, const float *image, float fill, float *to) {
  const int64_t left = b->x * w->stride[2] - w->pad[2], spread = w->spread[2], end = (left + b->pitch + spread - 1) / spread;
  const int64_t first = left < 0 ? 0 : (left + spread - 1) / spread, last = end < w->in[2] ? end : w->in[2];
  window rows = *w;
  int64_t plane, row, x;
  rows.stride[1] = rows.dilation[1] = 1;
  rows.pad[1] = w->pad[1] - b->y * w->stride[1];
  for (x = 0; x < w->kernel[0] * b->height * b->pitch; x++) to[x] = fill;
  for (plane = 0; plane < w->kernel[0] && first < last; plane++) {
    const int64_t z = source_of(w, 0, b->z, plane);
    for (row = 0; row < b->height; row++, to += b->pitch) {
      const int64_t y = source_of(&rows, 1, row, 0);
      const float *from = image + (z * w->in[1] + y) * w->in[2];
      if (y < 0 || z < 0) continue;
      if (spread == 1) memcpy(to + first - left, from + first, (size_t)(last - first) * sizeof *to);
      else
        for (x = first; x < last; x++) to[x * spread - left] = from[x];
    }
  }
}

/* As a part has no gaps, all of its rows are one row. */
void combine_plane(const window *w, const float *image, const float *filter, int is_max, float *results) {
  float elements[BAND], sums[BAND];
  const int64_t size = volume(w->kernel), taps = filter && w->kernel[2] == 3 ? 3 : 1;
  int64_t element, row, x;
  band b;
  if (!fit_band(w, &b)) return;
  for (b.z = 0; b.z < w->out[0]; b.z++)
    for (b.y = 0; b.y < w->out[1]; b.y += b.rows)
      for (b.x = 0; b.x < w->out[2]; b.x += b.columns) {
        const int64_t wide = w->out[2] - b.x < b.columns ? w->out[2] - b.x : b.columns, step = w->stride[1] * b.pitch;
        const int64_t high = w->out[1] - b.y < b.rows ? w->out[1] - b.y : b.rows, joined = w->stride[1] == 1 ? high : 1;
        const int64_t length = (joined - 1) * b.pitch + (wide - 1) * w->stride[2] + 1;
        copy_band(w, &b, image, is_max ? -INFINITY : 0, elements);
        for (x = 0; x < high * b.pitch; x++) sums[x] = is_max ? -INFINITY : 0;
        for (element = 0; element < size; element += taps) {
          const int64_t i = element / w->kernel[2], plane = i / w->kernel[1] * b.height, line = i % w->kernel[1] * w->dilation[1];
          const float *from = elements + (plane + line) * b.pitch + element % w->kernel[2] * w->dilation[2];
          const float factor = filter ? filter[element] : 1, middle = taps > 1 ? filter[element + 1] : 0, end = taps > 1 ? filter[element + 2] : 0;
          for (row = 0; row < high; row += joined) {
            const float *source = from + row * step, *second = source + w->dilation[2], *third = second + w->dilation[2];
            float *restrict sum = sums + row * b.pitch;
            if (is_max)
              for (x = 0; x < length; x++) sum[x] = source[x] > sum[x] ? source[x] : sum[x];
            else if (taps > 1)
              for (x = 0; x < length; x++) sum[x] += factor * source[x] + middle * second[x] + end * third[x];
            else
              for (x = 0; x < length; x++) sum[x] += factor * source[x];
          }
        }
        for (row = 0; row < high; row++) {
          float *to = results + ((b.z * w->out[1] + b.y + row) * w->out[2]) + b.x;
          for (x = 0; x < wide; x++) to[x] = sums[row * b.pitch + x * w->stride[2]] + (filter ? to[x] : 0);
        }
      }
}
