/* Operators on 8-bit integers, which add up in int32. */
#include "kernels.h"

/* The zero point of a row or the whole; 0 without one. */
static int32_t zero_of(const context *c, uint32_t index, int64_t at) {
  if (!has(c, index)) return 0;
  return (int32_t)integer(&c->in[index], c->in[index].count == 1 ? 0 : at);
}

static void set_rounded(const opsetta_tensor *out, int64_t at, float value, int32_t zero) {
  float low = out->type == UINT8 ? 0 : -128, high = out->type == UINT8 ? 255 : 127;
  value = rintf(value) + (float)zero;
  set_integer(out, at, (int64_t)(value > low ? value < high ? value : high : low));
}

/* QuantizeLinear, DequantizeLinear: one scale, or one for each index of an axis. */
int run_quantize(context *c) {
  const opsetta_tensor *in = &c->in[0], *out = &c->out[0], *scale = &c->in[1];
  int64_t axis = scale->count == 1 ? 0 : axis_of(c, "axis", 1, in->rank), inner, row, index, at;
  int is_back = !strcmp(c->type, "DequantizeLinear");
  REQUIRE(same_shape(in, out) && axis >= 0 && (scale->count == 1 || scale->count == in->shape[axis]));
  REQUIRE(!has(c, 2) || c->in[2].count == scale->count);
  if (c->is_check || !in->count) return 0;
  inner = scale->count == 1 ? in->count : span(in, axis + 1, in->rank);
  for (row = 0; row < in->count / inner; row++) {
    float factor = floats(scale)[at = row % scale->count];
    int32_t zero = zero_of(c, 2, at);
    for (index = row * inner; index < (row + 1) * inner; index++) {
      if (is_back) floats(out)[index] = (float)(integer(in, index) - zero) * factor;
      else set_rounded(out, index, floats(in)[index] / factor, zero);
    }
  }
  return 0;
}

int run_dynamic_quantize(context *c) {
  float low = 0, high = 0, scale;
  int64_t index;
  REQUIRE(same_shape(&c->in[0], &c->out[0]) && c->out_count == 3 && c->out[1].count == 1 && c->out[2].count == 1);
  if (c->is_check) return 0;
  for (index = 0; index < c->in[0].count; index++) {
    float x = floats(&c->in[0])[index];
    low = x < low ? x : low;
    high = x > high ? x : high;
  }
  scale = (high - low) / 255.0f;
  *floats(&c->out[1]) = scale;
  set_rounded(&c->out[2], 0, scale > 0 ? -low / scale : 0, 0);
  for (index = 0; index < c->in[0].count; index++)
    set_rounded(&c->out[0], index, scale > 0 ? floats(&c->in[0])[index] / scale : 0, (int32_t)integer(&c->out[2], 0));
  return 0;
}

/* Where the operands of a product are among the inputs: those with scales have other positions. */
typedef struct {
  uint32_t right, a_zero, b_zero, a_scale, b_scale, y_scale, y_zero, bias;
} positions;

static const positions WITH_SCALES = {3, 2, 5, 1, 4, 6, 7, 8}, WHOLE = {1, 2, 3, 99, 99, 99, 99, 99};

static int check_scales(const context *c, const positions *p, int64_t filters) {
  REQUIRE(!has(c, p->a_zero) || c->in[p->a_zero].count == 1);
  REQUIRE(!has(c, p->b_zero) || c->in[p->b_zero].count == 1 || c->in[p->b_zero].count == filters);
  if (p == &WHOLE) return 0;
  REQUIRE(c->in[p->a_scale].count == 1 && c->in[p->y_scale].count == 1 && c->in[p->y_zero].count == 1);
  REQUIRE(c->in[p->b_scale].count == 1 || c->in[p->b_scale].count == filters);
  return 0;
}

/* Writes sums of products: as they are, or with the scale and the zero point of the result. */
static void set_sums(const context *c, const positions *p, int64_t at, const int32_t *sums, int64_t count, int64_t filter,
                     int64_t filter_step) {
  int64_t index, scale;
  for (index = 0; index < count; index++) {
    scale = filter + index * filter_step;
    if (p == &WHOLE) set_integer(&c->out[0], at + index, sums[index]);
    else {
      const opsetta_tensor *b_scale = &c->in[p->b_scale];
      float factor = *floats(&c->in[p->a_scale]) * floats(b_scale)[b_scale->count == 1 ? 0 : scale];
      set_rounded(&c->out[0], at + index, (float)sums[index] * (factor / *floats(&c->in[p->y_scale])), zero_of(c, p->y_zero, 0));
    }
  }
}

enum { BLOCK = 64 };

