#include "opsetta_runtime.h"

#include <math.h>
#include <string.h>

enum { FLOAT = 1, UINT8 = 2, INT8 = 3, INT32 = 6, INT64 = 7, BOOL = 9, FLOAT16 = 10, DOUBLE = 11 };
enum { VALUE_SIZE = 32, NODE_SIZE = 28, HEAD_SIZE = 64, MOST_INPUTS = 16, MOST_OUTPUTS = 8 };

typedef struct {
  opsetta_model *model;
  const char *type;
  uint32_t in_count, out_count, attribute_count, attributes;
  opsetta_tensor in[MOST_INPUTS], out[MOST_OUTPUTS];
} context;

static uint32_t u32(const uint8_t *at) {
  uint32_t number;
  memcpy(&number, at, sizeof number);
  return number;
}

static uint64_t u64(const uint8_t *at) {
  uint64_t number;
  memcpy(&number, at, sizeof number);
  return number;
}

/* Numbers and texts outside of a damaged plan are 0 and empty. */
static int64_t pooled(const opsetta_model *model, int64_t index) {
  return index < 0 || index >= model->pool_count ? 0 : (int64_t)u64(model->pool + 8 * (size_t)index);
}

static const char *text_at(const opsetta_model *model, int64_t position) {
  return position < 0 || position >= model->text_size ? "" : (const char *)model->text + position;
}

static int fail(opsetta_model *model, const char *error, const char *name) {
  model->error = error;
  model->error_name = name;
  return -1;
}

static size_t item_size(uint32_t type) {
  switch (type) {
    case UINT8: case INT8: case BOOL: return 1;
    case FLOAT16: case 4: case 5: case 16: return 2;
    case INT64: case DOUBLE: case 13: return 8;
    default: return 4;
  }
}

/* ------------------------------------------------------------------ files */

int opsetta_open(opsetta_model *model, const void *plan, size_t plan_size, const void *weights,
                 size_t weights_size) {
  const uint8_t *head = plan;
  uint64_t need = HEAD_SIZE;
  memset(model, 0, sizeof *model);
  if (plan_size < HEAD_SIZE || memcmp(head, "OPDV", 4) || u32(head + 4) != 1)
    return fail(model, "the plan has another format", "");
  model->plan = head;
  model->plan_size = plan_size;
  model->weights = weights;
  model->value_count = u32(head + 8);
  model->node_count = u32(head + 12);
  model->input_count = u32(head + 16);
  model->output_count = u32(head + 20);
  model->pool_count = u32(head + 24);
  model->text_size = u32(head + 28);
  model->arena_size = u64(head + 32);
  model->weights_size = u64(head + 40);
  need += 8 * (uint64_t)model->pool_count + (uint64_t)VALUE_SIZE * model->value_count;
  need += (uint64_t)NODE_SIZE * model->node_count;
  need += 4 * ((uint64_t)model->input_count + model->output_count) + model->text_size;
  if (need != plan_size || model->text_size == 0 || head[plan_size - 1] != 0)
    return fail(model, "the plan is damaged", "");
  if (weights_size != model->weights_size) return fail(model, "the weights belong to another plan", "");
  model->pool = head + HEAD_SIZE;
  model->values = model->pool + 8 * (size_t)model->pool_count;
  model->nodes = model->values + VALUE_SIZE * (size_t)model->value_count;
  model->inputs = model->nodes + NODE_SIZE * (size_t)model->node_count;
  model->outputs = model->inputs + 4 * (size_t)model->input_count;
  model->text = model->outputs + 4 * (size_t)model->output_count;
  return 0;
}

/* Value 0 stands for an omitted operand. */
static int tensor_of(opsetta_model *model, uint8_t *arena, uint32_t index, opsetta_tensor *tensor) {
  const uint8_t *value = model->values + VALUE_SIZE * (size_t)index;
  uint64_t offset, size, limit;
  uint32_t place, shape, axis;
  memset(tensor, 0, sizeof *tensor);
  if (index >= model->value_count) return fail(model, "the plan is damaged", "value");
  tensor->type = u32(value);
  tensor->rank = u32(value + 4);
  shape = u32(value + 8);
  place = u32(value + 12);
  offset = u64(value + 16);
  size = u64(value + 24);
  if (place == 0) return 0;
  if (tensor->rank > OPSETTA_RANK || (uint64_t)shape + tensor->rank > model->pool_count)
    return fail(model, "a value has too many dimensions", "");
  tensor->count = 1;
  for (axis = 0; axis < tensor->rank; axis++) {
    tensor->shape[axis] = pooled(model, shape + axis);
    tensor->count *= tensor->shape[axis];
  }
  tensor->bytes = (size_t)tensor->count * item_size(tensor->type);
  limit = place == 1 ? model->arena_size : model->weights_size;
  if (size > limit || offset > limit - size || tensor->count < 0 ||
      (uint64_t)tensor->count * item_size(tensor->type) > size)
    return fail(model, "a value lies outside of its memory", "");
  /* Kernels write to values of the arena only. */
  tensor->data = place == 1 ? arena + offset : (uint8_t *)(uintptr_t)(model->weights + offset);
  return 0;
}

int opsetta_input(opsetta_model *model, void *arena, uint32_t index, opsetta_tensor *tensor) {
  if (index >= model->input_count) return fail(model, "there is no such input", "");
  return tensor_of(model, arena, u32(model->inputs + 4 * (size_t)index), tensor);
}

