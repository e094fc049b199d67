/* Products of matrices, and attention. */
#include "kernels.h"

/* A tile of ROWS rows and COLUMNS columns of the result stays in registers; DEPTH rows of the right operand are
   copied next to one another. Sums of DEPTH products of 8-bit integers are exact in float32. */
enum { ROWS = 6, DEPTH = 192, BLOCK = 8 * ROWS };
#if defined(__AVX512F__)
enum { COLUMNS = 32 };
#elif defined(__AVX__)
enum { COLUMNS = 16 };
#else
enum { COLUMNS = 8 };
#endif

static void multiply_tile(int64_t depth, const float *const *a, int64_t column, const float *restrict panel, float *restrict tile) {
  float s0[COLUMNS] = {0}, s1[COLUMNS] = {0}, s2[COLUMNS] = {0}, s3[COLUMNS] = {0}, s4[COLUMNS] = {0}, s5[COLUMNS] = {0};
  const float *restrict a0 = a[0], *restrict a1 = a[1], *restrict a2 = a[2], *restrict a3 = a[3], *restrict a4 = a[4], *restrict a5 = a[5];
  int64_t p;
  int j;
  for (p = 0; p < depth * column; p += column, panel += COLUMNS) {
    float x0 = a0[p], x1 = a1[p], x2 = a2[p], x3 = a3[p], x4 = a4[p], x5 = a5[p];
    for (j = 0; j < COLUMNS; j++) {
      s0[j] += x0 * panel[j];
      s1[j] += x1 * panel[j];
      s2[j] += x2 * panel[j];
      s3[j] += x3 * panel[j];
      s4[j] += x4 * panel[j];
      s5[j] += x5 * panel[j];
    }
  }
  for (j = 0; j < COLUMNS; j++) {
    tile[j] = s0[j];
    tile[COLUMNS + j] = s1[j];
    tile[2 * COLUMNS + j] = s2[j];
    tile[3 * COLUMNS + j] = s3[j];
    tile[4 * COLUMNS + j] = s4[j];
    tile[5 * COLUMNS + j] = s5[j];
  }
}

void load(const opsetta_tensor *in, int64_t at, int64_t step, int64_t count, int32_t zero, float *to) {
  int64_t index;
  if (in->type == FLOAT) {
    const float *from = floats(in) + at;
    if (step == 1)
      for (index = 0; index < count; index++) to[index] = from[index];
    else
      for (index = 0; index < count; index++) to[index] = from[index * step];
  } else if (in->type == UINT8)
    for (index = 0; index < count; index++) to[index] = (float)(in->data[at + index * step] - zero);
  else
    for (index = 0; index < count; index++) to[index] = (float)((int8_t)in->data[at + index * step] - zero);
}

static int32_t zero_of(const matrix *x, int64_t index) {
  return x->zeros ? (int32_t)integer(x->zeros, x->zeros->count == 1 ? 0 : x->zero + index) : 0;
}

/* Copies `width` elements of a row of patches: of one element of the windows of neighbouring results. */
static void copy_patches(const matrix *b, int64_t p, int64_t first, int64_t width, float *to) {
  const window *w = b->patches;
  const int64_t j = p % w->kernel[2] * w->dilation[2], i = p / w->kernel[2] % w->kernel[1] * w->dilation[1];
  const int64_t h = p / (w->kernel[2] * w->kernel[1]) % w->kernel[0] * w->dilation[0];
  const int64_t plane = p / (w->kernel[2] * w->kernel[1] * w->kernel[0]) * w->in[0];
  const int32_t zero = zero_of(b, 0);
  int64_t low, high, x;
  valid_range(w, j, &low, &high);
  while (width > 0) {
    int64_t row = first / w->out[2], begin = first % w->out[2], end = begin + width, y, z = 0;
    y = (w->out[0] == 1 ? row : row % w->out[1]) * w->stride[1] - w->pad[1] + i;
    if (w->in[0] * w->kernel[0] > 1) z = row / w->out[1] * w->stride[0] - w->pad[0] + h;
    end = end > w->out[2] ? w->out[2] : end;
    for (x = begin; x < end && (x < low || y < 0 || y >= w->in[1] || z < 0 || z >= w->in[0]); x++) to[x - begin] = 0;
    if (x < end && x < high) {
      const int64_t last = end < high ? end : high, at = ((plane + z) * w->in[1] + y) * w->in[2] - w->pad[2] + j;
      load(b->tensor, b->at + at + x * w->stride[2], w->stride[2], last - x, zero, to + x - begin);
      x = last;
    }
    for (; x < end; x++) to[x - begin] = 0;
    to += end - begin;
    first += end - begin;
    width -= end - begin;
  }
}

