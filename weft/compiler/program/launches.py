"""From a program and its memory plan to launches, as back ends take them.

Those of a program of fixed sizes have offsets; those of one with symbols have slots, and sizes as
arguments.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

from weft.codegen.launch import Launch, LaunchGuard, LaunchJump, LaunchPath, LaunchProgram
from weft.compiler.build.built_kernel import KernelFacts
from weft.compiler.program.data_sizes import bounds_by_name, largest
from weft.compiler.program.memory_plan import MemoryPlan
from weft.compiler.program.program import (
    BufferKind,
    BufferRef,
    Guard,
    KernelVariant,
    Path,
    Program,
    Step,
)
from weft.compiler.program.slot_plan import SizeTable, SlotPlan, plan_slots
from weft.compiler.program.symbols import sizes_to_check, symbol_specs
from weft.ir.symbol import SizeRange, name_of, size_of_dim
from weft.runtime.device import Device, MemorySpace
from weft.runtime.manifest import Argument, CountSpec, SizeTest, SymbolSpec, VariantSpec
from weft.runtime.sizes import Size, with_names
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class SizedLaunches:
    """The launches of a program with symbols; ``arena_bytes`` refers to the table of sizes.

    ``arena_bytes`` has the size of the arena of each device. ``nonnegative`` are sizes that calls
    check.
    """

    launches: LaunchProgram
    arena_bytes: Mapping[Device, Size]
    symbols: tuple[SymbolSpec, ...]
    nonnegative: tuple[Size, ...]


def sized_launches(program: Program, facts: Sequence[KernelFacts],
                   constant_offsets: Sequence[int]) -> SizedLaunches:
    """The launches of a program with symbols; ``facts`` are those of its kernels.

    Variants that would need another memory plan than the general kernel are left out.
    """
    symbols = symbol_specs(program.inputs)
    variants = {kernel: tuple(v for v in found
                              if facts[v.kernel].in_place == facts[kernel].in_place)
                for kernel, found in program.variants.items()}
    typical = {s.name: SizeRange(s.low, s.high, s.multiple).typical for s in symbols}
    bounds = bounds_by_name(program.counts)
    for port in program.outputs:
        for dim in port.type.shape:
            largest(size_of_dim(dim), bounds)  # callers allocate the largest outputs
    workspaces = {number: largest(size, bounds)
                  for number, size in _workspaces(facts, variants).items()}
    plan = plan_slots(program, workspaces,
                      {n: f.in_place for n, f in enumerate(facts) if f.in_place is not None},
                      typical)
    table = SizeTable()
    offsets, arena_bytes = table.add_slots(plan)
    writer = _SlotWriter(plan, offsets, constant_offsets, facts, table, variants)
    launches = tuple(writer.launch(at, step) for at, step in enumerate(program.steps))
    jumps = tuple(LaunchJump(jump.at, jump.loop, _launch_path(jump.path, writer.argument))
                  for jump in program.jumps)
    made = LaunchProgram(len(program.inputs), len(program.outputs), launches, jumps,
                         tuple(s.name for s in symbols), tuple(table.entries),
                         len(program.states), _counts(program, writer, bounds))
    return SizedLaunches(made, arena_bytes, symbols, sizes_to_check(program))


def _counts(program: Program, writer: _SlotWriter, bounds: Mapping[str, str]
            ) -> tuple[CountSpec, ...]:
    return tuple(CountSpec(name_of(count.symbol), count.at, writer.argument(count.counts),
                           count.which, _number(bounds[name_of(count.symbol)]))
                 for count in program.counts)


def _number(size: str) -> Size:
    return int(size) if size.isdecimal() else size


def _facts_of(variant: KernelVariant, facts: Sequence[KernelFacts]) -> KernelFacts:
    """The facts of a variant's kernel, with sizes over the symbols of the program alone."""
    own = facts[variant.kernel]
    names = {name: str(size_of_dim(dim)) for name, dim in variant.sizes.items()}
    return dataclasses.replace(own, sizes=tuple(with_names(size, names) for size in own.sizes),
                               workspace_bytes=with_names(own.workspace_bytes, names))


