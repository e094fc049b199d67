#include "kernels.h"

enum { VALUE_SIZE = 32, NODE_SIZE = 28, HEAD_SIZE = 64, FORMAT = 2 };
#define MOST_ELEMENTS ((uint64_t)1 << 31)

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
int64_t pooled(const opsetta_model *model, int64_t index) {
  return index < 0 || index >= model->pool_count ? 0 : (int64_t)u64(model->pool + 8 * (size_t)index);
}

static const char *text_at(const opsetta_model *model, int64_t position) {
  return position < 0 || position >= model->text_size ? "" : (const char *)model->text + position;
}

static int refuse(opsetta_model *model, const char *error, const char *name) {
  model->error = error;
  model->error_name = name;
  return -1;
}

int fail(const context *c, const char *error) { return refuse(c->model, error, c->type); }

/* 0 for the types that no kernel takes: texts, and those of less than a byte. */
size_t item_size(uint32_t type) {
  switch (type) {
    case UINT8: case INT8: case BOOL: case 17: case 18: case 19: case 20: return 1;
    case 4: case 5: case 10: case 16: return 2;
    case FLOAT: case INT32: case 12: return 4;
    case INT64: case DOUBLE: case 13: case 14: return 8;
    default: return 0;
  }
}

/* Where an offset in the arena is: in the last memory that begins before it, if that is elsewhere. */
static uint8_t *address(const opsetta_model *model, uint8_t *arena, uint64_t offset, uint64_t *limit) {
  uint32_t number = model->memory_count;
  *limit = model->arena_size;
  while (number > 0 && model->memory_begins[number - 1] > offset) *limit = model->memory_begins[--number];
  if (!arena) return NULL;
  if (!number || !model->memories[number - 1]) return arena + offset;
  return model->memories[number - 1] + (offset - model->memory_begins[number - 1]);
}

int opsetta_set_memory(opsetta_model *model, uint32_t index, void *data) {
  if (!index || index > model->memory_count) return refuse(model, "there is no such memory", "");
  if (!data || (uintptr_t)data % 8) return refuse(model, "the memory is not aligned", "");
  model->memories[index - 1] = data;
  return 0;
}

/* Value 0 stands for an omitted operand. Without an arena, `data` is not to be used. */
int value_at(opsetta_model *model, uint8_t *arena, uint64_t index, opsetta_tensor *tensor) {
  const uint8_t *value = model->values + VALUE_SIZE * (size_t)index;
  uint64_t offset, size, limit, item, extent = 1;
  uint32_t shape, axis;
  memset(tensor, 0, sizeof *tensor);
  if (index >= model->value_count) return refuse(model, "the plan is damaged", "value");
  tensor->type = u32(value);
  tensor->rank = u32(value + 4);
  shape = u32(value + 8);
  tensor->memory = u32(value + 12);
  offset = u64(value + 16);
  size = u64(value + 24);
  if (tensor->memory == OMITTED) return 0;
  item = item_size(tensor->type);
  if (tensor->rank > OPSETTA_RANK || (uint64_t)shape + tensor->rank > model->pool_count || item == 0)
    return refuse(model, "a value has too many dimensions or another type", "");
  limit = tensor->memory == ARENA ? model->arena_size : model->weights_size;
  if (tensor->memory > WEIGHTS || size > limit || offset > limit - size || offset % item)
    return refuse(model, "a value lies outside of its memory", "");
  tensor->count = 1;
  for (axis = 0; axis < tensor->rank; axis++) {
    int64_t length = tensor->shape[axis] = pooled(model, (int64_t)shape + axis);
    /* Products of sizes do not overflow, also those of an empty tensor. */
    if (length < 0 || length > INT32_MAX || (extent *= length ? (uint64_t)length : 1) > MOST_ELEMENTS)
      return refuse(model, "a value has too many elements", "");
    tensor->count *= length;
  }
  if ((uint64_t)tensor->count > size / item) return refuse(model, "a value lies outside of its memory", "");
  tensor->bytes = (size_t)tensor->count * item;
  if (tensor->memory == ARENA) {
    tensor->data = address(model, arena, offset, &limit);
    if (size > limit - offset) return refuse(model, "a value lies outside of its memory", "");
  }
  else tensor->data = (uint8_t *)(uintptr_t)(model->weights + offset); /* kernels write to the arena only */
  return 0;
}

int opsetta_input(opsetta_model *model, void *arena, uint32_t index, opsetta_tensor *tensor) {
  if (index >= model->input_count) return refuse(model, "there is no such input", "");
  return value_at(model, arena, u32(model->inputs + 4 * (size_t)index), tensor);
}