static void pack_panel(const matrix *b, int64_t start, int64_t depth, int64_t first, int64_t width, float *panel) {
  const int64_t at = b->at + start * b->row + first * b->column;
  const int has_zeros = b->zeros && !b->patches;
  int64_t p, j;
  for (p = 0; p < depth; p++)
    for (j = width; j < COLUMNS; j++) panel[p * COLUMNS + j] = 0;
  if (b->patches)
    for (p = 0; p < depth; p++) copy_patches(b, start + p, first, width, panel + p * COLUMNS);
  else if (b->column == 1 || b->tensor->type != FLOAT)
    for (p = 0; p < depth; p++) load(b->tensor, at + p * b->row, b->column, width, 0, panel + p * COLUMNS);
  else
    for (j = 0; j < width; j++) {
      const float *from = floats(b->tensor) + at + j * b->column;
      for (p = 0; p < depth; p++) panel[p * COLUMNS + j] = from[p * b->row];
    }
  for (j = 0; has_zeros && j < width; j++) {
    const float zero = (float)zero_of(b, first + j);
    for (p = 0; p < depth; p++) panel[p * COLUMNS + j] -= zero;
  }
}

float dot(int64_t count, const float *a, const float *b) {
  enum { LANES = 32 };
  float sums[LANES] = {0};
  int64_t index;
  int lane;
  for (index = 0; index + LANES <= count; index += LANES)
    for (lane = 0; lane < LANES; lane++) sums[lane] += a[index + lane] * b[index + lane];
  for (lane = 0; index < count; index++, lane++) sums[lane] += a[index] * b[index];
  for (lane = 0; lane < 16; lane++) sums[lane] += sums[lane + 16];
  for (lane = 0; lane < 8; lane++) sums[lane] += sums[lane + 8];
  for (lane = 0; lane < 4; lane++) sums[lane] += sums[lane + 4];
  return sums[0] + sums[2] + (sums[1] + sums[3]);
}

/* For few rows, copies would take longer than the product. */
static void multiply_few(int64_t n, int64_t k, const float *a, int64_t a_column, const matrix *b, float *restrict y) {
  const float *from = floats(b->tensor) + b->at;
  int64_t p, j;
  if (b->row == 1 && a_column == 1)
    for (j = 0; j < n; j++) y[j] += dot(k, a, from + j * b->column);
  else
    for (p = 0; p < k; p++) {
      const float *restrict row = from + p * b->row, x = a[p * a_column];
      if (b->column == 1)
        for (j = 0; j < n; j++) y[j] += x * row[j];
      else
        for (j = 0; j < n; j++) y[j] += x * row[j * b->column];
    }
}

/* The counts of zero points and scales, whose positions are those of integer products. */
int check_scales(const context *c, int64_t filters) {
  const uint32_t count = c->node->in_count;
  REQUIRE((!has(c, 2) || c->in[2].count == filters) && (!has(c, 3) || c->in[3].count == 1));
  REQUIRE(!has(c, 4) || c->in[4].count == 1 || c->in[4].count == filters);
  if (count > 5) REQUIRE(count == 9 && c->in[5].count == 1 && (c->in[6].count == 1 || c->in[6].count == filters));
  if (count > 5) REQUIRE(has(c, 8) && c->in[7].count == 1 && c->in[8].count == 1);
  REQUIRE(count > 5 ? c->out[0].type != INT32 : c->out[0].type == INT32);
  return 0;
}

