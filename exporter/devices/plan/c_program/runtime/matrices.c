/* Products of matrices. */
#include "kernels.h"

/* A tile of ROWS rows and COLUMNS columns of the result stays in registers; DEPTH rows of the right operand are
   copied next to one another. Sums of DEPTH products of 8-bit integers are exact in float32. */
enum { ROWS = 6, DEPTH = 192, BLOCK = 8 * ROWS };
#if !defined(__GNUC__)
enum { LANES = 1 };
typedef float lanes;
#else
#if defined(__AVX512F__)
enum { LANES = 16 };
#elif defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
/* Of arrays, gcc would keep some sums in memory. */
typedef float lanes __attribute__((vector_size(4 * LANES)));
#endif
enum { COLUMNS = 2 * LANES };

static void multiply_tile(int64_t depth, const float *const *a, int64_t column, const float *panel, float *tile) {
  lanes sums[ROWS][2] = {{{0}}}, left, right;
  const float *rows[ROWS];
  int64_t p;
  int i;
  memcpy(rows, a, sizeof rows);
  for (p = 0; p < depth * column; p += column, panel += COLUMNS) {
    memcpy(&left, panel, sizeof left);
    memcpy(&right, panel + LANES, sizeof right);
    for (i = 0; i < ROWS; i++) {
      sums[i][0] += rows[i][p] * left;
      sums[i][1] += rows[i][p] * right;
    }
  }
  memcpy(tile, sums, sizeof sums);
}

void load(const opsetta_tensor *in, int64_t at, int64_t step, int64_t count, int32_t zero, float *to) {
  int64_t index;
  if (in->type == FLOAT) {
    const float *from = floats(in) + at;
    if (step == 1) memcpy(to, from, (size_t)count * sizeof *to);
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

/* Copies rows of patches from `start` on, of which each has one element of the windows of `width` results. */
static void copy_patches(const matrix *b, int64_t start, int64_t depth, int64_t first, int64_t width, float *panel) {
  const window *w = b->patches;
  const int64_t *size = w->kernel, step = w->stride[2], plane = first / w->out[2] / w->out[1], line = first / w->out[2] % w->out[1];
  const int32_t zero = zero_of(b, 0);
  int64_t j = start % size[2], i = start / size[2] % size[1], h = start / size[2] / size[1] % size[0];
  int64_t channel = start / size[2] / size[1] / size[0], row;
  for (row = 0; row < depth; row++, panel += COLUMNS) {
    /* Along a line, the sources of results `low` to before `high` exist. */
    const int64_t offset = j * w->dilation[2] - w->pad[2], low = offset >= 0 ? 0 : (step - 1 - offset) / step;
    const int64_t count = w->in[2] - offset, high = count <= 0 ? 0 : step == 1 ? count : (count + step - 1) / step;
    int64_t x = first % w->out[2], y = line, z = plane, left = width;
    float *to = panel;
    while (left > 0) {
      const int64_t source_y = source_of(w, 1, y, i), source_z = source_of(w, 0, z, h);
      const int64_t at = b->at + ((channel * w->in[0] + source_z) * w->in[1] + source_y) * w->in[2];
      const int64_t stop = x + left < w->out[2] ? x + left : w->out[2], last = source_y < 0 || source_z < 0 ? x : stop;
      left -= stop - x;
      for (; w->spread[2] > 1 && x < last; x++, to++) {
        const int64_t source = source_of(w, 2, x, j);
        *to = 0;
        if (source >= 0) load(b->tensor, at + source, 1, 1, zero, to);
      }
      for (; x < last && x < low; x++) *to++ = 0;
      if (x < last && x < high) {
        const int64_t end = last < high ? last : high;
        load(b->tensor, at + x * step + offset, step, end - x, zero, to);
        to += end - x, x = end;
      }
      for (; x < stop; x++) *to++ = 0;
      x = 0;
      if (++y == w->out[1]) y = 0, z++;
    }
    if (++j == size[2]) j = 0, i++;
    if (i == size[1]) i = 0, h++;
    if (h == size[0]) h = 0, channel++;
  }
}

static void pack_panel(const matrix *b, int64_t start, int64_t depth, int64_t first, int64_t width, float *panel) {
  const int64_t at = b->at + start * b->row + first * b->column;
  const int has_zeros = b->zeros && !b->patches;
  int64_t p, j;
  for (p = 0; p < depth; p++)
    for (j = width; j < COLUMNS; j++) panel[p * COLUMNS + j] = 0;
  if (b->patches) copy_patches(b, start, depth, first, width, panel);
  else if (b->column == 1 && b->tensor->type == FLOAT && width == COLUMNS)
    for (p = 0; p < depth; p++) memcpy(panel + p * COLUMNS, floats(b->tensor) + at + p * b->row, COLUMNS * sizeof(float));
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

static float dot(int64_t count, const float *a, const float *b) {
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
          for (r = 0; r < ROWS && i + r < rows; r++) {
            float *y = is_float ? s->y + (i + r) * s->y_row + first : NULL;
            if (!is_float)
              for (j = 0; j < width; j++) sums[(i + r) * COLUMNS + j] += (uint32_t)(int32_t)tile[r * COLUMNS + j];
            else if (width == COLUMNS)
              for (j = 0; j < COLUMNS; j++) y[j] += tile[r * COLUMNS + j];
            else
              for (j = 0; j < width; j++) y[j] += tile[r * COLUMNS + j];
          }
        }
      }
      if (!is_float) set_sums(s, top, rows, first, width, sums);
    }
}

/* Adds products of float32 to the result, or sets products of 8-bit integers. Numbers: the rows and columns of the result,
   the terms of each sum; the steps along rows and columns of both operands, and along rows of the result; and a walk over
   matrices of the result and of both operands. */
int run_matmul(context *c) {
  const int64_t *n = c->numbers;
  const int is_float = c->in[0].type == FLOAT;
  int64_t at = 8, index, limits[3];
  product s;
  walk w;
  memset(&s, 0, sizeof s);
  for (index = 0; index < 8; index++) REQUIRE(n[index] >= 0 && n[index] <= INT32_MAX / 2);
  s.c = c, s.m = n[0], s.n = n[1], s.k = n[2], s.y_row = n[7];
  s.a.tensor = &c->in[0], s.a.row = n[3], s.a.column = n[4], s.a.zeros = has(c, 3) ? &c->in[3] : NULL;
  s.b.tensor = &c->in[1], s.b.row = n[5], s.b.column = n[6], s.b.zeros = has(c, 4) ? &c->in[4] : NULL;
  if (!is_float && check_scales(c, s.n)) return -1;
  if (!s.m || !s.n) return 0;
  REQUIRE(s.k > 0 || is_float);
  if (!s.k) return 0;
  limits[0] = c->out[0].count - (s.m - 1) * s.y_row - s.n + 1;
  limits[1] = c->in[0].count - (s.m - 1) * n[3] - (s.k - 1) * n[4];
  limits[2] = c->in[1].count - (s.k - 1) * n[5] - (s.n - 1) * n[6];
  for (index = 0; index < 3; index++) limits[index] = limits[index] > 0 ? limits[index] : 0;
  if (read_walk(c, &at, &w, 3, limits)) return -1;
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
