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

static int run(opsetta_model *model, void *arena, char **paths) {
  uint32_t index;
  for (index = 0; index < model->input_count; index++) {
    opsetta_tensor tensor;
    size_t size, place;
    unsigned char *data = read_file(paths[index], &size);
    if (!data || opsetta_input(model, arena, index, &tensor)) return -1;
    if (size != tensor.bytes) {
      model->error = "the file has another size than the input";
      model->error_name = paths[index];
      free(data);
      return -1;
    }
    for (place = 0; place < size; place++) tensor.data[place] = data[place];
    free(data);
  }
  if (opsetta_run(model, arena)) return -1;
  for (index = 0; index < model->output_count; index++) {
    opsetta_tensor tensor;
    FILE *file = fopen(paths[model->input_count + index], "wb");
    if (!file || opsetta_output(model, arena, index, &tensor)) return -1;
    fwrite(tensor.data, 1, tensor.bytes, file);
    fclose(file);
  }
  return 0;
}

int main(int count, char **arguments) {
  opsetta_model model = {0};
  size_t plan_size = 0, weights_size = 0;
  void *plan = count > 2 ? read_file(arguments[1], &plan_size) : NULL;
  void *weights = count > 2 ? read_file(arguments[2], &weights_size) : NULL;
  void *arena;
  void *memories[OPSETTA_MEMORIES] = {0};
  uint32_t index;
  int result;
  if (!plan || !weights) {
    fprintf(stderr, "usage: %s model.plan model.weights inputs... outputs...\n", arguments[0]);
    return 2;
  }
  result = opsetta_open(&model, plan, plan_size, weights, weights_size);
  if (!result && (uint64_t)count != 3 + (uint64_t)model.input_count + model.output_count) {
    fprintf(stderr, "the model has %u inputs and %u outputs\n", model.input_count, model.output_count);
    free(weights);
    free(plan);
    return 2;
  }
  for (index = 0; !result && index < model.memory_count; index++) {
    uint64_t end = index + 1 < model.memory_count ? model.memory_begins[index + 1] : model.arena_size;
    memories[index] = malloc(end - model.memory_begins[index] + 1);
    result = opsetta_set_memory(&model, index + 1, memories[index]);
  }
  arena = result ? NULL : malloc((model.memory_count ? model.memory_begins[0] : model.arena_size) + 1);
  if (!result) result = arena ? run(&model, arena, arguments + 3) : -1;
  if (result) fprintf(stderr, "%s: %s\n", model.error_name ? model.error_name : "file", model.error ? model.error : "");
  for (index = 0; index < OPSETTA_MEMORIES; index++) free(memories[index]);
  free(arena);
  free(weights);
  free(plan);
  return result ? 1 : 0;
}
