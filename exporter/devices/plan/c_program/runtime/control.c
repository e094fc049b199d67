/* If and Loop, which run ranges of nodes. Values go in and out of them by copies, which are nodes as well. */
#include "kernels.h"

enum { MOST_DEPTH = 8 };

/* Runs nodes that come after the node, so that no graph contains itself; the numbers are the first one and their count. */
static int run_body(const context *c, const int64_t *range) {
  int result;
  REQUIRE(range[0] > c->index && range[0] <= c->model->head.node_count);
  REQUIRE(range[1] >= 0 && range[1] <= c->model->head.node_count - range[0]);
  if (c->is_check) return 0;
  if (c->model->depth >= MOST_DEPTH) return fail(c, "sub-graphs are nested too deeply");
  c->model->depth++;
  result = run_nodes(c->model, c->arena, (uint32_t)range[0], (uint32_t)range[1]);
  c->model->depth--;
  return result;
}

/* Numbers: the nodes of the branches, first those for false. */
int run_if(context *c) {
  REQUIRE(c->in[0].count == 1);
  if (c->is_check) return run_body(c, c->numbers) || run_body(c, c->numbers + 2) ? -1 : 0;
  return run_body(c, c->numbers + (c->in[0].data[0] ? 2 : 0));
}

/* The results are what the body reads and what it writes: the index of an iteration, and whether there is a next one, which
   is the input after the number of iterations and the first condition. Numbers: the nodes of the body; the number of
   iterations if results have a place for each of them, or -1. */
int run_loop(context *c) {
  int64_t most = INT64_MAX, iteration;
  int goes_on = 1;
  REQUIRE((!has(c, 0) || c->in[0].count == 1) && (!has(c, 1) || c->in[1].count == 1) && c->in[2].count == 1);
  REQUIRE(c->out[0].count == 1 && c->out[1].count == 1);
  if (c->is_check) return run_body(c, c->numbers);
  if (has(c, 0)) most = integer(&c->in[0], 0);
  if (has(c, 1)) goes_on = c->in[1].data[0];
  for (iteration = 0; iteration < most && goes_on; iteration++) {
    set_integer(&c->out[0], 0, iteration);
    c->out[1].data[0] = 1;
    if (run_body(c, c->numbers)) return -1;
    goes_on = c->in[2].data[0];
  }
  REQUIRE(c->numbers[2] < 0 || c->numbers[2] == iteration);
  return 0;
}
