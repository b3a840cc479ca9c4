"""Tiles that are read along one axis and written along another are transposed in registers.

Vectorising a transpose along the result's contiguous axis gathers, element by element. A tile of it
is read instead as rows, whole vectors along the source's contiguous axis, which a network of
shuffles turns into columns: for 16 x 16 elements, 16 loads, 64 shuffles and 16 stores.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.tir import stmt as s
from weft.tir.expr import BufferLoad, Call, PrimExpr, Shuffle, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.simplify import Analyzer
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.rewriter import RewriterWithAnalyzer
from weft.tir.transform.vectorize_loop import CannotVectorizeError, Vectorizer, legal_vector_widths
from weft.tir.visitor import has_annotation, map_body, post_order, substitute, without_annotation

ANNOTATION = "transpose"


class _Tile:
    """``rows`` x ``lanes`` elements of a nest ``for row: for lane in vectorized: store``."""

    def __init__(self, row: Var, lane: Var, store: s.BufferStore) -> None:
        self.row, self.lane, self.store = row, lane, store
        self.bound: list[tuple[Var, PrimExpr]] = []

    def let(self, value: PrimExpr) -> Var:
        var = Var("row", value.dtype)
        self.bound.append((var, value))
        return var

    def transposed(self, load: BufferLoad, start: tuple[PrimExpr, PrimExpr], rows: int,
                   lanes: int) -> list[PrimExpr]:
        """Vector ``i`` of ``lanes`` elements is ``load`` at row ``start + i``."""
        size = min(rows, lanes)
        columns: list[list[PrimExpr]] = [[] for _ in range(rows)]
        for first_lane in range(0, lanes, size):
            for first_row in range(0, rows, size):
                block = [
                    self.let(self._along_rows(load, start[0] + first_row,
                                              start[1] + (first_lane + j), size))
                    for j in range(size)
                ]
                for i, vector in enumerate(self._network(block)):
                    columns[first_row + i].append(vector)
        return [self._joined(parts) for parts in columns]

    def _along_rows(self, load: BufferLoad, first_row: PrimExpr, lane: PrimExpr,
                    size: int) -> PrimExpr:
        """``size`` elements of the source that are neighbours in memory."""
        at_lane = substitute(load, {self.lane: lane})
        loop = s.For(self.row, first_row, const(size), ForKind.VECTORIZED, s.SeqStmt(()))
        return Vectorizer(loop, size).wide(at_lane)

    def _network(self, rows: Sequence[PrimExpr]) -> Sequence[PrimExpr]:
        """The transpose of a square: quarters change places at every scale, the largest first."""
        size = len(rows)
        current = list(rows)
        distance = size // 2
        while distance:
            straight = [i for i in range(size) if not i & distance]
            low = tuple(i if not i & distance else size + (i ^ distance) for i in range(size))
            high = tuple(i ^ distance if not i & distance else size + i for i in range(size))
            for i in straight:
                pair = (current[i], current[i + distance])
                current[i] = self.let(Shuffle(pair, low))
                current[i + distance] = self.let(Shuffle(pair, high))
            distance //= 2
        return current

    def _joined(self, parts: list[PrimExpr]) -> PrimExpr:
        while len(parts) > 1:
            lanes = 2 * parts[0].dtype.lanes
            parts = [self.let(Shuffle((a, b), tuple(range(lanes))))
                     for a, b in zip(parts[::2], parts[1::2], strict=True)]
        return parts[0]

    def piece(self, loads: Sequence[BufferLoad], start: tuple[PrimExpr, PrimExpr], rows: int,
              lanes: int) -> Stmt:
        """The stores of one piece whose sides are powers of two."""
        self.bound = []
        loads = loads if min(rows, lanes) > 1 else ()  # a row or a column has no other side
        columns = {load: self.transposed(load, start, rows, lanes) for load in loads}
        stores: list[Stmt] = []
        for i in range(rows):
            at_row = {self.row: start[0] + i}
            loop = s.For(self.lane, start[1], const(lanes), ForKind.VECTORIZED, self.store)
            body = substitute(self.store, at_row)
            if lanes == 1:
                stores.append(substitute(body, {self.lane: start[1]}))
                continue
            vectorizer = Vectorizer(loop, lanes)
            for load in loads:
                vectorizer.bind(substitute(load, at_row), columns[load][i])
            stores.append(vectorizer.stmt(body, None))
        result = s.seq(stores)
        for var, value in reversed(self.bound):
            result = s.LetStmt(var, value, result)
        return result


def _step(load: BufferLoad, var: Var, analyzer: Analyzer) -> int | None:
    """Elements from one read to the next as ``var`` advances by one, where always the same."""
    position: PrimExpr = const(0)
    for index, size in zip(load.indices, load.buffer.shape, strict=True):
        position = position * size + index
    after = substitute(position, {var: var + 1})
    return int_value(analyzer.simplify(analyzer.simplify(after) - analyzer.simplify(position)))


class _Transposer(RewriterWithAnalyzer):
    def loop(self, node: s.For) -> Stmt:
        if not node.annotations.get(ANNOTATION):
            return super().loop(node)
        plain = without_annotation(node, ANNOTATION).replace(kind=ForKind.SERIAL)
        inner = node.body
        rows = int_value(node.extent)
        if not isinstance(inner, s.For) or inner.kind is not ForKind.VECTORIZED or rows is None:
            return super().loop(plain)
        lanes, store = int_value(inner.extent), inner.body
        if lanes is None or not isinstance(store, s.BufferStore) or store.predicate is not None:
            return super().loop(plain)
        self.analyzer.bind(node.loop_var, node.min, node.extent)
        self.analyzer.bind(inner.loop_var, inner.min, inner.extent)
        loads = self._crossing(store.value, node.loop_var, inner.loop_var)
        self.analyzer.release(inner.loop_var)
        self.analyzer.release(node.loop_var)
        if not loads:
            return super().loop(plain)
        try:
            return _in_pieces(node, inner, store, loads, (rows, lanes))
        except CannotVectorizeError:
            return super().loop(plain)

    def _crossing(self, value: PrimExpr, row: Var, lane: Var) -> list[BufferLoad]:
        """The loads that walk memory along the rows, and jump along the lanes.

        None where a condition protects loads: a whole row would be read without it.
        """
        found: list[BufferLoad] = []
        for e in post_order(value):
            if isinstance(e, Call) and e.name == "if_then_else":
                return []
            if isinstance(e, BufferLoad) and e.predicate is None:
                along, across = (_step(e, v, self.analyzer) for v in (row, lane))
                if along == 1 and across not in (0, 1, None):
                    found.append(e)
        return found


def _in_pieces(node: s.For, inner: s.For, store: s.BufferStore, loads: list[BufferLoad],
               extents: tuple[int, int]) -> Stmt:
    tile = _Tile(node.loop_var, inner.loop_var, store)
    parts: list[Stmt] = []
    row = node.min
    for rows, times in legal_vector_widths(extents[0]):
        lane = inner.min
        for lanes, copies in legal_vector_widths(extents[1]):
            for i in range(times):
                for j in range(copies):
                    start = (row + rows * i, lane + lanes * j)
                    parts.append(tile.piece(loads, start, rows, lanes))
            lane = lane + lanes * copies
        row = row + rows * times
    return s.seq(parts)


def transpose_tile(func: PrimFunc) -> PrimFunc:
    """Read the source of an annotated tile by rows, and turn them into columns in registers.

    for i in range(2):  # transpose = 1
        for j in vectorized(2):
            B[i, j] = A[j, i]
    =>
    row = A[0, ramp(0, 1, 2)]
    row_1 = A[1, ramp(0, 1, 2)]
    row_2 = shuffle([row, row_1], [0, 2])
    row_3 = shuffle([row, row_1], [1, 3])
    B[0, ramp(0, 1, 2)] = row_2
    B[1, ramp(0, 1, 2)] = row_3
    """
    if not has_annotation(func.body, ANNOTATION):
        return func
    return map_body(func, _Transposer(func).visit)
