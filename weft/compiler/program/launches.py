"""From a program and its memory plan to launches over offsets, as back ends take them."""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.launch import Launch, LaunchGuard, LaunchJump, LaunchPath, LaunchProgram
from weft.compiler.build.kernel import KernelFacts
from weft.compiler.program.memory_plan import MemoryPlan
from weft.compiler.program.program import BufferKind, BufferRef, Guard, Path, Program, Step
from weft.runtime.device import MemorySpace
from weft.runtime.manifest import Argument
from weft.support.dataclass import dataclass


def launch_program(program: Program, plan: MemoryPlan, constant_offsets: Sequence[int],
                   facts: Sequence[KernelFacts], spaces: Sequence[MemorySpace]) -> LaunchProgram:
    """The launches of a program, one for each step; ``facts`` are those of its kernels.

    A kernel with a workspace takes its address as last argument.
    """
    writer = _Writer(plan, constant_offsets, spaces)
    launches = tuple(writer.launch(at, step, facts[step.kernel])
                     for at, step in enumerate(program.steps))
    jumps = tuple(LaunchJump(jump.at, jump.loop, writer.path(jump.path)) for jump in program.jumps)
    return LaunchProgram(len(program.inputs), len(program.outputs), launches, jumps,
                         num_states=len(program.states))


@dataclass(frozen=True, slots=True)
class _Writer:
    plan: MemoryPlan
    constant_offsets: Sequence[int]
    spaces: Sequence[MemorySpace]

    def launch(self, at: int, step: Step, facts: KernelFacts) -> Launch:
        arguments = [self.argument(ref) for ref in step.buffers]
        if facts.workspace_bytes:
            space = next(s for s in self.spaces if s.device == step.device)
            arguments.append((space.name, self.plan.workspaces[at]))
        return Launch(facts.symbol, tuple(arguments), self.path(step.path), step.device,
                      step.stream)

    def path(self, path: Path) -> LaunchPath:
        return tuple(LaunchGuard(self.argument(scope.condition), scope.expected)
                     if isinstance(scope, Guard) else scope for scope in path)

    def argument(self, ref: BufferRef) -> Argument:
        if ref.kind is BufferKind.CONSTANT:
            return ref.kind.value, self.constant_offsets[ref.index]
        if ref.kind is BufferKind.TEMPORARY:
            return self.spaces[self.plan.spaces[ref.index]].name, self.plan.temporaries[ref.index]
        return ref.kind.value, ref.index