int opsetta_output(opsetta_model *model, void *arena, uint32_t index, opsetta_tensor *tensor) {
  if (index >= model->output_count) return fail(model, "there is no such output", "");
  return tensor_of(model, arena, u32(model->outputs + 4 * (size_t)index), tensor);
}

/* ------------------------------------------------------- attributes, shapes */

/* An attribute takes 4 numbers of the pool: name and text as offsets, the number of its items, their position.
   Floats are stored as the bits of doubles. */
static int64_t find_attribute(const context *c, const char *name) {
  uint32_t number;
  for (number = 0; number < c->attribute_count; number++) {
    int64_t at = (int64_t)c->attributes + 4 * (int64_t)number;
    if (!strcmp(text_at(c->model, pooled(c->model, at)), name)) return at;
  }
  return -1;
}

static int64_t int_of(const context *c, const char *name, int64_t otherwise) {
  int64_t at = find_attribute(c, name);
  return at < 0 ? otherwise : pooled(c->model, pooled(c->model, at + 3));
}

static int64_t item_of(const context *c, const char *name, uint32_t index, int64_t otherwise) {
  int64_t at = find_attribute(c, name);
  if (at < 0 || index >= pooled(c->model, at + 2)) return otherwise;
  return pooled(c->model, pooled(c->model, at + 3) + index);
}

static int64_t length_of(const context *c, const char *name) {
  int64_t at = find_attribute(c, name);
  return at < 0 ? -1 : pooled(c->model, at + 2);
}

static float float_of(const context *c, const char *name, double otherwise) {
  int64_t at = find_attribute(c, name), bits;
  double number = otherwise;
  if (at >= 0) {
    bits = pooled(c->model, pooled(c->model, at + 3));
    memcpy(&number, &bits, sizeof number);
  }
  return (float)number;
}

static const char *text_of(const context *c, const char *name, const char *otherwise) {
  int64_t at = find_attribute(c, name);
  return at < 0 ? otherwise : text_at(c->model, pooled(c->model, at + 1));
}

static float *floats(const opsetta_tensor *tensor) { return (float *)(void *)tensor->data; }

static int64_t integer(const opsetta_tensor *tensor, int64_t index) {
  if (tensor->type == INT32) return ((const int32_t *)(const void *)tensor->data)[index];
  return ((const int64_t *)(const void *)tensor->data)[index];
}

static int64_t wrapped(int64_t axis, uint32_t rank) { return axis < 0 ? axis + rank : axis; }

static int64_t span(const opsetta_tensor *tensor, int64_t first, int64_t last) {
  int64_t count = 1;
  for (; first < last; first++) count *= tensor->shape[first];
  return count;
}

/* The steps of an operand in elements along the axes of a result; 0 where it is broadcast. */
static void broadcast_steps(const opsetta_tensor *operand, const opsetta_tensor *result, int64_t *steps) {
  int64_t step = 1;
  uint32_t back;
  for (back = 1; back <= result->rank; back++) {
    int64_t size = back <= operand->rank ? operand->shape[operand->rank - back] : 1;
    steps[result->rank - back] = size == 1 ? 0 : step;
    step *= size;
  }
}

static void advance(const opsetta_tensor *shape, int64_t *position, int64_t *offsets, int64_t (*steps)[OPSETTA_RANK],
                    int count) {
  uint32_t axis = shape->rank;
  int number;
  while (axis-- > 0) {
    for (number = 0; number < count; number++) offsets[number] += steps[number][axis];
    if (++position[axis] < shape->shape[axis]) return;
    for (number = 0; number < count; number++) offsets[number] -= steps[number][axis] * position[axis];
    position[axis] = 0;
  }
}

static int all_floats(const context *c, uint32_t inputs) {
  uint32_t number;
  for (number = 0; number < inputs && number < c->in_count; number++)
    if (c->in[number].data && c->in[number].type != FLOAT)
      return fail(c->model, "operands must be float32", c->type);
  return 0;
}

/* ------------------------------------------------------------- elementwise */

static int run_binary(context *c) {
  int64_t position[OPSETTA_RANK] = {0}, offsets[2] = {0, 0}, steps[2][OPSETTA_RANK], index;
  const char *type = c->type;
  float *out = floats(&c->out[0]);
  int code = !strcmp(type, "Add") ? 0 : !strcmp(type, "Sub") ? 1 : !strcmp(type, "Mul") ? 2
           : !strcmp(type, "Div") ? 3 : !strcmp(type, "Pow") ? 4 : !strcmp(type, "Max") ? 5
           : !strcmp(type, "Min") ? 6 : 7;
  if (all_floats(c, 2)) return -1;
  if (c->in_count != 2) return fail(c->model, "two operands are needed", type);
  broadcast_steps(&c->in[0], &c->out[0], steps[0]);
  broadcast_steps(&c->in[1], &c->out[0], steps[1]);
  for (index = 0; index < c->out[0].count; index++) {
    float a = floats(&c->in[0])[offsets[0]], b = floats(&c->in[1])[offsets[1]], y;
    switch (code) {
      case 0: y = a + b; break;
      case 1: y = a - b; break;
      case 2: y = a * b; break;
      case 3: y = a / b; break;
      case 4: y = powf(a, b); break;
      case 5: y = a > b || a != a ? a : b; break;
      case 6: y = a < b || a != a ? a : b; break;
      default: y = a < 0 ? a * b : a; break; /* PRelu */
    }
    out[index] = y;
    advance(&c->out[0], position, offsets, steps, 2);
  }
  return 0;
}

