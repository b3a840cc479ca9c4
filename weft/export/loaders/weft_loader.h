/* Loads and runs artifacts of weft (.weft files) without Python. Compile weft_loader.c with the program;
   link with -lm, and with -ldl where the C library wants it.

   Nothing here allocates memory or keeps a global variable: the caller gives the memory, and says
   how much it is. Where two calls of a function give how many bytes are needed and then use them,
   both are safe for files from anywhere; the code in a file is run, so load files only from sources
   whose programs you would run.

     weft_file file;  weft_program net;  weft_call call;  weft_error error;
     weft_open(&file, "net.weft", &error);
     weft_program_bytes(&file, NULL, &bytes, &error);         then load into so many bytes:
     weft_load(&net, &file, NULL, memory, bytes, &error);
     weft_prepare(&call, &net, sizes, memory2, weft_call_bytes(&net), &error);
     weft_run(&call, inputs, outputs, states, workspace, call.workspace_bytes, &error);

   Programs and files may be used by several threads at once; each thread prepares its own call. */
#ifndef WEFT_H
#define WEFT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum weft_code {
  WEFT_OK = 0,
  WEFT_NULL_POINTER = 1,    /* a pointer is NULL that must not be */
  WEFT_UNALIGNED = 2,       /* an address is no multiple of the alignment that it needs */
  WEFT_WRONG_SIZE = 3,      /* a size out of its range, or an array of another size */
  WEFT_NO_MEMORY = 4,       /* the memory of the caller is too small */
  WEFT_CANNOT_READ = 5,     /* the system cannot open or map the file */
  WEFT_NOT_AN_ARTIFACT = 6, /* the file is something else */
  WEFT_TRUNCATED = 7,       /* the file ends too early */
  WEFT_DAMAGED = 8,         /* a checksum or the structure is wrong */
  WEFT_OTHER_FORMAT = 9,    /* a newer or an older version of the format */
  WEFT_NO_SUCH_ENTRY = 10,  /* the file has no entry point of that name */
  WEFT_OTHER_MACHINE = 11,  /* the code is for another architecture or system */
  WEFT_MISSING_FEATURE = 12, /* the CPU lacks instructions that the code uses */
  WEFT_UNSUPPORTED = 13,    /* the program needs weft.load: another device, the virtual machine */
  WEFT_CANNOT_LOAD = 14,    /* the system's loader refuses the code */
  WEFT_MISSING_SYMBOL = 15, /* the code lacks a function */
  WEFT_FAILED = 16          /* the program returned an error */
} weft_code;

/* What went wrong. Every pointer to one may be NULL. */
typedef struct weft_error {
  weft_code code;
  char message[240];
} weft_error;

/* An open file. The fields are the loader's. */
typedef struct weft_file {
  const unsigned char *data; /* the mapped file */
  size_t size;
  size_t directory, directory_end; /* of the archive */
  size_t head, head_end;           /* artifact.json */
  int is_mapped;
  void *mapping;
} weft_file;

/* A size that is fixed (text is NULL), or an expression over symbols. */
typedef struct weft_size {
  int64_t value;
  const char *text;
} weft_size;

typedef struct weft_tensor {
  const char *name;
  const char *dtype;   /* "float32", ... */
  size_t element_bytes;
  int rank;
  const weft_size *shape;
} weft_tensor;

/* A symbolic size: it is low or more, and high or less unless high is -1. */
typedef struct weft_symbol {
  const char *name;
  int64_t low, high, multiple;
} weft_symbol;

typedef int (*weft_main_function)(const void *const *, void *const *, const void *, void *);

/* An entry point that is ready to run. The fields are to be read only. */
typedef struct weft_program {
  int num_inputs, num_outputs, num_states, num_symbols;
  const weft_tensor *inputs, *outputs, *states;
  const weft_symbol *symbols;
  const char *cpu; /* the CPU that the code was made for */
  /* The rest is the loader's. */
  int num_sizes, num_nonnegative, num_initial;
  const weft_size *sizes, *nonnegative, *initial;
  weft_size arena;
  const unsigned char *constants;
  size_t constants_bytes;
  void *library;
  int is_pinned;
  weft_main_function main;
  void (*set_pool)(void *, int32_t);
  void *(*worker)(void *);
} weft_program;

/* A program at one set of sizes, for one thread at a time. */
typedef struct weft_call {
  const weft_program *program;
  size_t workspace_bytes; /* at a multiple of 64 */
  size_t *array_bytes;    /* of inputs, outputs and states, in this order */
  /* The rest is the loader's. */
  int64_t *symbols, *table;
  const void **arguments;
  void **results;
} weft_call;

/* An array of the caller, dense, in C order. Arrays do not overlap. */
typedef struct weft_array {
  void *data;
  size_t bytes;
} weft_array;

/* Map a file and check its structure and head. */
weft_code weft_open(weft_file *file, const char *path, weft_error *error);

/* The same for a file that is in memory, at a multiple of 64. */
weft_code weft_open_memory(weft_file *file, const void *data, size_t bytes, weft_error *error);

/* Unmap a file, after its programs. */
void weft_close(weft_file *file);

/* The name of entry point `index`, with a zero at its end; WEFT_NO_SUCH_ENTRY past the last one. */
weft_code weft_entry_name(const weft_file *file, int index, char *name, size_t bytes,
                          weft_error *error);

/* The memory that weft_load needs. `entry` is the name of an entry point; NULL: "main". */
weft_code weft_program_bytes(const weft_file *file, const char *entry, size_t *bytes,
                             weft_error *error);

/* Check an entry point against this machine and load the code that uses most of what its CPU has.
   `memory` (aligned to 8) holds the description until weft_unload. */
weft_code weft_load(weft_program *program, const weft_file *file, const char *entry, void *memory,
                    size_t bytes, weft_error *error);

/* Unmap the code. Code that threads of a pool run stays until the process ends. */
void weft_unload(weft_program *program);

/* The memory that weft_prepare needs. */
size_t weft_call_bytes(const weft_program *program);

/* Compute all sizes for `symbols`, one value for each of program->symbols. `memory` (aligned to 8)
   belongs to the call. */
weft_code weft_prepare(weft_call *call, const weft_program *program, const int64_t *symbols,
                       void *memory, size_t bytes, weft_error *error);

/* Write the first values of the states. */
weft_code weft_init_states(const weft_call *call, const weft_array *states, weft_error *error);

/* Run. Arrays have exactly the sizes of the call; a run reads the states and writes their next
   values. The workspace is at a multiple of 64. */
weft_code weft_run(const weft_call *call, const weft_array *inputs, const weft_array *outputs,
                   const weft_array *states, void *workspace, size_t workspace_bytes,
                   weft_error *error);

/* Threads. Without them loops run in the thread that calls weft_run. The caller gives memory (at a
   multiple of 128) for a pool of `count` threads, that of weft_run among them, and starts count - 1
   threads; each calls weft_pool_work with its number, 1 to count - 1, and never returns: it waits
   for loops until the process ends. Memory and code of a pool stay until then. Results do not
   depend on the number of threads. Linux and macOS only. */
size_t weft_pool_bytes(int count);
weft_code weft_pool_init(weft_program *program, void *memory, size_t bytes, int count,
                         weft_error *error);
void *weft_pool_work(const weft_program *program, void *memory, int number);

/* Whether this CPU has a feature, by its name in LLVM, such as "avx2". */
int weft_cpu_has(const char *feature);

#ifdef __cplusplus
}
#endif
#endif