def _workspaces(facts: Sequence[KernelFacts],
                variants: Mapping[int, tuple[KernelVariant, ...]]) -> dict[int, Size]:
    """The scratch of each kernel: enough for all of its variants."""
    found: dict[int, Size] = {}
    for number, fact in enumerate(facts):
        needed = [fact.workspace_bytes, *(_facts_of(v, facts).workspace_bytes
                                          for v in variants.get(number, ()))]
        distinct = [str(size) for size in dict.fromkeys(needed) if size]
        if len(distinct) > 1:
            found[number] = f"max({', '.join(distinct)})"
        elif distinct:
            found[number] = next(size for size in needed if size)
    return found


@dataclass(frozen=True, slots=True)
class _SlotWriter:
    plan: SlotPlan
    slots: Sequence[int]  # the entries of their offsets
    constant_offsets: Sequence[int]
    facts: Sequence[KernelFacts]
    table: SizeTable
    variants: Mapping[int, tuple[KernelVariant, ...]]

    def launch(self, at: int, step: Step) -> Launch:
        variants = tuple(self._variant(at, step, v) for v in self.variants.get(step.kernel, ()))
        facts = self.facts[step.kernel]
        return Launch(facts.symbol, self._arguments(at, step, facts),
                      _launch_path(step.path, self.argument),
                      step.device, step.stream, variants)

    def _variant(self, at: int, step: Step, variant: KernelVariant) -> VariantSpec:
        facts = _facts_of(variant, self.facts)
        tests = tuple(SizeTest(self.table.number_of(size_of_dim(condition.size)),
                               condition.sizes.low, condition.sizes.high,
                               condition.sizes.multiple) for condition in variant.conditions)
        return VariantSpec(facts.symbol, self._arguments(at, step, facts), tests,
                           facts.implementation, facts.seconds)

    def _arguments(self, at: int, step: Step, facts: KernelFacts) -> tuple[Argument, ...]:
        arguments = [self.argument(ref) for ref in step.buffers]
        arguments += [("size", self.table.number_of(size)) for size in facts.sizes]
        if facts.workspace_bytes:
            arguments.append(("slot", self.slots[self.plan.workspaces[at]]))
        return tuple(arguments)

    def argument(self, ref: BufferRef) -> Argument:
        if ref.kind is BufferKind.CONSTANT:
            return ref.kind.value, self.constant_offsets[ref.index]
        if ref.kind is BufferKind.TEMPORARY:
            return "slot", self.slots[self.plan.temporaries[ref.index]]
        return ref.kind.value, ref.index


def _launch_path(path: Path, argument: Callable[[BufferRef], Argument]) -> LaunchPath:
    """The guards and loops around a launch; ``argument`` says where a condition lies."""
    return tuple(LaunchGuard(argument(scope.condition), scope.expected)
                 if isinstance(scope, Guard) else scope for scope in path)


def launch_program(program: Program, plan: MemoryPlan, constant_offsets: Sequence[int],
                   facts: Sequence[KernelFacts], spaces: Sequence[MemorySpace]) -> LaunchProgram:
    """The launches of a program, one for each step; ``facts`` are those of its kernels.

    A kernel with a workspace takes its address as last argument.
    """
    writer = _OffsetWriter(plan, constant_offsets, spaces)
    launches = tuple(writer.launch(at, step, facts[step.kernel])
                     for at, step in enumerate(program.steps))
    jumps = tuple(LaunchJump(jump.at, jump.loop, _launch_path(jump.path, writer.argument))
                  for jump in program.jumps)
    return LaunchProgram(len(program.inputs), len(program.outputs), launches, jumps,
                         num_states=len(program.states))


@dataclass(frozen=True, slots=True)
class _OffsetWriter:
    plan: MemoryPlan
    constant_offsets: Sequence[int]
    spaces: Sequence[MemorySpace]

    def launch(self, at: int, step: Step, facts: KernelFacts) -> Launch:
        arguments = [self.argument(ref) for ref in step.buffers]
        if facts.workspace_bytes:
            space = next(s for s in self.spaces if s.device == step.device)
            arguments.append((space.name, self.plan.workspaces[at]))
        return Launch(facts.symbol, tuple(arguments),
                      _launch_path(step.path, self.argument), step.device,
                      step.stream)

    def argument(self, ref: BufferRef) -> Argument:
        if ref.kind is BufferKind.CONSTANT:
            return ref.kind.value, self.constant_offsets[ref.index]
        if ref.kind is BufferKind.TEMPORARY:
            return self.spaces[self.plan.spaces[ref.index]].name, self.plan.temporaries[ref.index]
        return ref.kind.value, ref.index
