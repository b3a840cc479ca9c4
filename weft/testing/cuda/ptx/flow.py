"""Basic blocks of a PTX function, their order, and the registers live between them.

Blocks are numbered so that the scheduler, which always runs the ready threads of the lowest block,
brings diverged threads together at the immediate post-dominator: a reverse postorder in which a
loop's blocks precede what follows the loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from weft.support.dataclass import dataclass
from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.ptx.module import Instruction, PtxFunction, Symbol

# Instructions after which the scheduler decides: branches, barriers, waits on other threads.
_ENDS = frozenset(("bra", "brx", "ret", "exit", "trap", "bar", "barrier", "nanosleep"))


@dataclass(slots=True)
class Block:
    """Instructions ``first`` to ``last`` (exclusive); the last one may end the block."""

    first: int
    last: int
    successors: list[int] = field(default_factory=list)


def ends_block(instruction: Instruction) -> bool:
    """Whether the scheduler takes over after ``instruction``."""
    if instruction.opcode in _ENDS:
        return not (instruction.opcode == "bar" and instruction.modifiers[:1] == ("warp",))
    if instruction.opcode == "mbarrier":
        return instruction.modifiers[0] in {"try_wait", "test_wait"}
    return False


def basic_blocks(function: PtxFunction) -> list[Block]:
    """The reachable blocks of ``function`` in execution order; successors are positions in it."""
    body = function.body
    if not body:
        return [Block(0, 0)]
    leaders = {0, *(index for index in function.labels.values() if index < len(body))}
    for index, instruction in enumerate(body):
        if ends_block(instruction) and index + 1 < len(body):
            leaders.add(index + 1)
    starts = sorted(leaders)
    number = {start: position for position, start in enumerate(starts)}
    blocks = [
        Block(start, starts[position + 1] if position + 1 < len(starts) else len(body))
        for position, start in enumerate(starts)
    ]
    for position, block in enumerate(blocks):
        block.successors = _successors(function, blocks, number, position)
    return _ordered(blocks)


def _successors(
    function: PtxFunction, blocks: Sequence[Block], number: dict[int, int], position: int
) -> list[int]:
    block = blocks[position]
    last = function.body[block.last - 1]
    following = [position + 1] if position + 1 < len(blocks) else []
    if last.opcode in {"ret", "exit", "trap"}:
        return following if last.guard else []
    if last.opcode == "bra":
        target = target_of(function, last, last.operands[0], number)
        return [target] if last.guard is None else [target, *following]
    if last.opcode == "brx":
        table = last.operands[1]
        names = function.tables.get(table.name, ()) if isinstance(table, Symbol) else ()
        return [target_of(function, last, Symbol(name), number) for name in names]
    return following


def target_of(
    function: PtxFunction, instruction: Instruction, label: object, number: dict[int, int]
) -> int:
    """The block that ``label`` begins. A label at the end of the text is a return."""
    if not isinstance(label, Symbol) or label.name not in function.labels:
        raise CudaEmulationError(f"branch to an unknown label {label}",
                                 where=f"PTX line {instruction.line}")
    index = function.labels[label.name]
    if index not in number:
        raise CudaEmulationError(f"branch to the end of {function.name} without ret",
                                 where=f"PTX line {instruction.line}")
    return number[index]


def _ordered(blocks: list[Block]) -> list[Block]:
    """Reachable blocks in reverse postorder, loops before what follows them."""
    depth = _loop_sets(blocks)
    order: list[int] = []
    seen = {0}
    stack = [(0, iter(_by_exits(blocks, depth, 0)))]
    while stack:
        node, successors = stack[-1]
        child = next((item for item in successors if item not in seen), None)
        if child is None:
            order.append(node)
            stack.pop()
            continue
        seen.add(child)
        stack.append((child, iter(_by_exits(blocks, depth, child))))
    order.reverse()
    position = {node: index for index, node in enumerate(order)}
    ordered = [blocks[node] for node in order]
    for block in ordered:
        block.successors = [position[item] for item in block.successors]
    return ordered


def _by_exits(blocks: list[Block], loops: list[set[int]], node: int) -> list[int]:
    """Successors, those that leave the most loops first: postorder numbers them last."""
    successors = blocks[node].successors[::-1]
    return sorted(successors, key=lambda item: -len(loops[node] - loops[item]))


def _loop_sets(blocks: list[Block]) -> list[set[int]]:
    """For each block the headers of the natural loops that contain it."""
    predecessors: list[list[int]] = [[] for _ in blocks]
    for index, block in enumerate(blocks):
        for item in block.successors:
            predecessors[item].append(index)
    dominators = _dominators(blocks, predecessors)
    loops: list[set[int]] = [set() for _ in blocks]
    for index, block in enumerate(blocks):
        for header in block.successors:
            if not dominators[index] >> header & 1:
                continue
            body, stack = {header}, [index]
            while stack:
                node = stack.pop()
                if node not in body:
                    body.add(node)
                    stack.extend(predecessors[node])
            for node in body:
                loops[node].add(header)
    return loops


def _dominators(blocks: list[Block], predecessors: list[list[int]]) -> list[int]:
    """Bit sets of dominators; unreachable blocks keep all bits."""
    every = (1 << len(blocks)) - 1
    result = [every] * len(blocks)
    result[0] = 1
    changed = True
    while changed:
        changed = False
        for index in range(1, len(blocks)):
            value = every
            for item in predecessors[index]:
                value &= result[item]
            value |= 1 << index
            if value != result[index]:
                result[index] = value
                changed = True
    return result


def live_out(blocks: Sequence[Block], reads: Sequence[int], writes: Sequence[int]) -> list[int]:
    """Bit sets of the registers that some path reads after each block.

    ``reads`` are the registers read before they are written in a block, ``writes`` those that the
    block writes for all its threads.
    """
    live_in = list(reads)
    result = [0] * len(blocks)
    changed = True
    while changed:
        changed = False
        for index in range(len(blocks) - 1, -1, -1):
            value = 0
            for item in blocks[index].successors:
                value |= live_in[item]
            before = reads[index] | (value & ~writes[index])
            if value != result[index] or before != live_in[index]:
                result[index], live_in[index] = value, before
                changed = True
    return result
