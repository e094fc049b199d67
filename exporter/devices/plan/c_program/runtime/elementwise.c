/* Operators that compute each element on its own. */
#include "kernels.h"

static float clip(float x, float low, float high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}

static double real(const opsetta_tensor *tensor, int64_t index) {
  if (tensor->type == FLOAT) return floats(tensor)[index];
  if (tensor->type == DOUBLE) return ((const double *)(const void *)tensor->data)[index];
  return (double)integer(tensor, index);
}

/* The nearest number that int64 has, because C leaves the others undefined. */
static int64_t truncate(double x) {
  return x != x ? 0 : x >= 9223372036854775807.0 ? INT64_MAX : x <= -9223372036854775808.0 ? INT64_MIN : (int64_t)x;
}

static void set_real(const opsetta_tensor *tensor, int64_t index, double x) {
  if (tensor->type == FLOAT) floats(tensor)[index] = (float)x;
  else if (tensor->type == DOUBLE) ((double *)(void *)tensor->data)[index] = x;
  else set_integer(tensor, index, tensor->type == BOOL ? x != 0 : truncate(x));
}

/* Scalars of an optimizer's step, such as bias corrections, are of float64. */
static int combine_doubles(const context *c, double a, double b, double *y) {
  const char *type = c->type;
  if (!strcmp(type, "Add")) *y = a + b;
  else if (!strcmp(type, "Sub")) *y = a - b;
  else if (!strcmp(type, "Mul")) *y = a * b;
  else if (!strcmp(type, "Div")) *y = a / b;
  else if (!strcmp(type, "Pow")) *y = pow(a, b);
  else if (!strcmp(type, "Sqrt")) *y = sqrt(a);
  else return fail(c, "the operator is not supported");
  return 0;
}

static int64_t power(int64_t base, int64_t exponent) {
  uint64_t result = 1, factor = (uint64_t)base;
  if (exponent < 0) return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  for (; exponent > 0; exponent /= 2, factor *= factor)
    if (exponent % 2) result *= factor;
  return (int64_t)result;
}

/* Integers wrap around, as unsigned ones do in C. */
static int combine_integers(const context *c, int64_t a, int64_t b, int64_t *y) {
  const char *type = c->type;
  int is_quotient = !strcmp(type, "Div") || !strcmp(type, "Mod") || !strcmp(type, "Fmod");
  const int64_t negative = (int64_t)(0 - (uint64_t)a);
  REQUIRE(!is_quotient || b != 0);
  if (!strcmp(type, "Add")) *y = (int64_t)((uint64_t)a + (uint64_t)b);
  else if (!strcmp(type, "Sub")) *y = (int64_t)((uint64_t)a - (uint64_t)b);
  else if (!strcmp(type, "Mul")) *y = (int64_t)((uint64_t)a * (uint64_t)b);
  else if (!strcmp(type, "Max")) *y = a > b ? a : b;
  else if (!strcmp(type, "Min")) *y = a < b ? a : b;
  else if (!strcmp(type, "Pow")) *y = power(a, b);
  else if (!strcmp(type, "Abs")) *y = a < 0 ? negative : a;
  else if (!strcmp(type, "Sign")) *y = (a > 0) - (a < 0);
  else if (is_quotient && b == -1) *y = strcmp(type, "Div") ? 0 : negative;
  else if (!strcmp(type, "Div")) *y = a / b;
  else if (is_quotient) *y = a % b + (a % b && strcmp(type, "Fmod") && (a < 0) != (b < 0) ? b : 0);
  else return fail(c, "the operator is not supported");
  return 0;
}

static int combine_other(const context *c, int64_t at, int64_t a, int64_t b) {
  const opsetta_tensor *left = &c->in[0], *right = c->node->in_count > 1 ? &c->in[1] : left;
  double number = 0;
  int64_t value = 0;
  if (left->type == DOUBLE) {
    if (combine_doubles(c, real(left, a), real(right, b), &number)) return -1;
    set_real(&c->out[0], at, number);
    return 0;
  }
  if (combine_integers(c, integer(left, a), integer(right, b), &value)) return -1;
  set_integer(&c->out[0], at, value);
  return 0;
}

#define UNARY(name, expression) \
  if (!strcmp(c->type, name)) { \
    INDEPENDENT for (index = 0; index < count; index++) { \
      float x = in[index]; \
      out[index] = (expression); \
    } \
    return 0; \
  }

