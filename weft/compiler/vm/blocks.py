"""Basic blocks, and their linearisation to a list of instructions.

Jump targets inside blocks are block numbers. Loops are tail calls, so control flow within a
function is acyclic, and blocks have a topological order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import field

from weft.runtime.vm.bytecode import Instruction, Jump, Role, roles_of
from weft.support.dataclass import dataclass


@dataclass(eq=False, slots=True)
class Block:
    """Straight-line code; ``next`` is the fall-through block, ``None`` if the function ends.

    Only the last instruction may be a conditional jump.
    """

    number: int
    code: list[Instruction] = field(default_factory=list)
    next: int | None = None

    def successors(self) -> list[int]:
        """The fall-through block, then the target of the conditional jump."""
        found = [] if self.next is None else [self.next]
        if self.code:
            found.extend(self.code[-1].numbers(Role.TARGET))
        return found


def topological_order(blocks: Sequence[Block]) -> list[Block]:
    """The blocks reachable from block 0, each before its successors."""
    finished: list[Block] = []
    state: dict[int, bool] = {}
    stack = [0]
    while stack:
        number = stack[-1]
        if number not in state:
            state[number] = False
            # The successor on top of the stack finishes first, and so comes last in the result.
            stack.extend(n for n in blocks[number].successors() if n not in state)
        else:
            stack.pop()
            if not state[number]:
                state[number] = True
                finished.append(blocks[number])
    return finished[::-1]


def linearize(order: Sequence[Block]) -> tuple[Instruction, ...]:
    """One list of instructions, with instruction indices as jump targets."""
    code: list[Instruction] = []
    starts: dict[int, int] = {}
    for at, block in enumerate(order):
        starts[block.number] = len(code)
        code.extend(block.code)
        following = order[at + 1].number if at + 1 < len(order) else None
        if block.next is not None and block.next != following:
            code.append(Jump(block.next))
    return tuple(_with_targets(instruction, starts) for instruction in code)


def _with_targets(instruction: Instruction, starts: dict[int, int]) -> Instruction:
    changes = {name: starts[getattr(instruction, name)]
               for name, role in roles_of(type(instruction)) if role is Role.TARGET}
    return dataclasses.replace(instruction, **changes) if changes else instruction
