"""Measures the kernels of a program, for placement by profile."""

from __future__ import annotations

import time
from collections.abc import Sequence

from weft.codegen import backend_of
from weft.compiler.build.built_kernel import BuiltKernel
from weft.compiler.build.cached_objects import support_objects
from weft.compiler.program.program import Program, Step, buffer_bytes
from weft.compiler.program.symbols import symbol_specs
from weft.ir.symbol import SizeRange, typical_size
from weft.runtime.arena import AlignedBlock
from weft.runtime.library import Library
from weft.runtime.sizes import evaluate
from weft.target import Target
from weft.transform.placement.measured_costs import MeasuredCosts

_REPEAT = 5
# Python's call of a kernel, which is not the kernel's time.
_CALL_SECONDS = 1e-6


def measured_costs(program: Program, kernels: Sequence[BuiltKernel], target: Target
                   ) -> MeasuredCosts:
    """The costs of the kernels by symbol, each as often as the program calls it.

    A kernel is timed once, on one thread: the best of some calls. Sizes are typical ones, and data
    are zeros, which every kernel takes.
    """
    backend = backend_of(target)
    objects = [one.object_code for one in kernels]
    library = backend.load([*objects, *support_objects(backend, target)], target)
    typical = {s.name: SizeRange(s.low, s.high, s.multiple).typical
               for s in symbol_specs(program.inputs)}
    costs, seconds = MeasuredCosts(), dict[str, float]()
    for step in program.steps:
        kernel = kernels[step.kernel]
        symbol = kernel.facts.symbol
        if kernel.callback is not None:
            continue
        if symbol not in seconds:
            seconds[symbol] = _seconds(program, step, kernel, library, typical)
        costs.record_count(symbol)
        costs.record_time(symbol, seconds[symbol])
        for number, ref in enumerate(step.writes):
            costs.record_size(symbol, typical_size(buffer_bytes(program, ref)), number)
        costs.record_memory(symbol, evaluate(kernel.facts.workspace_bytes, typical))
    return costs


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
