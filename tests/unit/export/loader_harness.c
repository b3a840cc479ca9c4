/* Runs artifacts with the loader for C, and gives it damaged ones.
     harness run FILE ENTRY THREADS REPEATS "SIZES" INPUT... OUTPUT...
     harness fuzz FILE COUNT SEED INPUT EXPECTED   a program with one input and one output
   A line with code and message is printed where something fails. */
#include "weft_loader.c"

#if defined(__linux__)
#include <pthread.h>
#endif

static weft_error error;

static int failed(const char *what) {
  printf("%s %d %s\n", what, (int)error.code, error.message);
  return 1;
}

static void *aligned(size_t alignment, size_t bytes) {
  void *made = NULL;
  if (posix_memalign(&made, alignment, bytes ? bytes : alignment)) exit(9);
  return made;
}

static byte *contents(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  byte *data;
  long size;
  if (!file) exit(8);
  fseek(file, 0, SEEK_END);
  size = ftell(file);
  rewind(file);
  data = (byte *)aligned(64, (size_t)size);
  if (fread(data, 1, (size_t)size, file) != (size_t)size) exit(8);
  fclose(file);
  *bytes = (size_t)size;
  return data;
}

static void *pool;
static const weft_program *pooled;

static void *work(void *number) { return weft_pool_work(pooled, pool, *(int *)number); }

static int start_threads(weft_program *program, int count) {
  static int numbers[64];
  pool = aligned(128, weft_pool_bytes(count));
  pooled = program;
  if (weft_pool_init(program, pool, weft_pool_bytes(count), count, &error)) return failed("pool");
  for (int i = 1; i < count; i++) {
    pthread_t thread;
    numbers[i] = i;
    pthread_create(&thread, NULL, work, &numbers[i]);
    pthread_detach(thread);
  }
  return 0;
}

/* Both ways to compute checksums agree. */
static int check_sha(void) {
  byte data[640];
  uint32_t one[8] = {1, 2, 3}, other[8] = {1, 2, 3};
  for (size_t i = 0; i < sizeof data; i++) data[i] = (byte)(i * 37);
  sha_portable(one, data, 10);
  sha_blocks(other, data, 10);
  return !memcmp(one, other, sizeof one);
}

static int run(int argc, char **argv) {
  static weft_file file;
  static weft_program net;
  static weft_call call; /* static: no leak where a check ends the program early */
  static weft_array arrays[64];
  int64_t symbols[16] = {0};
  char *at = argv[6];
  const char *entry = argv[3][0] ? argv[3] : NULL;
  int threads = atoi(argv[4]), repeats = atoi(argv[5]), count;
  size_t bytes;
  static void *workspace, *memory, *call_memory_;
  if (!check_sha()) return failed("sha");
  if (weft_open(&file, argv[2], &error)) return failed("open");
  if (weft_program_bytes(&file, entry, &bytes, &error)) return failed("bytes");
  memory = aligned(8, bytes);
  if (bytes && weft_load(&net, &file, entry, memory, bytes - 8, &error) != WEFT_NO_MEMORY)
    return failed("memory");
  if (weft_load(&net, &file, entry, memory, bytes, &error)) return failed("load");
  if (threads > 1 && start_threads(&net, threads)) return 1;
  for (int i = 0; i < net.num_symbols; i++) symbols[i] = strtoll(at, &at, 10);
  bytes = weft_call_bytes(&net);
  call_memory_ = aligned(8, bytes);
  if (bytes && weft_prepare(&call, &net, symbols, call_memory_, bytes - 8, &error) !=
                   WEFT_NO_MEMORY)
    return failed("memory");
  if (weft_prepare(&call, &net, symbols, call_memory_, bytes, &error)) return failed("prepare");
  count = net.num_inputs + net.num_outputs + net.num_states;
  for (int i = 0; i < count; i++) {
    if (i < net.num_inputs) {
      arrays[i].data = contents(argv[7 + i], &arrays[i].bytes);
    } else {
      arrays[i].bytes = call.array_bytes[i];
      arrays[i].data = aligned(64, call.array_bytes[i]);
    }
  }
  if (weft_init_states(&call, arrays + net.num_inputs + net.num_outputs, &error))
    return failed("states");
  workspace = aligned(64, call.workspace_bytes);
  for (int i = 0; i < repeats; i++)
    if (weft_run(&call, arrays, arrays + net.num_inputs, arrays + net.num_inputs + net.num_outputs,
                 workspace, call.workspace_bytes, &error))
      return failed("run");
  for (int i = net.num_inputs; i < count && 7 + i < argc; i++) {
    FILE *out = fopen(argv[7 + i], "wb");
    fwrite(arrays[i].data, 1, arrays[i].bytes, out);
    fclose(out);
  }
  if (call.workspace_bytes &&
      weft_run(&call, arrays, arrays + net.num_inputs, arrays + net.num_inputs + net.num_outputs,
               workspace, call.workspace_bytes - 1, &error) != WEFT_NO_MEMORY)
    return failed("workspace");
  arrays[0].bytes++;
  if (net.num_inputs &&
      weft_run(&call, arrays, arrays + net.num_inputs, arrays + net.num_inputs + net.num_outputs,
               workspace, call.workspace_bytes, &error) != WEFT_WRONG_SIZE)
    return failed("wrong size");
  weft_unload(&net);
  weft_close(&file);
  for (int i = 0; i < count; i++) free(arrays[i].data);
  if (threads < 2) free(memory);
  free(call_memory_);
  free(workspace);
  return 0;
}

