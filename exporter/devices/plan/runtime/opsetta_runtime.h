/* Runs a model from `model.plan` and `model.weights`, which `opsetta build` writes. C99, no allocation: all
   memory is the arena, which the caller passes. Operators compute in float32; those that only move data take any
   element type. The format of the files is in docs/plan.md. Hosts are little-endian. */
#ifndef OPSETTA_RUNTIME_H
#define OPSETTA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define OPSETTA_RANK 8

typedef struct {
  const uint8_t *plan;
  size_t plan_size;
  const uint8_t *weights;
  uint64_t weights_size, arena_size;
  uint32_t value_count, node_count, input_count, output_count;
  const uint8_t *values, *nodes, *inputs, *outputs, *pool, *text;
  uint32_t pool_count, text_size;
  const char *error; /* what was refused, after a result other than 0 */
  const char *error_name; /* the node or operator that it is about */
} opsetta_model;

typedef struct {
  uint32_t type; /* the number of the element type in ONNX */
  uint32_t rank;
  int64_t shape[OPSETTA_RANK];
  int64_t count; /* elements */
  size_t bytes;
  uint8_t *data; /* in the arena or the weights; NULL for an omitted operand */
} opsetta_tensor;

/* Reads a plan; both blocks must stay, and be aligned for 64-bit numbers. Returns 0, or -1 with `error`. */
int opsetta_open(opsetta_model *model, const void *plan, size_t plan_size, const void *weights,
                 size_t weights_size);

/* The tensors of inputs and outputs in an arena of `arena_size` bytes. Write the inputs before each run. */
int opsetta_input(opsetta_model *model, void *arena, uint32_t index, opsetta_tensor *tensor);
int opsetta_output(opsetta_model *model, void *arena, uint32_t index, opsetta_tensor *tensor);

/* Computes the outputs from the inputs. Returns 0, or -1 with `error`. */
int opsetta_run(opsetta_model *model, void *arena);

#endif
