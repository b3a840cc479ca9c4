"""Building the helper functions that an artifact needs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence

from weft.codegen.llvm.c_entry import SERIAL_LOOPS
from weft.codegen.llvm.helpers.division import DIVISION
from weft.codegen.llvm.helpers.floats import FLOATS
from weft.codegen.llvm.helpers.memory import MEMORY
from weft.codegen.llvm.helpers.text import HelperText
from weft.codegen.llvm.program_text import preamble
from weft.codegen.llvm.target_machine import object_code, optimized_module
from weft.codegen.objects.symbols import object_symbols
from weft.support.errors import CodegenError
from weft.target import CpuTarget

_HELPERS: Mapping[str, HelperText] = {**MEMORY, **DIVISION, **FLOATS,
                                      "weft_parallel_launch": lambda _: SERIAL_LOOPS}
HELPER_SYMBOLS = frozenset(_HELPERS)
# What the C library of a hosted program has; the rest comes along there too.
_OF_C = frozenset(["memcpy", "memmove", "memset", *(
    name + suffix for name in ("floor", "ceil", "trunc", "rint", "fma") for suffix in ("", "f"))])


def helper_objects(objects: Iterable[bytes], target: CpuTarget, *, has_c_library: bool
                   ) -> tuple[bytes, ...]:
    """An object with the functions of this module that ``objects`` call, if there are any."""
    symbols = [symbol for code in objects for symbol in object_symbols(code)]
    defined = {s.name for s in symbols if s.is_defined and s.is_global}
    left = {s.name for s in symbols if not s.is_defined} - defined
    names: frozenset[str] = frozenset()
    while True:
        wanted = names | (left & HELPER_SYMBOLS - (_OF_C if has_c_library else frozenset()))
        if wanted == names:
            break
        names = wanted
        left = {s.name for s in object_symbols(_object(names, target)) if not s.is_defined}
    return (_object(names, target),) if names else ()


@functools.lru_cache(maxsize=64)
def _object(names: frozenset[str], target: CpuTarget) -> bytes:
    word = f"i{target.pointer_bits}"
    functions = [_HELPERS[name](word) for name in sorted(names)]
    lines = [line for text in functions for line in text.splitlines()]
    defined = {f"@{name}(" for name in names}
    declared = dict.fromkeys(line for line in lines if line.startswith("declare ")
                             and not any(name in line for name in defined))
    body = [line for line in lines if not line.startswith("declare ")]
    module = optimized_module("\n".join([preamble(target), *declared, *body]), target)
    return object_code(module, target, reduce_strength=True)


def unknown_symbols(names: Sequence[str], target: CpuTarget, where: str) -> CodegenError:
    """The error for undefined functions."""
    listed = ", ".join(names)
    if any(name.startswith("__") for name in names):
        return CodegenError(
            f"the CPU {target.cpu} lacks instructions for which there is no function", where=where,
            got=listed, help="compute in float32, or enable the unit that has them if the CPU has "
            "one, for example with -mattr=+fp64")
    return CodegenError(f"undefined symbol: {listed}", where=where,
                        help="name a function of the C library or of the runtime")