/* ---- mutations ---- */

static uint64_t state = 1;

static size_t below(size_t n) { /* xorshift */
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return n ? (size_t)(state % n) : 0;
}

/* Change some bytes, remove the end, or copy a piece over another one. */
static size_t mutate(byte *data, size_t size) {
  static const byte LIKELY[] = {0, 1, 255, '"', '{', '[', '-', '9', ',', 0x7f, 0x80};
  size_t times = 1 + below(3);
  for (size_t i = 0; i < times && size; i++) {
    size_t at = below(size), other = below(size), n;
    switch (below(6)) {
      case 0: data[at] ^= (byte)(1u << below(8)); break;
      case 1: data[at] = (byte)below(256); break;
      case 2: data[at] = LIKELY[below(sizeof LIKELY)]; break;
      case 3: size = at; break;
      default:
        n = below(64);
        if (at + n <= size && other + n <= size) memmove(data + at, data + other, n);
    }
  }
  return size;
}

/* Load and run a file; whether it was accepted. It must then give what it gave before. */
static int try_file(const byte *data, size_t size, weft_array input, weft_array expected) {
  weft_file file;
  weft_program net;
  weft_call call;
  weft_array output;
  size_t bytes;
  int accepted = 0;
  byte *memory, *call_memory_, *workspace;
  if (weft_open_memory(&file, data, size, &error)) return 0;
  if (weft_program_bytes(&file, NULL, &bytes, &error)) return 0;
  memory = (byte *)aligned(8, bytes);
  if (!weft_load(&net, &file, NULL, memory, bytes, &error)) {
    call_memory_ = (byte *)aligned(8, weft_call_bytes(&net));
    if (weft_prepare(&call, &net, NULL, call_memory_, weft_call_bytes(&net), &error)) abort();
    output.bytes = expected.bytes;
    output.data = aligned(64, output.bytes);
    workspace = (byte *)aligned(64, call.workspace_bytes);
    if (weft_run(&call, &input, &output, NULL, workspace, call.workspace_bytes, &error)) abort();
    if (memcmp(output.data, expected.data, expected.bytes)) abort();
    free(output.data), free(workspace), free(call_memory_);
    weft_unload(&net);
    accepted = 1;
  }
  free(memory);
  return accepted;
}