int opsetta_output(opsetta_model *model, void *arena, uint32_t index, opsetta_tensor *tensor) {
  if (index >= model->output_count) return refuse(model, "there is no such output", "");
  return value_at(model, arena, u32(model->outputs + 4 * (size_t)index), tensor);
}

int tensor_at(const context *c, int is_output, uint32_t index, opsetta_tensor *tensor) {
  return value_at(c->model, c->arena, (uint64_t)pooled(c->model, (int64_t)(is_output ? c->outputs : c->inputs) + index), tensor);
}

/* An attribute takes 4 numbers of the pool: name and text as offsets, the number of its items, their position.
   Floats are stored as the bits of doubles. */
int64_t find_attribute(const context *c, const char *name) {
  uint32_t number;
  for (number = 0; number < c->attribute_count; number++) {
    int64_t at = (int64_t)c->attributes + 4 * (int64_t)number;
    if (!strcmp(text_at(c->model, pooled(c->model, at)), name)) return at;
  }
  return -1;
}

int64_t length_of(const context *c, const char *name) {
  int64_t at = find_attribute(c, name);
  return at < 0 ? -1 : pooled(c->model, at + 2);
}

int64_t item_of(const context *c, const char *name, int64_t index, int64_t otherwise) {
  int64_t at = find_attribute(c, name), start;
  if (at < 0 || index >= pooled(c->model, at + 2)) return otherwise;
  start = pooled(c->model, at + 3);
  return start < 0 || start > UINT32_MAX ? 0 : pooled(c->model, start + index);
}

int64_t int_of(const context *c, const char *name, int64_t otherwise) { return item_of(c, name, 0, otherwise); }

float float_of(const context *c, const char *name, double otherwise) {
  int64_t bits;
  double number = otherwise;
  if (length_of(c, name) > 0) {
    bits = item_of(c, name, 0, 0);
    memcpy(&number, &bits, sizeof number);
  }
  return (float)number;
}

int is_text(const context *c, const char *name, const char *text, const char *otherwise) {
  int64_t at = find_attribute(c, name);
  return !strcmp(at < 0 ? otherwise : text_at(c->model, pooled(c->model, at + 1)), text);
}

int64_t axis_of(const context *c, const char *name, int64_t otherwise, uint32_t rank) {
  int64_t axis = int_of(c, name, otherwise);
  if (axis < 0) axis += rank;
  return axis >= 0 && axis < rank ? axis : -1;
}

int64_t integer(const opsetta_tensor *tensor, int64_t index) {
  switch (tensor->type) {
    case INT64: return ((const int64_t *)(const void *)tensor->data)[index];
    case INT32: return ((const int32_t *)(const void *)tensor->data)[index];
    case INT8: return ((const int8_t *)(const void *)tensor->data)[index];
    default: return tensor->data[index];
  }
}

void set_integer(const opsetta_tensor *tensor, int64_t index, int64_t value) {
  if (tensor->type == INT64) ((int64_t *)(void *)tensor->data)[index] = value;
  else if (tensor->type == INT32) ((uint32_t *)(void *)tensor->data)[index] = (uint32_t)value;
  else tensor->data[index] = (uint8_t)value;
}

int64_t span(const opsetta_tensor *tensor, int64_t first, int64_t last) {
  int64_t count = 1;
  for (; first < last; first++) count *= tensor->shape[first];
  return count;
}

int same_shape(const opsetta_tensor *a, const opsetta_tensor *b) {
  return a->rank == b->rank && !memcmp(a->shape, b->shape, sizeof a->shape);
}

void start_walk(walk *w, const opsetta_tensor *result) {
  memset(w, 0, sizeof *w);
  w->rank = result->rank ? result->rank : 1;
  w->shape[0] = 1;
  memcpy(w->shape, result->shape, result->rank * sizeof *w->shape);
  w->length = w->shape[w->rank - 1];
}

void add_steps(walk *w, int64_t offset, const int64_t *steps) {
  memcpy(w->steps[w->operands], steps, w->rank * sizeof *steps);
  w->offset[w->operands++] = offset;
}

int add_operand(walk *w, const opsetta_tensor *operand, const opsetta_tensor *result) {
  int64_t step = 1, steps[OPSETTA_RANK] = {0};
  uint32_t back;
  if (operand->rank > result->rank) return -1;
  for (back = 1; back <= operand->rank; back++) {
    int64_t size = operand->shape[operand->rank - back];
    if (size != 1 && size != result->shape[result->rank - back]) return -1;
    steps[result->rank - back] = size == 1 ? 0 : step;
    step *= size;
  }
  add_steps(w, 0, steps);
  return 0;
}

