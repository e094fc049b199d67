/* What the kernels share: the operands of a node, its attributes, and walks over tensors. */
#ifndef OPSETTA_KERNELS_H
#define OPSETTA_KERNELS_H

#include <math.h>
#include <string.h>

#include "opsetta_runtime.h"

enum { FLOAT = 1, UINT8 = 2, INT8 = 3, INT32 = 6, INT64 = 7, BOOL = 9, DOUBLE = 11 };
enum { OMITTED, ARENA, WEIGHTS };
enum { MOST_INPUTS = 10, MOST_OUTPUTS = 4 };

/* Results may be in the memory of an operand, element by element: then iterations are independent all the same. */
#if defined(__GNUC__) && !defined(__clang__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

typedef struct {
  opsetta_model *model;
  uint8_t *arena;
  const char *type;
  uint32_t number, in_count, out_count, inputs, outputs, attribute_count, attributes;
  int is_check;                                          /* only check sizes: the arena does not exist yet */
  opsetta_tensor in[MOST_INPUTS], out[MOST_OUTPUTS]; /* the first ones; tensor_at has all */
} context;

typedef struct {
  const char *types;
  int (*run)(context *);
  const char *operands, *attributes;
} operator_row;

extern const operator_row OPERATORS[];

int fail(const context *c, const char *error);

/* Plans are not trusted: a kernel first checks all that its memory accesses rely on. */
#define REQUIRE(condition) \
  do { \
    if (!(condition)) return fail(c, "its sizes, indices or attributes do not fit"); \
  } while (0)

int value_at(opsetta_model *model, uint8_t *arena, uint64_t index, opsetta_tensor *tensor);
int tensor_at(const context *c, int is_output, uint32_t index, opsetta_tensor *tensor);
int64_t find_attribute(const context *c, const char *name);
int64_t length_of(const context *c, const char *name);
int64_t int_of(const context *c, const char *name, int64_t otherwise);
int64_t item_of(const context *c, const char *name, int64_t index, int64_t otherwise);
float float_of(const context *c, const char *name, double otherwise);
int is_text(const context *c, const char *name, const char *text, const char *otherwise);
/* The axis of an attribute, from the front; -1 if there is no such axis. */
int64_t axis_of(const context *c, const char *name, int64_t otherwise, uint32_t rank);
int run_nodes(opsetta_model *model, uint8_t *arena, uint32_t first, uint32_t count);
int64_t pooled(const opsetta_model *model, int64_t index);
size_t item_size(uint32_t type);

static inline int has(const context *c, uint32_t index) {
  return index < c->in_count && index < MOST_INPUTS && c->in[index].memory != OMITTED;
}

static inline float *floats(const opsetta_tensor *tensor) { return (float *)(void *)tensor->data; }

int64_t integer(const opsetta_tensor *tensor, int64_t index);
void set_integer(const opsetta_tensor *tensor, int64_t index, int64_t value);
/* The product of the sizes from one axis to before another. */
int64_t span(const opsetta_tensor *tensor, int64_t first, int64_t last);
int same_shape(const opsetta_tensor *a, const opsetta_tensor *b);

/* Visits a result in rows, with the offsets of up to three operands. Axes that all operands step over evenly are
   one. A row has `length` elements, and operand k steps by `steps[k][rank - 1]` from `offset[k]`. */
typedef struct {
  uint32_t rank, operands;
  int64_t length, shape[OPSETTA_RANK], position[OPSETTA_RANK], steps[3][OPSETTA_RANK], offset[3];
} walk;

void start_walk(walk *w, const opsetta_tensor *result);
/* Returns -1 if the operand cannot be broadcast to the result. */
int add_operand(walk *w, const opsetta_tensor *operand, const opsetta_tensor *result);
void add_steps(walk *w, int64_t offset, const int64_t *steps);
void join_axes(walk *w);
int next_row(walk *w);

/* Functions that the compiler computes for several elements at once, unlike those of the library. Their errors are
   below 2.5 units in the last place (Cephes; erff by N. Juffa). Results below 1e-37 are 0. */
