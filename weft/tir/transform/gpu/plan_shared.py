"""Lays out the shared memory of a block; buffers that are not alive together share bytes.

A buffer is alive from its first access to its last one, or to the end of a loop around an access
that does not contain the allocation: the next iteration may read what this one wrote. A branch that
only some threads take is one point in time: there is no barrier in it, so other threads may be
anywhere in it. Offsets are
assigned first fit, the largest buffers first.
"""

from __future__ import annotations

from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.tir import stmt as s
from weft.tir.buffer import Buffer
from weft.tir.expr import BufferLoad
from weft.tir.func import PrimFunc
from weft.tir.stmt import Stmt
from weft.tir.transform.gpu.thread_axes import is_block, is_bound, is_thread
from weft.tir.visitor import exprs_of, mentions, post_order, post_order_stmts, stmts_of

# Alignment of every buffer in bytes: bulk copies with the 128-byte swizzle require it.
ALIGNMENT = 128


@dataclass(slots=True)
class _Range:
    """The first and the last statement, by number, that access a buffer."""

    first: int
    last: int

    def include(self, first: int, last: int) -> None:
        self.first, self.last = min(self.first, first), max(self.last, last)

    def overlaps(self, other: _Range) -> bool:
        return self.first <= other.last and other.first <= self.last


def plan_shared(func: PrimFunc) -> PrimFunc:
    """Assign each shared buffer a byte offset in the memory of the block.

    Raises ``LoweringError`` for a buffer of symbolic size.
    """
    offsets: dict[Buffer, int] = {}
    for launch in _launches(func.body):
        offsets.update(_assigned(_Liveness(launch).ranges))
    return func.with_attrs(shared_offsets=offsets) if offsets else func


def _launches(node: Stmt) -> list[Stmt]:
    if is_bound(node):
        return [node]
    return [launch for inner in stmts_of(node) for launch in _launches(inner)]


class _Liveness:
    def __init__(self, launch: Stmt) -> None:
        self.ranges: dict[Buffer, _Range] = {}
        self._time = 0
        # The serial loops around the current statement: their first statement, and the buffers
        # allocated outside of them that they access.
        self._loops: list[tuple[int, set[Buffer]]] = []
        self._threads = {n.loop_var for n in post_order_stmts(launch)
                         if isinstance(n, s.For) and is_thread(n)}
        self._is_divergent = False
        self._visit(launch)

    def _visit(self, node: Stmt) -> None:
        if not self._is_divergent:
            self._time += 1
        for root in exprs_of(node):
            for e in post_order(root):
                if type(e) is BufferLoad:
                    self._access(e.buffer)
        if isinstance(node, s.BufferStore):
            self._access(node.buffer)
        if isinstance(node, s.For) and not is_block(node) and not is_bound(node):
            self._loop(node)
            return
        outer = self._is_divergent
        if isinstance(node, s.IfThenElse) and mentions(node.condition, *self._threads):
            self._is_divergent = True
        for inner in stmts_of(node):
            self._visit(inner)
        self._is_divergent = outer
        if isinstance(node, s.Allocate):
            for _, accessed in self._loops:
                accessed.discard(node.buffer)

    def _loop(self, node: s.For) -> None:
        start, accessed = self._time, set[Buffer]()
        self._loops.append((start, accessed))
        self._visit(node.body)
        self._loops.pop()
        for buffer in accessed:
            self.ranges[buffer].include(start, self._time)

    def _access(self, buffer: Buffer) -> None:
        if buffer.scope != "shared":
            return
        self.ranges.setdefault(buffer, _Range(self._time, self._time)).include(
            self._time, self._time)
        for _, accessed in self._loops:
            accessed.add(buffer)


def _assigned(ranges: dict[Buffer, _Range]) -> dict[Buffer, int]:
    offsets: dict[Buffer, int] = {}
    order = sorted(ranges, key=lambda b: (-_bytes(b), ranges[b].first, b.uid))
    for buffer in order:
        taken = sorted((offsets[b], offsets[b] + _bytes(b)) for b in offsets
                       if ranges[b].overlaps(ranges[buffer]))
        start, step = 0, max(ALIGNMENT, buffer.alignment)
        for low, high in taken:
            if start + _bytes(buffer) <= low:
                break
            start = max(start, -(-high // step) * step)
        offsets[buffer] = start
    return offsets


def _bytes(buffer: Buffer) -> int:
    size = buffer.static_bytes
    if size is None:
        raise LoweringError(f"shared buffer {buffer.name} has a symbolic size", got=buffer.shape,
                            help="split the loops so that a block needs a constant tile")
    return size
