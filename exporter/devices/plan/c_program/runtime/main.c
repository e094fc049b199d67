/* Runs a model once: `app model.plan model.weights input0.bin … output0.bin …`, raw arrays in order. */
#include <stdio.h>
#include <stdlib.h>

#include "opsetta_runtime.h"

static void *read_file(const char *path, size_t *size) {
  FILE *file = fopen(path, "rb");
  void *data;
  long length;
  if (!file || fseek(file, 0, SEEK_END) || (length = ftell(file)) < 0 || fseek(file, 0, SEEK_SET)) return NULL;
  *size = (size_t)length;
  data = malloc(*size + 1);
  if (data && fread(data, 1, *size, file) != *size) return NULL;
  fclose(file);
  return data;
}

/* Reads an input from its file, or writes an output. */
static int transfer(const char *path, const opsetta_tensor *tensor, int is_output) {
  FILE *file = fopen(path, is_output ? "wb" : "rb");
  size_t bytes;
  if (!file) return -1;
  bytes = is_output ? fwrite(tensor->data, 1, tensor->bytes, file) : fread(tensor->data, 1, tensor->bytes, file);
  bytes += !is_output && fgetc(file) != EOF;
  fclose(file);
  return bytes == tensor->bytes ? 0 : -1;
}

int main(int count, char **paths) {
  opsetta_model model = {0};
  opsetta_tensor tensor;
  size_t plan_size = 0, weights_size = 0;
  void *plan = count > 2 ? read_file(paths[1], &plan_size) : NULL, *weights = count > 2 ? read_file(paths[2], &weights_size) : NULL;
  void *memories[OPSETTA_MEMORIES + 1] = {0};
  const opsetta_head *head = &model.head;
  uint32_t index;
  int failed;
  if (!plan || !weights) {
    fprintf(stderr, "usage: %s model.plan model.weights inputs... outputs...\n", paths[0]);
    return 2;
  }
  failed = opsetta_open(&model, plan, plan_size, weights, weights_size);
  if (!failed && (uint64_t)count != 3 + (uint64_t)head->input_count + head->output_count) {
    failed = 1;
    model.error = "another number of inputs and outputs";
  }
  /* The arena is the first memory. */
  for (index = 0; !failed && index <= head->memory_count; index++) {
    memories[index] = malloc((size_t)opsetta_memory_size(&model, index) + 1);
    failed = !memories[index] || (index && opsetta_set_memory(&model, index, memories[index]));
  }
  for (index = 0; !failed && index < head->input_count; index++)
    if (opsetta_input(&model, memories[0], index, &tensor)) failed = 1;
    else if (transfer(paths[3 + index], &tensor, 0)) {
      failed = 1;
      model.error = "the file has another size than the input";
      model.error_name = paths[3 + index];
    }
  failed = failed || opsetta_run(&model, memories[0]);
  for (index = 0; !failed && index < head->output_count; index++)
    failed = opsetta_output(&model, memories[0], index, &tensor) || transfer(paths[3 + head->input_count + index], &tensor, 1);
  if (failed) fprintf(stderr, "%s: %s\n", model.error_name ? model.error_name : "file", model.error ? model.error : "");
  for (index = 0; index <= OPSETTA_MEMORIES; index++) free(memories[index]);
  free(weights);
  free(plan);
  return failed ? 1 : 0;
}