/* Numbers: alpha and beta; the bounds of Clip; alpha and gamma of Selu. */
int run_unary(context *c) {
  const float *in = floats(&c->in[0]), alpha = (float)real_number(c, 0), beta = (float)real_number(c, 1);
  float *out = floats(&c->out[0]);
  int64_t index, count = c->out[0].count;
  REQUIRE(c->in[0].count == count);
  if (c->is_check) return 0;
  for (index = 0; c->in[0].type != FLOAT && index < count; index++)
    if (combine_other(c, index, index, index)) return -1;
  if (c->in[0].type != FLOAT) return 0;
  UNARY("Relu", x > 0 || x != x ? x : 0)
  UNARY("LeakyRelu", x < 0 ? alpha * x : x)
  UNARY("Clip", clip(x, alpha, beta))
  UNARY("Neg", -x)
  UNARY("Abs", fabsf(x))
  UNARY("Sqrt", sqrtf(x))
  UNARY("Reciprocal", 1.0f / x)
  UNARY("HardSigmoid", clip(alpha * x + beta, 0, 1))
  UNARY("HardSwish", x * clip(x / 6.0f + 0.5f, 0, 1))
  UNARY("Sigmoid", logistic(x))
  UNARY("Swish", x * logistic(alpha * x))
  UNARY("Tanh", hyperbolic_tangent(x))
  UNARY("Erf", error_function(x))
  UNARY("GeluTanh", 0.5f * x * (1.0f + hyperbolic_tangent(0.7978845608f * (x + 0.044715f * x * x * x))))
  UNARY("Gelu", 0.5f * x * (1.0f + error_function(x * 0.7071067812f)))
  UNARY("Exp", exponential(x))
  UNARY("Log", logf(x))
  UNARY("Floor", floorf(x))
  UNARY("Ceil", ceilf(x))
  UNARY("Round", rintf(x))
  UNARY("Sign", x > 0 ? 1.0f : x < 0 ? -1.0f : x)
  UNARY("Softplus", x > 20 ? x : log1pf(expf(x)))
  UNARY("Softsign", x / (1.0f + fabsf(x)))
  UNARY("Elu", x < 0 ? alpha * expm1f(x) : x)
  UNARY("Celu", x < 0 ? alpha * expm1f(x / alpha) : x)
  UNARY("Selu", beta * (x < 0 ? alpha * expm1f(x) : x))
  UNARY("Mish", x * tanhf(x > 20 ? x : log1pf(expf(x))))
  UNARY("ThresholdedRelu", x > alpha ? x : 0)
  UNARY("Sin", sinf(x))
  UNARY("Cos", cosf(x))
  UNARY("Tan", tanf(x))
  UNARY("Asin", asinf(x))
  UNARY("Acos", acosf(x))
  UNARY("Atan", atanf(x))
  UNARY("Sinh", sinhf(x))
  UNARY("Cosh", coshf(x))
  UNARY("Asinh", asinhf(x))
  UNARY("Acosh", acoshf(x))
  UNARY("Atanh", atanhf(x))
  return fail(c, "the operator is not supported");
}

/* A step that is known to be 0 or 1 lets the compiler compute several elements at once. */
#define EVERY_ELEMENT(expression, x_step, z_step) \
  INDEPENDENT for (index = 0; index < length; index++) { \
    float a = x[index * (x_step)], b = z[index * (z_step)]; \
    y[index] = (expression); \
  }
#define BINARY(name, expression) \
  if (!strcmp(c->type, name)) { \
    if (x_step == 1 && z_step == 1) EVERY_ELEMENT(expression, 1, 1) \
    else if (x_step == 1 && z_step == 0) EVERY_ELEMENT(expression, 1, 0) \
    else EVERY_ELEMENT(expression, x_step, z_step) \
    return 0; \
  }

static int combine_floats(const context *c, const walk *w) {
  const float *x = floats(&c->in[0]) + w->offset[1], *z = floats(&c->in[1]) + w->offset[2];
  float *y = floats(&c->out[0]) + w->offset[0];
  int64_t index, length = w->length, x_step = w->step[1], z_step = w->step[2];
  BINARY("Add", a + b)
  BINARY("Sub", a - b)
  BINARY("Mul", a * b)
  BINARY("Div", a / b)
  BINARY("Max", a > b || a != a ? a : b)
  BINARY("Min", a < b || a != a ? a : b)
  BINARY("PRelu", a < 0 ? a * b : a)
  BINARY("Pow", b == 2.0f ? a * a : powf(a, b))
  BINARY("Fmod", fmodf(a, b))
  BINARY("Mod", fmodf(a, b) + (fmodf(a, b) != 0 && (a < 0) != (b < 0) ? b : 0))
  return fail(c, "the operator is not supported");
}

