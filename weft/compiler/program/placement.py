"""Places the steps of a program on a device and on the host, and inserts the copies between them.

Steps whose kernels the device cannot run are on the host: Python functions, and kernels that its
code generation refused. Conditions of branches and counted sizes are read by the host. Inputs and
constants are wherever they are needed: the runtime uploads them.

The kernels are then built for the device or for the host.
"""

from __future__ import annotations

from collections.abc import Collection

from weft.codegen import backend_of
from weft.compiler.build.built_kernel import BuiltKernel, KernelFacts
from weft.compiler.build.cached_objects import support_objects
from weft.compiler.build.kernels import build_kernels, try_build_kernels
from weft.compiler.fallbacks import kernel_on_host, kernels_beside_host
from weft.compiler.options import CompileOptions
from weft.compiler.program.devices.copies import with_copies
from weft.compiler.program.devices.order import copies_early, host_steps_late
from weft.compiler.program.devices.regions import (
    Dissolved,
    conditions_of,
    dissolve,
    must_run_on_host,
)
from weft.compiler.program.program import BufferKind, BufferRef, KernelSource, Program, buffer_bytes
from weft.ir import VirtualDevice, typical_size
from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import HOST, Device, MemorySpace
from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError, LoweringError, TargetError
from weft.support.fallback import report
from weft.target import Target
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


# What a code generator raises for a kernel that its device cannot run.
_REFUSALS = (CodegenError, LoweringError)
_COPY = BuiltKernel(KernelFacts(DEVICE_COPY, DEVICE_COPY, 0, 0, 0), b"")


@dataclass(frozen=True, slots=True)
class PlacedKernels:
    """A program whose steps have devices, and its kernels in order.

    ``support`` are further objects that the kernels call. ``host`` is the target of the kernels on
    the host if a program for a device has some. ``spaces`` are the memories of the program. With
    ``on_lanes`` its devices run at the same time; ``late_copies`` is then the program with copies
    as late as possible, which needs less memory.
    """

    program: Program
    kernels: tuple[BuiltKernel, ...]
    support: tuple[bytes, ...]
    spaces: tuple[MemorySpace, ...]
    host: Target | None = None
    on_lanes: bool = False
    late_copies: Program | None = None

    @property
    def objects(self) -> tuple[bytes, ...]:
        """All object code; the runtime copies between devices, so copies have no code."""
        return (*(k.object_code for k in self.kernels if k is not _COPY), *self.support)


def build_placed(program: Program, options: CompileOptions) -> PlacedKernels:
    """Place the steps of a program and build its kernels.

    A kernel that the device of the target refuses is placed on the host, which is reported. Raises
    what building raises otherwise: a tool that is not installed, or a defect, is no refusal.
    """
    target, passes = options.target, options.extensions.tir_passes
    backend = options.backend
    spaces = tuple(backend.memory_spaces)
    if backend.launcher.runs_devices_at_once:
        from weft.compiler.program.devices.build import build_partitioned

        placed, kernels = build_partitioned(program, options, _COPY)
        return PlacedKernels(copies_early(placed), kernels, support_objects(backend, target),
                             spaces, on_lanes=True, late_copies=placed)
    if not backend.launcher.copies_between_memories:
        program = dissolve(program).program
        placed = program.on(backend.device)
        return PlacedKernels(placed, tuple(build_kernels(placed.kernels, target, passes)),
                             support_objects(backend, target), spaces)
    built: dict[tuple[str, Device], BuiltKernel] = {(DEVICE_COPY, HOST): _COPY}
    refused: set[str] = set()
    while True:
        placed = host_steps_late(on_device(program, backend.device, refused,
                                            soft=options.soft_placement))
        missing = [k for k in placed.kernels if k.device != HOST
                   and (k.digest, k.device) not in built]
        made, errors = try_build_kernels(missing, target, passes, _REFUSALS)
        built |= {(missing[n].digest, missing[n].device): kernel for n, kernel in made.items()}
        if not errors:
            break
        for number, error in sorted(errors.items()):
            report(kernel_on_host(missing[number].text, str(backend.device), error))
        refused |= {missing[number].digest for number in errors}
    _report_others(placed, refused, str(backend.device))
    return _with_host(placed, built, options)


def _report_others(placed: Program, refused: Collection[str], device: str) -> None:
    """List the kernels on the host that the device does not refuse."""
    others = [k.text for k in placed.kernels if k.device == HOST and k.digest not in refused
              and k.digest != DEVICE_COPY]
    if others:
        report(kernels_beside_host(dict.fromkeys(others), device))


def _with_host(placed: Program, built: dict[tuple[str, Device], BuiltKernel],
               options: CompileOptions) -> PlacedKernels:
    """Build the kernels that were placed on the host."""
    host = options.host_target
    missing = [k for k in placed.kernels if (k.digest, k.device) not in built]
    support = support_objects(backend_of(options.target), options.target)
    if missing:
        made = build_kernels(missing, host, ())
        built |= {(k.digest, k.device): kernel for k, kernel in zip(missing, made, strict=True)}
        support += support_objects(backend_of(host), host)
    kernels = tuple(built[k.digest, k.device] for k in placed.kernels)
    spaces = tuple(options.backend.memory_spaces)
    return PlacedKernels(placed, kernels, support, spaces, host if missing else None)
