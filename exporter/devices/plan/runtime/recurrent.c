/* LSTM, GRU and RNN. Y has the hidden states, Y_h the last one, Y_c the cell state of an LSTM. The output after them
   is memory for the gates of a few steps: what the inputs contribute, and last what the state contributes. */
#include "kernels.h"

typedef struct {
  int64_t gates, hidden;
  int is_linear, is_relu;
} layer;

/* A step of one sequence; `x` and `h` are the contributions of the input and of the state to the gates. */
static void step_lstm(const layer *l, const float *x, const float *h, float *cell, float *y) {
  const int64_t n = l->hidden; /* the order of the gates is input, output, forget, cell */
  int64_t u;
  INDEPENDENT for (u = 0; u < n; u++) {
    float next = logistic(x[2 * n + u] + h[2 * n + u]) * cell[u] + logistic(x[u] + h[u]) * hyperbolic_tangent(x[3 * n + u] + h[3 * n + u]);
    cell[u] = next;
    y[u] = logistic(x[n + u] + h[n + u]) * hyperbolic_tangent(next);
  }
}

/* `candidate` is the contribution of the state to the candidate, after the reset. */
static void step_gru(const layer *l, const float *x, const float *h, const float *candidate, const float *state, float *y) {
  const int64_t n = l->hidden; /* the order of the gates is update, reset, candidate */
  int64_t u;
  for (u = 0; u < n; u++) {
    float update = logistic(x[u] + h[u]);
    float reset = l->is_linear ? logistic(x[n + u] + h[n + u]) : 1;
    y[u] = (1 - update) * hyperbolic_tangent(x[2 * n + u] + reset * candidate[u]) + update * state[u];
  }
}

static void fill_rows(float *to, int64_t rows, int64_t size, const float *bias) {
  int64_t row;
  for (row = 0; row < rows; row++, to += size) {
    if (bias) memmove(to, bias, (size_t)size * sizeof *to);
    else memset(to, 0, (size_t)size * sizeof *to);
  }
}

/* The candidate of a GRU that resets the state before the product; `y` holds the state after the reset. */
static void reset_state(const layer *l, const matrix *r, const float *bias, const float *x, float *h, const float *state, float *y) {
  const int64_t n = l->hidden;
  matrix candidate = *r;
  int64_t u;
  candidate.data += 2 * n * n;
  for (u = 0; u < n; u++) y[u] = logistic(x[n + u] + h[n + u]) * state[u];
  fill_rows(h + 2 * n, 1, n, bias ? bias + 2 * n : NULL);
  multiply(1, n, n, y, n, 1, &candidate, h + 2 * n, n);
}

/* One direction: `gates` has memory for `chunk` steps of all sequences, and one more. */
static void run_direction(const context *c, const layer *l, int64_t d, int is_reverse, float *state, float *cell,
                          float *gates, int64_t chunk) {
  const opsetta_tensor *in = &c->in[0];
  const int64_t time = in->shape[0], batch = in->shape[1], width = in->shape[2], n = l->hidden, size = l->gates * n;
  const matrix w = {floats(&c->in[1]) + d * size * width, 1, width, NULL}, r = {floats(&c->in[2]) + d * size * n, 1, n, NULL};
  const float *bias = has(c, 3) ? floats(&c->in[3]) + d * 2 * size : NULL;
  float *h = gates + chunk * batch * size;
  int64_t start, t, b, u, directions = c->in[1].shape[0];
  for (start = 0; start < time; start += chunk) {
    int64_t steps = time - start < chunk ? time - start : chunk, first = is_reverse ? time - start - steps : start;
    fill_rows(gates, steps * batch, size, bias);
    multiply(steps * batch, size, width, floats(in) + first * batch * width, width, 1, &w, gates, size);
    for (t = 0; t < steps; t++) {
      int64_t step = is_reverse ? steps - 1 - t : t;
      float *to = floats(&c->out[0]) + ((first + step) * directions + d) * batch * n;
      fill_rows(h, batch, size, bias ? bias + size : NULL);
      multiply(batch, size, n, state, n, 1, &r, h, size);
      for (b = 0; b < batch; b++) {
        float *x = gates + (step * batch + b) * size, *own = h + b * size, *y = to + b * n;
        if (l->gates == 4) step_lstm(l, x, own, cell + b * n, y);
        else if (l->gates == 3) {
          if (!l->is_linear) reset_state(l, &r, bias ? bias + size : NULL, x, own, state + b * n, y);
          step_gru(l, x, own, own + 2 * n, state + b * n, y);
        } else
          for (u = 0; u < n; u++) {
            float sum = x[u] + own[u];
            y[u] = !l->is_relu ? hyperbolic_tangent(sum) : sum > 0 ? sum : 0;
          }
      }
      memmove(state, to, (size_t)(batch * n) * sizeof(float));
    }
  }
}

int run_recurrent(context *c) {
  const opsetta_tensor *x = &c->in[0], *w = &c->in[1], *r = &c->in[2], *y = &c->out[0], *last = &c->out[1];
  int64_t count = !strcmp(c->type, "LSTM") ? 4 : !strcmp(c->type, "GRU") ? 3 : 1, n = r->shape[2], d, u, chunk;
  int64_t batch = x->shape[1], directions = w->shape[0], states = directions * batch * n;
  int is_lstm = count == 4, is_reverse = is_text(c, "direction", "reverse", "forward");
  const opsetta_tensor *cells = &c->out[2], *gates = &c->out[is_lstm ? 3 : 2];
  layer l = {count, n, int_of(c, "linear_before_reset", 0) != 0, is_text(c, "activations", "Relu", "Tanh")};
  REQUIRE(c->out_count == (is_lstm ? 4u : 3u) && y->memory && last->memory && gates->memory && n > 0);
  REQUIRE(w->shape[1] == count * n && w->shape[2] == x->shape[2] && r->shape[0] == directions && r->shape[1] == count * n);
  REQUIRE(y->count == x->shape[0] * states && last->count == states && (!is_lstm || (cells->memory && cells->count == states)));
  REQUIRE(!has(c, 3) || c->in[3].count == directions * 2 * count * n);
  REQUIRE((!has(c, 5) || c->in[5].count == states) && (!has(c, 6) || c->in[6].count == states));
  chunk = gates->shape[0] - 1;
  REQUIRE(gates->count == (chunk + 1) * batch * count * n && (chunk > 0 || !x->shape[0]));
  for (d = 0; d < directions && !c->is_check; d++) {
    float *state = floats(last) + d * batch * n, *cell = is_lstm ? floats(cells) + d * batch * n : NULL;
    for (u = 0; u < batch * n; u++) {
      state[u] = has(c, 5) ? floats(&c->in[5])[d * batch * n + u] : 0;
      if (is_lstm) cell[u] = has(c, 6) ? floats(&c->in[6])[d * batch * n + u] : 0;
    }
    run_direction(c, &l, d, is_reverse || d == 1, state, cell, floats(gates), chunk);
  }
  return 0;
}