/* A head or a manifest whose checksum is right, but whose text is not. */
static void try_texts(const weft_file *file, const byte *text, size_t size) {
  byte *copy = (byte *)aligned(64, size);
  weft_file other = *file;
  weft_program net;
  char folder[MAX_NAME];
  json j;
  size_t length;
  memcpy(copy, text, size);
  length = mutate(copy, size);
  copy = (byte *)realloc(copy, length ? length : 1); /* so that reading past it is found */
  j.at = copy, j.end = copy + length;
  for (int pass = 0; pass < 2; pass++) {
    block memory = {NULL, 0, 0, 0};
    memset(&net, 0, sizeof net);
    if (!keep_manifest(j, &net, &memory, &error)) {
      block real = {NULL, 0, 0, 0};
      real.size = pass ? below(memory.used) : memory.used;
      real.base = (byte *)aligned(8, real.size);
      memset(&net, 0, sizeof net);
      if (!keep_manifest(j, &net, &real, &error)) {
        int64_t symbols[64];
        weft_call call;
        void *room;
        if (net.num_symbols > 64) exit(7);
        for (int i = 0; i < net.num_symbols; i++)
          symbols[i] = (int64_t)below(pass ? SIZE_MAX : 64);
        net.main = (weft_main_function)(uintptr_t)1; /* not called */
        room = aligned(8, weft_call_bytes(&net));
        (void)initial_fit(&net);
        (void)weft_prepare(&call, &net, symbols, room, weft_call_bytes(&net), &error);
        free(room);
      }
      free(real.base);
    }
  }
  other.data = copy, other.size = length, other.head = 0, other.head_end = length;
  other.directory = other.directory_end = length;
  (void)find_program(&other, NULL, folder, &j, &error);
  (void)weft_entry_name(&other, 1, folder, sizeof folder, &error);
  {
    sha256 sha;
    json head;
    head.at = copy, head.end = copy + length;
    sha_start(&sha);
    (void)hash_head(&head, &sha, 0, HEAD);
  }
  free(copy);
}

static int fuzz(char **argv) {
  size_t size, most, accepted = 0;
  byte *data = contents(argv[2], &size), *copy = (byte *)aligned(64, size);
  size_t count = (size_t)atol(argv[3]), length = 0;
  weft_array input, expected;
  weft_file file;
  const byte *manifest = NULL;
  char folder[MAX_NAME], path[MAX_NAME + 16];
  json text;
  state = (uint64_t)atol(argv[4]) * 2654435761u + 1;
  input.data = contents(argv[5], &input.bytes);
  expected.data = contents(argv[6], &expected.bytes);
  if (weft_open_memory(&file, data, size, &error)) return failed("open");
  if (!try_file(data, size, input, expected)) return failed("whole");
  if (find_program(&file, NULL, folder, &text, &error)) return failed("program");
  snprintf(path, sizeof path, "%s/manifest.json", folder);
  if (read_member(&file, path, &manifest, &length, &error)) return failed("manifest");
  for (size_t i = 0; i < count; i++) {
    memcpy(copy, data, size);
    /* every second one where the structure is: the directory and the first header */
    if (i % 2) {
      most = size - file.directory;
      most = file.directory + mutate(copy + file.directory, most);
    } else {
      most = mutate(copy, size);
    }
    {
      byte *exact = (byte *)aligned(64, most);
      memcpy(exact, copy, most);
      accepted += (size_t)try_file(exact, most, input, expected);
      free(exact);
    }
    try_texts(&file, manifest, length);
    try_texts(&file, file.data + file.head, file.head_end - file.head);
  }
  printf("%lu of %lu accepted\n", (unsigned long)accepted, (unsigned long)count);
  free(data), free(copy), free(input.data), free(expected.data);
  return 0;
}

int main(int argc, char **argv) {
  if (argc > 6 && !strcmp(argv[1], "run")) return run(argc, argv);
  if (argc > 6 && !strcmp(argv[1], "fuzz")) return fuzz(argv);
  return 2;
}
