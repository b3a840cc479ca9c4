"""What is left over of a row after its whole vectors, as one vector of which some lanes are off.

A loop with the pragma ``masked_tail`` gets such a vector in place of ever smaller ones. Memory of
parameters is not touched beyond the row. Registers and scratch get room for whole vectors instead:
nobody reads what the lanes beyond leave there, and what follows in the row is written later.
"""

from __future__ import annotations

import dataclasses

from weft.tir import stmt as s
from weft.tir.buffer import Buffer, next_uid
from weft.tir.expr import LT, Broadcast, BufferLoad, PrimExpr, Ramp, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import Stmt
from weft.tir.visitor import (
    all_exprs,
    loads_from,
    mentions,
    post_order_stmts,
    replace_buffers,
)

# The pragma's value is how many lanes a whole vector has.
MASKED_TAIL = "masked_tail"


@dataclasses.dataclass(frozen=True, slots=True)
class Tail:
    """A vector with ``active`` lanes of ``lanes``; buffers with ``room`` hold all of them."""

    active: int
    lanes: int
    room: frozenset[Buffer]

    def mask_for(self, access: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr | None:
        """The mask of a load or store; ``None`` where all lanes may take part."""
        last = indices[-1]
        is_run = isinstance(last, Ramp) and int_value(last.stride) == 1
        if access in self.room and (is_run or access.scope == "local"):
            return None
        return LT(Ramp(const(0), const(1), self.lanes), Broadcast(const(self.active), self.lanes))


def with_room(func: PrimFunc) -> tuple[PrimFunc, frozenset[Buffer]]:
    """``func`` with its registers and scratch wide enough for masked vectors, and these buffers."""
    widths = _widths(func.body)
    spoiled = set(func.params) | _updated(func.body)
    wide: dict[Buffer, Buffer] = {}
    for buffer, width in widths.items():
        size = int_value(buffer.shape[-1])
        if size is None or (buffer.scope != "local" and buffer in spoiled):
            continue
        # A tail starts anywhere in the row.
        room = -(-(size + width - 1) // width) * width
        wide[buffer] = dataclasses.replace(
            buffer, shape=(*buffer.shape[:-1], const(room)), uid=next_uid())
    if not wide:
        return func, frozenset()
    return func.replace(body=replace_buffers(func.body, wide)), frozenset(wide.values())


def _widths(body: Stmt) -> dict[Buffer, int]:
    """Buffers that loops with masked tails write along their last axis, and the lanes of the
    widest vector that such a loop reads or writes there.

    Not those of which some vector runs on into the next row: room between rows would tear it.
    """
    written: set[Buffer] = set()
    torn: set[Buffer] = set()
    widths: dict[Buffer, int] = {}
    for loop in post_order_stmts(body):
        if not isinstance(loop, s.For) or MASKED_TAIL not in loop.annotations:
            continue
        touched = dict.fromkeys(e.buffer for e in all_exprs(loop) if isinstance(e, BufferLoad))
        for node in post_order_stmts(loop):
            if isinstance(node, s.BufferStore) and node.indices:
                touched[node.buffer] = None
                *rows, last = (mentions(i, loop.loop_var) for i in node.indices)
                if any(rows):
                    torn.add(node.buffer)
                elif last:
                    written.add(node.buffer)
        for buffer in touched:
            widths[buffer] = max(widths.get(buffer, 0), loop.annotations[MASKED_TAIL])
    return {buffer: widths[buffer] for buffer in widths if buffer in written - torn}


def _updated(body: Stmt) -> set[Buffer]:
    """Buffers that a store both reads and writes: lanes beyond a tail hold what others need."""
    return {node.buffer for node in post_order_stmts(body) if isinstance(node, s.BufferStore)
            and loads_from(node.value, node.buffer)}