/* sums[x] += factor * (row[x * step] - zero) */
static void add_products(int32_t *restrict sums, int64_t count, int32_t factor, const opsetta_tensor *in, int64_t at,
                         int64_t step, int32_t zero) {
  const uint8_t *plain = in->data + at;
  const int8_t *with_sign = (const int8_t *)plain;
  int64_t x;
  if (in->type == UINT8)
    for (x = 0; x < count; x++) sums[x] += factor * (plain[x * step] - zero);
  else
    for (x = 0; x < count; x++) sums[x] += factor * (with_sign[x * step] - zero);
}

/* MatMulInteger, QLinearMatMul. */
int run_integer_matmul(context *c) {
  const positions *p = !strcmp(c->type, "MatMulInteger") ? &WHOLE : &WITH_SCALES;
  opsetta_tensor a = c->in[0], b = c->in[p->right], batches = c->out[0];
  int64_t rows = a.shape[a.rank - 2], inner = a.shape[a.rank - 1], columns = b.shape[b.rank - 1], index, number = 0;
  int64_t i, j, k, first;
  walk w;
  REQUIRE(b.shape[b.rank - 2] == inner && !check_scales(c, p, columns));
  batches.rank -= 2, a.rank -= 2, b.rank -= 2;
  batches.count = span(&batches, 0, batches.rank);
  start_walk(&w, &batches);
  REQUIRE(c->out[0].count == batches.count * rows * columns && !add_operand(&w, &a, &batches) && !add_operand(&w, &b, &batches));
  if (c->is_check || !c->out[0].count) return 0;
  do {
    for (index = 0; index < w.length; index++, number++)
      for (i = 0; i < rows; i++)
        for (first = 0; first < columns; first += BLOCK) {
          int32_t sums[BLOCK] = {0}, zeros[BLOCK], total = 0;
          int64_t count = columns - first < BLOCK ? columns - first : BLOCK;
          int64_t left = ((w.offset[0] + index * w.steps[0][w.rank - 1]) * rows + i) * inner;
          int64_t right = (w.offset[1] + index * w.steps[1][w.rank - 1]) * inner * columns + first;
          for (k = 0; k < inner; k++) {
            int32_t factor = (int32_t)integer(&a, left + k) - zero_of(c, p->a_zero, 0);
            total += factor;
            add_products(sums, count, factor, &b, right + k * columns, 1, 0);
          }
          for (j = 0; j < count; j++) zeros[j] = zero_of(c, p->b_zero, first + j), sums[j] -= total * zeros[j];
          set_sums(c, p, (number * rows + i) * columns + first, sums, count, first, 1);
        }
  } while (next_row(&w));
  return 0;
}

/* ConvInteger, QLinearConv. */
int run_integer_conv(context *c) {
  const positions *p = !strcmp(c->type, "ConvInteger") ? &WHOLE : &WITH_SCALES;
  const opsetta_tensor *weight = &c->in[p->right], *out = &c->out[0];
  int64_t groups, channels, filters = out->shape[1], n, row, first, d, i, j, low, high;
  window w;
  if (check_conv(c, weight, has(c, p->bias) ? &c->in[p->bias] : NULL, &w, &groups)) return -1;
  if (check_scales(c, p, filters)) return -1;
  channels = weight->shape[1];
  for (n = 0; n < out->shape[0] * filters && !c->is_check; n++)
    for (row = 0; row < w.out[0]; row++)
      for (first = 0; first < w.out[1]; first += BLOCK) {
        int32_t sums[BLOCK], bias = has(c, p->bias) ? (int32_t)integer(&c->in[p->bias], n % filters) : 0;
        int64_t count = w.out[1] - first < BLOCK ? w.out[1] - first : BLOCK;
        int64_t plane = n / filters * c->in[0].shape[1] + n % filters / (filters / groups) * channels;
        for (j = 0; j < count; j++) sums[j] = bias;
        for (d = 0; d < channels; d++)
          for (i = 0; i < w.kernel[0]; i++) {
            int64_t y = row * w.stride[0] - w.pad[0] + i * w.dilation[0];
            if (y < 0 || y >= w.in[0]) continue;
            for (j = 0; j < w.kernel[1]; j++) {
              int64_t at = ((n % filters * channels + d) * w.kernel[0] + i) * w.kernel[1] + j;
              int32_t factor = (int32_t)integer(weight, at) - zero_of(c, p->b_zero, n % filters);
              valid_range(&w, 1, j * w.dilation[1], &low, &high);
              low = low > first ? low : first;
              high = high < first + count ? high : first + count;
              if (low < high)
                add_products(sums + low - first, high - low, factor, &c->in[0],
                             ((plane + d) * w.in[0] + y) * w.in[1] + low * w.stride[1] - w.pad[1] + j * w.dilation[1],
                             w.stride[1], zero_of(c, p->a_zero, 0));
            }
          }
        set_sums(c, p, (n * w.out[0] + row) * w.out[1] + first, sums, count, n % filters, 0);
      }
  return 0;
}
