"""LLVM's code generator: an optimised module as object code or assembly."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from llvmlite import binding as llvm

from weft.codegen.llvm.target_machine import target_machine
from weft.target import CpuTarget

# LLVM's strength reduction makes sums of the products in addresses. Loops of a few instructions
# gain from it: copying three interleaved channels one by one took 39 us, and 52 without. But its
# time grows with the square of a loop's addresses: it was a third of all code generation, and no
# kernel of more lines than this ran faster for it.
STRENGTH_REDUCED_LINES = 150

_code_generator = threading.Lock()


def wants_strength_reduction(text: str) -> bool:
    """Whether LLVM IR that weft wrote is small enough."""
    return text.count("\n") <= STRENGTH_REDUCED_LINES


def object_code(module: llvm.ModuleRef, target: CpuTarget, *, reduce_strength: bool) -> bytes:
    """A relocatable object."""
    with _strength_reduction(reduce_strength):
        code: bytes = target_machine(target).emit_object(module)
    return code


def assembly(module: llvm.ModuleRef, target: CpuTarget, *, reduce_strength: bool) -> str:
    """What ``object_code`` makes, as text."""
    with _strength_reduction(reduce_strength):
        return str(target_machine(target).emit_assembly(module))


@contextmanager
def _strength_reduction(wanted: bool) -> Iterator[None]:
    """It is an option of LLVM as a whole, not of a target machine: one thread generates code at a
    time, and other users of LLVM in this process find the option as it was.
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
