/* Products of matrices, and attention. */
#include "kernels.h"

/* A tile of ROWS rows and COLUMNS columns of the result stays in registers; DEPTH rows of the right operand are
   copied next to one another. */
enum { ROWS = 6, DEPTH = 256 };
#if defined(__AVX512F__)
enum { COLUMNS = 32 };
#elif defined(__AVX__)
enum { COLUMNS = 16 };
#else
enum { COLUMNS = 8 };
#endif

static void multiply_tile(int64_t depth, const float *restrict a, int64_t row, int64_t column,
                          const float *restrict panel, float *restrict y, int64_t y_row, int64_t width) {
  float s0[COLUMNS] = {0}, s1[COLUMNS] = {0}, s2[COLUMNS] = {0}, s3[COLUMNS] = {0}, s4[COLUMNS] = {0}, s5[COLUMNS] = {0};
  int64_t p;
  int j;
  for (p = 0; p < depth; p++, a += column, panel += COLUMNS) {
    float x0 = a[0], x1 = a[row], x2 = a[2 * row], x3 = a[3 * row], x4 = a[4 * row], x5 = a[5 * row];
    for (j = 0; j < COLUMNS; j++) {
      s0[j] += x0 * panel[j];
      s1[j] += x1 * panel[j];
      s2[j] += x2 * panel[j];
      s3[j] += x3 * panel[j];
      s4[j] += x4 * panel[j];
      s5[j] += x5 * panel[j];
    }
  }
  for (j = 0; j < width; j++) {
    y[j] += s0[j];
    y[y_row + j] += s1[j];
    y[2 * y_row + j] += s2[j];
    y[3 * y_row + j] += s3[j];
    y[4 * y_row + j] += s4[j];
    y[5 * y_row + j] += s5[j];
  }
}

static void multiply_row(int64_t depth, const float *restrict a, int64_t column, const float *restrict panel,
                         float *restrict y, int64_t width) {
  float sum[COLUMNS] = {0};
  int64_t p;
  int j;
  for (p = 0; p < depth; p++)
    for (j = 0; j < COLUMNS; j++) sum[j] += a[p * column] * panel[p * COLUMNS + j];
  for (j = 0; j < width; j++) y[j] += sum[j];
}

/* Copies `width` elements of a row of patches: of one element of the windows of neighbouring results. */
static void copy_patches(const matrix *b, int64_t p, int64_t first, int64_t width, float *to) {
  const window *w = b->patches;
  int64_t j = p % w->kernel[1] * w->dilation[1], i = p / w->kernel[1] % w->kernel[0] * w->dilation[0], low, high, x;
  const float *plane = b->data + p / (w->kernel[0] * w->kernel[1]) * w->in[0] * w->in[1];
  valid_range(w, 1, j, &low, &high);
  while (width > 0) {
    int64_t row = first / w->out[1], begin = first % w->out[1], end = begin + width, y = row * w->stride[0] - w->pad[0] + i;
    const float *from = plane + y * w->in[1] - w->pad[1] + j;
    int is_inside = y >= 0 && y < w->in[0];
    end = end > w->out[1] ? w->out[1] : end;
    for (x = begin; x < end && (!is_inside || x < low); x++) to[x - begin] = 0;
    if (w->stride[1] == 1)
      for (; x < end && x < high; x++) to[x - begin] = from[x];
    else
      for (; x < end && x < high; x++) to[x - begin] = from[x * w->stride[1]];
    for (; x < end; x++) to[x - begin] = 0;
    to += end - begin;
    first += end - begin;
    width -= end - begin;
  }
}

