"""The C header of an exported model."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence

from weft.runtime.manifest import Manifest, TensorSpec
from weft.runtime.sizes import Size

# Not every C compiler has these 16-bit floats: their bits are passed as integers.
_C_TYPES = {
    "float32": "float", "float64": "double", "float16": "uint16_t", "bfloat16": "uint16_t",
    "bool": "uint8_t", **{f"{sign}int{bits}": f"{sign}int{bits}_t"
                          for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


# Names that a parameter of a C or C++ function in the header cannot have, or has already.
_RESERVED = frozenset(re.findall(r"\w+", """
    alignas alignof and asm auto bitand bitor bool break case catch char class compl const constexpr
    continue default delete do double else enum explicit export extern false final float for friend
    goto if inline int long mutable namespace new noexcept not nullptr operator or private protected
    public register restrict return short signed sizeof static struct switch template this throw
    true try typedef typeid typename typeof union unsigned using virtual void volatile while xor
    NULL index linux unix inputs outputs states workspace size_t int64_t"""))


def header_text(name: str, manifest: Manifest, libraries: Sequence[str]) -> str:
    """The header: the functions with their arguments, sizes of arrays, and error codes.

    The arrays of a program without symbolic sizes have sizes that are constants; otherwise these
    are functions of the symbols, which are parameters of ``NAME_run`` too. ``libraries`` are the
    files of which one is linked.
    """
    upper = name.upper()
    inputs, outputs, states = manifest.inputs, manifest.outputs, manifest.states
    labels = size_parameters(manifest)
    kept = f"   states\n{_ports(states, labels)}\n" if states else ""
    states_too = " and its own states" if states else ""
    return f"""\
/* {name}: a model compiled by weft {manifest.weft_version} for {manifest.target.triple}
   ({manifest.target.cpu}). The machine that runs it needs the instructions of that CPU.

   Link {' or '.join(libraries)}, with -lm. The functions allocate no memory and are
   stateless: several threads may call them at once, each with its own workspace{states_too}. */
#ifndef {upper}_H
#define {upper}_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {{
#endif

/* {_ranges(manifest, labels)}inputs
{_ports(inputs, labels)}
{kept}   outputs
{_ports(outputs, labels)} */
#define {upper}_NUM_INPUTS {len(inputs)}
#define {upper}_NUM_OUTPUTS {len(outputs)}
{_counts(upper, manifest)}#define {upper}_WORKSPACE_ALIGNMENT 64

{_array_sizes(name, manifest, labels)}
enum {{
{_codes(upper, bool(labels))}
}};

{_functions(name, manifest, labels)}
#ifdef __cplusplus
}}
#endif
#endif
"""


def _functions(name: str, manifest: Manifest, labels: Mapping[str, str]) -> str:
    sizes = [f"int64_t {label}" for label in labels.values()]
    refused = f"; 0 for sizes that {name}_run refuses" if sizes else ""
    states = ["void *const *states"] if manifest.states else []
    note = f"""
   A call reads the states and writes their next values; {name}_init_states writes the first ones.\
""" if states else ""
    first = f"""
/* Write the first values of the states. Returns one of the codes above. */
int {name}_init_states(void *const *states);
""" if states else ""
    params = ["const void *const *inputs", "void *const *outputs", *states, "void *workspace",
              *sizes]
    run = textwrap.fill(f"int {name}_run({', '.join(params)});", 100, subsequent_indent="    ")
    return f"""\
/* The size of the workspace of a call, in bytes{refused}. */
size_t {name}_workspace_size({', '.join(sizes) or 'void'});

/* Run the model. Arrays are dense, in C order, aligned as their elements are, and do not \
overlap.{note}
   Returns {name.upper()}_OK or another of the codes above. */
{run}
{first}"""


def _array_sizes(name: str, manifest: Manifest, labels: Mapping[str, str]) -> str:
    kept = (f"static const size_t {name}_state_bytes[] = {{{_sizes(manifest.states)}}};\n"
            if manifest.states else "")
    if not labels:
        return (f"static const size_t {name}_input_bytes[] = {{{_sizes(manifest.inputs)}}};\n"
                f"static const size_t {name}_output_bytes[] = {{{_sizes(manifest.outputs)}}};\n"
                f"{kept}")
    sizes = "".join(f", int64_t {label}" for label in labels.values())
    return f"""\
/* The size of an array in bytes; 0 for an unknown one, and for sizes that {name}_run refuses. */
size_t {name}_input_bytes(int index{sizes});
size_t {name}_output_bytes(int index{sizes});
{kept}"""


def _counts(upper: str, manifest: Manifest) -> str:
    counts = (("STATES", manifest.states), ("SIZES", manifest.symbols))
    return "".join(f"#define {upper}_NUM_{what} {len(items)}\n" for what, items in counts if items)


def _codes(upper: str, has_sizes: bool) -> str:
    codes = [("NULL_POINTER", "a pointer to an array, or one of the arguments, is NULL"),
             ("UNALIGNED_WORKSPACE",
              f"its address is no multiple of {upper}_WORKSPACE_ALIGNMENT")]
    if has_sizes:
        codes.append(("WRONG_SIZE", "a size out of its range, too large, or too small"))
    comma = [*[","] * (len(codes) - 1), ""]
    values = [f"{upper}_{code} = {n + 1}{comma[n]}" for n, (code, _) in enumerate(codes)]
    width = max(map(len, values))
    return "\n".join([f"  {upper}_OK = 0,", *(
        f"  {value:{width}} /* {meaning} */"
        for value, (_, meaning) in zip(values, codes, strict=True))])


def _ranges(manifest: Manifest, labels: Mapping[str, str]) -> str:
    """The lines of the header about the symbols."""
    if not labels:
        return ""
    lines = []
    for symbol in manifest.symbols:
        end = "or more" if symbol.high is None else f"to {symbol.high}"
        step = f", a multiple of {symbol.multiple}" if symbol.multiple > 1 else ""
        lines.append(f"     {labels[symbol.name]}: {symbol.low} {end}{step}\n")
    return f"sizes\n{''.join(lines)}   "


def size_parameters(manifest: Manifest) -> dict[str, str]:
    """The C parameter of each symbol: its name, if that is one in C."""
    taken: dict[str, str] = {}
    for symbol in manifest.symbols:
        label = re.sub(r"\W", "_", symbol.name, flags=re.ASCII)
        # C reserves names that begin with an underscore and a capital letter or another underscore.
        if label in _RESERVED or label.startswith("_"):
            label = f"size_{label.lstrip('_')}"
        while label in taken.values():
            label += "_"
        taken[symbol.name] = label
    return taken


def _ports(ports: Sequence[TensorSpec], labels: Mapping[str, str]) -> str:
    lines = []
    for number, port in enumerate(ports):
        sizes = "".join(f"[{_named(size, labels)}]" for size in port.shape) or " (one element)"
        label = port.name.replace("*/", "* /")
        kind = _C_TYPES.get(port.dtype, f"raw {port.dtype}")
        lines.append(f"     {number}: {kind}{sizes}  {label} ({port.dtype})")
    return "\n".join(lines) or "     none"


def _named(size: Size, labels: Mapping[str, str]) -> str:
    """A size over the parameters of the C functions."""
    return re.sub(r"\b[^\W\d]\w*", lambda found: labels.get(found[0], found[0]), str(size))


def _sizes(ports: Sequence[TensorSpec]) -> str:
    return ", ".join(str(math.prod(p.concrete_shape) * p.numpy_dtype.itemsize)
                     for p in ports) or "0"