void join_axes(walk *w) {
  uint32_t axis, kept = 0, number;
  for (axis = 1; axis < w->rank; axis++) {
    int joins = 1;
    for (number = 0; number < w->operands; number++)
      joins &= w->steps[number][kept] == w->steps[number][axis] * w->shape[axis] || w->shape[kept] == 1;
    kept += !joins;
    w->shape[kept] = joins ? w->shape[kept] * w->shape[axis] : w->shape[axis];
    for (number = 0; number < w->operands; number++) w->steps[number][kept] = w->steps[number][axis];
  }
  w->rank = kept + 1;
  w->length = w->shape[kept];
}

int next_row(walk *w) {
  uint32_t axis = w->rank - 1, number;
  while (axis-- > 0) {
    for (number = 0; number < w->operands; number++) w->offset[number] += w->steps[number][axis];
    if (++w->position[axis] < w->shape[axis]) return 1;
    for (number = 0; number < w->operands; number++) w->offset[number] -= w->steps[number][axis] * w->shape[axis];
    w->position[axis] = 0;
  }
  return 0;
}

/* ------------------------------------------------------------------ nodes */

static int has_word(const char *words, const char *word) {
  size_t length = strlen(word);
  const char *at = words;
  while ((at = strstr(at, word)) != NULL && length) {
    if ((at == words || at[-1] == ' ') && (!at[length] || at[length] == ' ')) return 1;
    at += length;
  }
  return 0;
}

static int accepts(const context *c, char letter, uint32_t type) {
  switch (letter) {
    case 'f': return type == FLOAT;
    case 'm': return type == FLOAT || type == BOOL;
    case 'n': return type == FLOAT || type == INT32 || type == INT64 || type == INT8 || type == UINT8;
    case 'r': return type == FLOAT || type == DOUBLE;
    case 'd': return accepts(c, 'n', type) || type == DOUBLE;
    case 'e': return accepts(c, 'n', type) || type == BOOL;
    case 'c': return accepts(c, 'e', type) || type == DOUBLE;
    case 'i': return type == INT32 || type == INT64;
    case 'l': return type == INT64;
    case 'o': return type == BOOL;
    case 'q': return type == INT8 || type == UINT8;
    case 's': return type == INT32 || type == INT8 || type == UINT8;
    case 'T': return type == c->in[0].type;
    case 'U': return type == c->in[1].type;
    case 'V': return type == c->in[2].type;
    default: return letter == 'x';
  }
}

/* Checks types and ranks of the operands of a node, from a letter of the table on. Returns the letter after them. */
static const char *check_operands(const context *c, const char *spec, int is_output, uint32_t count) {
  uint32_t number;
  for (number = 0; number < count || (*spec && *spec != '>'); number++) {
    const char *letter = spec, *digit = spec + 1;
    opsetta_tensor tensor = {0};
    int has_rank = 0;
    if (number < count && tensor_at(c, is_output, number, &tensor)) return NULL;
    if (!*spec || *spec == '>') {
      if (tensor.memory != OMITTED) return NULL;
      continue;
    }
    spec++;
    for (; *spec >= '0' && *spec <= '9'; spec++) has_rank |= (uint32_t)(*spec - '0') == tensor.rank;
    if (is_output && tensor.memory == WEIGHTS) return NULL;
    if (tensor.memory == OMITTED && *letter != '-' && *spec != '?' && *spec != '*') return NULL;
    if (tensor.memory != OMITTED && (!accepts(c, *letter, tensor.type) || (spec != digit && !has_rank))) return NULL;
    if (*spec == '*') {
      if (number + 1 >= count) return spec + 1;
      spec = letter;
    } else if (*spec == '?') spec++;
  }
  return spec;
}

