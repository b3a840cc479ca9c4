"""A row of elements that a loop walks vector by vector, cut at any element.

Where a choice changes in the middle of a row, vectors start anew there: those of both sides are
whole, and none is cut into small ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.tir import stmt as s
from weft.tir.expr import PrimExpr, Var, const, int_value
from weft.tir.simplify import Analyzer
from weft.tir.simplify.linear import Linear
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.masked_tail import MASKED_TAIL
from weft.tir.visitor import exprs_of, map_stmts, mentions, stmts_of, substitute

# In rows of so few vectors lanes choose where they can: whole vectors would be as many.
FEW_VECTORS = 3


@dataclass(frozen=True, slots=True)
class ElementRange:
    """Elements ``start <= e < stop``: lane ``i`` of vector ``v`` is ``v * lanes + i``."""

    loop: s.For
    lanes: int
    lane_vars: frozenset[Var]
    start: int
    stop: int

    def place_of(self, order: Linear) -> int | None:
        """The first element where ``order >= 0`` changes; ``None`` if other things decide it."""
        lane = next((v for v in order.terms if v in self.lane_vars), None)
        step = 0 if lane is None else order.terms[lane]
        if abs(step) != 1 or order.terms.get(self.loop.loop_var) != step * self.lanes:
            return None
        if len(order.terms) != 2:
            return None
        return -order.const if step > 0 else order.const + 1

    def piece(self, start: int, stop: int, body: Stmt) -> list[Stmt]:
        """``body`` for the elements from ``start`` to ``stop``: whole vectors, and one shorter."""
        vectors, rest = divmod(stop - start, self.lanes)
        first, offset = divmod(start, self.lanes)
        whole = self.loop.replace(min=const(first), extent=const(vectors),
                                  body=_moved(body, const(offset), const(self.lanes)))
        last = self.loop.replace(min=const(first + vectors), extent=const(1),
                                 body=_moved(body, const(offset), const(rest)))
        return [part for part, size in ((whole, vectors), (last, rest)) if size]


def element_range(loop: s.For, analyzer: Analyzer) -> ElementRange | None:
    """The row of a serial loop; ``None`` where vectors are not all there is of it.

    Every vectorised loop inside must walk the same lanes, and the loop's variable may occur only
    where ``vector * lanes + lane`` does, so that an element may be in any vector.
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
    """Whether ``vector`` occurs in ``node`` only as part of an element's number."""
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
    """``node`` with its vectorised loops from ``offset`` on, ``lanes`` wide."""
    node = map_stmts(node, lambda inner: _moved(inner, offset, lanes))
    if isinstance(node, s.For) and node.kind is ForKind.VECTORIZED:
        return node.replace(min=offset, extent=lanes)
    return node
