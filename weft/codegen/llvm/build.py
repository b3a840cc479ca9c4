"""Compilation of lowered loop programs to object code."""

from __future__ import annotations

from weft.codegen.llvm.emit.func import write_module
from weft.codegen.llvm.python_bodies.link import MATH_SYMBOLS, link_python_functions
from weft.codegen.llvm.target_machine import (
    assembly,
    data_layout,
    object_code,
    optimized_module,
    wants_strength_reduction,
)
from weft.codegen.objects.symbols import object_symbols
from weft.support.dataclass import dataclass
from weft.support.stage_times import stage
from weft.target import CpuTarget
from weft.tir import PrimFunc
from weft.tir.python_function import functions_of

# Undefined symbols that the dynamic linker resolves: the global offset table, the C library's
# memory routines, which LLVM calls for large fills and copies, and rounding functions for CPUs that
# lack the instructions.
LIBRARY_SYMBOLS = frozenset(
    ["_GLOBAL_OFFSET_TABLE_", "memcpy", "memset", "memmove", "bzero"]
    + [name + suffix for name in ("floor", "ceil", "trunc", "rint", "fma") for suffix in ("", "f")]
)
# Symbols that linkers of other formats define.
_OF_LINKERS = frozenset(["__linear_memory", "__stack_pointer", "__indirect_function_table",
                         "_tls_index", "_fltused", "__chkstk"])
RUNTIME_SYMBOLS = frozenset(["weft_parallel_launch"])


@dataclass(frozen=True, slots=True)
class ObjectCode:
    """A relocatable, position-independent ELF object that defines ``symbol``.

    ``llvm_ir`` is the IR before optimisation. Compilation is deterministic: the same input gives
    the same bytes.
    """

    symbol: str
    object: bytes
    llvm_ir: str


@stage("printing of LLVM IR")
def emit_llvm(func: PrimFunc, target: CpuTarget) -> str:
    """LLVM IR of a lowered function before optimisation, with its Python bodies linked in."""
    text = write_module(func, target, data_layout(target))
    functions = functions_of(func)
    return link_python_functions(text, functions, target) if functions else text


def emit_own_llvm(func: PrimFunc, target: CpuTarget) -> str:
    """As ``emit_llvm``, but Python bodies are only declared, so numba is not needed."""
    return write_module(func, target, data_layout(target))


def emit_optimized_llvm(func: PrimFunc, target: CpuTarget) -> str:
    """LLVM IR of a lowered function after optimisation."""
    return str(optimized_module(emit_llvm(func, target), target))


def emit_assembly(func: PrimFunc, target: CpuTarget) -> str:
    """Assembly text of a lowered function."""
    text = emit_llvm(func, target)
    reduce_strength = bool(functions_of(func)) or wants_strength_reduction(text)
    return assembly(optimized_module(text, target), target, reduce_strength=reduce_strength)


def build_object(
    func: PrimFunc, target: CpuTarget, *, externs: frozenset[str] = frozenset()
) -> ObjectCode:
    """Compile a lowered function.

    ``externs`` are the symbols that other objects will define (the kernels that ``weft_main``
    calls). Raises ``CodegenError`` for expressions that the CPU cannot compute and for undefined
    symbols.
    """
    has_bodies = bool(functions_of(func))
    if has_bodies:
        externs |= MATH_SYMBOLS
    code = _compile(emit_llvm(func, target), target, func.name, externs,
                    has_loops_of_others=has_bodies)
    return ObjectCode(func.name, *code)


def build_text(
    name: str, text: str, target: CpuTarget, *, externs: frozenset[str] = frozenset()
) -> ObjectCode:
    """Compile the text of a module, such as the runtime support or ``weft_main``.

    ``externs`` are the symbols that other objects will define. Raises ``CodegenError`` for other
    undefined symbols.
    """
    return ObjectCode(name, *_compile(text, target, name, externs))


def _compile(text: str, target: CpuTarget, name: str, externs: frozenset[str], *,
             has_loops_of_others: bool = False) -> tuple[bytes, str]:
    reduce_strength = has_loops_of_others or wants_strength_reduction(text)
    obj = object_code(optimized_module(text, target), target, reduce_strength=reduce_strength)
    from weft.codegen.llvm.helpers.build import HELPER_SYMBOLS, unknown_symbols

    allowed = externs | LIBRARY_SYMBOLS | RUNTIME_SYMBOLS | HELPER_SYMBOLS | _OF_LINKERS
    undefined = {s.name for s in object_symbols(obj) if not s.is_defined}
    missing = sorted(undefined - allowed)
    if missing:
        raise unknown_symbols(missing, target, name)
    return obj, text