static float clip(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

static int run_unary(context *c) {
  static const char *const names[] = {"Relu", "Sigmoid", "Tanh", "Exp", "Log", "Sqrt", "Neg", "Abs", "Erf",
                                      "Reciprocal", "LeakyRelu", "Clip", "HardSigmoid", "HardSwish", "Gelu",
                                      "Softplus", "Elu", "Floor", "Ceil", "Sin", "Cos", "Identity"};
  float alpha = 0, beta = 0, *out = floats(&c->out[0]);
  int64_t index;
  size_t code = 0;
  int is_tanh = !strcmp(text_of(c, "approximate", "none"), "tanh");
  if (all_floats(c, 3)) return -1;
  while (strcmp(names[code], c->type)) code++;
  if (code == 10) alpha = float_of(c, "alpha", 0.01);
  if (code == 12) alpha = float_of(c, "alpha", 0.2), beta = float_of(c, "beta", 0.5);
  if (code == 16) alpha = float_of(c, "alpha", 1.0);
  if (code == 11) {
    alpha = c->in_count > 1 && c->in[1].data ? *floats(&c->in[1]) : float_of(c, "min", -INFINITY);
    beta = c->in_count > 2 && c->in[2].data ? *floats(&c->in[2]) : float_of(c, "max", INFINITY);
  }
  for (index = 0; index < c->out[0].count; index++) {
    float x = floats(&c->in[0])[index], y;
    switch (code) {
      case 0: y = x > 0 || x != x ? x : 0; break;
      case 1: y = 1.0f / (1.0f + expf(-x)); break;
      case 2: y = tanhf(x); break;
      case 3: y = expf(x); break;
      case 4: y = logf(x); break;
      case 5: y = sqrtf(x); break;
      case 6: y = -x; break;
      case 7: y = fabsf(x); break;
      case 8: y = erff(x); break;
      case 9: y = 1.0f / x; break;
      case 10: y = x < 0 ? alpha * x : x; break;
      case 11: y = clip(x, alpha, beta); break;
      case 12: y = clip(alpha * x + beta, 0, 1); break;
      case 13: y = x * clip(x / 6.0f + 0.5f, 0, 1); break;
      case 14:
        y = is_tanh ? 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)))
                    : 0.5f * x * (1.0f + erff(x * 0.7071067812f));
        break;
      case 15: y = x > 20 ? x : log1pf(expf(x)); break;
      case 16: y = x < 0 ? alpha * (expf(x) - 1) : x; break;
      case 17: y = floorf(x); break;
      case 18: y = ceilf(x); break;
      case 19: y = sinf(x); break;
      case 20: y = cosf(x); break;
      default: y = x; break;
    }
    out[index] = y;
  }
  return 0;
}

static int run_batch_normalization(context *c) {
  const float *scale = floats(&c->in[1]), *bias = floats(&c->in[2]), *mean = floats(&c->in[3]);
  const float *variance = floats(&c->in[4]), *x = floats(&c->in[0]);
  float epsilon = float_of(c, "epsilon", 1e-5), *out = floats(&c->out[0]);
  int64_t inner = span(&c->in[0], 2, c->in[0].rank), channels = c->in[0].shape[1], index;
  if (all_floats(c, 5)) return -1;
  if (c->out_count > 1) return fail(c->model, "only inference is supported", c->type);
  for (index = 0; index < c->out[0].count; index++) {
    int64_t channel = index / inner % channels;
    out[index] = (x[index] - mean[channel]) / sqrtf(variance[channel] + epsilon) * scale[channel] + bias[channel];
  }
  return 0;
}

/* ------------------------------------------------------------------- rows */

static int run_softmax(context *c) {
  int64_t axis = wrapped(int_of(c, "axis", -1), c->in[0].rank), outer = span(&c->in[0], 0, axis);
  int64_t size = c->in[0].shape[axis], inner = span(&c->in[0], axis + 1, c->in[0].rank), row, column, index;
  int is_log = !strcmp(c->type, "LogSoftmax");
  if (all_floats(c, 1)) return -1;
  for (row = 0; row < outer; row++)
    for (column = 0; column < inner; column++) {
      const float *x = floats(&c->in[0]) + row * size * inner + column;
      float *y = floats(&c->out[0]) + row * size * inner + column, most = -INFINITY, total = 0;
      for (index = 0; index < size; index++) most = x[index * inner] > most ? x[index * inner] : most;
      for (index = 0; index < size; index++) total += expf(x[index * inner] - most);
      for (index = 0; index < size; index++)
        y[index * inner] = is_log ? x[index * inner] - most - logf(total) : expf(x[index * inner] - most) / total;
    }
  return 0;
}

static int run_layer_normalization(context *c) {
  int64_t axis = wrapped(int_of(c, "axis", -1), c->in[0].rank), outer = span(&c->in[0], 0, axis);
  int64_t size = span(&c->in[0], axis, c->in[0].rank), row, index;
  float epsilon = float_of(c, "epsilon", 1e-5);
  if (all_floats(c, 3)) return -1;
  if (c->out_count > 1) return fail(c->model, "only the first output is computed", c->type);
  if (c->in[1].count != size) return fail(c->model, "the scale must have the size of a row", c->type);
  for (row = 0; row < outer; row++) {
    const float *x = floats(&c->in[0]) + row * size;
    float *y = floats(&c->out[0]) + row * size;
    double mean = 0, variance = 0;
    for (index = 0; index < size; index++) mean += x[index];
    mean /= (double)size;
    for (index = 0; index < size; index++) variance += (x[index] - mean) * (x[index] - mean);
    variance = 1.0 / sqrt(variance / (double)size + epsilon);
    for (index = 0; index < size; index++) {
      float normal = (float)((x[index] - mean) * variance) * floats(&c->in[1])[index];
      y[index] = c->in_count > 2 && c->in[2].data ? normal + floats(&c->in[2])[index] : normal;
    }
  }
  return 0;
}