static inline float exponential(float x) {
  const float whole = x * 1.44269504f + 12582912.0f, n = whole - 12582912.0f; /* the nearest integer */
  const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
  const float p = ((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
                   1.6666665459e-1f) * r + 5.0000001201e-1f;
  float power;
  uint32_t bits;
  memcpy(&bits, &whole, sizeof bits);
  bits = (bits + 126) << 23; /* the integer is in the lower bits */
  memcpy(&power, &bits, sizeof power);
  power = (p * r * r + r + 1.0f) * power * 2.0f;
  return x < -86.0f ? 0 : x > 88.7228394f ? INFINITY : power;
}

static inline float logistic(float x) { return 1.0f / (1.0f + exponential(-x)); }

static inline float hyperbolic_tangent(float x) {
  const float s = x * x, size = fabsf(x), far = 1.0f - 2.0f / (exponential(2.0f * size) + 1.0f);
  const float near = ((((-5.70498872745e-3f * s + 2.06390887954e-2f) * s - 5.37397155531e-2f) * s + 1.33314422036e-1f) * s -
                      3.33332819422e-1f) * s * x + x;
  return size > 0.625f ? (x < 0 ? -far : far) : near;
}

static inline float error_function(float x) {
  const float s = x * x, t = fabsf(x), u = (-1.72853470e-5f * t + 3.83197126e-4f) * s + (-3.88396438e-3f * t + 2.42546219e-2f);
  const float far = 1.0f - exponential((((u * t - 1.06777877e-1f) * t - 6.34846687e-1f) * t - 1.28717512e-1f) * t - t);
  const float near = (((((-5.96761703e-4f * s + 4.99119423e-3f) * s - 2.67681349e-2f) * s + 1.12819925e-1f) * s -
                       3.76125336e-1f) * s + 1.28379166e-1f) * x + x;
  return t > 0.921875f ? (x < 0 ? -far : far) : near;
}

float dot(int64_t count, const float *a, const float *b);

/* The right operand of a product: element (p, j) is at p * row + j * column, or is one of a patch of an image. */
typedef struct {
  int64_t in[2], out[2], kernel[2], stride[2], pad[2], pad_end[2], dilation[2];
} window;

typedef struct {
  const float *data;
  int64_t row, column;
  const window *patches;
} matrix;

/* y += a * b, for an [m, k] and a [k, n] matrix. */
void multiply(int64_t m, int64_t n, int64_t k, const float *a, int64_t a_row, int64_t a_column, const matrix *b,
              float *y, int64_t y_row);
int window_of(const context *c, window *w, const opsetta_tensor *weight);
/* Results first to before last read an existing element at `offset` from their window's corner. */
void valid_range(const window *w, int axis, int64_t offset, int64_t *first, int64_t *last);
int check_conv(const context *c, const opsetta_tensor *weight, const opsetta_tensor *bias, window *w, int64_t *groups);

int run_unary(context *c), run_binary(context *c), run_compare(context *c);
int run_where(context *c), run_cast(context *c), run_range(context *c);
int run_softmax(context *c), run_layer_normalization(context *c), run_group_normalization(context *c);
int run_batch_normalization(context *c), run_reduce(context *c), run_arg(context *c), run_top_k(context *c);
int run_cumulative_sum(context *c);
int run_matmul(context *c), run_gemm(context *c), run_attention(context *c), run_rotary(context *c);
int run_conv(context *c), run_conv_transpose(context *c), run_pool(context *c);
int run_copy(context *c), run_strided(context *c), run_concat(context *c), run_gather(context *c);
int run_gather_elements(context *c), run_gather_nd(context *c), run_pad(context *c), run_resize(context *c);
int run_shape(context *c), run_fill(context *c), run_triangle(context *c), run_one_hot(context *c);
int run_recurrent(context *c);
int run_quantize(context *c), run_dynamic_quantize(context *c);
int run_integer_matmul(context *c), run_integer_conv(context *c);
int run_if(context *c), run_loop(context *c);

#endif
