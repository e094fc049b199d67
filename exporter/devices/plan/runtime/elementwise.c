/* Operators that compute each element on its own. */
#include "kernels.h"

static float clip(float x, float low, float high) { return x < low ? low : x > high ? high : x; }

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
static int run_doubles(context *c) {
  int64_t index;
  for (index = 0; index < c->out[0].count && !c->is_check; index++) {
    double x = real(&c->in[0], index);
    set_real(&c->out[0], index, !strcmp(c->type, "Neg") ? -x : !strcmp(c->type, "Sqrt") ? sqrt(x) : 1.0 / x);
  }
  return 0;
}

static int run_integers(context *c) {
  int64_t index, low, high;
  REQUIRE(!has(c, 1) || c->in[1].type == c->in[0].type);
  REQUIRE(!has(c, 2) || c->in[2].type == c->in[0].type);
  if (c->is_check) return 0;
  low = has(c, 1) ? integer(&c->in[1], 0) : !strcmp(c->type, "Relu") ? 0 : INT64_MIN;
  high = has(c, 2) ? integer(&c->in[2], 0) : INT64_MAX;
  for (index = 0; index < c->out[0].count; index++) {
    int64_t x = integer(&c->in[0], index), negative = (int64_t)(0 - (uint64_t)x);
    if (!strcmp(c->type, "Neg")) x = negative;
    else if (!strcmp(c->type, "Abs")) x = x < 0 ? negative : x;
    else if (!strcmp(c->type, "Sign")) x = (x > 0) - (x < 0);
    else x = x < low ? low : x > high ? high : x; /* Clip, Relu */
    set_integer(&c->out[0], index, x);
  }
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

int run_unary(context *c) {
  const float *in = floats(&c->in[0]);
  float *out = floats(&c->out[0]), alpha, beta, low, high;
  int64_t index, count = c->out[0].count;
  int is_tanh = is_text(c, "approximate", "tanh", "none");
  REQUIRE(c->in[0].count == count);
  REQUIRE((!has(c, 1) || c->in[1].count == 1) && (!has(c, 2) || c->in[2].count == 1));
  if (c->in[0].type == DOUBLE) return run_doubles(c);
  if (c->in[0].type != FLOAT) return run_integers(c);
  if (c->is_check) return 0;
  low = has(c, 1) ? *floats(&c->in[1]) : -INFINITY;
  high = has(c, 2) ? *floats(&c->in[2]) : INFINITY;
  alpha = float_of(c, "alpha", !strcmp(c->type, "LeakyRelu") ? 0.01 : !strcmp(c->type, "HardSigmoid") ? 0.2
                               : !strcmp(c->type, "Selu") ? 1.67326319217681884765625 : 1);
  beta = float_of(c, "beta", 0.5);
  UNARY("Relu", x > 0 || x != x ? x : 0)
  UNARY("LeakyRelu", x < 0 ? alpha * x : x)
  UNARY("Clip", clip(x, low, high))
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
  if (is_tanh) UNARY("Gelu", 0.5f * x * (1.0f + hyperbolic_tangent(0.7978845608f * (x + 0.044715f * x * x * x))))
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
  UNARY("Selu", float_of(c, "gamma", 1.05070102214813232421875) * (x < 0 ? alpha * expm1f(x) : x))
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
#define EACH_ELEMENT(expression, x_step, z_step) \
  INDEPENDENT for (index = 0; index < length; index++) { \
    float a = x[index * (x_step)], b = z[index * (z_step)]; \
    y[index] = (expression); \
  }
#define BINARY(name, expression) \
  if (!strcmp(c->type, name)) { \
    if (x_step == 1 && z_step == 1) EACH_ELEMENT(expression, 1, 1) \
    else if (x_step == 1 && z_step == 0) EACH_ELEMENT(expression, 1, 0) \
    else EACH_ELEMENT(expression, x_step, z_step) \
    return 0; \
  }

static int combine_floats(const context *c, int64_t length, const float *x, int64_t x_step, const float *z,
                          int64_t z_step, float *y) {
  int64_t index;
  BINARY("Add", a + b)
  BINARY("Sum", a + b)
  BINARY("Mean", a + b)
  BINARY("Sub", a - b)
  BINARY("Mul", a * b)
  BINARY("Div", a / b)
  BINARY("Max", a > b || a != a ? a : b)
  BINARY("Min", a < b || a != a ? a : b)
  BINARY("PRelu", a < 0 ? a * b : a)
  BINARY("Pow", b == 2.0f ? a * a : powf(a, b))
  if (int_of(c, "fmod", 0)) BINARY("Mod", fmodf(a, b))
  BINARY("Mod", fmodf(a, b) + (fmodf(a, b) != 0 && (a < 0) != (b < 0) ? b : 0))
  return fail(c, "the operator is not supported");
}

static int combine_doubles(const context *c, double a, double b, double *y) {
  const char *type = c->type;
  if (!strcmp(type, "Add")) *y = a + b;
  else if (!strcmp(type, "Sub")) *y = a - b;
  else if (!strcmp(type, "Mul")) *y = a * b;
  else if (!strcmp(type, "Div")) *y = a / b;
  else if (!strcmp(type, "Pow")) *y = pow(a, b);
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
  int is_quotient = !strcmp(type, "Div") || !strcmp(type, "Mod");
  REQUIRE(!is_quotient || b != 0);
  if (!strcmp(type, "Add") || !strcmp(type, "Sum")) *y = (int64_t)((uint64_t)a + (uint64_t)b);
  else if (!strcmp(type, "Sub")) *y = (int64_t)((uint64_t)a - (uint64_t)b);
  else if (!strcmp(type, "Mul")) *y = (int64_t)((uint64_t)a * (uint64_t)b);
  else if (!strcmp(type, "Max")) *y = a > b ? a : b;
  else if (!strcmp(type, "Min")) *y = a < b ? a : b;
  else if (!strcmp(type, "Pow")) *y = power(a, b);
  else if (is_quotient && b == -1) *y = strcmp(type, "Div") ? 0 : (int64_t)(0 - (uint64_t)a);
  else if (!strcmp(type, "Div")) *y = a / b;
  else if (!strcmp(type, "Mod")) *y = a % b + (a % b && !int_of(c, "fmod", 0) && (a < 0) != (b < 0) ? b : 0);
  else return fail(c, "the operator is not supported");
  return 0;
}

static int combine(context *c, const opsetta_tensor *left, const opsetta_tensor *right) {
  opsetta_tensor *out = &c->out[0];
  int64_t start = 0, index, value = 0;
  double number = 0;
  walk w;
  start_walk(&w, out);
  REQUIRE(!add_operand(&w, left, out) && !add_operand(&w, right, out));
  if (c->is_check || !out->count) return 0;
  join_axes(&w);
  do {
    int64_t x_step = w.steps[0][w.rank - 1], z_step = w.steps[1][w.rank - 1];
    if (out->type == FLOAT) {
      if (combine_floats(c, w.length, floats(left) + w.offset[0], x_step, floats(right) + w.offset[1], z_step,
                         floats(out) + start))
        return -1;
    } else if (out->type == DOUBLE) {
      for (index = 0; index < w.length; index++) {
        if (combine_doubles(c, real(left, w.offset[0] + index * x_step), real(right, w.offset[1] + index * z_step),
                            &number))
          return -1;
        set_real(out, start + index, number);
      }
    } else {
      for (index = 0; index < w.length; index++) {
        if (combine_integers(c, integer(left, w.offset[0] + index * x_step),
                             integer(right, w.offset[1] + index * z_step), &value))
          return -1;
        set_integer(out, start + index, value);
      }
    }
    start += w.length;
  } while (next_row(&w));
  return 0;
}

/* Sum, Mean, Max and Min combine any number of operands: first the one whose memory the result has. */
int run_binary(context *c) {
  opsetta_tensor operand, first = c->in[c->in_count > 1];
  uint32_t number, chosen = c->in_count > 1;
  int64_t index;
  for (number = 2; number < c->in_count; number++) {
    if (tensor_at(c, 0, number, &operand)) return -1;
    if (operand.data == c->out[0].data) first = operand, chosen = number;
  }
  if (c->in_count == 1 ? run_copy(c) : combine(c, &c->in[0], &first)) return -1;
  for (number = 1; number < c->in_count; number++) {
    if (tensor_at(c, 0, number, &operand)) return -1;
    if (number != chosen && combine(c, &c->out[0], &operand)) return -1;
  }
  if (!strcmp(c->type, "Mean") && !c->is_check)
    for (index = 0; index < c->out[0].count; index++) floats(&c->out[0])[index] /= (float)c->in_count;
  return 0;
}

static int compare(const char *type, double a, double b, int64_t m, int64_t n) {
  if (!strcmp(type, "Equal")) return a == b && m == n;
  if (!strcmp(type, "Less")) return a < b || m < n;
  if (!strcmp(type, "Greater")) return a > b || m > n;
  if (!strcmp(type, "LessOrEqual")) return a <= b && m <= n;
  if (!strcmp(type, "GreaterOrEqual")) return a >= b && m >= n;
  if (!strcmp(type, "And")) return m && n;
  if (!strcmp(type, "Or")) return m || n;
  if (!strcmp(type, "Xor")) return m != n;
  if (!strcmp(type, "Not")) return !m;
  if (!strcmp(type, "IsNaN")) return a != a;
  return a - a != a - a && a == a; /* IsInf */
}

/* Comparisons and logic: results are bool. Not, IsNaN and IsInf compare an operand with itself. */
int run_compare(context *c) {
  const opsetta_tensor *left = &c->in[0], *right = has(c, 1) ? &c->in[1] : left;
  uint8_t *y = c->out[0].data;
  int64_t index;
  walk w;
  start_walk(&w, &c->out[0]);
  REQUIRE(!add_operand(&w, left, &c->out[0]) && !add_operand(&w, right, &c->out[0]));
  if (c->is_check || !c->out[0].count) return 0;
  join_axes(&w);
  do {
    for (index = 0; index < w.length; index++) {
      int64_t i = w.offset[0] + index * w.steps[0][w.rank - 1], j = w.offset[1] + index * w.steps[1][w.rank - 1];
      if (left->type == FLOAT) *y++ = (uint8_t)compare(c->type, floats(left)[i], floats(right)[j], 0, 0);
      else *y++ = (uint8_t)compare(c->type, 0, 0, integer(left, i), integer(right, j));
    }
  } while (next_row(&w));
  return 0;
}

int run_where(context *c) {
  size_t size = item_size(c->out[0].type);
  uint8_t *to = c->out[0].data;
  int64_t index;
  walk w;
  int number;
  start_walk(&w, &c->out[0]);
  for (number = 0; number < 3; number++) REQUIRE(!add_operand(&w, &c->in[number], &c->out[0]));
  if (c->is_check || !c->out[0].count) return 0;
  join_axes(&w);
  do {
    for (index = 0; index < w.length; index++, to += size) {
      number = c->in[0].data[w.offset[0] + index * w.steps[0][w.rank - 1]] ? 1 : 2;
      memmove(to, c->in[number].data + (size_t)(w.offset[number] + index * w.steps[number][w.rank - 1]) * size, size);
    }
  } while (next_row(&w));
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

int run_range(context *c) {
  int64_t index;
  REQUIRE(c->in[0].count == 1 && c->in[2].count == 1);
  for (index = 0; index < c->out[0].count && !c->is_check; index++)
    if (c->out[0].type == FLOAT) floats(&c->out[0])[index] = *floats(&c->in[0]) + (float)index * *floats(&c->in[2]);
    else set_integer(&c->out[0], index,
                     (int64_t)((uint64_t)integer(&c->in[0], 0) + (uint64_t)index * (uint64_t)integer(&c->in[2], 0)));
  return 0;
}
