"""Places the steps of a program on a device and on the host, and inserts the copies between them.

Steps whose kernels the device cannot run are on the host: Python functions, and kernels that its
code generation refused. Conditions of branches and counted sizes are read by the host. Inputs and
constants are wherever they are needed: the runtime uploads them.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.compiler.program.devices.copies import with_copies
from weft.compiler.program.program import (
    BufferKind,
    BufferRef,
    Guard,
    KernelSource,
    Program,
    buffer_bytes,
)
from weft.ir.symbol import typical_size
from weft.runtime.device import HOST, Device
from weft.transform.external.generate_external import external_code_of
from weft.transform.placement.problem import PlacementProblem

# Where both can run a step, the host is chosen only to save copies: its memory is slower, by this
# factor of the bytes that the step touches.
_HOST_SLOWDOWN = 1.0
_SHARED_KINDS = (BufferKind.INPUT, BufferKind.CONSTANT)


def on_device(program: Program, device: Device, refused: Collection[str] = ()) -> Program:
    """The program with its steps on ``device`` where it can run them, and on the host otherwise.

    ``refused`` are the digests of kernels that the device cannot run.
    """
    return with_copies(program, *_solved(program, device, refused))


def must_run_on_host(source: KernelSource) -> bool:
    """Whether no device runs the kernel: code of other generators, as Python functions."""
    return external_code_of(source.function) is not None


def _solved(program: Program, device: Device, refused: Collection[str]
            ) -> tuple[list[Device], dict[BufferRef, Device]]:
    """The device of each step, and the memory of each buffer but inputs and constants."""
    problem = PlacementProblem()
    read_by_host = {guard.condition for step in program.steps for guard in step.guards}
    read_by_host |= {guard.condition for jump in program.jumps for guard in jump.path
                     if isinstance(guard, Guard)}
    read_by_host |= {count.counts for count in program.counts}
    buffers: dict[BufferRef, int] = {}
    steps = []
    for step in program.steps:
        source = program.kernels[step.kernel]
        touched = sum(typical_size(buffer_bytes(program, ref)) for ref in step.buffers
                      if ref.kind not in _SHARED_KINDS)
        costs = {HOST: _HOST_SLOWDOWN * touched + 1.0}
        if source.digest not in refused and not must_run_on_host(source):
            costs[device] = 0.0
        steps.append(problem.add(source.text, costs))
        for ref in dict.fromkeys(step.buffers):
            if ref.kind in _SHARED_KINDS:
                continue
            if ref not in buffers:
                anywhere = {HOST: 0.0} if ref in read_by_host else {device: 0.0, HOST: 0.0}
                buffers[ref] = problem.add(f"{ref.kind.value} {ref.index}", anywhere)
            problem.connect(steps[-1], buffers[ref], typical_size(buffer_bytes(program, ref)))
    chosen = problem.solve()
    return [chosen[n] for n in steps], {ref: chosen[n] for ref, n in buffers.items()}