/* Writes sums of products: as they are, or with the scale and the zero point of the result. */
static void set_sums(const product *s, int64_t top, int64_t rows, int64_t first, int64_t width, const uint32_t *sums) {
  const context *c = s->c;
  int64_t i, j;
  for (i = 0; i < rows; i++)
    for (j = 0; j < width; j++) {
      const int64_t filter = s->is_by_row ? s->filter + top + i : first + j, at = s->y_at + (top + i) * s->y_row + first + j;
      int32_t sum = (int32_t)(sums[i * COLUMNS + j] + (has(c, 2) ? (uint32_t)integer(&c->in[2], filter) : 0));
      if (!has(c, 5)) set_integer(&c->out[0], at, sum);
      else {
        float factor = *floats(&c->in[5]) * floats(&c->in[6])[c->in[6].count == 1 ? 0 : filter];
        set_rounded(&c->out[0], at, (float)sum * (factor / *floats(&c->in[7])), (int32_t)integer(&c->in[8], 0));
      }
    }
}

void multiply(const product *s) {
  const matrix *a = &s->a, *b = &s->b;
  const int is_float = a->tensor->type == FLOAT;
  const int64_t block = is_float ? s->m : BLOCK;
  float panel[DEPTH * COLUMNS], left[ROWS * DEPTH], tile[ROWS * COLUMNS];
  uint32_t sums[BLOCK * COLUMNS];
  int64_t i, j, r, first, top, start;
  if (is_float && s->m < 4 && !b->patches) {
    for (i = 0; i < s->m; i++) multiply_few(s->n, s->k, floats(a->tensor) + a->at + i * a->row, a->column, b, s->y + i * s->y_row);
    return;
  }
  for (first = 0; first < s->n; first += COLUMNS)
    for (top = 0; top < s->m; top += block) {
      const int64_t width = s->n - first < COLUMNS ? s->n - first : COLUMNS, rows = s->m - top < block ? s->m - top : block;
      if (!is_float) memset(sums, 0, sizeof sums);
      for (start = 0; start < s->k; start += DEPTH) {
        const int64_t depth = s->k - start < DEPTH ? s->k - start : DEPTH;
        pack_panel(b, start, depth, first, width, panel);
        for (i = 0; i < rows; i += ROWS) {
          const float *at[ROWS];
          for (r = 0; r < ROWS; r++) { /* the last tile repeats a row */
            const int64_t row = top + (i + r < rows ? i + r : rows - 1), from = a->at + row * a->row + start * a->column;
            at[r] = is_float ? floats(a->tensor) + from : left + r * DEPTH;
            if (!is_float) load(a->tensor, from, a->column, depth, zero_of(a, row), left + r * DEPTH);
          }
          multiply_tile(depth, at, is_float ? a->column : 1, panel, tile);
          for (r = 0; r < ROWS && i + r < rows; r++)
            if (is_float)
              for (j = 0; j < width; j++) s->y[(i + r) * s->y_row + first + j] += tile[r * COLUMNS + j];
            else
              for (j = 0; j < width; j++) sums[(i + r) * COLUMNS + j] += (uint32_t)(int32_t)tile[r * COLUMNS + j];
        }
      }
      if (!is_float) set_sums(s, top, rows, first, width, sums);
    }
}

/* Adds products of float32 to the result, or sets products of 8-bit integers. Numbers: the rows and columns of the result,
   the terms of each sum; the steps along rows and columns of both operands; and a walk over matrices of the result and
   of both operands. */