static int run_reduce(context *c) {
  int64_t steps[1][OPSETTA_RANK], position[OPSETTA_RANK] = {0}, offset[1] = {0}, index, step = 1, kept = 1;
  int is_reduced[OPSETTA_RANK] = {0}, is_max = !strcmp(c->type, "ReduceMax");
  int64_t count = c->in_count > 1 && c->in[1].data ? c->in[1].count : length_of(c, "axes");
  float *out = floats(&c->out[0]);
  uint32_t axis;
  if (all_floats(c, 1)) return -1;
  for (axis = 0; axis < c->in[0].rank; axis++)
    is_reduced[axis] = count <= 0 && !int_of(c, "noop_with_empty_axes", 0);
  for (index = 0; index < count; index++) {
    int64_t number = c->in_count > 1 && c->in[1].data ? integer(&c->in[1], index)
                                                      : item_of(c, "axes", (uint32_t)index, 0);
    is_reduced[wrapped(number, c->in[0].rank)] = 1;
  }
  for (axis = c->in[0].rank; axis-- > 0;) {
    steps[0][axis] = is_reduced[axis] ? 0 : step;
    if (is_reduced[axis]) kept *= c->in[0].shape[axis];
    else step *= c->in[0].shape[axis];
  }
  for (index = 0; index < c->out[0].count; index++) out[index] = is_max ? -INFINITY : 0;
  for (index = 0; index < c->in[0].count; index++) {
    float x = floats(&c->in[0])[index];
    if (is_max) out[offset[0]] = x > out[offset[0]] ? x : out[offset[0]];
    else out[offset[0]] += x;
    advance(&c->in[0], position, offset, steps, 1);
  }
  if (!strcmp(c->type, "ReduceMean"))
    for (index = 0; index < c->out[0].count; index++) out[index] /= (float)kept;
  return 0;
}

/* --------------------------------------------------------------- matrices */

static int run_matmul(context *c) {
  const opsetta_tensor *a = &c->in[0], *b = &c->in[1];
  int64_t rows = a->rank > 1 ? a->shape[a->rank - 2] : 1, inner = a->shape[a->rank - 1];
  int64_t columns = b->rank > 1 ? b->shape[b->rank - 1] : 1, batch, i, j, k;
  int64_t steps[2][OPSETTA_RANK], position[OPSETTA_RANK] = {0}, offsets[2] = {0, 0};
  opsetta_tensor batches, of_a = *a, of_b = *b;
  if (all_floats(c, 2)) return -1;
  if (a->rank < 2 || b->rank < 2) return fail(c->model, "operands must be matrices", c->type);
  batches = c->out[0];
  batches.rank -= 2;
  of_a.rank -= 2;
  of_b.rank -= 2;
  batches.count = span(&batches, 0, batches.rank);
  broadcast_steps(&of_a, &batches, steps[0]);
  broadcast_steps(&of_b, &batches, steps[1]);
  for (batch = 0; batch < batches.count; batch++) {
    const float *x = floats(a) + offsets[0] * rows * inner, *w = floats(b) + offsets[1] * inner * columns;
    float *y = floats(&c->out[0]) + batch * rows * columns;
    for (i = 0; i < rows; i++) {
      for (j = 0; j < columns; j++) y[i * columns + j] = 0;
      for (k = 0; k < inner; k++)
        for (j = 0; j < columns; j++) y[i * columns + j] += x[i * inner + k] * w[k * columns + j];
    }
    advance(&batches, position, offsets, steps, 2);
  }
  return 0;
}

static int run_gemm(context *c) {
  int turns_a = int_of(c, "transA", 0) != 0, turns_b = int_of(c, "transB", 0) != 0;
  int64_t rows = c->out[0].shape[0], columns = c->out[0].shape[1], inner = c->in[0].shape[turns_a ? 0 : 1];
  int64_t steps[1][OPSETTA_RANK], i, j, k;
  float alpha = float_of(c, "alpha", 1), beta = float_of(c, "beta", 1);
  int has_bias = c->in_count > 2 && c->in[2].data;
  if (all_floats(c, 3)) return -1;
  if (has_bias) broadcast_steps(&c->in[2], &c->out[0], steps[0]);
  for (i = 0; i < rows; i++)
    for (j = 0; j < columns; j++) {
      float total = 0;
      for (k = 0; k < inner; k++)
        total += floats(&c->in[0])[turns_a ? k * rows + i : i * inner + k] *
                 floats(&c->in[1])[turns_b ? j * inner + k : k * columns + j];
      total *= alpha;
      if (has_bias) total += beta * floats(&c->in[2])[i * steps[0][0] + j * steps[0][1]];
      floats(&c->out[0])[i * columns + j] = total;
    }
  return 0;
}

/* -------------------------------------------------------------- attention */

typedef struct {
  int64_t heads, length, width, batch_step, head_step, row_step;
} layout;

