"""A C program that runs an exported model."""

from __future__ import annotations

from collections.abc import Sequence

from weft.export.c_source import size_parameters
from weft.runtime.manifest import Manifest

_ARRAY_OF = """\
static void *array_of(size_t size) {
  size_t rounded = (size + 63) / 64 * 64;
  void *made = aligned_alloc(64, rounded ? rounded : 64);
  if (!made) {
    fprintf(stderr, "no memory for %zu bytes\\n", size);
    exit(3);
  }
  return made;
}

"""


def main_text(name: str, manifest: Manifest) -> str:
    """A program that reads the inputs from files of raw bytes and writes the outputs to others.

    Its first arguments are the symbolic sizes, if there are any. States are zeros before the call.
    """
    upper = name.upper()
    names = list(size_parameters(manifest).values())
    sizes = [f"sizes[{n}]" for n in range(len(names))]
    given = "".join(f"{label} " for label in names)
    counted = f"{upper}_NUM_SIZES + " if names else ""
    input_bytes, output_bytes = (_bytes(name, what, sizes) for what in ("input", "output"))
    call = ["inputs", "outputs", *(["states"] if manifest.states else []), "workspace", *sizes]
    head = f"""\
/* Runs {name} on raw bytes: main {given}INPUT... OUTPUT..., one file for each array.
   cc main.c {name}.o -lm -o {name} */
#include <stdio.h>
#include <stdlib.h>
{"#include <string.h>" + chr(10) if manifest.states else ""}
#include "{name}.h"

{_ARRAY_OF}"""
    read = f"""\
int main(int argc, char **argv) {{
  const void *inputs[{upper}_NUM_INPUTS + 1];
  void *outputs[{upper}_NUM_OUTPUTS + 1];
  if (argc != 1 + {counted}{upper}_NUM_INPUTS + {upper}_NUM_OUTPUTS) {{
    fprintf(stderr, "usage: %s {given}INPUT... OUTPUT... (%d and %d files)\\n", argv[0],
            {upper}_NUM_INPUTS, {upper}_NUM_OUTPUTS);
    return 2;
  }}
{_read_sizes(upper) if names else ""}\
  for (int i = 0; i < {upper}_NUM_INPUTS; i++) {{
    void *array = array_of({input_bytes});
    FILE *file = fopen(argv[1 + i], "rb");
    if (!file || fread(array, 1, {input_bytes}, file) != {input_bytes}) {{
      fprintf(stderr, "%s: expected %zu bytes\\n", argv[1 + i], {input_bytes});
      return 1;
    }}
    fclose(file);
    inputs[i] = array;
  }}
  for (int i = 0; i < {upper}_NUM_OUTPUTS; i++) outputs[i] = array_of({output_bytes});
"""
    states = _make_states(name) if manifest.states else ""
    run = f"""\
  void *workspace = array_of({name}_workspace_size({", ".join(sizes)}));
  int status = {name}_run({", ".join(call)});
  if (status != {upper}_OK) {{
    fprintf(stderr, "{name}_run: error %d\\n", status);
    return 1;
  }}
{_write_outputs(upper, output_bytes)}  return 0;
}}
"""
    return f"{head}{read}{states}{run}"


def _bytes(name: str, what: str, sizes: Sequence[str]) -> str:
    """The size of array ``i``: an element of a table, or the result of a function."""
    return f"{name}_{what}_bytes" + (f"(i, {', '.join(sizes)})" if sizes else "[i]")


def _read_sizes(upper: str) -> str:
    return f"""\
  int64_t sizes[{upper}_NUM_SIZES];
  for (int i = 0; i < {upper}_NUM_SIZES; i++) {{
    char *end;
    sizes[i] = strtoll(argv[1 + i], &end, 10);
    if (end == argv[1 + i] || *end) {{
      fprintf(stderr, "%s is not a size\\n", argv[1 + i]);
      return 2;
    }}
  }}
  argv += {upper}_NUM_SIZES; /* the files follow */
"""


def _make_states(name: str) -> str:
    upper = name.upper()
    return f"""\
  void *states[{upper}_NUM_STATES];
  for (int i = 0; i < {upper}_NUM_STATES; i++) {{
    states[i] = array_of({name}_state_bytes[i]);
    memset(states[i], 0, {name}_state_bytes[i]);
  }}
"""


def _write_outputs(upper: str, output_bytes: str) -> str:
    return f"""\
  for (int i = 0; i < {upper}_NUM_OUTPUTS; i++) {{
    const char *path = argv[1 + {upper}_NUM_INPUTS + i];
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(outputs[i], 1, {output_bytes}, file) != {output_bytes}
        || fclose(file)) {{
      fprintf(stderr, "%s cannot be written\\n", path);
      return 1;
    }}
  }}
"""
