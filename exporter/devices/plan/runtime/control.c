/* If and Loop, which run the nodes of sub-graphs. */
#include "kernels.h"

enum { MOST_DEPTH = 8 };

/* A sub-graph is an attribute of numbers: its first node and their count, the counts of its inputs and outputs, and
   their values. Its nodes come after the node, so that no graph contains itself. */
typedef struct {
  int64_t at, first, count, in_count, out_count;
} body;

static int find_body(const context *c, const char *name, body *b) {
  int64_t attribute = find_attribute(c, name), size;
  REQUIRE(attribute >= 0);
  size = pooled(c->model, attribute + 2);
  b->at = pooled(c->model, attribute + 3);
  REQUIRE(size >= 4 && b->at >= 0 && b->at <= UINT32_MAX && size <= UINT32_MAX);
  b->first = pooled(c->model, b->at);
  b->count = pooled(c->model, b->at + 1);
  b->in_count = pooled(c->model, b->at + 2);
  b->out_count = pooled(c->model, b->at + 3);
  REQUIRE(b->first > c->number && b->count >= 0 && b->first <= c->model->node_count);
  REQUIRE(b->count <= c->model->node_count - b->first && b->in_count >= 0 && b->out_count >= 0);
  REQUIRE(b->in_count < size && b->out_count < size && b->in_count + b->out_count + 4 == size);
  return 0;
}

/* The value of an input of a sub-graph, or from `in_count` on of an output. */
static int body_value(const context *c, const body *b, int64_t number, opsetta_tensor *tensor) {
  return value_at(c->model, c->arena, (uint64_t)pooled(c->model, b->at + 4 + number), tensor);
}

/* Copies a value, at a number of bytes into a larger one; both have one type. */
static int copy_value(const context *c, const opsetta_tensor *to, int64_t at, const opsetta_tensor *from) {
  REQUIRE(to->memory == ARENA && from->memory && to->type == from->type);
  REQUIRE(at ? (uint64_t)at * from->bytes <= to->bytes - from->bytes : from->bytes <= to->bytes);
  if (!c->is_check && from->bytes) memmove(to->data + (size_t)at * from->bytes, from->data, from->bytes);
  return 0;
}

static int run_body(const context *c, const body *b) {
  int result;
  if (c->is_check) return 0;
  if (c->model->depth >= MOST_DEPTH) return fail(c, "sub-graphs are nested too deeply");
  c->model->depth++;
  result = run_nodes(c->model, c->arena, (uint32_t)b->first, (uint32_t)b->count);
  c->model->depth--;
  return result;
}

int run_if(context *c) {
  static const char *const names[] = {"else_branch", "then_branch"};
  int branch;
  REQUIRE(c->in[0].count == 1);
  for (branch = 0; branch < 2; branch++) {
    body b = {0, 0, 0, 0, 0};
    uint32_t number;
    if (!c->is_check && branch != (c->in[0].data[0] != 0)) continue;
    if (find_body(c, names[branch], &b) || run_body(c, &b)) return -1;
    REQUIRE(b.in_count == 0 && b.out_count == c->out_count);
    for (number = 0; number < c->out_count; number++) {
      opsetta_tensor from, to;
      if (body_value(c, &b, number, &from) || tensor_at(c, 1, number, &to)) return -1;
      REQUIRE(same_shape(&from, &to));
      if (copy_value(c, &to, 0, &from)) return -1;
    }
    if (!c->is_check) return 0;
  }
  return 0;
}

/* Sets the carried inputs of the body to the operands of the node, or to the body's results. */
static int carry_values(const context *c, const body *b, int is_first) {
  opsetta_tensor from, to;
  int64_t number;
  for (number = 2; number < b->in_count; number++) {
    if (body_value(c, b, number, &to) ||
        (is_first ? tensor_at(c, 0, (uint32_t)number, &from) : body_value(c, b, b->in_count + number - 1, &from)))
      return -1;
    REQUIRE(same_shape(&from, &to));
    if (copy_value(c, &to, 0, &from)) return -1;
  }
  return 0;
}

/* Results that the iterations add to have a fixed size, so that the number of iterations is checked. */
int run_loop(context *c) {
  int64_t most = INT64_MAX, iteration, number;
  opsetta_tensor counter, condition, result, from, to;
  body b = {0, 0, 0, 0, 0};
  int goes_on = 1;
  if (find_body(c, "body", &b)) return -1;
  REQUIRE(b.in_count >= 2 && c->in_count == b.in_count && b.out_count >= b.in_count - 1);
  REQUIRE(c->out_count == b.out_count - 1 && (!has(c, 0) || c->in[0].count == 1) && (!has(c, 1) || c->in[1].count == 1));
  if (body_value(c, &b, 0, &counter) || body_value(c, &b, 1, &condition) || body_value(c, &b, b.in_count, &result)) return -1;
  REQUIRE(counter.type == INT64 && counter.count == 1 && counter.memory == ARENA);
  REQUIRE(condition.type == BOOL && condition.count == 1 && condition.memory == ARENA);
  REQUIRE(result.type == BOOL && result.count == 1 && result.memory);
  if (!c->is_check) {
    most = has(c, 0) ? integer(&c->in[0], 0) : INT64_MAX;
    goes_on = !has(c, 1) || c->in[1].data[0];
  }
  if (carry_values(c, &b, 1)) return -1;
  for (iteration = 0; iteration < most && goes_on; iteration++) {
    if (!c->is_check) set_integer(&counter, 0, iteration), condition.data[0] = 1;
    if (iteration && carry_values(c, &b, 0)) return -1;
    if (run_body(c, &b)) return -1;
    for (number = b.in_count - 1; number < b.out_count; number++) {
      if (body_value(c, &b, b.in_count + number, &from) || tensor_at(c, 1, (uint32_t)number - 1, &to)) return -1;
      if (to.memory) REQUIRE(iteration < to.shape[0] || c->is_check);
      if (to.memory && copy_value(c, &to, iteration, &from)) return -1;
    }
    if (c->is_check) break;
    goes_on = result.data[0];
  }
  for (number = 1; number < b.out_count; number++) {
    if (tensor_at(c, 1, (uint32_t)number - 1, &to)) return -1;
    if (!to.memory) continue;
    if (number >= b.in_count - 1) {
      REQUIRE(c->is_check || to.shape[0] == iteration);
      continue;
    }
    if (iteration ? body_value(c, &b, b.in_count + number, &from) : tensor_at(c, 0, (uint32_t)number + 1, &from)) return -1;
    REQUIRE(same_shape(&from, &to));
    if (copy_value(c, &to, 0, &from)) return -1;
  }
  return 0;
}