/* The layout of queries, keys or values: [batch, heads, length, width], or [batch, length, heads * width]. */
static layout layout_of(const opsetta_tensor *tensor, int64_t heads) {
  layout l;
  int is_split = tensor->rank == 4;
  l.heads = is_split ? tensor->shape[1] : heads;
  l.length = tensor->shape[is_split ? 2 : 1];
  l.width = is_split ? tensor->shape[3] : tensor->shape[2] / heads;
  l.batch_step = span(tensor, 1, tensor->rank);
  l.head_step = is_split ? l.length * l.width : l.width;
  l.row_step = is_split ? l.width : heads * l.width;
  return l;
}

/* Scores are computed twice, for their maximum and for the result, so that they need no memory. */
static int run_attention(context *c) {
  layout q, k, v, o;
  int64_t query_heads = int_of(c, "q_num_heads", 1), key_heads = int_of(c, "kv_num_heads", 1), b, h, i, j, d;
  int64_t mask_steps[OPSETTA_RANK] = {0};
  int is_causal = int_of(c, "is_causal", 0) != 0, has_mask = c->in_count > 3 && c->in[3].data, pass;
  opsetta_tensor scores;
  float scale;
  uint32_t number;
  if (all_floats(c, 3) || query_heads < 1 || key_heads < 1) return -1;
  for (number = 4; number < c->in_count; number++)
    if (c->in[number].data) return fail(c->model, "caches are not supported", c->type);
  if (c->out_count > 1 || float_of(c, "softcap", 0) != 0.0f)
    return fail(c->model, "only the first output without softcap is supported", c->type);
  q = layout_of(&c->in[0], query_heads);
  k = layout_of(&c->in[1], key_heads);
  v = layout_of(&c->in[2], key_heads);
  o = layout_of(&c->out[0], query_heads);
  if (is_causal && q.length != k.length) return fail(c->model, "causal attention needs equal lengths", c->type);
  if (has_mask && c->in[3].type != FLOAT && c->in[3].type != BOOL)
    return fail(c->model, "the mask must be float32 or bool", c->type);
  scale = float_of(c, "scale", 1.0 / sqrt((double)q.width));
  scores.rank = 4;
  scores.shape[0] = c->in[0].shape[0];
  scores.shape[1] = q.heads;
  scores.shape[2] = q.length;
  scores.shape[3] = k.length;
  if (has_mask) broadcast_steps(&c->in[3], &scores, mask_steps);
  for (b = 0; b < scores.shape[0]; b++)
    for (h = 0; h < q.heads; h++) {
      int64_t shared = h / (q.heads / k.heads);
      for (i = 0; i < q.length; i++) {
        const float *query = floats(&c->in[0]) + b * q.batch_step + h * q.head_step + i * q.row_step;
        float *y = floats(&c->out[0]) + b * o.batch_step + h * o.head_step + i * o.row_step;
        float most = -INFINITY, total = 0;
        for (d = 0; d < o.width; d++) y[d] = 0;
        for (pass = 0; pass < 2; pass++)
          for (j = 0; j < (is_causal ? i + 1 : k.length); j++) {
            const float *key = floats(&c->in[1]) + b * k.batch_step + shared * k.head_step + j * k.row_step;
            const float *value = floats(&c->in[2]) + b * v.batch_step + shared * v.head_step + j * v.row_step;
            int64_t at = b * mask_steps[0] + h * mask_steps[1] + i * mask_steps[2] + j * mask_steps[3];
            float score = 0;
            for (d = 0; d < q.width; d++) score += query[d] * key[d];
            score *= scale;
            if (has_mask && c->in[3].type == FLOAT) score += floats(&c->in[3])[at];
            if (has_mask && c->in[3].type == BOOL && !c->in[3].data[at]) score = -INFINITY;
            if (pass == 0) {
              most = score > most ? score : most;
              continue;
            }
            score = expf(score - most);
            total += score;
            for (d = 0; d < o.width; d++) y[d] += score * value[d];
          }
        for (d = 0; d < o.width; d++) y[d] /= total;
      }
    }
  return 0;
}

/* ---------------------------------------------------------------- windows */

typedef struct {
  int64_t in[2], out[2], kernel[2], stride[2], pad[2], dilation[2];
} window;

/* The geometry of a convolution or pooling over one or two dimensions; one dimension is a row of height 1. */
static int window_of(const context *c, window *w) {
  uint32_t spatial = c->in[0].rank - 2, axis, place;
  const char *padding = text_of(c, "auto_pad", "NOTSET");
  if (spatial < 1 || spatial > 2) return fail(c->model, "windows have one or two dimensions", c->type);
  if (strcmp(padding, "NOTSET") && strcmp(padding, "VALID"))
    return fail(c->model, "auto_pad is not supported", c->type);
  for (place = 0; place < 2; place++) {
    w->in[place] = w->out[place] = w->kernel[place] = w->stride[place] = w->dilation[place] = 1;
    w->pad[place] = 0;
  }
  for (axis = 0; axis < spatial; axis++) {
    place = axis + 2 - spatial;
    w->in[place] = c->in[0].shape[axis + 2];
    w->out[place] = c->out[0].shape[axis + 2];
    w->kernel[place] = item_of(c, "kernel_shape", axis, c->in_count > 1 ? c->in[1].shape[axis + 2] : 1);
    w->stride[place] = item_of(c, "strides", axis, 1);
    w->dilation[place] = item_of(c, "dilations", axis, 1);
    w->pad[place] = item_of(c, "pads", axis, 0);
  }
  return 0;
}

