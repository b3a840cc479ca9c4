"""Builds the kernels of a program for its device and for the host."""

from __future__ import annotations

from collections.abc import Collection

from weft.codegen import backend_of
from weft.compiler.build.kernel import BuiltKernel, KernelFacts
from weft.compiler.build.kernels import build_kernels, try_build_kernels
from weft.compiler.fallbacks import kernel_on_host, kernels_beside_host
from weft.compiler.options import CompileOptions
from weft.compiler.program.devices.build import build_partitioned
from weft.compiler.program.devices.order import copies_early, host_steps_late
from weft.compiler.program.devices.regions import dissolve
from weft.compiler.program.placement import on_device
from weft.compiler.program.program import Program
from weft.runtime.calls import DEVICE_COPY
from weft.runtime.device import HOST, Device, MemorySpace
from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError, LoweringError
from weft.support.fallback import report
from weft.target import Target

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
        placed, kernels = build_partitioned(program, options, _COPY)
        return PlacedKernels(copies_early(placed), kernels, backend.support_objects(target),
                             spaces, on_lanes=True, late_copies=placed)
    if not backend.launcher.copies_between_memories:
        program = dissolve(program).program
        placed = program.on(backend.device)
        return PlacedKernels(placed, tuple(build_kernels(placed.kernels, target, passes)),
                             backend.support_objects(target), spaces)
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
    support = backend_of(options.target).support_objects(options.target)
    if missing:
        made = build_kernels(missing, host, ())
        built |= {(k.digest, k.device): kernel for k, kernel in zip(missing, made, strict=True)}
        support += backend_of(host).support_objects(host)
    kernels = tuple(built[k.digest, k.device] for k in placed.kernels)
    spaces = tuple(options.backend.memory_spaces)
    return PlacedKernels(placed, kernels, support, spaces, host if missing else None)
