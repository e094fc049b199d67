/* Says which file of a folder with packed weights a program in C or C++ opens: `model.prepacked.onnx` where the packed
   weights are valid, else `model.onnx`. It compares what opsetta.load_session compares, but for `processor_features`:
   those are numpy's names; Linux's names of the same instructions, `processor_flags`, are compared. C99 and POSIX.

   One source file defines OPSETTA_PREPACK_IMPLEMENTATION before it includes this header. docs/prepack.md has an example. */
#ifndef OPSETTA_PREPACK_H
#define OPSETTA_PREPACK_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OPSETTA_PREPACK_PACKED 0  /* open `model.prepacked.onnx` */
#define OPSETTA_PREPACK_PLAIN 1   /* open `model.onnx`: the packed weights are not valid here */
#define OPSETTA_PREPACK_REFUSED 2 /* open neither: `model.onnx` is not the file that was saved */

/* The session to open, on onnxruntime's CPU provider. */
typedef struct {
  const char *onnxruntime;        /* OrtGetApiBase()->GetVersionString() */
  const char *build;              /* OrtApi.GetBuildInfoString() */
  const char *optimization_level; /* its GraphOptimizationLevel, "ORT_ENABLE_ALL" by default */
  const char *const *entries;     /* keys and values of the entries of its options that prepack.json lists as
                                     `session_entries`, and a NULL behind; NULL if there are none */
} opsetta_prepack_session;

/* Checks the environment, and the size of each file; with `verify_digests`, also its SHA-256 (1 to 5 s per GB). It does not
   keep other processes from saving into the folder. Threads may call it at once; the stack needs 40 KB. Returns one of the
   numbers above; other than for the first, `reason` is why, cut to `reason_size` bytes. */
int opsetta_prepack_check(const char *folder, const opsetta_prepack_session *session, int verify_digests,
                          char *reason, size_t reason_size);

#ifdef __cplusplus
}
#endif
#endif

#ifdef OPSETTA_PREPACK_IMPLEMENTATION
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define OPSETTA_MANIFEST_SIZE (1 << 25)
#define OPSETTA_DEPTH 5
#define OPSETTA_FIELDS 12 /* of the environment */

