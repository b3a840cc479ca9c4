"""The contiguous elements that a loop over vectors covers, to be split at any element.

A select such as padding may change inside a vector. Splitting the element range there, with vectors
that restart at the split point, keeps the vectors of both sides whole. Splitting the loop between
two vectors would leave a vector in the middle, to be cut into small powers of two.
"""

from __future__ import annotations

from collections.abc import Iterator

from weft.support.dataclass import dataclass
from weft.tir import stmt as s
from weft.tir.expr import PrimExpr, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.simplify.linear import Linear
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.masked_tail import MASKED_TAIL
from weft.tir.visitor import exprs_of, map_stmts, mentions, stmts_of, substitute

# Rows of at most this many vectors select per lane instead: a split would not save vectors.
FEW_VECTORS = 3


@dataclass(frozen=True, slots=True)
class ElementRange:
    """Elements ``[start, stop)``; lane ``i`` of iteration ``v`` is element ``v * lanes + i``."""

    loop: s.For
    lanes: int
    lane_vars: frozenset[Var]
    start: int
    stop: int

    def threshold(self, total: Linear) -> int | None:
        """The element at which ``total >= 0`` changes; ``None`` if other variables occur in it."""
        lane = next((v for v in total.terms if v in self.lane_vars), None)
        step = 0 if lane is None else total.terms[lane]
        if abs(step) != 1 or total.terms.get(self.loop.loop_var) != step * self.lanes:
            return None
        if len(total.terms) != 2:
            return None
        return -total.const if step > 0 else total.const + 1

    def subrange(self, start: int, stop: int, body: Stmt) -> list[Stmt]:
        """``body`` for elements ``[start, stop)``: a loop of whole vectors, then a shorter one."""
        vectors, rest = divmod(stop - start, self.lanes)
        first, offset = divmod(start, self.lanes)
        whole = self.loop.replace(min=const(first), extent=const(vectors),
                                  body=_moved(body, const(offset), const(self.lanes)))
        last = self.loop.replace(min=const(first + vectors), extent=const(1),
                                 body=_moved(body, const(offset), const(rest)))
        return [loop for loop, size in ((whole, vectors), (last, rest)) if size]


def element_range(loop: s.For, analyzer: Analyzer) -> ElementRange | None:
    """The elements of a serial loop over vectors; ``None`` for a loop of another form.

    All vectorised loops inside must have the same lanes, and the loop variable may occur only in
    ``vector * lanes + lane``, so that vectors may start at any element.
    """
    vectors = list(_vectorized(loop.body))
    ranges = {(int_value(inner.min), int_value(inner.extent)) for inner in vectors}
    first, count = int_value(loop.min), int_value(loop.extent)
    if loop.kind is not ForKind.SERIAL or first is None or count is None or len(ranges) != 1:
        return None
    if count <= FEW_VECTORS and any(MASKED_TAIL in inner.annotations for inner in vectors):
        return None
    offset, lanes = ranges.pop()
    if offset is None or lanes is None or not _is_row(loop.body, loop.loop_var, lanes, analyzer):
        return None
    start = first * lanes + offset
    lane_vars = frozenset(inner.loop_var for inner in vectors)
    return ElementRange(loop, lanes, lane_vars, start, start + count * lanes)


def _vectorized(node: Stmt) -> Iterator[s.For]:
    if isinstance(node, s.For) and node.kind is ForKind.VECTORIZED:
        yield node
    for inner in stmts_of(node):
        yield from _vectorized(inner)


def _is_row(node: Stmt, vector: Var, lanes: int, analyzer: Analyzer,
            lane: Var | None = None) -> bool:
    """Whether ``vector`` occurs in ``node`` only within ``vector * lanes + lane``."""
    if isinstance(node, s.For) and node.kind is ForKind.VECTORIZED:
        lane = node.loop_var
    for e in exprs_of(node):
        if not mentions(e, vector) and (lane is None or not mentions(e, lane)):
            continue
        if lane is None:
            return False
        element = Var("element")
        by_element = substitute(e, {lane: element - vector * lanes})
        if mentions(analyzer.simplify(by_element), vector):
            return False
    return all(_is_row(inner, vector, lanes, analyzer, lane) for inner in stmts_of(node))


def _moved(node: Stmt, offset: PrimExpr, lanes: PrimExpr) -> Stmt:
    """``node`` with its vectorised loops starting at ``offset``, with ``lanes`` lanes."""
    node = map_stmts(node, lambda inner: _moved(inner, offset, lanes))
    if isinstance(node, s.For) and node.kind is ForKind.VECTORIZED:
        return node.replace(min=offset, extent=lanes)
    return node