static int run_node(opsetta_model *model, uint8_t *arena, uint32_t index) {
  const uint8_t *node = model->nodes + NODE_SIZE * (size_t)index;
  const char *spec;
  uint32_t number;
  size_t row = 0;
  context c;
  memset(&c, 0, sizeof c);
  c.model = model;
  c.arena = arena;
  c.is_check = arena == NULL;
  c.number = index;
  c.type = text_at(model, u32(node));
  c.in_count = u32(node + 4);
  c.inputs = u32(node + 8);
  c.out_count = u32(node + 12);
  c.outputs = u32(node + 16);
  c.attribute_count = u32(node + 20);
  c.attributes = u32(node + 24);
  if ((uint64_t)c.inputs + c.in_count > model->pool_count || (uint64_t)c.outputs + c.out_count > model->pool_count ||
      (uint64_t)c.attributes + 4 * (uint64_t)c.attribute_count > model->pool_count)
    return fail(&c, "the plan is damaged");
  for (number = 0; number < c.in_count && number < MOST_INPUTS; number++)
    if (tensor_at(&c, 0, number, &c.in[number])) return -1;
  for (number = 0; number < c.out_count && number < MOST_OUTPUTS; number++)
    if (tensor_at(&c, 1, number, &c.out[number])) return -1;
  while (OPERATORS[row].types && !has_word(OPERATORS[row].types, c.type)) row++;
  if (!OPERATORS[row].types) return fail(&c, "the operator is not supported");
  if (c.is_check) {
    spec = check_operands(&c, OPERATORS[row].operands, 0, c.in_count);
    if (!spec || *spec != '>' || !(spec = check_operands(&c, spec + 1, 1, c.out_count)) || *spec)
      return fail(&c, "its operands have types or ranks that are not supported");
  }
  return OPERATORS[row].run(&c);
}

int run_nodes(opsetta_model *model, uint8_t *arena, uint32_t first, uint32_t count) {
  uint32_t index;
  for (index = first; index < first + count; index++)
    if (run_node(model, arena, index)) return -1;
  return 0;
}

int opsetta_open(opsetta_model *model, const void *plan, size_t plan_size, const void *weights,
                 size_t weights_size) {
  const uint8_t *head = plan;
  uint64_t need = HEAD_SIZE;
  uint32_t index;
  opsetta_tensor tensor;
  memset(model, 0, sizeof *model);
  if (plan_size < HEAD_SIZE || memcmp(head, "OPDV", 4) || u32(head + 4) != FORMAT)
    return refuse(model, "the plan has another format", "");
  if ((uintptr_t)plan % 8 || (uintptr_t)weights % 8) return refuse(model, "the files are not aligned in memory", "");
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
  model->main_count = u32(head + 48);
  model->memory_count = u32(head + 52);
  need += 8 * (uint64_t)model->pool_count + (uint64_t)VALUE_SIZE * model->value_count;
  need += (uint64_t)NODE_SIZE * model->node_count;
  need += 4 * ((uint64_t)model->input_count + model->output_count) + model->text_size;
  if (need != plan_size || model->text_size == 0 || head[plan_size - 1] != 0 || model->main_count > model->node_count)
    return refuse(model, "the plan is damaged", "");
  if (weights_size != model->weights_size) return refuse(model, "the weights belong to another plan", "");
  model->pool = head + HEAD_SIZE;
  if (model->memory_count > OPSETTA_MEMORIES || (uint64_t)u32(head + 56) + model->memory_count > model->pool_count)
    return refuse(model, "the plan is damaged", "memory");
  for (index = 0; index < model->memory_count; index++) {
    model->memory_begins[index] = (uint64_t)pooled(model, (int64_t)u32(head + 56) + index);
    if (model->memory_begins[index] > model->arena_size || (index && model->memory_begins[index] < model->memory_begins[index - 1]))
      return refuse(model, "the plan is damaged", "memory");
  }
  model->values = model->pool + 8 * (size_t)model->pool_count;
  model->nodes = model->values + VALUE_SIZE * (size_t)model->value_count;
  model->inputs = model->nodes + NODE_SIZE * (size_t)model->node_count;
  model->outputs = model->inputs + 4 * (size_t)model->input_count;
  model->text = model->outputs + 4 * (size_t)model->output_count;
  for (index = 0; index < model->input_count; index++) {
    if (opsetta_input(model, NULL, index, &tensor)) return -1;
    if (tensor.memory != ARENA) return refuse(model, "an input lies outside of the arena", "");
  }
  for (index = 0; index < model->output_count; index++) {
    if (opsetta_output(model, NULL, index, &tensor)) return -1;
    if (tensor.memory == OMITTED) return refuse(model, "an output has no value", "");
  }
  return run_nodes(model, NULL, 0, model->node_count);
}

int opsetta_run(opsetta_model *model, void *arena) {
  if (!arena || (uintptr_t)arena % 8) return refuse(model, "the arena is not aligned in memory", "");
  model->depth = 0;
  return run_nodes(model, arena, 0, model->main_count);
}