static int run_conv(context *c) {
  window w;
  int64_t groups = int_of(c, "group", 1), channels = c->in[0].shape[1] / groups, filters = c->out[0].shape[1];
  int64_t n, f, y, x, d, i, j;
  const float *weight = floats(&c->in[1]);
  if (all_floats(c, 3) || window_of(c, &w)) return -1;
  for (n = 0; n < c->out[0].shape[0]; n++)
    for (f = 0; f < filters; f++) {
      const float *image = floats(&c->in[0]) + (n * groups + f / (filters / groups)) * channels * w.in[0] * w.in[1];
      float bias = c->in_count > 2 && c->in[2].data ? floats(&c->in[2])[f] : 0;
      for (y = 0; y < w.out[0]; y++)
        for (x = 0; x < w.out[1]; x++) {
          float total = bias;
          for (d = 0; d < channels; d++)
            for (i = 0; i < w.kernel[0]; i++) {
              int64_t row = y * w.stride[0] - w.pad[0] + i * w.dilation[0];
              if (row < 0 || row >= w.in[0]) continue;
              for (j = 0; j < w.kernel[1]; j++) {
                int64_t column = x * w.stride[1] - w.pad[1] + j * w.dilation[1];
                if (column >= 0 && column < w.in[1])
                  total += image[(d * w.in[0] + row) * w.in[1] + column] *
                           weight[((f * channels + d) * w.kernel[0] + i) * w.kernel[1] + j];
              }
            }
          floats(&c->out[0])[((n * filters + f) * w.out[0] + y) * w.out[1] + x] = total;
        }
    }
  return 0;
}

static int run_pool(context *c) {
  window w;
  int64_t planes = c->in[0].shape[0] * c->in[0].shape[1], plane, y, x, i, j;
  int is_max = !strcmp(c->type, "MaxPool"), is_global = !strcmp(c->type, "GlobalAveragePool");
  int counts_padding = int_of(c, "count_include_pad", 0) != 0;
  if (all_floats(c, 1) || window_of(c, &w)) return -1;
  if (c->out_count > 1 || (counts_padding && int_of(c, "ceil_mode", 0)))
    return fail(c->model, "positions, and counted padding with ceil_mode, are not supported", c->type);
  if (is_global) w.kernel[0] = w.in[0], w.kernel[1] = w.in[1];
  for (plane = 0; plane < planes; plane++)
    for (y = 0; y < w.out[0]; y++)
      for (x = 0; x < w.out[1]; x++) {
        const float *image = floats(&c->in[0]) + plane * w.in[0] * w.in[1];
        float total = is_max ? -INFINITY : 0;
        int64_t count = 0;
        for (i = 0; i < w.kernel[0]; i++)
          for (j = 0; j < w.kernel[1]; j++) {
            int64_t row = y * w.stride[0] - w.pad[0] + i * w.dilation[0];
            int64_t column = x * w.stride[1] - w.pad[1] + j * w.dilation[1];
            float value;
            if (row < 0 || row >= w.in[0] || column < 0 || column >= w.in[1]) continue;
            value = image[row * w.in[1] + column];
            count++;
            if (is_max) total = value > total ? value : total;
            else total += value;
          }
        if (counts_padding) count = w.kernel[0] * w.kernel[1];
        floats(&c->out[0])[(plane * w.out[0] + y) * w.out[1] + x] = is_max ? total : total / (float)count;
      }
  return 0;
}

/* --------------------------------------------------------- data movement */

static void copy_items(uint8_t *to, const uint8_t *from, size_t size) {
  if (size) memmove(to, from, size);
}

static int run_copy(context *c) {
  if (c->in[0].type != c->out[0].type) return fail(c->model, "element types differ", c->type);
  if (c->in[0].data != c->out[0].data)
    copy_items(c->out[0].data, c->in[0].data, c->out[0].bytes);
  return 0;
}

/* Fills the result from one element after another of the operand, at a start and with steps along its axes. */
static int gather_strided(context *c, int64_t start, int64_t (*steps)[OPSETTA_RANK]) {
  int64_t position[OPSETTA_RANK] = {0}, offset[1] = {start}, index;
  size_t size = item_size(c->out[0].type);
  for (index = 0; index < c->out[0].count; index++) {
    memcpy(c->out[0].data + (size_t)index * size, c->in[0].data + (size_t)offset[0] * size, size);
    advance(&c->out[0], position, offset, steps, 1);
  }
  return 0;
}

static int run_transpose(context *c) {
  int64_t steps[1][OPSETTA_RANK];
  uint32_t axis, rank = c->in[0].rank;
  for (axis = 0; axis < rank; axis++) {
    int64_t source = item_of(c, "perm", axis, (int64_t)rank - 1 - axis);
    steps[0][axis] = span(&c->in[0], source + 1, rank);
  }
  return gather_strided(c, 0, steps);
}

static int run_expand(context *c) {
  int64_t steps[1][OPSETTA_RANK];
  broadcast_steps(&c->in[0], &c->out[0], steps[0]);
  return gather_strided(c, 0, steps);
}

