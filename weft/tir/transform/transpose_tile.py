"""Transposes tiles in registers, for loads that are contiguous along another axis than the store.

Vectorised along the contiguous axis of the result, such a load would be a gather, which the CPU
executes element by element. Instead, whole vectors are loaded along the contiguous axis of the
source, and a network of shuffles transposes them: a tile of 16 x 16 elements takes 16 loads, 64
shuffles and 16 stores.
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


class _TileBuilder:
    """Builds the statements of one tile of a nest ``for row: for lane in vectorized: store``."""

    def __init__(self, row: Var, lane: Var, store: s.BufferStore) -> None:
        self.row, self.lane, self.store = row, lane, store
        self.bound: list[tuple[Var, PrimExpr]] = []

    def let(self, value: PrimExpr) -> Var:
        """A variable bound to ``value`` around the stores of the tile."""
        var = Var("row", value.dtype)
        self.bound.append((var, value))
        return var

    def transposed(self, load: BufferLoad, start: tuple[PrimExpr, PrimExpr], rows: int,
                   lanes: int) -> list[PrimExpr]:
        """The values of ``load`` for the tile at ``start``: one vector of ``lanes`` per row."""
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
        return [self._concat(vectors) for vectors in columns]

    def _along_rows(self, load: BufferLoad, first_row: PrimExpr, lane: PrimExpr,
                    size: int) -> PrimExpr:
        """A vector load along the source's contiguous axis: ``load`` at ``size`` rows, one lane."""
        at_lane = substitute(load, {self.lane: lane})
        loop = s.For(self.row, first_row, const(size), ForKind.VECTORIZED, s.SeqStmt(()))
        return Vectorizer(loop, size).wide(at_lane)

    def _network(self, rows: Sequence[PrimExpr]) -> Sequence[PrimExpr]:
        """Transpose a square: swap the off-diagonal quadrants at each scale, the largest first."""
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

    def _concat(self, vectors: list[PrimExpr]) -> PrimExpr:
        """One vector with the lanes of all; their number is a power of two."""
        while len(vectors) > 1:
            lanes = 2 * vectors[0].dtype.lanes
            vectors = [self.let(Shuffle((a, b), tuple(range(lanes))))
                       for a, b in zip(vectors[::2], vectors[1::2], strict=True)]
        return vectors[0]

    def tile(self, loads: Sequence[BufferLoad], start: tuple[PrimExpr, PrimExpr], rows: int,
             lanes: int) -> Stmt:
        """The stores of a tile of ``rows`` x ``lanes`` (powers of two) at ``start``."""
        self.bound = []
        loads = loads if min(rows, lanes) > 1 else ()  # one row or column: nothing to transpose
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
    """The distance in elements between loads for ``var`` and ``var + 1``; ``None`` if it varies."""
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
        loads = self._transposed_loads(store.value, node.loop_var, inner.loop_var)
        self.analyzer.release(inner.loop_var)
        self.analyzer.release(node.loop_var)
        if not loads:
            return super().loop(plain)
        try:
            return _split_to_tiles(node, inner, store, loads, (rows, lanes))
        except CannotVectorizeError:
            return super().loop(plain)

    def _transposed_loads(self, value: PrimExpr, row: Var, lane: Var) -> list[BufferLoad]:
        """The loads that are contiguous along the rows and strided along the lanes.

        Empty if a condition guards loads: the vector loads would read elements that it excludes.
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


def _split_to_tiles(node: s.For, inner: s.For, store: s.BufferStore, loads: list[BufferLoad],
                    extents: tuple[int, int]) -> Stmt:
    """The nest as tiles whose sides are legal vector widths."""
    builder = _TileBuilder(node.loop_var, inner.loop_var, store)
    tiles: list[Stmt] = []
    row = node.min
    for rows, times in legal_vector_widths(extents[0]):
        lane = inner.min
        for lanes, copies in legal_vector_widths(extents[1]):
            for i in range(times):
                for j in range(copies):
                    start = (row + rows * i, lane + lanes * j)
                    tiles.append(builder.tile(loads, start, rows, lanes))
            lane = lane + lanes * copies
        row = row + rows * times
    return s.seq(tiles)


def transpose_tile(func: PrimFunc) -> PrimFunc:
    """Load the source of an annotated tile contiguously, and transpose it in registers.

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