int run_matmul(context *c) {
  const int64_t *n = c->numbers;
  const int is_float = c->in[0].type == FLOAT;
  int64_t at = 7, index, limits[3];
  product s = {c, n[0], n[1], n[2], {&c->in[0], 0, n[3], n[4], NULL, NULL, 0}, {&c->in[1], 0, n[5], n[6], NULL, NULL, 0}, NULL, 0, n[1], 0, 0};
  walk w;
  for (index = 0; index < 7; index++) REQUIRE(n[index] >= 0 && n[index] <= INT32_MAX / 2);
  if (!is_float && check_scales(c, s.n)) return -1;
  if (!s.m || !s.n) return 0;
  REQUIRE(s.k > 0 || is_float);
  if (!s.k) return 0;
  limits[0] = c->out[0].count - s.m * s.n + 1;
  limits[1] = c->in[0].count - (s.m - 1) * n[3] - (s.k - 1) * n[4];
  limits[2] = c->in[1].count - (s.k - 1) * n[5] - (s.n - 1) * n[6];
  for (index = 0; index < 3; index++) limits[index] = limits[index] > 0 ? limits[index] : 0;
  if (read_walk(c, &at, &w, 3, limits)) return -1;
  s.a.zeros = has(c, 3) ? &c->in[3] : NULL;
  s.b.zeros = has(c, 4) ? &c->in[4] : NULL;
  while (!c->is_check && next_row(&w))
    for (index = 0; index < w.length; index++) {
      s.y_at = w.offset[0] + index * w.step[0];
      s.a.at = w.offset[1] + index * w.step[1];
      s.b.at = w.offset[2] + index * w.step[2];
      s.y = is_float ? floats(&c->out[0]) + s.y_at : NULL;
      multiply(&s);
    }
  return 0;
}

/* The numbers of an attention, in this order; then the steps along batches, heads, rows of queries, keys, values and
   the result; and of the mask along batches, heads, queries and keys. */
typedef struct {
  int64_t batch, heads, shared, queries, keys, width, value_width, is_causal, scale, q[3], k[3], v[3], o[3], mask[4];
} attention;

/* One row of the result. Scores of a few keys at a time need no memory; a new maximum rescales what there is. */
static void attend(const context *c, const attention *s, int64_t b, int64_t h, int64_t i) {
  enum { KEYS = 64 };
  const int64_t shared = h / s->shared, count = s->is_causal && i + 1 < s->keys ? i + 1 : s->keys;
  const float *query = floats(&c->in[0]) + b * s->q[0] + h * s->q[1] + i * s->q[2], scale = (float)real_number(c, 8);
  const float *key = floats(&c->in[1]) + b * s->k[0] + shared * s->k[1];
  const float *value = floats(&c->in[2]) + b * s->v[0] + shared * s->v[1];
  float *restrict y = floats(&c->out[0]) + b * s->o[0] + h * s->o[1] + i * s->o[2];
  float most = -INFINITY, total = 0, scores[KEYS], before;
  int64_t first, j, d;
  for (d = 0; d < s->value_width; d++) y[d] = 0;
  for (first = 0; first < count; first += KEYS) {
    int64_t keys = count - first < KEYS ? count - first : KEYS;
    before = most;
    for (j = 0; j < keys; j++) {
      int64_t at = b * s->mask[0] + h * s->mask[1] + i * s->mask[2] + (first + j) * s->mask[3];
      float score = scale * dot(s->width, query, key + (first + j) * s->k[2]);
      if (has(c, 3) && c->in[3].type == FLOAT) score += floats(&c->in[3])[at];
      if (has(c, 3) && c->in[3].type == BOOL && !c->in[3].data[at]) score = -INFINITY;
      scores[j] = score;
      most = score > most ? score : most;
    }
    if (most == -INFINITY) continue; /* all keys so far are masked */
    before = before == most ? 1.0f : exponential(before - most);
    total *= before;
    for (d = 0; d < s->value_width; d++) y[d] *= before;
    for (j = 0; j < keys; j++) {
      const float *restrict row = value + (first + j) * s->v[2], power = exponential(scores[j] - most);
      total += power;
      for (d = 0; d < s->value_width; d++) y[d] += power * row[d];
    }
  }
  total = total > 0 ? 1.0f / total : 0; /* rows without keys are 0 */
  for (d = 0; d < s->value_width; d++) y[d] *= total;
}

