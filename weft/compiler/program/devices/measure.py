"""Measures the kernels of a program, for placement by profile."""

from __future__ import annotations

import time
from collections.abc import Sequence

from weft.codegen import backend_of
from weft.compiler.build.kernel import BuiltKernel
from weft.compiler.program.program import Program, Step, buffer_bytes
from weft.compiler.program.symbols import symbol_specs
from weft.ir.symbol import SizeRange, typical_size
from weft.runtime.arena import AlignedBlock
from weft.runtime.library import Library
from weft.runtime.sizes import evaluate
from weft.target import Target

_REPEAT = 5
# Python's call of a kernel, which is not the kernel's time.
_CALL_SECONDS = 1e-6


def measured_seconds(program: Program, kernels: Sequence[BuiltKernel], target: Target
                     ) -> dict[str, float]:
    """The seconds of each kernel by symbol, on one thread: the best of some calls.

    Sizes are typical ones, and data are zeros, which every kernel takes.
    """
    backend = backend_of(target)
    objects = [one.object_code for one in kernels]
    library = backend.load([*objects, *backend.support_objects(target)], target)
    typical = {s.name: SizeRange(s.low, s.high, s.multiple).typical
               for s in symbol_specs(program.inputs)}
    found: dict[str, float] = {}
    for step in program.steps:
        kernel = kernels[step.kernel]
        if kernel.facts.symbol not in found and kernel.callback is None:
            found[kernel.facts.symbol] = _seconds(program, step, kernel, library, typical)
    return found


def _seconds(program: Program, step: Step, kernel: BuiltKernel, library: Library,
             typical: dict[str, int]) -> float:
    sizes = [typical_size(buffer_bytes(program, ref)) for ref in step.buffers]
    scratch = evaluate(kernel.facts.workspace_bytes, typical)
    blocks = [AlignedBlock(nbytes) for nbytes in (*sizes, *([scratch] if scratch else []))]
    for block in blocks:
        block.array[:] = 0
    addresses = [block.address for block in blocks]
    numbers = [evaluate(size, typical) for size in kernel.facts.sizes]
    arguments = [*addresses[:len(sizes)], *numbers, *addresses[len(sizes):]]
    call = library.kernel(kernel.facts.symbol, len(arguments))
    best = float("inf")
    for _ in range(_REPEAT):
        start = time.perf_counter()
        call(*arguments)
        best = min(best, time.perf_counter() - start)
    return max(best - _CALL_SECONDS, 1e-7)