/* Of floats, `m` and `n` are equal, and of integers `a` and `b`. */
static int compare(const char *type, float a, float b, int64_t m, int64_t n) {
  if (!strcmp(type, "Equal")) return a == b && m == n;
  if (!strcmp(type, "Less")) return a < b || m < n;
  if (!strcmp(type, "LessOrEqual")) return a <= b && m <= n;
  if (!strcmp(type, "And")) return m && n;
  if (!strcmp(type, "Or")) return m || n;
  if (!strcmp(type, "Xor")) return !m != !n;
  if (!strcmp(type, "Unequal")) return a != b;
  return a - a != a - a && a == a; /* IsInf */
}

/* Numbers: a walk over the result and both operands. */
int run_binary(context *c) {
  const opsetta_tensor *left = &c->in[0], *right = &c->in[1], *out = &c->out[0];
  int64_t at = 0, index, limits[] = {out->count, left->count, right->count};
  walk w;
  if (read_walk(c, &at, &w, 3, limits)) return -1;
  REQUIRE(w.step[0] == 1);
  while (!c->is_check && next_row(&w)) {
    if (left->type == FLOAT && out->type == FLOAT) {
      if (combine_floats(c, &w)) return -1;
      continue;
    }
    for (index = 0; index < w.length; index++) {
      int64_t y = w.offset[0] + index, a = w.offset[1] + index * w.step[1], b = w.offset[2] + index * w.step[2];
      if (out->type == BOOL && left->type == FLOAT) out->data[y] = (uint8_t)compare(c->type, floats(left)[a], floats(right)[b], 0, 0);
      else if (out->type == BOOL) out->data[y] = (uint8_t)compare(c->type, 0, 0, integer(left, a), integer(right, b));
      else if (combine_other(c, y, a, b)) return -1;
    }
  }
  return 0;
}

/* Numbers: a walk over the result and the operands. */
int run_where(context *c) {
  const opsetta_tensor *in = c->in, *out = &c->out[0];
  const size_t size = item_size(out->type);
  int64_t at = 0, index, limits[] = {out->count, in[0].count, in[1].count, in[2].count};
  walk w;
  if (read_walk(c, &at, &w, 4, limits)) return -1;
  while (!c->is_check && next_row(&w))
    for (index = 0; index < w.length; index++) {
      const int number = in[0].data[w.offset[1] + index * w.step[1]] ? 1 : 2;
      const uint8_t *from = in[number].data + (size_t)(w.offset[number + 1] + index * w.step[number + 1]) * size;
      memmove(out->data + (size_t)(w.offset[0] + index * w.step[0]) * size, from, size);
    }
  return 0;
}

int run_cast(context *c) {
  const opsetta_tensor *in = &c->in[0], *out = &c->out[0];
  int is_real = in->type == FLOAT || in->type == DOUBLE || out->type == FLOAT || out->type == DOUBLE;
  int64_t index;
  REQUIRE(in->count == out->count);
  for (index = 0; index < out->count && !c->is_check; index++) {
    if (is_real) set_real(out, index, real(in, index));
    else set_integer(out, index, out->type == BOOL ? integer(in, index) != 0 : integer(in, index));
  }
  return 0;
}

void set_rounded(const opsetta_tensor *out, int64_t index, float value, int32_t zero) {
  float low = out->type == UINT8 ? 0 : -128, high = out->type == UINT8 ? 255 : 127;
  value = rintf(value) + (float)zero;
  set_integer(out, index, (int64_t)(value > low ? value < high ? value : high : low));
}

/* QuantizeLinear, DequantizeLinear. Numbers: the neighbouring elements that share a scale. */
int run_quantize(context *c) {
  const opsetta_tensor *in = &c->in[0], *out = &c->out[0], *scale = &c->in[1];
  int64_t inner = c->numbers[0], start, index;
  int is_back = !strcmp(c->type, "DequantizeLinear");
  REQUIRE(in->count == out->count && (!has(c, 2) || c->in[2].count == scale->count));
  REQUIRE(inner > 0 && inner <= MOST_ELEMENTS && in->count % inner == 0 && (scale->count > 0 || !in->count));
  for (start = 0; start < in->count && !c->is_check; start += inner) {
    int64_t at = start / inner % scale->count;
    int32_t zero = has(c, 2) ? (int32_t)integer(&c->in[2], at) : 0;
    float factor = floats(scale)[at];
    for (index = start; index < start + inner; index++) {
      if (is_back) floats(out)[index] = (float)(integer(in, index) - zero) * factor;
      else set_rounded(out, index, floats(in)[index] / factor, zero);
    }
  }
  return 0;
}