static int run_slice(context *c) {
  int64_t steps[1][OPSETTA_RANK], start = 0, index, count = c->in_count > 1 ? c->in[1].count : length_of(c, "starts");
  uint32_t axis;
  for (axis = 0; axis < c->in[0].rank; axis++) steps[0][axis] = span(&c->in[0], axis + 1, c->in[0].rank);
  for (index = 0; index < count; index++) {
    int is_input = c->in_count > 1;
    int64_t first = is_input ? integer(&c->in[1], index) : item_of(c, "starts", (uint32_t)index, 0);
    int64_t step = is_input && c->in_count > 4 && c->in[4].data ? integer(&c->in[4], index) : 1, place = index, size;
    if (is_input && c->in_count > 3 && c->in[3].data) place = integer(&c->in[3], index);
    else if (!is_input) place = item_of(c, "axes", (uint32_t)index, index);
    place = wrapped(place, c->in[0].rank);
    size = c->in[0].shape[place];
    if (first < 0) first += size;
    first = first < 0 ? 0 : first > size ? size : first;
    if (step < 0 && first > size - 1) first = size - 1;
    start += first * steps[0][place];
    steps[0][place] *= step;
  }
  return gather_strided(c, start, steps);
}

static int run_concat(context *c) {
  int64_t axis = wrapped(int_of(c, "axis", 0), c->out[0].rank), outer = span(&c->out[0], 0, axis), row, at = 0;
  size_t item = item_size(c->out[0].type);
  int64_t whole = span(&c->out[0], axis, c->out[0].rank);
  uint32_t number;
  for (number = 0; number < c->in_count; number++) {
    int64_t part = span(&c->in[number], axis, c->in[number].rank);
    for (row = 0; row < outer; row++)
      copy_items(c->out[0].data + (size_t)(row * whole + at) * item, c->in[number].data + (size_t)(row * part) * item,
                 (size_t)part * item);
    at += part;
  }
  return 0;
}

static int run_split(context *c) {
  int64_t axis = wrapped(int_of(c, "axis", 0), c->in[0].rank), outer = span(&c->in[0], 0, axis), row, at = 0;
  size_t item = item_size(c->in[0].type);
  int64_t whole = span(&c->in[0], axis, c->in[0].rank);
  uint32_t number;
  for (number = 0; number < c->out_count; number++) {
    int64_t part = span(&c->out[number], axis, c->in[0].rank);
    if (!c->out[number].data) return fail(c->model, "an output is omitted", c->type);
    for (row = 0; row < outer; row++)
      copy_items(c->out[number].data + (size_t)(row * part) * item,
                 c->in[0].data + (size_t)(row * whole + at) * item, (size_t)part * item);
    at += part;
  }
  return 0;
}

static int run_gather(context *c) {
  int64_t axis = wrapped(int_of(c, "axis", 0), c->in[0].rank), outer = span(&c->in[0], 0, axis);
  int64_t size = c->in[0].shape[axis], inner = span(&c->in[0], axis + 1, c->in[0].rank), row, index;
  size_t bytes = (size_t)inner * item_size(c->in[0].type);
  uint8_t *to = c->out[0].data;
  for (row = 0; row < outer; row++)
    for (index = 0; index < c->in[1].count; index++, to += bytes) {
      int64_t number = integer(&c->in[1], index);
      if (number < 0) number += size;
      if (number < 0 || number >= size) return fail(c->model, "an index is out of range", c->type);
      copy_items(to, c->in[0].data + (size_t)(row * size + number) * bytes, bytes);
    }
  return 0;
}

static int run_where(context *c) {
  int64_t position[OPSETTA_RANK] = {0}, offsets[3] = {0, 0, 0}, steps[3][OPSETTA_RANK], index;
  size_t size = item_size(c->out[0].type);
  int number;
  for (number = 0; number < 3; number++) broadcast_steps(&c->in[number], &c->out[0], steps[number]);
  for (index = 0; index < c->out[0].count; index++) {
    number = c->in[0].data[offsets[0]] ? 1 : 2;
    memmove(c->out[0].data + (size_t)index * size, c->in[number].data + (size_t)offsets[number] * size, size);
    advance(&c->out[0], position, offsets, steps, 3);
  }
  return 0;
}

/* --------------------------------------------------------------- recurrent */

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

/* The states of steps are in the outputs, so that no other memory is needed: Y has the hidden states, Y_c the cell
   state, and Y_h the last hidden state. */
