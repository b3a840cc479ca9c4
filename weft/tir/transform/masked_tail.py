"""Masked tails: the remainder of a row as one masked vector.

By default a tail is cut into vectors of ever smaller powers of two. A loop with the pragma
``masked_tail`` uses one whole vector with a mask instead. Loads and stores of parameters are
masked. Local and scratch buffers are padded to whole vectors, which needs no mask: the extra lanes
are not read, or are overwritten by the following elements of the row.

Scratch buffers whose rows have a symbolic length ``n`` are padded too, and the guard ``i < n`` of a
vector does not become a mask of their loads and stores. A load from a masked store has to wait
until the store has left the store buffer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence

from weft.ir.dtype import int64
from weft.support.dataclass import dataclass
from weft.tir import stmt as s
from weft.tir.buffer import Buffer, next_uid
from weft.tir.expr import LT, And, Broadcast, BufferLoad, PrimExpr, Ramp, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.simplify import Analyzer
from weft.tir.stmt import Stmt
from weft.tir.visitor import (
    all_exprs,
    loads_from,
    mentions,
    post_order_stmts,
    replace_buffers,
)

# The value of the pragma is the number of lanes of a whole vector.
MASKED_TAIL = "masked_tail"


@dataclass(frozen=True, slots=True)
class Tail:
    """A vector of ``lanes`` lanes, the first ``active`` of them in use.

    ``padded`` are the buffers that have space for all lanes.
    """

    active: int
    lanes: int
    padded: Collection[Buffer]

    def mask_for(self, access: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr | None:
        """The mask of a load or store; ``None`` if all lanes may be accessed."""
        last = indices[-1]
        is_run = isinstance(last, Ramp) and int_value(last.stride) == 1
        if access in self.padded and (is_run or access.scope == "local"):
            return None
        return LT(Ramp(const(0), const(1), self.lanes), Broadcast(const(self.active), self.lanes))


def only_excludes_padding(buffer: Buffer, indices: Sequence[PrimExpr], guard: PrimExpr,
                          padded: Mapping[Buffer, PrimExpr]) -> bool:
    """Whether ``guard`` holds for all elements of ``buffer`` except its padding."""
    size = padded.get(buffer)
    if size is None or not indices or int_value(size) is not None:
        return False
    if isinstance(guard, And):
        return all(only_excludes_padding(buffer, indices, g, padded) for g in (guard.a, guard.b))
    if not isinstance(guard, LT) or guard.a.dtype is not int64 or guard.a.dtype.lanes > 1:
        return False
    rest = (guard.b - guard.a) - (size - indices[-1])
    return int_value(Analyzer().simplify(rest)) == 0


def pad_for_tails(func: PrimFunc) -> tuple[PrimFunc, Mapping[Buffer, PrimExpr]]:
    """Pad local and scratch buffers to whole vectors; returns the function and these buffers.

    With each buffer comes the length of its rows without the padding. Parameters are not padded,
    nor are buffers in memory that a store both reads and writes.
    """
    widths = _widths(func.body)
    excluded = set(func.params) | _updated(func.body)
    wide: dict[Buffer, Buffer] = {}
    for buffer, width in widths.items():
        if buffer.scope != "local" and buffer in excluded:
            continue
        # A tail may start at any element, so pad for a vector that starts at the last one.
        padded = (buffer.shape[-1] + (2 * width - 2)) // width * width
        wide[buffer] = dataclasses.replace(
            buffer, shape=(*buffer.shape[:-1], padded), uid=next_uid())
    if not wide:
        return func, {}
    return func.replace(body=replace_buffers(func.body, wide)), {
        new: old.shape[-1] for old, new in wide.items()}


def _widths(body: Stmt) -> dict[Buffer, int]:
    """Buffers written along their last axis by loops with masked tails, and the widest such vector.

    Excludes buffers in which a vector continues into the next row: padding between rows would make
    its elements non-contiguous.
    """
    written: set[Buffer] = set()
    across_rows: set[Buffer] = set()
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
                    across_rows.add(node.buffer)
                elif last:
                    written.add(node.buffer)
        for buffer in touched:
            widths[buffer] = max(widths.get(buffer, 0), loop.annotations[MASKED_TAIL])
    return {buffer: widths[buffer] for buffer in widths if buffer in written - across_rows}


def _updated(body: Stmt) -> set[Buffer]:
    """Buffers that a store both reads and writes: lanes beyond the tail may hold live values."""
    return {node.buffer for node in post_order_stmts(body) if isinstance(node, s.BufferStore)
            and loads_from(node.value, node.buffer)}
