#include "kernels.h"

enum { FORMAT = 4 };

typedef struct {
  uint32_t type, rank, shape, memory;
  uint64_t offset, size;
} plan_value;

/* Texts outside of a damaged plan are empty. */
static const char *text_at(const opsetta_model *model, uint32_t position) {
  return position < model->head.text_size ? model->text + position : "";
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

int64_t size_product(int64_t a, int64_t b) {
  if (a < 0 || b < 0 || a > MOST_ELEMENTS || b > MOST_ELEMENTS || a * b > MOST_ELEMENTS) return -1;
  return a * b;
}

/* Where a memory begins in the arena; its end behind the last one. */
static uint64_t memory_begin(const opsetta_model *model, uint32_t index) {
  if (index > model->head.memory_count) return model->head.arena_size;
  return index ? (uint64_t)model->pool[model->head.memories + index - 1] : 0;
}

uint64_t opsetta_memory_size(const opsetta_model *model, uint32_t index) {
  return memory_begin(model, index + 1) - memory_begin(model, index);
}

int opsetta_set_memory(opsetta_model *model, uint32_t index, void *data) {
  if (!index || index > model->head.memory_count) return refuse(model, "there is no such memory", "");
  if (!data || (uintptr_t)data % 8) return refuse(model, "the memory is not aligned", "");
  model->memories[index - 1] = data;
  return 0;
}

/* Value 0 stands for an omitted operand. Without an arena, `data` is not to be used. */
static int value_at(opsetta_model *model, uint8_t *arena, uint64_t index, opsetta_tensor *tensor) {
  const plan_value *value = (const plan_value *)model->values + index;
  uint64_t limit, item;
  int64_t extent = 1;
  uint32_t axis, number;
  memset(tensor, 0, sizeof *tensor);
  if (index >= model->head.value_count) return refuse(model, "the plan is damaged", "value");
  tensor->type = value->type;
  tensor->rank = value->rank;
  tensor->memory = value->memory;
  if (value->memory == OMITTED) return 0;
  item = item_size(value->type);
  if (value->rank > OPSETTA_RANK || (uint64_t)value->shape + value->rank > model->head.pool_count || item == 0)
    return refuse(model, "a value has too many dimensions or another type", "");
  limit = value->memory == ARENA ? model->head.arena_size : model->head.weights_size;
  if (value->memory > WEIGHTS || value->size > limit || value->offset > limit - value->size || value->offset % item)
    return refuse(model, "a value lies outside of its memory", "");
  tensor->count = 1;
  for (axis = 0; axis < value->rank; axis++) {
    int64_t length = tensor->shape[axis] = model->pool[value->shape + axis];
    /* Products of sizes do not overflow, also those of an empty tensor. */
    if ((extent = size_product(extent, length ? length : 1)) < 0) return refuse(model, "a value has too many elements", "");
    tensor->count *= length;
  }
  if ((uint64_t)tensor->count > value->size / item) return refuse(model, "a value lies outside of its memory", "");
  tensor->bytes = (size_t)tensor->count * item;
  if (value->memory == WEIGHTS) {
    tensor->data = (uint8_t *)(uintptr_t)(model->weights + value->offset); /* kernels write to the arena only */
    return 0;
  }
  for (number = model->head.memory_count; memory_begin(model, number) > value->offset;) number--;
  limit = memory_begin(model, number + 1);
  if (value->size > limit - value->offset) return refuse(model, "a value lies outside of its memory", "");
  if (arena && number && model->memories[number - 1]) tensor->data = model->memories[number - 1] + (value->offset - memory_begin(model, number));
  else if (arena) tensor->data = arena + value->offset;
  return 0;
}

int opsetta_input(opsetta_model *model, void *arena, uint32_t index, opsetta_tensor *tensor) {
  if (index >= model->head.input_count) return refuse(model, "there is no such input", "");
  return value_at(model, arena, model->inputs[index], tensor);
}

int opsetta_output(opsetta_model *model, void *arena, uint32_t index, opsetta_tensor *tensor) {
  if (index >= model->head.output_count) return refuse(model, "there is no such output", "");
  return value_at(model, arena, model->outputs[index], tensor);
}

static int tensor_at(const context *c, int is_output, uint32_t index, opsetta_tensor *tensor) {
  const uint32_t position = is_output ? c->node->outputs : c->node->inputs;
  return value_at(c->model, c->arena, (uint64_t)c->model->pool[position + index], tensor);
}

double real_number(const context *c, int64_t index) {
  double number;
  memcpy(&number, c->numbers + index, sizeof number);
  return number;
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

int read_walk(const context *c, int64_t *at, walk *w, uint32_t operands, const int64_t *limits) {
  const int64_t *n = c->numbers + *at, left = (int64_t)c->node->number_count - *at;
  int64_t axis, rank, low, high;
  uint32_t number;
  REQUIRE(left > 0 && n[0] > 0 && n[0] <= MOST_AXES && left >= 1 + n[0] + operands * (1 + n[0]));
  memset(w, 0, sizeof *w);
  rank = *n++;
  *at += 1 + rank + operands * (1 + rank);
  w->rank = (uint32_t)rank;
  w->operands = operands;
  w->count = 1;
  for (axis = 0; axis < rank; axis++) w->count = size_product(w->count, w->shape[axis] = n[axis]);
  w->length = w->shape[rank - 1];
  REQUIRE(w->count >= 0);
  for (number = 0, n += rank; number < operands; number++, n += 1 + rank) {
    low = high = w->offset[number] = n[0];
    REQUIRE(!w->count || (low >= 0 && low < limits[number]));
    for (axis = 0; axis < rank && w->count; axis++) {
      /* As the walk is no larger than a tensor, the sums do not overflow. */
      const int64_t step = w->steps[number][axis] = n[1 + axis];
      REQUIRE(step <= MOST_ELEMENTS && step >= -MOST_ELEMENTS);
      *(step < 0 ? &low : &high) += (w->shape[axis] - 1) * step;
    }
    REQUIRE(!w->count || (low >= 0 && high < limits[number]));
    w->step[number] = w->steps[number][rank - 1];
  }
  return 0;
}

int next_row(walk *w) {
  uint32_t axis = w->rank - 1, number;
  if (!w->is_started) return (w->is_started = 1) && w->count > 0;
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
  const int is_bytes = type == INT8 || type == UINT8, is_integer = type == INT32 || type == INT64;
  const int is_number = type == FLOAT || is_bytes || is_integer;
  switch (letter) {
    case 'f': return type == FLOAT;
    case 'n': return is_number;
    case 'r': return type == FLOAT || type == DOUBLE;
    case 'd': return is_number || type == DOUBLE;
    case 'e': return is_number || type == BOOL;
    case 'c': return is_number || type == BOOL || type == DOUBLE;
    case 'i': return is_integer;
    case 'l': return type == INT64;
    case 'o': return type == BOOL;
    case 'q': return is_bytes;
    case 's': return is_bytes || type == INT32;
    case 'T': return type == c->in[0].type;
    case 'U': return type == c->in[1].type;
    default: return letter == 'x';
  }
}

/* Checks the types of the operands of a node, from a letter of the table on. Returns the letter after them. */
static const char *check_operands(const context *c, const char *spec, int is_output, uint32_t count) {
  uint32_t number;
  for (number = 0; number < count || (*spec && *spec != '>'); number++) {
    opsetta_tensor tensor = {0};
    const int is_optional = *spec && spec[1] == '?';
    if (number < count && tensor_at(c, is_output, number, &tensor)) return NULL;
    if (!*spec || *spec == '>' || (is_output && tensor.memory == WEIGHTS)) return NULL;
    if (tensor.memory == OMITTED ? !is_optional : !accepts(c, *spec, tensor.type)) return NULL;
    spec += 1 + is_optional;
  }
  return spec;
}

static int run_node(opsetta_model *model, uint8_t *arena, uint32_t index) {
  const plan_node *node = (const plan_node *)model->nodes + index;
  const uint64_t limit = model->head.pool_count;
  const operator_row *row = OPERATORS;
  const char *spec;
  uint32_t number;
  context c;
  memset(&c, 0, sizeof c);
  c.model = model;
  c.arena = arena;
  c.node = node;
  c.index = index;
  c.is_check = arena == NULL;
  c.type = text_at(model, node->type);
  c.numbers = model->pool + node->numbers;
  if ((uint64_t)node->inputs + node->in_count > limit || (uint64_t)node->outputs + node->out_count > limit ||
      (uint64_t)node->numbers + node->number_count > limit)
    return fail(&c, "the plan is damaged");
  for (number = 0; number < node->in_count && number < MOST_INPUTS; number++)
    if (tensor_at(&c, 0, number, &c.in[number])) return -1;
  for (number = 0; number < node->out_count && number < MOST_OUTPUTS; number++)
    if (tensor_at(&c, 1, number, &c.out[number])) return -1;
  while (row->types && !has_word(row->types, c.type)) row++;
  if (!row->types) return fail(&c, "the operator is not supported");
  if (c.is_check) {
    if (node->number_count < row->number_count) return fail(&c, "the plan is damaged");
    spec = check_operands(&c, row->operands, 0, node->in_count);
    if (!spec || *spec != '>' || !(spec = check_operands(&c, spec + 1, 1, node->out_count)) || *spec)
      return fail(&c, "its operands have types that are not supported");
  }
  return row->run(&c);
}

int run_nodes(opsetta_model *model, uint8_t *arena, uint32_t first, uint32_t count) {
  uint32_t index;
  for (index = first; index < first + count; index++)
    if (run_node(model, arena, index)) return -1;
  return 0;
}

int opsetta_open(opsetta_model *model, const void *plan, size_t plan_size, const void *weights, size_t weights_size) {
  opsetta_head *head = &model->head;
  uint64_t size = sizeof *head;
  uint32_t index;
  opsetta_tensor tensor;
  memset(model, 0, sizeof *model);
  if (plan_size >= sizeof *head) memcpy(head, plan, sizeof *head);
  if (memcmp(head->magic, "OPDV", 4) || head->format != FORMAT) return refuse(model, "the plan has another format", "");
  if ((uintptr_t)plan % 8 || (uintptr_t)weights % 8) return refuse(model, "the files are not aligned in memory", "");
  size += 8 * (uint64_t)head->pool_count + sizeof(plan_value) * (uint64_t)head->value_count;
  size += sizeof(plan_node) * (uint64_t)head->node_count + 4 * ((uint64_t)head->input_count + head->output_count) + head->text_size;
  if (size != plan_size || !head->text_size || ((const char *)plan)[plan_size - 1] || head->main_count > head->node_count)
    return refuse(model, "the plan is damaged", "");
  if (weights_size != head->weights_size) return refuse(model, "the weights belong to another plan", "");
  model->weights = weights;
  model->pool = (const int64_t *)plan + sizeof *head / 8;
  model->values = model->pool + head->pool_count;
  model->nodes = (const plan_value *)model->values + head->value_count;
  model->inputs = (const uint32_t *)((const plan_node *)model->nodes + head->node_count);
  model->outputs = model->inputs + head->input_count;
  model->text = (const char *)(model->outputs + head->output_count);
  if (head->memory_count > OPSETTA_MEMORIES || (uint64_t)head->memories + head->memory_count > head->pool_count)
    return refuse(model, "the plan is damaged", "memory");
  for (index = 0; index <= head->memory_count; index++)
    if (memory_begin(model, index) > memory_begin(model, index + 1)) return refuse(model, "the plan is damaged", "memory");
  for (index = 0; index < head->input_count; index++) {
    if (opsetta_input(model, NULL, index, &tensor)) return -1;
    if (tensor.memory != ARENA) return refuse(model, "an input lies outside of the arena", "");
  }
  for (index = 0; index < head->output_count; index++) {
    if (opsetta_output(model, NULL, index, &tensor)) return -1;
    if (tensor.memory == OMITTED) return refuse(model, "an output has no value", "");
  }
  return run_nodes(model, NULL, 0, head->node_count);
}

int opsetta_run(opsetta_model *model, void *arena) {
  if (!arena || (uintptr_t)arena % 8) return refuse(model, "the arena is not aligned in memory", "");
  model->depth = 0;
  return run_nodes(model, arena, 0, model->head.main_count);
}
