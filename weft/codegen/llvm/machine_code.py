"""Code generation: an optimised LLVM module to object code or assembly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import binding as llvm

from weft.codegen.llvm.target_machine import target_machine
from weft.target import CpuTarget

# Loop strength reduction (LSR) turns multiplications in addresses into additions. It helps small
# loops: copying three interleaved channels element by element takes 39 us with it, 52 us without.
# But its compile time is quadratic in the number of addresses of a loop. It took a third of all
# code generation, and no kernel with more lines than this ran faster because of it.
STRENGTH_REDUCED_LINES = 150

_code_generator = threading.Lock()


def wants_strength_reduction(text: str) -> bool:
    """Whether a module is small enough for loop strength reduction."""
    return text.count("\n") <= STRENGTH_REDUCED_LINES


def object_code(module: llvm.ModuleRef, target: CpuTarget, *, reduce_strength: bool) -> bytes:
    """A relocatable ELF object."""
    with _strength_reduction(reduce_strength):
        code: bytes = target_machine(target).emit_object(module)
    return code


def assembly(module: llvm.ModuleRef, target: CpuTarget, *, reduce_strength: bool) -> str:
    """The code of ``object_code`` as assembly text."""
    with _strength_reduction(reduce_strength):
        return str(target_machine(target).emit_assembly(module))


@contextmanager
def _strength_reduction(wanted: bool) -> Iterator[None]:
    """Generate code inside the block with or without loop strength reduction.

    It is a global option of LLVM, not one of the target machine. So a lock admits one thread at a
    time, and the option is reset for other users of LLVM in this process.
    """
    with _code_generator:
        if wanted:
            yield
            return
        llvm.set_option("weft", "-disable-lsr=true")
        try:
            yield
        finally:
            llvm.set_option("weft", "-disable-lsr=false")
