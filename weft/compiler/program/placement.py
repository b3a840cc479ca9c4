"""Places the steps of a program on a device and on the host, and inserts the copies between them.

Steps whose kernels the device cannot run are on the host: Python functions, and kernels that its
code generation refused. Conditions of branches and counted sizes are read by the host. Inputs and
constants are wherever they are needed: the runtime uploads them.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.compiler.program.devices.copies import with_copies
from weft.compiler.program.devices.regions import (
    Dissolved,
    conditions_of,
    dissolve,
    must_run_on_host,
)
from weft.compiler.program.program import BufferKind, BufferRef, KernelSource, Program, buffer_bytes
from weft.ir.symbol import typical_size
from weft.ir.virtual_device import VirtualDevice
from weft.runtime.device import HOST, Device
from weft.support.errors import TargetError
from weft.transform.placement.problem import PlacementProblem

# Where both can run a step, the host is chosen only to save copies: its memory is slower, by this
# factor of the bytes that the step touches.
_HOST_SLOWDOWN = 1.0
_SHARED_KINDS = (BufferKind.INPUT, BufferKind.CONSTANT)


def on_device(program: Program, device: Device, refused: Collection[str] = (), *,
              soft: bool = False) -> Program:
    """The program with its steps on ``device`` where it can run them, and on the host otherwise.

    ``refused`` are the digests of kernels that the device cannot run. What the program's own
    ``device_copy`` pins stays where it is; with ``soft``, what cannot run there is on the host.
    Raises ``TargetError`` for a pinned step that its device cannot run.
    """
    dissolved = dissolve(program)
    solved = _solved(dissolved, device, refused, soft=soft)
    return with_copies(dissolved.program, *solved)


def _solved(dissolved: Dissolved, device: Device, refused: Collection[str], *, soft: bool
            ) -> tuple[list[Device], dict[BufferRef, Device]]:
    """The device of each step, and the memory of each buffer but inputs and constants."""
    program, problem = dissolved.program, PlacementProblem()
    read_by_host = conditions_of(program)
    buffers: dict[BufferRef, int] = {}
    steps = []
    for step, region in zip(program.steps, dissolved.regions, strict=True):
        source = program.kernels[step.kernel]
        touched = sum(typical_size(buffer_bytes(program, ref)) for ref in step.buffers
                      if ref.kind not in _SHARED_KINDS)
        costs = {HOST: _HOST_SLOWDOWN * touched + 1.0}
        if source.digest not in refused and not must_run_on_host(source):
            costs[device] = 0.0
        if region is not None:
            costs = _pinned(costs, region.wanted, source, soft=soft)
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


def _pinned(costs: dict[Device, float], wanted: VirtualDevice, source: KernelSource, *, soft: bool
            ) -> dict[Device, float]:
    """The costs of the devices that a step may lie on."""
    found = {device: cost for device, cost in costs.items() if wanted.matches(device)}
    if found or soft:
        return found or costs
    raise TargetError(f"{source.text} cannot run on {wanted}", where=source.function.span,
                      expected=f"one of {', '.join(map(str, costs))}",
                      help="soft_placement=True lets it run elsewhere")
