/* LSTM, GRU and RNN. Y has the hidden states, Y_h the last one, Y_c the cell state of an LSTM; before the node, Y_h and Y_c
   have the initial ones. The output after them is memory for the gates of a few steps: what the inputs contribute, and last
   what the state contributes. */
#include "kernels.h"

/* The numbers of a layer, in this order. */
typedef struct {
  int64_t time, batch, width, n, directions, is_reverse, is_linear, is_relu;
} layer;

/* A step of one sequence; `x` and `h` are the contributions of the input and of the state to the gates. */
static void step_lstm(int64_t n, const float *x, const float *h, float *cell, float *y) {
  int64_t u; /* the order of the gates is input, output, forget, cell */
  INDEPENDENT for (u = 0; u < n; u++) {
    float next = logistic(x[2 * n + u] + h[2 * n + u]) * cell[u] + logistic(x[u] + h[u]) * hyperbolic_tangent(x[3 * n + u] + h[3 * n + u]);
    cell[u] = next;
    y[u] = logistic(x[n + u] + h[n + u]) * hyperbolic_tangent(next);
  }
}

static void fill_rows(float *to, int64_t rows, int64_t size, const float *bias) {
  int64_t row;
  for (row = 0; row < rows; row++, to += size) {
    if (bias) memmove(to, bias, (size_t)size * sizeof *to);
    else memset(to, 0, (size_t)size * sizeof *to);
  }
}

/* The order of the gates is update, reset, candidate. If the layer is not linear before the reset, `h` has the contribution of
   the state after the reset, which is in `y` for its product with `r`. */
static void step_gru(const layer *l, product *r, const float *bias, const float *x, float *h, const float *state, float *y) {
  const int64_t n = l->n;
  int64_t u;
  if (!l->is_linear) {
    opsetta_tensor reset = *r->a.tensor;
    product candidate = *r;
    reset.data = (uint8_t *)(void *)y;
    candidate.a.tensor = &reset, candidate.a.at = 0, candidate.b.at += 2 * n * n, candidate.m = 1, candidate.n = n;
    candidate.y = h + 2 * n;
    for (u = 0; u < n; u++) y[u] = logistic(x[n + u] + h[n + u]) * state[u];
    fill_rows(h + 2 * n, 1, n, bias ? bias + 2 * n : NULL);
    multiply(&candidate);
  }
  for (u = 0; u < n; u++) {
    float update = logistic(x[u] + h[u]), reset = l->is_linear ? logistic(x[n + u] + h[n + u]) : 1;
    y[u] = (1 - update) * hyperbolic_tangent(x[2 * n + u] + reset * h[2 * n + u]) + update * state[u];
  }
}

/* One direction: `gates` has memory for `chunk` steps of all sequences, and one more. */
static void run_direction(const context *c, const layer *l, int64_t d, int64_t count, float *gates, int64_t chunk) {
  const int64_t batch = l->batch, n = l->n, size = count * n, is_reverse = l->is_reverse || d == 1;
  const float *bias = has(c, 3) ? floats(&c->in[3]) + d * 2 * size : NULL;
  float *h = gates + chunk * batch * size, *state = floats(&c->out[1]) + d * batch * n;
  product x = {c, 0, size, l->width, {&c->in[0], 0, l->width, 1, NULL, NULL, 0}, {&c->in[1], d * size * l->width, 1, l->width, NULL, NULL, 0}, gates, 0, size, 0, 0};
  product r = {c, batch, size, n, {&c->out[1], d * batch * n, n, 1, NULL, NULL, 0}, {&c->in[2], d * size * n, 1, n, NULL, NULL, 0}, h, 0, size, 0, 0};
  int64_t start, t, b, u;
  for (start = 0; start < l->time; start += chunk) {
    int64_t steps = l->time - start < chunk ? l->time - start : chunk, first = is_reverse ? l->time - start - steps : start;
    fill_rows(gates, steps * batch, size, bias);
    x.m = steps * batch, x.a.at = first * batch * l->width;
    multiply(&x);
    for (t = 0; t < steps; t++) {
      int64_t step = is_reverse ? steps - 1 - t : t;
      float *to = floats(&c->out[0]) + ((first + step) * l->directions + d) * batch * n;
      fill_rows(h, batch, size, bias ? bias + size : NULL);
      multiply(&r);
      for (b = 0; b < batch; b++) {
        float *own = gates + (step * batch + b) * size, *other = h + b * size, *y = to + b * n;
        if (count == 4) step_lstm(n, own, other, floats(&c->out[2]) + (d * batch + b) * n, y);
        else if (count == 3) step_gru(l, &r, bias ? bias + size : NULL, own, other, state + b * n, y);
        else
          for (u = 0; u < n; u++) {
            float sum = own[u] + other[u];
            y[u] = !l->is_relu ? hyperbolic_tangent(sum) : sum > 0 ? sum : 0;
          }
      }
      memmove(state, to, (size_t)(batch * n) * sizeof(float));
    }
  }
}

int run_recurrent(context *c) {
  const int64_t count = !strcmp(c->type, "LSTM") ? 4 : !strcmp(c->type, "GRU") ? 3 : 1;
  const opsetta_tensor *cells = &c->out[2], *gates = &c->out[3];
  int64_t d, states, size, step;
  layer l;
  memcpy(&l, c->numbers, sizeof l);
  states = size_product(size_product(l.directions, l.batch), l.n);
  size = size_product(size_product(count, l.n), l.directions);
  REQUIRE(l.n > 0 && l.batch > 0 && l.directions > 0 && size_product(size_product(l.time, l.batch), l.width) == c->in[0].count);
  REQUIRE(size_product(size, l.width) == c->in[1].count && size_product(size, l.n) == c->in[2].count && (!has(c, 3) || c->in[3].count == 2 * size));
  REQUIRE(size_product(l.time, states) == c->out[0].count && c->out[1].count == states && (count != 4 || (cells->memory && cells->count == states)));
  step = size_product(l.batch, count * l.n);
  REQUIRE(step > 0 && gates->count % step == 0 && (gates->count >= 2 * step || !l.time));
  for (d = 0; d < l.directions && !c->is_check; d++) run_direction(c, &l, d, count, floats(gates), gates->count / step - 1);
  return 0;
}
