"""Code under construction: basic blocks, which become one list of instructions.

Inside blocks the targets of jumps are numbers of blocks. Loops are calls, so control within a
function only goes forward and the blocks have a topological order.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.runtime.vm.bytecode import Instruction, Jump, Role, roles_of


@dataclass(eq=False, slots=True)
class Block:
    """Straight-line code; ``next`` is the block that it runs into, ``None`` where it ends.

    A conditional jump may stand at the end alone.
    """

    number: int
    code: list[Instruction] = field(default_factory=list)
    next: int | None = None

    def successors(self) -> list[int]:
        """The block it runs into, then the one that it may jump to."""
        found = [] if self.next is None else [self.next]
        if self.code:
            found.extend(self.code[-1].numbers(Role.TARGET))
        return found


def topological_order(blocks: Sequence[Block]) -> list[Block]:
    """The blocks that block 0 reaches, each before those it leads to."""
    finished: list[Block] = []
    state: dict[int, bool] = {}
    stack = [0]
    while stack:
        number = stack[-1]
        if number not in state:
            state[number] = False
            # What is pushed first is finished first and placed last: what follows comes last.
            stack.extend(n for n in blocks[number].successors() if n not in state)
        else:
            stack.pop()
            if not state[number]:
                state[number] = True
                finished.append(blocks[number])
    return finished[::-1]


def linearize(order: Sequence[Block]) -> tuple[Instruction, ...]:
    """One list of instructions, with positions for targets."""
    code: list[Instruction] = []
    starts: dict[int, int] = {}
    for at, block in enumerate(order):
        starts[block.number] = len(code)
        code.extend(block.code)
        following = order[at + 1].number if at + 1 < len(order) else None
        if block.next is not None and block.next != following:
            code.append(Jump(block.next))
    return tuple(_placed(instruction, starts) for instruction in code)


def _placed(instruction: Instruction, starts: dict[int, int]) -> Instruction:
    changes = {name: starts[getattr(instruction, name)]
               for name, role in roles_of(type(instruction)) if role is Role.TARGET}
    return dataclasses.replace(instruction, **changes) if changes else instruction