static void pack_panel(const matrix *b, int64_t start, int64_t depth, int64_t first, int64_t width, float *panel) {
  int64_t p, j;
  for (p = 0; p < depth; p++)
    for (j = width; j < COLUMNS; j++) panel[p * COLUMNS + j] = 0;
  if (b->patches)
    for (p = 0; p < depth; p++) copy_patches(b, start + p, first, width, panel + p * COLUMNS);
  else if (b->column == 1)
    for (p = 0; p < depth; p++) memcpy(panel + p * COLUMNS, b->data + (start + p) * b->row + first, (size_t)width * sizeof(float));
  else
    for (j = 0; j < width; j++) {
      const float *from = b->data + start * b->row + (first + j) * b->column;
      for (p = 0; p < depth; p++) panel[p * COLUMNS + j] = from[p * b->row];
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
  int64_t p, j;
  if (b->row == 1 && a_column == 1)
    for (j = 0; j < n; j++) y[j] += dot(k, a, b->data + j * b->column);
  else
    for (p = 0; p < k; p++) {
      const float *restrict row = b->data + p * b->row, x = a[p * a_column];
      if (b->column == 1)
        for (j = 0; j < n; j++) y[j] += x * row[j];
      else
        for (j = 0; j < n; j++) y[j] += x * row[j * b->column];
    }
}

void multiply(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const matrix *b,
              float *y, int64_t y_row) {
  float panel[DEPTH * COLUMNS];
  int64_t i, first, start;
  if (m < 4 && !b->patches) {
    for (i = 0; i < m; i++) multiply_few(n, k, a + i * a_row, a_column, b, y + i * y_row);
    return;
  }
  for (first = 0; first < n; first += COLUMNS)
    for (start = 0; start < k; start += DEPTH) {
      int64_t width = n - first < COLUMNS ? n - first : COLUMNS, depth = k - start < DEPTH ? k - start : DEPTH;
      const float *left = a + start * a_column;
      pack_panel(b, start, depth, first, width, panel);
      for (i = 0; i + ROWS <= m; i += ROWS)
        multiply_tile(depth, left + i * a_row, a_row, a_column, panel, y + i * y_row + first, y_row, width);
      for (; i < m; i++) multiply_row(depth, left + i * a_row, a_column, panel, y + i * y_row + first, width);
    }
}

/* Vectors are matrices with one row or column. */
int run_matmul(context *c) {
  opsetta_tensor a = c->in[0], b = c->in[1], batches = c->out[0];
  int64_t rows = a.rank > 1 ? a.shape[a.rank - 2] : 1, columns = b.rank > 1 ? b.shape[b.rank - 1] : 1, inner, number = 0;
  int64_t index;
  matrix right = {NULL, columns, 1, NULL};
  walk w;
  REQUIRE(a.rank >= 1 && b.rank >= 1);
  inner = a.shape[a.rank - 1];
  REQUIRE((b.rank > 1 ? b.shape[b.rank - 2] : b.shape[0]) == inner);
  REQUIRE((number = (a.rank > 1) + (b.rank > 1)) <= batches.rank);
  batches.rank -= (uint32_t)number;
  number = 0;
  a.rank = a.rank > 2 ? a.rank - 2 : 0;
  b.rank = b.rank > 2 ? b.rank - 2 : 0;
  batches.count = span(&batches, 0, batches.rank);
  REQUIRE(c->out[0].count == batches.count * rows * columns);
  start_walk(&w, &batches);
  REQUIRE(!add_operand(&w, &a, &batches) && !add_operand(&w, &b, &batches));
  if (c->is_check || !c->out[0].count) return 0;
  memset(c->out[0].data, 0, c->out[0].bytes);
  do {
    for (index = 0; index < w.length; index++, number++) {
      int64_t i = w.offset[0] + index * w.steps[0][w.rank - 1], j = w.offset[1] + index * w.steps[1][w.rank - 1];
      right.data = floats(&b) + j * inner * columns;
      multiply(rows, columns, inner, floats(&a) + i * rows * inner, inner, 1, &right,
               floats(&c->out[0]) + number * rows * columns, columns);
    }
  } while (next_row(&w));
  return 0;
}

int run_gemm(context *c) {
  const opsetta_tensor *a = &c->in[0], *b = &c->in[1], *out = &c->out[0];
  int a_turned = int_of(c, "transA", 0) != 0, b_turned = int_of(c, "transB", 0) != 0;
  int64_t rows = out->shape[0], columns = out->shape[1], inner = a->shape[a_turned ? 0 : 1], index, at = 0;
  float alpha = float_of(c, "alpha", 1), beta = float_of(c, "beta", 1) / (alpha != 0 ? alpha : 1);
  matrix right = {floats(b), b_turned ? 1 : columns, b_turned ? inner : 1, NULL};
  walk w;
  REQUIRE(a->rank == 2 && b->rank == 2 && out->rank == 2 && a->shape[a_turned] == rows);
  REQUIRE(b->shape[b_turned] == inner && b->shape[!b_turned] == columns);
  start_walk(&w, out);
  REQUIRE(!has(c, 2) || !add_operand(&w, &c->in[2], out));
  if (c->is_check || !out->count) return 0;
  if (has(c, 2))
    do {
      for (index = 0; index < w.length; index++)
        floats(out)[at++] = beta * floats(&c->in[2])[w.offset[0] + index * w.steps[0][w.rank - 1]];
    } while (next_row(&w));
  else memset(out->data, 0, out->bytes);
  if (alpha == 0) return 0;
  multiply(rows, columns, inner, floats(a), a_turned ? 1 : inner, a_turned ? rows : 1, &right, floats(out), columns);
  for (index = 0; index < out->count && alpha != 1; index++) floats(out)[index] *= alpha;
  return 0;
}

typedef struct {
  int64_t heads, length, width, batch_step, head_step, row_step;
} layout;

/* The layout of queries, keys or values: [batch, heads, length, width], or [batch, length, heads * width]. */
static layout layout_of(const opsetta_tensor *tensor, int64_t heads) {
  layout l;
  int is_split = tensor->rank == 4;
  l.heads = is_split ? tensor->shape[1] : heads;
  l.length = tensor->shape[is_split ? 2 : 1];
  l.width = is_split ? tensor->shape[3] : tensor->shape[2] / (heads > 0 ? heads : 1);
  l.batch_step = span(tensor, 1, tensor->rank);
  l.head_step = is_split ? l.length * l.width : l.width;
  l.row_step = is_split ? l.width : l.heads * l.width;
  return l;
}

typedef struct {
  layout q, k, v, o;
  walk mask;
  float scale;
  int is_causal;
} attention;

/* One row of the result. Scores of a few keys at a time need no memory; a new maximum rescales what there is. */
static void attend(const context *c, const attention *s, int64_t b, int64_t h, int64_t i) {
  enum { KEYS = 64 };
  int64_t shared = h / (s->q.heads / s->k.heads), first, j, d, count = s->is_causal ? i + 1 : s->k.length;
  const float *query = floats(&c->in[0]) + b * s->q.batch_step + h * s->q.head_step + i * s->q.row_step;
  const float *key = floats(&c->in[1]) + b * s->k.batch_step + shared * s->k.head_step;
  const float *value = floats(&c->in[2]) + b * s->v.batch_step + shared * s->v.head_step;
  const int64_t *steps = s->mask.steps[0];
  float *restrict y = floats(&c->out[0]) + b * s->o.batch_step + h * s->o.head_step + i * s->o.row_step;
  float most = -INFINITY, total = 0, scores[KEYS], before;
  count = count < s->k.length ? count : s->k.length;
  for (d = 0; d < s->o.width; d++) y[d] = 0;
  for (first = 0; first < count; first += KEYS) {
    int64_t keys = count - first < KEYS ? count - first : KEYS;
    before = most;
    for (j = 0; j < keys; j++) {
      int64_t at = has(c, 3) ? b * steps[0] + h * steps[1] + i * steps[2] + (first + j) * steps[3] : 0;
      float score = s->scale * dot(s->q.width, query, key + (first + j) * s->k.row_step);
      if (has(c, 3) && c->in[3].type == FLOAT) score += floats(&c->in[3])[at];
      if (has(c, 3) && c->in[3].type == BOOL && !c->in[3].data[at]) score = -INFINITY;
      scores[j] = score;
      most = score > most ? score : most;
    }
    if (most == -INFINITY) continue; /* all keys so far are masked */
    before = before == most ? 1.0f : exponential(before - most);
    total *= before;
    for (d = 0; d < s->o.width; d++) y[d] *= before;
    for (j = 0; j < keys; j++) {
      const float *restrict row = value + (first + j) * s->v.row_step, power = exponential(scores[j] - most);
      total += power;
      for (d = 0; d < s->o.width; d++) y[d] += power * row[d];
    }
  }
  total = total > 0 ? 1.0f / total : 0; /* rows without keys are 0 */
  for (d = 0; d < s->o.width; d++) y[d] *= total;
}

int run_attention(context *c) {
  int64_t query_heads = int_of(c, "q_num_heads", 1), key_heads = int_of(c, "kv_num_heads", 1), b, h, i;
  opsetta_tensor scores = c->in[0];
  attention s;
  s.q = layout_of(&c->in[0], query_heads);
  s.k = layout_of(&c->in[1], key_heads);
  s.v = layout_of(&c->in[2], key_heads);
  s.o = layout_of(&c->out[0], query_heads);
  s.is_causal = int_of(c, "is_causal", 0) != 0;
  s.scale = float_of(c, "scale", 1.0 / sqrt((double)s.q.width));
  REQUIRE(s.q.heads > 0 && s.k.heads > 0 && s.q.heads % s.k.heads == 0 && s.v.heads == s.k.heads);
  REQUIRE(s.o.heads == s.q.heads && s.k.length == s.v.length && s.o.length == s.q.length && s.k.width == s.q.width);
  REQUIRE(s.o.width == s.v.width && c->in[1].shape[0] == scores.shape[0] && c->in[2].shape[0] == scores.shape[0]);
  REQUIRE(c->out[0].shape[0] == scores.shape[0]);
  scores.rank = 4;
  scores.shape[1] = s.q.heads;
  scores.shape[2] = s.q.length;
  scores.shape[3] = s.k.length;
  start_walk(&s.mask, &scores);
  REQUIRE(!has(c, 3) || !add_operand(&s.mask, &c->in[3], &scores));
  for (b = 0; b < scores.shape[0] && !c->is_check; b++)
    for (h = 0; h < s.q.heads; h++)
      for (i = 0; i < s.q.length; i++) attend(c, &s, b, h, i);
  return 0;
}

/* RotaryEmbedding: rotates pairs of elements by angles, which are selected by position or one for each row. */
int run_rotary(context *c) {
  int64_t heads = int_of(c, "num_heads", 1), width, half, batch, length, b, h, i, d, row;
  int is_interleaved = int_of(c, "interleaved", 0) != 0, has_positions = has(c, 3);
  layout l = layout_of(&c->in[0], heads);
  REQUIRE(same_shape(&c->in[0], &c->out[0]) && same_shape(&c->in[1], &c->in[2]) && l.heads > 0);
  REQUIRE(c->in[0].rank == 4 || l.heads * l.width == c->in[0].shape[2]);
  batch = c->in[0].shape[0];
  length = l.length;
  width = int_of(c, "rotary_embedding_dim", 0);
  width = width ? width : l.width;
  half = width / 2;
  REQUIRE(width > 0 && width <= l.width && c->in[1].rank == (has_positions ? 2 : 3));
  REQUIRE(c->in[1].shape[has_positions ? 1 : 2] == half);
  REQUIRE(has_positions ? c->in[3].count == batch * length : c->in[1].count == batch * length * half);
  for (b = 0; b < batch && !c->is_check; b++)
    for (i = 0; i < length; i++) {
      row = has_positions ? integer(&c->in[3], b * length + i) : b * length + i;
      REQUIRE(row >= 0 && row < c->in[1].count / half);
      for (h = 0; h < l.heads; h++) {
        int64_t at = b * l.batch_step + h * l.head_step + i * l.row_step;
        const float *x = floats(&c->in[0]) + at, *cosine = floats(&c->in[1]) + row * half;
        const float *sine = floats(&c->in[2]) + row * half;
        float *y = floats(&c->out[0]) + at;
        for (d = 0; d < half; d++) {
          int64_t first = is_interleaved ? 2 * d : d, second = is_interleaved ? 2 * d + 1 : d + half;
          float real = x[first], imaginary = x[second];
          y[first] = real * cosine[d] - imaginary * sine[d];
          y[second] = real * sine[d] + imaginary * cosine[d];
        }
        for (d = 2 * half; d < l.width; d++) y[d] = x[d];
      }
    }
  return 0;
}