/* Whether blocks of `width` elements at steps along three axes are in a tensor. */
static int fits(const opsetta_tensor *tensor, const int64_t *steps, int64_t a, int64_t b, int64_t d, int64_t width) {
  if (!a || !b || !d || !width) return 1;
  return (a - 1) * steps[0] + (b - 1) * steps[1] + (d - 1) * steps[2] + width <= tensor->count;
}

int run_attention(context *c) {
  int64_t b, h, i;
  attention s;
  memcpy(&s, c->numbers, sizeof s);
  for (i = 0; i < 25; i++) REQUIRE(i == 8 || (c->numbers[i] >= 0 && c->numbers[i] <= INT32_MAX / 4));
  REQUIRE(s.shared > 0 && s.heads % s.shared == 0);
  REQUIRE(fits(&c->in[0], s.q, s.batch, s.heads, s.queries, s.width) && fits(&c->in[1], s.k, s.batch, s.heads / s.shared, s.keys, s.width));
  REQUIRE(fits(&c->in[2], s.v, s.batch, s.heads / s.shared, s.keys, s.value_width));
  REQUIRE(fits(&c->out[0], s.o, s.batch, s.heads, s.queries, s.value_width));
  if (has(c, 3) && s.keys) REQUIRE(fits(&c->in[3], s.mask, s.batch, s.heads, s.queries, (s.keys - 1) * s.mask[3] + 1));
  for (b = 0; b < s.batch && !c->is_check; b++)
    for (h = 0; h < s.heads; h++)
      for (i = 0; i < s.queries; i++) attend(c, &s, b, h, i);
  return 0;
}

/* Rotates pairs of elements by angles, which are selected by position or one for each row. Numbers: batch, heads, rows,
   elements of a row, elements that rotate, whether pairs are neighbours; the steps along batches, heads, rows. */
int run_rotary(context *c) {
  const int64_t *n = c->numbers, batch = n[0], heads = n[1], length = n[2], width = n[3], half = n[4] / 2;
  int64_t b, h, i, d;
  for (i = 0; i < 9; i++) REQUIRE(n[i] >= 0 && n[i] <= INT32_MAX / 4);
  REQUIRE(2 * half <= width && half > 0 && c->in[0].count == c->out[0].count && c->in[1].count == c->in[2].count);
  REQUIRE(fits(&c->in[0], n + 6, batch, heads, length, width));
  REQUIRE(has(c, 3) ? c->in[3].count == batch * length : c->in[1].count == size_product(batch * length, half));
  for (b = 0; b < batch && !c->is_check; b++)
    for (i = 0; i < length; i++) {
      const int64_t row = has(c, 3) ? integer(&c->in[3], b * length + i) : b * length + i;
      REQUIRE(row >= 0 && row < c->in[1].count / half);
      for (h = 0; h < heads; h++) {
        const int64_t at = b * n[6] + h * n[7] + i * n[8];
        const float *x = floats(&c->in[0]) + at, *cosine = floats(&c->in[1]) + row * half;
        const float *sine = floats(&c->in[2]) + row * half;
        float *y = floats(&c->out[0]) + at;
        for (d = 0; d < half; d++) {
          const int64_t first = n[5] ? 2 * d : d, second = n[5] ? 2 * d + 1 : d + half;
          const float real = x[first], imaginary = x[second];
          y[first] = real * cosine[d] - imaginary * sine[d];
          y[second] = real * sine[d] + imaginary * cosine[d];
        }
        for (d = 2 * half; d < width; d++) y[d] = x[d];
      }
    }
  return 0;
}
