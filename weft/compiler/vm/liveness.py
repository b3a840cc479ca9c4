"""Liveness analysis of registers: inserts ``Free`` after the last use of each value.

Control flow is acyclic, so one backward walk over the blocks computes the live registers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.compiler.vm.blocks import Block
from weft.runtime.vm.bytecode import Free, Instruction, Role


def insert_frees(order: Sequence[Block], entry: Iterable[int]) -> None:
    """Insert ``Free`` instructions into blocks, which are in topological order.

    ``entry`` are the registers with values at entry. Nothing is freed right before the function
    ends, which frees all registers.
    """
    live_in: dict[int, set[int]] = {}  # live registers at the start of each block
    ends: dict[int, set[int]] = {}  # registers that hold a value at the end of each block
    for block in reversed(order):
        live: set[int] = set()
        for successor in block.successors():
            live |= live_in[successor]
        block.code, ends[block.number] = _with_frees(block, live)
        live_in[block.number] = live
    held: dict[int, set[int]] = {order[0].number: set(entry)}
    for block in order:
        dead = held.get(block.number, set()) - live_in[block.number]
        if dead and not _ends_at_once(block.code):
            block.code.insert(0, Free(tuple(sorted(dead))))
        for successor in block.successors():
            held.setdefault(successor, set()).update(ends[block.number])


def _with_frees(block: Block, live: set[int]) -> tuple[list[Instruction], set[int]]:
    """The code with ``Free`` instructions, and the registers that hold a value at its end.

    ``live`` are the live registers at the end of the block; it is updated to those at its start.
    """
    code: list[Instruction] = []
    held = set(live)
    for instruction in reversed(block.code):
        read = set(instruction.numbers(Role.READS))
        written = set(instruction.numbers(Role.WRITES))
        dead = (read | written) - live
        jumps = any(True for _ in instruction.numbers(Role.TARGET))
        if jumps:
            held |= dead  # freed at the jump target
        elif dead and not instruction.ends_block and not (code and code[-1].ends_block):
            code.append(Free(tuple(sorted(dead))))
        live -= written
        live |= read
        code.append(instruction)
    return code[::-1], held


def _ends_at_once(code: Sequence[Instruction]) -> bool:
    """Whether the first instruction ends the function."""
    return bool(code) and code[0].ends_block
