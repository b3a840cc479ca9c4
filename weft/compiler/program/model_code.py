"""Making the code of a lowered program: objects, constants and manifest."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import weft
from weft.codegen import backend_of
from weft.codegen.backend import Backend
from weft.codegen.launch import LaunchGuard, LaunchPath, LaunchProgram
from weft.compiler.build.built_kernel import BuiltKernel, KernelFacts
from weft.compiler.build.cached_objects import main_object
from weft.compiler.build.callbacks import Callback
from weft.compiler.options import CompileOptions
from weft.compiler.program.code import ModelCode
from weft.compiler.program.constants import (
    ConstantMemory,
    OwnBlock,
    PlacedConstants,
    constant_specs,
)
from weft.compiler.program.in_place import updates_not_granted
from weft.compiler.program.launches import launch_program, sized_launches
from weft.compiler.program.memory_plan import MemoryPlan, plan_memory
from weft.compiler.program.placement import PlacedKernels, build_placed
from weft.compiler.program.program import Port, Program, buffer_bytes
from weft.compiler.program.verify import verify_program
from weft.compiler.program.verify_memory import verify_memory
from weft.ir.symbol import size_of_dim
from weft.runtime.call_sizes import fixed_sizes
from weft.runtime.device import HOST, HOST_MEMORY, MemorySpace
from weft.runtime.devices.sim.description import SimDevice
from weft.runtime.devices.sim.memory import DeviceMemoryError, check_memories
from weft.runtime.manifest import (
    MAIN_SYMBOL,
    ArenaSpec,
    BackJump,
    Condition,
    KernelCall,
    Manifest,
    SymbolSpec,
    TensorSpec,
)
from weft.runtime.sizes import Size, evaluate
from weft.support import trace
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError
from weft.support.stage_times import stage


@dataclass(frozen=True, slots=True)
class NotInPlace:
    """The digests of kernels that were to update a buffer in place, and cannot."""

    kernels: frozenset[str]


def build_model(program: Program, options: CompileOptions, memory: ConstantMemory | None = None,
                *, has_main: bool = True) -> ModelCode | NotInPlace:
    """Object code, constants and manifest of a lowered program, whose constants go to ``memory``.

    Without ``has_main`` the runtime calls the kernels. For kernels that cannot work in place there
    is no code: the program is lowered without them.
    """
    memory = memory or OwnBlock()
    memory.begin(program.constants)
    placed = build_placed(program, options)
    granted = [kernel.facts.in_place for kernel in placed.kernels]
    missed = updates_not_granted(placed.program, granted)
    if missed:
        return NotInPlace(missed)
    constants = memory.place(placed.program.constants)
    try:
        return _code_of(placed, constants, options, has_main=has_main)
    except DeviceMemoryError:
        if placed.late_copies is None:
            raise
        smaller = dataclasses.replace(placed, program=placed.late_copies, late_copies=None)
        return _code_of(smaller, constants, options, has_main=has_main)


@stage("program and memory")
def _code_of(placed: PlacedKernels, constants: PlacedConstants, options: CompileOptions, *,
             has_main: bool) -> ModelCode:
    target, backend = options.target, options.backend
    program, kernels = placed.program, placed.kernels
    facts = [kernel.facts for kernel in kernels]
    verify_program(program, "placement")
    layout = _layout(placed, facts, constants.offsets, backend)
    launches = layout.launches
    verify_memory(program, launches, facts)
    with trace.span("main"):
        main = main_object(backend, launches, target) if has_main else None
    mains = () if main is None else (main,)
    spec = backend.target_spec(target)
    if placed.host is not None:
        host = backend_of(placed.host).target_spec(placed.host)
        spec = dataclasses.replace(spec, triple=host.triple, features=host.features)
    manifest = Manifest(
        inputs=_specs(program.inputs), outputs=_specs(program.outputs),
        target=spec, arena_bytes=layout.arena_bytes,
        constants_bytes=constants.nbytes,
        steps=_calls(program, launches, facts, placed),
        jumps=tuple(BackJump(jump.at, jump.loop.first, _conditions(jump.path))
                    for jump in launches.jumps),
        constants=constant_specs(program.constants, constants.offsets),
        output_is_tuple=program.output_is_tuple, weft_version=weft.__version__,
        launched_by=backend.launched_by if main is None else MAIN_SYMBOL, arenas=layout.arenas,
        symbols=layout.symbols, sizes=launches.sizes, states=_specs(program.states),
        nonnegative=layout.nonnegative, counts=launches.counts,
        devices=tuple(one for one in options.devices if isinstance(one, SimDevice)),
    )
    if placed.on_lanes:
        from weft.compiler.program.devices.segment_code import segment_object
        from weft.compiler.program.devices.verify_lanes import verify_lanes

        verify_lanes(program, launches, facts, manifest)
        check_memories(manifest, fixed_sizes(manifest))
        mains = (segment_object(backend, launches, manifest, target),)
    return ModelCode(manifest, (*mains, *placed.objects), constants.block, callbacks_of(kernels),
                     constants.kept)


@dataclass(frozen=True, slots=True)
class _Layout:
    """The launches of a program and its memory."""

    launches: LaunchProgram
    arena_bytes: Size
    arenas: tuple[ArenaSpec, ...] = ()
    symbols: tuple[SymbolSpec, ...] = ()
    nonnegative: tuple[Size, ...] = ()


def _layout(placed: PlacedKernels, facts: Sequence[KernelFacts], offsets: Sequence[int],
            backend: Backend[Any]) -> _Layout:
    program, spaces = placed.program, placed.spaces
    if program.is_symbolic:
        if not backend.takes_sizes:
            raise UnsupportedModelError(
                f"targets of kind {backend.kind!r} run programs of fixed sizes only")
        sized = sized_launches(program, facts, offsets)
        arenas = tuple(ArenaSpec(space.name, sized.arena_bytes.get(space.device, 0), space.device,
                                 space.alignment)
                       for space in spaces if space != HOST_MEMORY)
        return _Layout(sized.launches, sized.arena_bytes[HOST], arenas, sized.symbols,
                       sized.nonnegative)
    plan = plan_memory(program, {n: evaluate(f.workspace_bytes, {}) for n, f in enumerate(facts)},
                       {n: f.in_place for n, f in enumerate(facts) if f.in_place is not None},
                       spaces, fresh_copies=placed.on_lanes and placed.late_copies is not None)
    host, arenas = _arenas(plan, spaces)
    return _Layout(launch_program(program, plan, offsets, facts, spaces), host, arenas)


def callbacks_of(kernels: Sequence[BuiltKernel]) -> tuple[Callback, ...]:
    """The Python functions that the kernels call."""
    return tuple(k.callback for k in kernels if k.callback is not None)


def _calls(program: Program, launches: LaunchProgram, facts: Sequence[KernelFacts],
           placed: PlacedKernels) -> tuple[KernelCall, ...]:
    calls, waits = [], None
    if placed.on_lanes:
        from weft.compiler.program.devices.waits import lane_waits

        waits = lane_waits(program, launches.launches, facts)
    for at, (step, launch) in enumerate(zip(program.steps, launches.launches, strict=True)):
        known = facts[step.kernel]
        moved = known.bytes_moved if step.source is None else \
            size_of_dim(buffer_bytes(program, step.writes[0]))
        calls.append(KernelCall(launch.symbol, launch.args, known.implementation,
                                program.kernels[step.kernel].text, known.flops, moved,
                                _conditions(launch.path), launch.device, launch.stream,
                                launch.variants, known.seconds, step.source or HOST,
                                () if waits is None else waits[at], known.spent))
    return tuple(calls)


def _conditions(path: LaunchPath) -> tuple[Condition, ...]:
    return tuple((guard.condition, guard.expected) for guard in path
                 if isinstance(guard, LaunchGuard))


def _arenas(plan: MemoryPlan, spaces: Sequence[MemorySpace]) -> tuple[int, tuple[ArenaSpec, ...]]:
    """The bytes of the arena in host memory, and the other arenas."""
    sizes = list(zip(spaces, plan.arena_bytes, strict=True))
    host = sum(size for space, size in sizes if space == HOST_MEMORY)
    return host, tuple(ArenaSpec(space.name, size, space.device, space.alignment)
                       for space, size in sizes if space != HOST_MEMORY)


def _specs(ports: Sequence[Port]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(p.name, str(p.type.dtype), tuple(map(size_of_dim, p.type.shape)))
                 for p in ports)
