"""The compiled ``main``: LLVM IR that calls the kernels in order over one arena.

``int32 weft_main(ptr inputs, ptr outputs, ptr constants, ptr arena)``; ``inputs`` and ``outputs``
are arrays of pointers. It is a line of calls, some of which are skipped or repeated, so it is
written as text directly; a loop program would say the same in more words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from weft.codegen.llvm.target_machine import data_layout
from weft.compiler.program.memory_plan import MemoryPlan
from weft.compiler.program.program import BufferKind, BufferRef, Guard, Jump, Loop, Path, Program
from weft.runtime.manifest import MAIN_SYMBOL
from weft.target import CpuTarget

_BASE = {BufferKind.CONSTANT: "constants", BufferKind.TEMPORARY: "arena"}


def main_ir(
    program: Program,
    plan: MemoryPlan,
    constant_offsets: Sequence[int],
    symbols: Sequence[str],
    has_workspace: Sequence[bool],
    target: CpuTarget,
) -> str:
    """The LLVM module that defines ``weft_main``.

    ``symbols`` and ``has_workspace`` are per kernel; a kernel with a workspace takes its address
    as last argument.
    """
    lines = [*_load_ports("inputs", "in", len(program.inputs)),
             *_load_ports("outputs", "out", len(program.outputs))]
    signatures: dict[str, int] = {}
    blocks = _Blocks(lines, lambda ref: _address(lines, ref, plan, constant_offsets))
    jumps = deque(program.jumps)
    for at, step in enumerate(program.steps):
        while jumps and jumps[0].at == at:
            blocks.jump(jumps.popleft())
        blocks.enter(step.path)
        arguments = [_address(lines, ref, plan, constant_offsets) for ref in step.buffers]
        if has_workspace[step.kernel]:
            arguments.append(_offset(lines, "arena", plan.workspaces[at]))
        symbol = symbols[step.kernel]
        signatures[symbol] = len(arguments)
        lines.append(f"call void @{symbol}({', '.join(f'ptr {a}' for a in arguments)})")
    for jump in jumps:
        blocks.jump(jump)
    blocks.enter(())
    declarations = [f"declare void @{symbol}({', '.join(['ptr'] * count)})"
                    for symbol, count in signatures.items()]
    body = "\n".join(line if line.endswith(":") else f"  {line}" for line in [*lines, "ret i32 0"])
    head = f"define i32 @{MAIN_SYMBOL}(ptr %inputs, ptr %outputs, ptr %constants, ptr %arena)"
    preamble = [f'target datalayout = "{data_layout(target)}"',
                f'target triple = "{target.triple}"']
    return "\n".join([*preamble, *declarations, "", f"{head} {{", body, "}", ""])


class _Blocks:
    """Opens and closes the blocks of branches and loops; ``address`` emits that of a buffer."""

    def __init__(self, lines: list[str], address: Callable[[BufferRef], str]) -> None:
        self._lines = lines
        self._address = address
        self._open: list[tuple[Guard | Loop, str]] = []

    def enter(self, path: Path) -> None:
        """Leave the branches and loops that are not on ``path``, enter the others."""
        common = 0
        while common < min(len(path), len(self._open)) \
                and self._open[common][0] == path[common]:
            common += 1
        while len(self._open) > common:
            _, label = self._open.pop()
            self._lines += [f"br label %{label}", f"{label}:"]
        for part in path[common:]:
            after = self._branch(part) if isinstance(part, Guard) else self._loop(part)
            self._open.append((part, after))

    def jump(self, jump: Jump) -> None:
        """Go back; what would follow in the same block is never reached."""
        self.enter(jump.path)
        self._lines += [f"br label %loop{jump.loop.number}", f"in{len(self._lines)}.gone:"]

    def _branch(self, guard: Guard) -> str:
        address = self._address(guard.condition)
        number = len(self._lines)
        inside, after = f"in{number}.then", f"in{number}.after"
        taken, other = (inside, after) if guard.expected else (after, inside)
        self._lines += [f"%flag{number} = load i8, ptr {address}",
                        f"%is{number} = icmp ne i8 %flag{number}, 0",
                        f"br i1 %is{number}, label %{taken}, label %{other}", f"{inside}:"]
        return after

    def _loop(self, loop: Loop) -> str:
        head = f"loop{loop.number}"
        self._lines += [f"br label %{head}", f"{head}:"]
        return f"{head}.after"


def _load_ports(array: str, prefix: str, count: int) -> list[str]:
    lines = []
    for index in range(count):
        lines.append(f"%{prefix}.at{index} = getelementptr ptr, ptr %{array}, i64 {index}")
        lines.append(f"%{prefix}{index} = load ptr, ptr %{prefix}.at{index}")
    return lines


def _address(lines: list[str], ref: BufferRef, plan: MemoryPlan,
             constant_offsets: Sequence[int]) -> str:
    if ref.kind is BufferKind.INPUT:
        return f"%in{ref.index}"
    if ref.kind is BufferKind.OUTPUT:
        return f"%out{ref.index}"
    return _offset(lines, _BASE[ref.kind], offset_of(ref, plan, constant_offsets))


def offset_of(ref: BufferRef, plan: MemoryPlan, constant_offsets: Sequence[int]) -> int:
    """The byte offset of a constant or temporary."""
    if ref.kind is BufferKind.CONSTANT:
        return constant_offsets[ref.index]
    return plan.temporaries[ref.index]


def _offset(lines: list[str], base: str, offset: int) -> str:
    name = f"%v{len(lines)}"
    lines.append(f"{name} = getelementptr i8, ptr %{base}, i64 {offset}")
    return name
