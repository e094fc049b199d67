/* What the kernels share: the operands of a node, its numbers, walks over tensors, and functions. */
#ifndef OPSETTA_KERNELS_H
#define OPSETTA_KERNELS_H

#include <math.h>
#include <string.h>

#include "opsetta_runtime.h"

enum { FLOAT = 1, UINT8 = 2, INT8 = 3, INT32 = 6, INT64 = 7, BOOL = 9, DOUBLE = 11 };
enum { OMITTED, ARENA, WEIGHTS };
enum { MOST_INPUTS = 9, MOST_OUTPUTS = 4, MOST_AXES = 16 };
#define MOST_ELEMENTS ((int64_t)1 << 31)

/* Results may be in the memory of an operand, element by element: then iterations are independent all the same. */
#if defined(__GNUC__) && !defined(__clang__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

typedef struct {
  uint32_t type, in_count, inputs, out_count, outputs, number_count, numbers;
} plan_node;

typedef struct {
  opsetta_model *model;
  uint8_t *arena;
  const char *type;
  const plan_node *node;
  uint32_t index;
  int is_check;                                      /* only check sizes: the arena does not exist yet */
  const int64_t *numbers;                            /* what each kernel says; real numbers are bits of doubles */
  opsetta_tensor in[MOST_INPUTS], out[MOST_OUTPUTS]; /* the first ones */
} context;

typedef struct {
  const char *types;
  int (*run)(context *);
  const char *operands;
  uint32_t number_count; /* the least */
} operator_row;

extern const operator_row OPERATORS[];

int fail(const context *c, const char *error);

/* Plans are not trusted: a kernel first checks all that its memory accesses rely on. */
#define REQUIRE(condition) \
  do { \
    if (!(condition)) return fail(c, "its sizes, indices or attributes do not fit"); \
  } while (0)

int run_nodes(opsetta_model *model, uint8_t *arena, uint32_t first, uint32_t count);
double real_number(const context *c, int64_t index);
/* The product of two sizes; -1 if one is negative or the product too large for a tensor. */
int64_t size_product(int64_t a, int64_t b);
size_t item_size(uint32_t type);
int64_t integer(const opsetta_tensor *tensor, int64_t index);
void set_integer(const opsetta_tensor *tensor, int64_t index, int64_t value);
void set_rounded(const opsetta_tensor *out, int64_t index, float value, int32_t zero);

static inline int has(const context *c, uint32_t index) { return index < c->node->in_count && c->in[index].memory != OMITTED; }

static inline float *floats(const opsetta_tensor *tensor) { return (float *)(void *)tensor->data; }

/* Visits the elements of operands in rows: element i of a row of operand k is at offset[k] + i * step[k]. */
typedef struct {
  uint32_t rank, operands;
  int is_started;
  int64_t count, length, shape[MOST_AXES], position[MOST_AXES], steps[4][MOST_AXES], offset[4], step[4];
} walk;

/* Reads the numbers from `*at` on: the rank, the sizes, and of each operand the first element and a step for each
   axis. All elements of operand k are below limits[k]. */
int read_walk(const context *c, int64_t *at, walk *w, uint32_t operands, const int64_t *limits);
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

/* A window over three axes. Element e of the window of result o is at o * stride - pad + e * dilation; element s of the
   source is at s * spread, which is 1 except in transposed convolutions. */
typedef struct {
  int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad[3], spread[3];
} window;

int read_window(const context *c, int64_t at, window *w);
int64_t volume(const int64_t *sizes);
/* Combines the elements of the windows of a plane: adds sums of their products with a filter to the results; or, without
   one, sets the results to sums or maxima. It takes windows that fit. */
void combine_plane(const window *w, const float *image, const float *filter, int is_max, float *results);
int fits_plane(const window *w);
/* Which element of the source along an axis is an element of the window of a result; -1 if there is none. */
int64_t source_of(const window *w, int axis, int64_t result, int64_t element);
/* Copies elements of float32, or 8-bit integers less a zero point, to neighbouring ones of float32. */
void load(const opsetta_tensor *in, int64_t at, int64_t step, int64_t count, int32_t zero, float *to);

/* Element (i, j) is at `at + i * row + j * column`, or in the patches of an image. Rows of the left operand of a
   product, or columns of the right one, have zero points from `zero` on. */
typedef struct {
  const opsetta_tensor *tensor;
  int64_t at, row, column;
  const window *patches;
  const opsetta_tensor *zeros;
  int64_t zero;
} matrix;

/* The product of an [m, k] and a [k, n] matrix. It is added to a result of float32; a result of integers is set, with
   the bias and the scales of `filter` + the row or of the column, which are inputs of the node. */
typedef struct {
  const context *c;
  int64_t m, n, k;
  matrix a, b;
  float *y;
  int64_t y_at, y_row, filter;
  int is_by_row;
} product;

void multiply(const product *s);
int check_scales(const context *c, int64_t filters);

int run_unary(context *c), run_binary(context *c), run_where(context *c), run_cast(context *c), run_quantize(context *c);
int run_copy(context *c), run_gather(context *c), run_resample(context *c);
int run_reduce(context *c), run_top_k(context *c), run_matmul(context *c);
int run_conv(context *c), run_pool(context *c), run_recurrent(context *c), run_if(context *c), run_loop(context *c);

#endif
