"""The C header of an exported model, and a program that runs it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft.runtime.manifest import Manifest, TensorSpec

# Not every C compiler has these 16-bit floats: their bits are passed as integers.
_C_TYPES = {
    "float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t",
    "bool": "uint8_t", **{f"{sign}int{bits}": f"{sign}int{bits}_t"
                          for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


def header_text(name: str, manifest: Manifest) -> str:
    """The header: the functions with their arguments, sizes as constants, and error codes."""
    upper = name.upper()
    inputs, outputs = manifest.inputs, manifest.outputs
    return f"""\
/* {name}: a model compiled by weft {manifest.weft_version} for {manifest.target.triple}
   ({manifest.target.cpu}). The machine that runs it needs the instructions of that CPU.

   Link {name}.o, with -lm. The functions allocate no memory and are stateless: several threads
   may call them at once, each with its own workspace. */
#ifndef {upper}_H
#define {upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* inputs
{_ports(inputs)}
   outputs
{_ports(outputs)} */
#define {upper}_NUM_INPUTS {len(inputs)}
#define {upper}_NUM_OUTPUTS {len(outputs)}
#define {upper}_WORKSPACE_ALIGNMENT 64

static const size_t {name}_input_bytes[] = {{{_sizes(inputs)}}};
static const size_t {name}_output_bytes[] = {{{_sizes(outputs)}}};

enum {{
  {upper}_OK = 0,
  {upper}_NULL_POINTER = 1,       /* a pointer to an array, or one of the arguments, is NULL */
  {upper}_UNALIGNED_WORKSPACE = 2 /* its address is no multiple of {upper}_WORKSPACE_ALIGNMENT */
}};

/* The size of the workspace of a call, in bytes. */
size_t {name}_workspace_size(void);

/* Run the model. Arrays are dense, in C order, aligned as their elements are, and do not overlap.
   Returns {upper}_OK or another of the codes above. */
int {name}_run(const void *const *inputs, void *const *outputs, void *workspace);

#ifdef __cplusplus
}}
#endif
#endif
"""


def main_text(name: str) -> str:
    """A program that reads the inputs from files of raw bytes and writes the outputs to others."""
    upper = name.upper()
    return f"""\
/* Runs {name} on raw bytes: main INPUT... OUTPUT..., one file for each array.
   cc main.c {name}.o -lm -o {name} */
#include <stdio.h>
#include <stdlib.h>

#include "{name}.h"

static void *array_of(size_t size) {{
  size_t rounded = (size + 63) / 64 * 64;
  void *made = aligned_alloc(64, rounded ? rounded : 64);
  if (!made) {{
    fprintf(stderr, "no memory for %zu bytes\\n", size);
    exit(3);
  }}
  return made;
}}

int main(int argc, char **argv) {{
  const void *inputs[{upper}_NUM_INPUTS + 1];
  void *outputs[{upper}_NUM_OUTPUTS + 1];
  if (argc != 1 + {upper}_NUM_INPUTS + {upper}_NUM_OUTPUTS) {{
    fprintf(stderr, "usage: %s INPUT... OUTPUT... (%d and %d files)\\n", argv[0],
            {upper}_NUM_INPUTS, {upper}_NUM_OUTPUTS);
    return 2;
  }}
  for (int i = 0; i < {upper}_NUM_INPUTS; i++) {{
    void *array = array_of({name}_input_bytes[i]);
    FILE *file = fopen(argv[1 + i], "rb");
    if (!file || fread(array, 1, {name}_input_bytes[i], file) != {name}_input_bytes[i]) {{
      fprintf(stderr, "%s: expected %zu bytes\\n", argv[1 + i], {name}_input_bytes[i]);
      return 1;
    }}
    fclose(file);
    inputs[i] = array;
  }}
  for (int i = 0; i < {upper}_NUM_OUTPUTS; i++) outputs[i] = array_of({name}_output_bytes[i]);
  void *workspace = array_of({name}_workspace_size());
  int status = {name}_run(inputs, outputs, workspace);
  if (status != {upper}_OK) {{
    fprintf(stderr, "{name}_run: error %d\\n", status);
    return 1;
  }}
  for (int i = 0; i < {upper}_NUM_OUTPUTS; i++) {{
    const char *path = argv[1 + {upper}_NUM_INPUTS + i];
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(outputs[i], 1, {name}_output_bytes[i], file) != {name}_output_bytes[i]
        || fclose(file)) {{
      fprintf(stderr, "%s cannot be written\\n", path);
      return 1;
    }}
  }}
  return 0;
}}
"""


def _ports(ports: Sequence[TensorSpec]) -> str:
    lines = []
    for number, port in enumerate(ports):
        sizes = "".join(f"[{size}]" for size in port.shape) or " (one element)"
        label = port.name.replace("*/", "* /")
        kind = _C_TYPES.get(port.dtype, f"raw {port.dtype}")
        lines.append(f"     {number}: {kind}{sizes}  {label} ({port.dtype})")
    return "\n".join(lines) or "     none"


def _sizes(ports: Sequence[TensorSpec]) -> str:
    return ", ".join(str(math.prod(p.concrete_shape) * p.numpy_dtype.itemsize)
                     for p in ports) or "0"