/* SHA-256, FIPS 180-4. */
static uint32_t opsetta_rotate(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void opsetta_sha_block(uint32_t state[8], const unsigned char *block) {
  static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98, 0x12835b01,
    0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc,
    0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147,
    0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08,
    0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208,
    0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
  uint32_t w[16] = {0}, v[8], a, e, t, u;
  int i;
  memcpy(v, state, sizeof v);
  for (i = 0; i < 64; i++, block += 4) {
    a = w[(i + 1) & 15], e = w[(i + 14) & 15]; /* of 15 and of 2 words ago */
    if (i < 16) w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
    else w[i & 15] += w[(i + 9) & 15] + (opsetta_rotate(a, 7) ^ opsetta_rotate(a, 18) ^ a >> 3)
      + (opsetta_rotate(e, 17) ^ opsetta_rotate(e, 19) ^ e >> 10);
    a = v[0], e = v[4];
    t = v[7] + (opsetta_rotate(e, 6) ^ opsetta_rotate(e, 11) ^ opsetta_rotate(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i & 15];
    u = (opsetta_rotate(a, 2) ^ opsetta_rotate(a, 13) ^ opsetta_rotate(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
    memmove(v + 1, v, 7 * sizeof *v);
    v[4] += t;
    v[0] = t + u;
  }
  for (i = 0; i < 8; i++) state[i] += v[i];
}

/* The digest of the first `size` bytes of a file and of a short text behind them. */
static void opsetta_digest(FILE *file, uint64_t size, const char *text, char hex[65]) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  unsigned char block[192]; /* the last one continues with the text, a mark, zeros, and the number of bits */
  uint64_t left = size, bits = 8 * (size + strlen(text));
  size_t used, end, i;
  while ((used = fread(block, 1, left < 64 ? (size_t)left : 64, file)) == 64) opsetta_sha_block(state, block), left -= 64;
  memset(block + used, 0, sizeof block - used);
  memcpy(block + used, text, strlen(text));
  used += strlen(text);
  block[used] = 0x80;
  end = (used + 72) / 64 * 64;
  for (i = 0; i < 8; i++) block[end - 1 - i] = (unsigned char)(bits >> 8 * i);
  for (i = 0; i < end; i += 64) opsetta_sha_block(state, block + i);
  for (i = 0; i < 8; i++) sprintf(hex + 8 * i, "%08lx", (unsigned long)state[i]);
}

/* JSON, as text that ends in a NUL. Each of these returns NULL for what is malformed or missing. */
static const char *opsetta_space(const char *at) { return at + strspn(at, " \t\r\n"); }

static const char *opsetta_skip_text(const char *at) {
  if (*at++ != '"') return NULL;
  for (; *at != '"'; at++)
    if ((unsigned char)*at < 32 || (*at == '\\' && !strchr("\"\\/bfnrtu", *++at)) || !*at) return NULL;
  return at + 1;
}

/* The end of a value. */
static const char *opsetta_value(const char *at, int depth) {
  const size_t size = strcspn(at, " \t\r\n,]}\"[{:");
  int count = 0, is_object = *at == '{';
  if (depth > OPSETTA_DEPTH) return NULL;
  if (*at == '"') return opsetta_skip_text(at);
  if (*at != '{' && *at != '[') return size ? at + size : NULL;
  at = opsetta_space(at + 1);
  while (*at != (is_object ? '}' : ']')) {
    if (count++ && (*at != ',' || !*(at = opsetta_space(at + 1)))) return NULL;
    if (is_object && (!(at = opsetta_skip_text(at)) || *(at = opsetta_space(at)) != ':')) return NULL;
    if (is_object) at = opsetta_space(at + 1);
    if (!(at = opsetta_value(at, depth + 1))) return NULL;
    at = opsetta_space(at);
  }
  return at + 1;
}

/* The next entry of an object or list of checked JSON, behind its bracket or the entry before; NULL after the last. */
static const char *opsetta_next(const char *at) {
  at = opsetta_space(at);
  if (*at == ',') at = opsetta_space(at + 1);
  return *at == '}' || *at == ']' ? NULL : at;
}

static const char *opsetta_first(const char *list) { return list && *list == '[' ? opsetta_next(list + 1) : NULL; }
static const char *opsetta_keys(const char *object) { return object && *object == '{' ? opsetta_next(object + 1) : NULL; }
static const char *opsetta_after(const char *entry) { return opsetta_next(opsetta_value(entry, 0)); }
static const char *opsetta_value_of(const char *key) { return opsetta_space(opsetta_space(opsetta_skip_text(key)) + 1); }

static const char *opsetta_member(const char *object, const char *name) {
  const char *key;
  for (key = opsetta_keys(object); key; key = opsetta_after(opsetta_value_of(key)))
    if (!strncmp(key + 1, name, strlen(name)) && key[1 + strlen(name)] == '"') return opsetta_value_of(key);
  return NULL;
}

/* Whether a value is this text; of escapes, only those of quotes and backslashes are read. */
static int opsetta_is(const char *value, const char *text) {
  if (!value || !text || *value++ != '"') return 0;
  for (; *text; text++, value++) {
    if (*value == '\\') value++;
    else if (*value == '"') return 0;
    if (*value != *text) return 0;
  }
  return *value == '"';
}

/* Whether onnxruntime, oneDNN or torch have kernels for an instruction set; `.` ends a whole name. */
static int opsetta_is_used(const char *flag) {
  static const char *const sets[] = {"sse", "ssse3", "avx", "fma", "amx", "neon", "asimd", "sve", "sme", "pni.", "f16c.", "xop.",
                                     "fphp.", "bf16.", "i8mm.", NULL};
  size_t i, size;
  for (i = 0; sets[i]; i++)
    if (size = strcspn(sets[i], "."), !strncmp(flag, sets[i], size) && (!sets[i][size] || !flag[size])) return 1;
  return 0;
}

/* Whether this processor has the flags of a list that kernels use, and no others of them. The processor repeats none. */
static int opsetta_same_flags(const char *saved) {
  char line[1 << 14], word[64];
  FILE *file = fopen("/proc/cpuinfo", "r");
  const char *flags = NULL, *entry;
  int size, used = 0, saved_count = 0;
  while (file && !flags && fgets(line, sizeof line, file))
    if (!strncmp(line, "flags", 5) || !strncmp(line, "Features", 8)) flags = strchr(line, ':');
  if (file) fclose(file);
  if (!flags++) return 0;
  for (; sscanf(flags, " %63s%n", word, &size) == 1; flags += size) {
    if (!opsetta_is_used(word)) continue;
    for (entry = opsetta_first(saved); entry && !opsetta_is(entry, word);) entry = opsetta_after(entry);
    if (!entry) return 0;
    used++;
  }
  for (entry = opsetta_first(saved); entry; entry = opsetta_after(entry))
    saved_count += sscanf(entry, "\"%63[^\"]", word) == 1 && opsetta_is_used(word);
  return used && used == saved_count; /* of an unknown architecture, it is not known which flags are used */
}

/* Whether an object of texts has these pairs of keys and values and no others; a value of NULL is left out. */
static int opsetta_same_pairs(const char *object, const char *const *pairs) {
  size_t count = 0;
  const char *key;
  for (; pairs && *pairs; pairs += 2)
    if (pairs[1] && (count++, !opsetta_is(opsetta_member(object, pairs[0]), pairs[1]))) return 0;
  for (key = opsetta_keys(object); key; key = opsetta_after(opsetta_value_of(key))) count--;
  return object && *object == '{' && count == 0;
}

static int opsetta_same_field(const char *key, const char *value, const opsetta_prepack_session *session) {
  const char *limits[] = {"ATEN_CPU_CAPABILITY", getenv("ATEN_CPU_CAPABILITY"), "DNNL_MAX_CPU_ISA", getenv("DNNL_MAX_CPU_ISA"),
                          "ONEDNN_MAX_CPU_ISA", getenv("ONEDNN_MAX_CPU_ISA"), "ONEDNN_CPU_ISA_HINTS",
                          getenv("ONEDNN_CPU_ISA_HINTS"), NULL};
  const uint16_t one = 1;
  struct utsname machine;
  if (uname(&machine)) return 0;
  if (opsetta_is(key, "architecture")) return opsetta_is(value, machine.machine);
  if (opsetta_is(key, "byte_order")) return opsetta_is(value, *(const char *)&one ? "little" : "big");
  if (opsetta_is(key, "operating_system")) return opsetta_is(value, "linux") && !strcmp(machine.sysname, "Linux");
  if (opsetta_is(key, "processor_flags")) return opsetta_same_flags(value);
  if (opsetta_is(key, "processor_limits")) return opsetta_same_pairs(value, limits);
  if (opsetta_is(key, "onnxruntime")) return opsetta_is(value, session->onnxruntime);
  if (opsetta_is(key, "onnxruntime_build")) return opsetta_is(value, session->build);
  if (opsetta_is(key, "graph_optimization_level")) return opsetta_is(value, session->optimization_level);
  if (opsetta_is(key, "session_entries")) return opsetta_same_pairs(value, session->entries);
  if (opsetta_is(key, "providers")) {
    const char *provider = opsetta_first(value), *name = provider ? opsetta_first(provider) : NULL;
    return opsetta_is(name, "CPUExecutionProvider") && opsetta_same_pairs(opsetta_after(name), NULL) && !opsetta_after(provider);
  }
  return opsetta_is(key, "processor_features") || opsetta_is(key, "threads");
}

/* Opens a regular file, and gets its size; NULL if it is none. */
static FILE *opsetta_open_file(const char *folder, const char *name, uint64_t *size) {
  char path[4096];
  struct stat status;
  if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path || stat(path, &status) || !S_ISREG(status.st_mode)) return NULL;
  *size = (uint64_t)status.st_size;
  return fopen(path, "rb");
}

/* Whether the files of a list are as they were saved, and `needed` is one of them. If not, `file` is the first that is not. */
static int opsetta_same_files(const char *folder, const char *records, const char *needed, int verify, char file[256]) {
  const char *record;
  int is_listed = 0, same = 1;
  strcpy(file, needed);
  for (record = opsetta_first(records); record && same; record = opsetta_after(record)) {
    const char *name = opsetta_member(record, "name"), *saved_size = opsetta_member(record, "size");
    size_t length = name && *name == '"' ? strcspn(name + 1, "\"\\/") : 0;
    char hex[65];
    uint64_t size;
    FILE *stream;
    if (!saved_size || !length || length > 255 || name[1 + length] != '"') return 0;
    sprintf(file, "%.*s", (int)length, name + 1);
    is_listed |= !strcmp(file, needed);
    if (!(stream = opsetta_open_file(folder, file, &size))) return 0;
    same = strtoull(saved_size, NULL, 10) == size;
    if (same && verify) opsetta_digest(stream, size, "", hex), same = opsetta_is(opsetta_member(record, "sha256"), hex);
    fclose(stream);
  }
  return same && is_listed;
}

/* The text of prepack.json, to free; NULL if it cannot be read, or is not as it was saved. The digest in the last member is
   that of the text without it. */
static char *opsetta_read_manifest(const char *folder) {
  static const char member[] = ",\n  \"sha256\": ";
  char hex[65], *text = NULL;
  const char *end;
  uint64_t size = 0, body;
  FILE *file = opsetta_open_file(folder, "prepack.json", &size);
  if (file && size > 100 && size <= OPSETTA_MANIFEST_SIZE) text = (char *)malloc((size_t)size + 1);
  if (!text) return file ? fclose(file), NULL : NULL;
  text[fread(text, 1, (size_t)size, file)] = 0;
  body = size - (sizeof member - 1) - 68; /* the digest in quotes, a new line, and the bracket */
  rewind(file);
  opsetta_digest(file, body, "\n}", hex);
  fclose(file);
  if (strlen(text) == size && !strncmp(text + body, member, sizeof member - 1) && *text == '{' &&
      (end = opsetta_value(text, 0)) && !*opsetta_space(end) && opsetta_is(opsetta_member(text, "sha256"), hex))
    return text;
  free(text);
  return NULL;
}

int opsetta_prepack_check(const char *folder, const opsetta_prepack_session *session, int verify_digests,
                          char *reason, size_t reason_size) {
  char file[256], *manifest = opsetta_read_manifest(folder);
  const char *key = opsetta_member(manifest, "fingerprint"), *problem = NULL;
  const char *format = opsetta_member(manifest, "format"), *layout = opsetta_member(manifest, "layout");
  int answer = OPSETTA_PREPACK_PLAIN, fields = 0, is_plain;
  if (!manifest) snprintf(reason, reason_size, "prepack.json is missing or damaged");
  else if (!format || *format != '2' || !strchr(" ,\r\n}", format[1]))
    snprintf(reason, reason_size, "prepack.json has another format than 2");
  else if (!(is_plain = opsetta_same_files(folder, opsetta_member(manifest, "plain"), "model.onnx", verify_digests, file)) ||
           !opsetta_same_files(folder, opsetta_member(manifest, "packed"), "model.prepacked.onnx", verify_digests, file)) {
    snprintf(reason, reason_size, "'%s' is not the file that was saved", file);
    /* model.onnx may read its weights in the data file of the packed model. */
    is_plain &= !strcmp(file, "model.prepacked.onnx") || !opsetta_first(opsetta_member(manifest, "shared"));
    answer = is_plain ? OPSETTA_PREPACK_PLAIN : OPSETTA_PREPACK_REFUSED;
  } else if (!opsetta_is(layout, "native") && !(opsetta_is(layout, "portable") && opsetta_first(opsetta_member(manifest, "blobs"))))
    snprintf(reason, reason_size, "prepack.json lists no packed weights");
  else {
    for (key = opsetta_keys(key); key && !problem; key = opsetta_after(opsetta_value_of(key)), fields++)
      if (!opsetta_same_field(key, opsetta_value_of(key), session)) problem = key;
    if (problem) snprintf(reason, reason_size, "%.*s", (int)(opsetta_skip_text(problem) - problem), problem);
    else if (fields != OPSETTA_FIELDS) snprintf(reason, reason_size, "prepack.json lacks fields of the environment");
    else answer = OPSETTA_PREPACK_PACKED;
  }
  free(manifest);
  return answer;
}
#endif
