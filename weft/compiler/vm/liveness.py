"""Values are given up after their last use, so that memory is free for what comes next.

Control goes forward only, so one walk over the blocks from the end finds what is live.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.compiler.vm.blocks import Block
from weft.runtime.vm.bytecode import Free, Instruction, Role


def insert_frees(order: Sequence[Block], entry: Iterable[int]) -> None:
    """Add ``free`` to blocks (in topological order); ``entry`` are the registers filled at first.

    Nothing is freed right before a function ends, which gives up all its registers.
    """
    wanted: dict[int, set[int]] = {}  # registers that are read later, at the start of a block
    ends: dict[int, set[int]] = {}  # registers that hold something, at the end of a block
    for block in reversed(order):
        live: set[int] = set()
        for successor in block.successors():
            live |= wanted[successor]
        block.code, ends[block.number] = _with_frees(block, live)
        wanted[block.number] = live
    held: dict[int, set[int]] = {order[0].number: set(entry)}
    for block in order:
        dead = held.get(block.number, set()) - wanted[block.number]
        if dead and not _ends_at_once(block.code):
            block.code.insert(0, Free(tuple(sorted(dead))))
        for successor in block.successors():
            held.setdefault(successor, set()).update(ends[block.number])


def _with_frees(block: Block, live: set[int]) -> tuple[list[Instruction], set[int]]:
    """The code with values freed, and what holds a value at its end.

    ``live`` is what is read after the block, and becomes what is read from its start on.
    """
    code: list[Instruction] = []
    held = set(live)
    for instruction in reversed(block.code):
        read = set(instruction.numbers(Role.READS))
        written = set(instruction.numbers(Role.WRITES))
        dead = (read | written) - live
        jumps = any(True for _ in instruction.numbers(Role.TARGET))
        if jumps:
            held |= dead  # freed where the jump leads
        elif dead and not instruction.ends_block and not (code and code[-1].ends_block):
            code.append(Free(tuple(sorted(dead))))
        live -= written
        live |= read
        code.append(instruction)
    return code[::-1], held


def _ends_at_once(code: Sequence[Instruction]) -> bool:
    """Whether the first instruction ends the function."""
    return bool(code) and code[0].ends_block
