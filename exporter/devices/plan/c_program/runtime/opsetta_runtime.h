/* Runs a model from `model.plan` and `model.weights`, which `opsetta build` writes. C99, no allocation: all
   memory is the arena, which the caller passes, and up to 40 KB of stack. Operators compute in float32 and on
   8-bit integers; those that only move data take any element type. docs/plan.md says where the format of the
   files is. Hosts are little-endian. */
#ifndef OPSETTA_RUNTIME_H
#define OPSETTA_RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#define OPSETTA_RANK 8
#define OPSETTA_MEMORIES 8

/* The beginning of a plan. */
typedef struct {
  char magic[4];
  uint32_t format, value_count, node_count, input_count, output_count, pool_count, text_size;
  uint64_t arena_size, weights_size;
  uint32_t main_count, memory_count, memories, unused; /* memories after the first; where the pool has their beginnings */
} opsetta_head;

typedef struct {
  opsetta_head head;
  const void *values, *nodes;
  const int64_t *pool;
  const uint32_t *inputs, *outputs;
  const char *text;
  const uint8_t *weights;
  uint8_t *memories[OPSETTA_MEMORIES]; /* where they are, if they do not follow the arena */
  uint32_t depth;
  const char *error;      /* what was refused, after a result other than 0 */
  const char *error_name; /* the node or operator that it is about */
} opsetta_model;

typedef struct {
  uint32_t type; /* the number of the element type in ONNX */
  uint32_t rank;
  int64_t shape[OPSETTA_RANK];
  int64_t count; /* elements */
  size_t bytes;
  uint32_t memory; /* 0 for an omitted operand, 1 in the arena, 2 in the weights */
  uint8_t *data;
} opsetta_tensor;

/* Reads a plan; both blocks must stay, and be aligned for 64-bit numbers, as the arena must. The files need not be
   trusted: all offsets and sizes are checked here, indices in data when a node runs. Returns 0, or -1 with `error`. */
int opsetta_open(opsetta_model *model, const void *plan, size_t plan_size, const void *weights,
                 size_t weights_size);

/* The tensors of inputs and outputs in an arena of `arena_size` bytes. Write the inputs before each run. */
int opsetta_input(opsetta_model *model, void *arena, uint32_t index, opsetta_tensor *tensor);
int opsetta_output(opsetta_model *model, void *arena, uint32_t index, opsetta_tensor *tensor);

/* If the plan has several memories, the arena is the first one, and `data` the memory of an index from 1 on. Without this
   call, that memory follows the one before. */
int opsetta_set_memory(opsetta_model *model, uint32_t index, void *data);
uint64_t opsetta_memory_size(const opsetta_model *model, uint32_t index);

/* Computes the outputs from the inputs. Returns 0, or -1 with `error`. */
int opsetta_run(opsetta_model *model, void *arena);

#endif