static int run_lstm(context *c) {
  int64_t hidden = int_of(c, "hidden_size", 0), time = c->in[0].shape[0], batch = c->in[0].shape[1];
  int64_t width = c->in[0].shape[2], directions = c->in[1].shape[0], d, t, b, u, k;
  int is_reverse = !strcmp(text_of(c, "direction", "forward"), "reverse");
  if (all_floats(c, 4) || all_floats(c, 8)) return -1;
  if (c->out_count < 3 || !c->out[0].data || !c->out[1].data || !c->out[2].data || int_of(c, "layout", 0) ||
      length_of(c, "activations") > 0 || find_attribute(c, "clip") >= 0 || (c->in_count > 4 && c->in[4].data) ||
      (c->in_count > 7 && c->in[7].data))
    return fail(c->model, "only plain LSTMs with all outputs are supported", c->type);
  for (d = 0; d < directions; d++) {
    const float *w = floats(&c->in[1]) + d * 4 * hidden * width, *r = floats(&c->in[2]) + d * 4 * hidden * hidden;
    const float *bias = c->in_count > 3 && c->in[3].data ? floats(&c->in[3]) + d * 8 * hidden : NULL;
    float *cell = floats(&c->out[2]) + d * batch * hidden, *last = floats(&c->out[1]) + d * batch * hidden;
    for (u = 0; u < batch * hidden; u++) {
      cell[u] = c->in_count > 6 && c->in[6].data ? floats(&c->in[6])[d * batch * hidden + u] : 0;
      last[u] = c->in_count > 5 && c->in[5].data ? floats(&c->in[5])[d * batch * hidden + u] : 0;
    }
    for (t = 0; t < time; t++) {
      int64_t step = is_reverse || d == 1 ? time - 1 - t : t;
      float *y = floats(&c->out[0]) + (step * directions + d) * batch * hidden;
      for (b = 0; b < batch; b++) {
        const float *x = floats(&c->in[0]) + (step * batch + b) * width, *h = last + b * hidden;
        for (u = 0; u < hidden; u++) {
          float gate[4];
          int g; /* input, output, forget, cell */
          for (g = 0; g < 4; g++) {
            int64_t row = g * hidden + u;
            float total = bias ? bias[row] + bias[4 * hidden + row] : 0;
            for (k = 0; k < width; k++) total += w[row * width + k] * x[k];
            for (k = 0; k < hidden; k++) total += r[row * hidden + k] * h[k];
            gate[g] = total;
          }
          cell[b * hidden + u] = sigmoid(gate[2]) * cell[b * hidden + u] + sigmoid(gate[0]) * tanhf(gate[3]);
          y[b * hidden + u] = sigmoid(gate[1]) * tanhf(cell[b * hidden + u]);
        }
      }
      memcpy(last, y, (size_t)(batch * hidden) * sizeof(float));
    }
  }
  return 0;
}

/* ------------------------------------------------------------------ nodes */

static const struct {
  const char *type;
  int (*run)(context *);
} OPERATORS[] = {
    {"Add", run_binary}, {"Sub", run_binary}, {"Mul", run_binary}, {"Div", run_binary}, {"Pow", run_binary},
    {"Max", run_binary}, {"Min", run_binary}, {"PRelu", run_binary}, {"Relu", run_unary}, {"Sigmoid", run_unary},
    {"Tanh", run_unary}, {"Exp", run_unary}, {"Log", run_unary}, {"Sqrt", run_unary}, {"Neg", run_unary},
    {"Abs", run_unary}, {"Erf", run_unary}, {"Reciprocal", run_unary}, {"LeakyRelu", run_unary},
    {"Clip", run_unary}, {"HardSigmoid", run_unary}, {"HardSwish", run_unary}, {"Gelu", run_unary},
    {"Softplus", run_unary}, {"Elu", run_unary}, {"Floor", run_unary}, {"Ceil", run_unary}, {"Sin", run_unary},
    {"Cos", run_unary}, {"BatchNormalization", run_batch_normalization}, {"Softmax", run_softmax},
    {"LogSoftmax", run_softmax}, {"LayerNormalization", run_layer_normalization}, {"ReduceMean", run_reduce},
    {"ReduceSum", run_reduce}, {"ReduceMax", run_reduce}, {"MatMul", run_matmul}, {"Gemm", run_gemm},
    {"Conv", run_conv}, {"MaxPool", run_pool}, {"AveragePool", run_pool}, {"GlobalAveragePool", run_pool},
    {"Reshape", run_copy}, {"Flatten", run_copy}, {"Squeeze", run_copy}, {"Unsqueeze", run_copy},
    {"Identity", run_copy}, {"Cast", run_copy}, {"Dropout", run_copy}, {"Transpose", run_transpose},
    {"Expand", run_expand}, {"Slice", run_slice}, {"Concat", run_concat}, {"Split", run_split},
    {"Gather", run_gather}, {"Where", run_where}, {"LSTM", run_lstm}, {"Attention", run_attention}};

static int run_node(opsetta_model *model, uint8_t *arena, const uint8_t *node) {
  context c;
  uint32_t number, inputs = u32(node + 8), outputs = u32(node + 16);
  size_t index;
  memset(&c, 0, sizeof c);
  c.model = model;
  c.type = text_at(model, u32(node));
  c.in_count = u32(node + 4);
  c.out_count = u32(node + 12);
  c.attribute_count = u32(node + 20);
  c.attributes = u32(node + 24);
  if (c.in_count > MOST_INPUTS || c.out_count > MOST_OUTPUTS)
    return fail(model, "the node has too many operands", c.type);
  if ((uint64_t)inputs + c.in_count > model->pool_count || (uint64_t)outputs + c.out_count > model->pool_count ||
      (uint64_t)c.attributes + 4 * (uint64_t)c.attribute_count > model->pool_count)
    return fail(model, "the plan is damaged", c.type);
  for (number = 0; number < c.in_count; number++)
    if (tensor_of(model, arena, (uint32_t)pooled(model, inputs + number), &c.in[number])) return -1;
  for (number = 0; number < c.out_count; number++)
    if (tensor_of(model, arena, (uint32_t)pooled(model, outputs + number), &c.out[number])) return -1;
  for (index = 0; index < sizeof OPERATORS / sizeof OPERATORS[0]; index++)
    if (!strcmp(OPERATORS[index].type, c.type)) return OPERATORS[index].run(&c);
  return fail(model, "the operator is not supported", c.type);
}

int opsetta_run(opsetta_model *model, void *arena) {
  uint32_t index;
  for (index = 0; index < model->node_count; index++)
    if (run_node(model, arena, model->nodes + NODE_SIZE * (size_t)index)) return -1;
  return 0;
}
