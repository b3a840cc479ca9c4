"""A C program that runs an exported model, and its build with CMake."""

from __future__ import annotations

from collections.abc import Sequence

from weft.export.c_source import size_parameters
from weft.runtime.manifest import Manifest

_ARRAY_OF = """\
/* Memory at a multiple of 64 bytes; it is kept until the program ends. */
static void *array_of(size_t size) {
  char *made = size > SIZE_MAX - 64 ? NULL : (char *)malloc(size + 64);
  if (!made) {
    fprintf(stderr, "no memory for %lu bytes\\n", (unsigned long)size);
    exit(3);
  }
  return made + (64 - (uintptr_t)made % 64);
}

"""


def main_text(name: str, manifest: Manifest, linked: str) -> str:
    """A program that reads the inputs from files of raw bytes and writes the outputs to others.

    Its first arguments are the symbolic sizes, if there are any. States have their first values
    before the call. ``linked`` is the file that holds the model.
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
   cc main.c {linked} -lm -o {name} */
#include <stdio.h>
#include <stdlib.h>

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
      fprintf(stderr, "%s: expected %lu bytes\\n", argv[1 + i], (unsigned long){input_bytes});
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


def cmake_text(name: str, libraries: Sequence[str]) -> str:
    """A target NAME to link to, and the program of ``main.c`` where nothing includes the folder."""
    parts = []
    for file in libraries:
        here = f"${{CMAKE_CURRENT_LIST_DIR}}/{file}"
        if file.endswith(".o"):
            parts.append(f"""\
add_library({name} INTERFACE)
target_sources({name} INTERFACE {here})
target_include_directories({name} INTERFACE ${{CMAKE_CURRENT_LIST_DIR}})
""")
            continue
        target, kind = (name, "STATIC") if file.endswith(".a") else (f"{name}_shared", "SHARED")
        parts.append(f"""\
add_library({target} {kind} IMPORTED GLOBAL)
set_target_properties({target} PROPERTIES IMPORTED_LOCATION {here}
  IMPORTED_NO_SONAME TRUE INTERFACE_INCLUDE_DIRECTORIES ${{CMAKE_CURRENT_LIST_DIR}})
""")
    return f"""\
# add_subdirectory(...) and target_link_libraries(PROGRAM {name}), or build this folder for main.c.
cmake_minimum_required(VERSION 3.13)
project({name} C)

{"".join(parts)}
if(UNIX)
  target_link_libraries({name} INTERFACE m)
endif()

if(CMAKE_SOURCE_DIR STREQUAL CMAKE_CURRENT_SOURCE_DIR)
  add_executable({name}_main main.c)
  set_target_properties({name}_main PROPERTIES C_STANDARD 99)
  target_link_libraries({name}_main {name})
endif()
"""


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
  for (int i = 0; i < {upper}_NUM_STATES; i++) states[i] = array_of({name}_state_bytes[i]);
  {name}_init_states(states);
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
