"""Transposes tiles in registers, for loads that are contiguous along another axis than the store.

Vectorised along the contiguous axis of the result, such a load would be a gather, which the CPU
executes element by element. Instead, whole vectors are loaded along the contiguous axis of the
source, and a network of shuffles transposes them: a tile of 16 x 16 elements takes 16 loads, 64
shuffles and 16 stores.

The last tile of a symbolic extent is under a guard. If its loop has the pragma ``masked_tail``, it
is transposed as well: its loads and stores are masked, and rows and columns beyond the end are not
touched, since accesses to pages that are not mapped are slow even with an empty mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir import visitor
from weft.tir.expr import BufferLoad, Call, PrimExpr, Shuffle, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.row_major import ravel
from weft.tir.simplify import Analyzer
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform import vectorize_loop
from weft.tir.transform.masked_tail import MASKED_TAIL
from weft.tir.transform.rewriter import RewriterWithAnalyzer

ANNOTATION = "transpose"
# The value of the pragma, instead of 1, for sources whose rows are at arbitrary addresses.
ANY_COLUMNS = 2


class _TileBuilder:
    """Builds the statements of one tile of a nest ``for row: for lane in vectorized: store``.

    ``guards`` are the conditions of the store, each on the row or on the lane.
    """

    def __init__(self, row: Var, lane: Var, store: s.BufferStore, guards: Sequence[PrimExpr]
                 ) -> None:
        self.row, self.lane, self.store = row, lane, store
        self.lane_guard = x.all_of(*(g for g in guards if visitor.mentions(g, lane)))
        self.row_guard = x.all_of(*(g for g in guards if not visitor.mentions(g, lane)))
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
                                              self._inside(start[1], first_lane + j), size))
                    for j in range(size)
                ]
                for i, vector in enumerate(self._network(block)):
                    columns[first_row + i].append(vector)
        return [self._concat(vectors) for vectors in columns]

    def _inside(self, first: PrimExpr, lane: int) -> PrimExpr:
        """Lane number ``lane``, or the ``first`` one where the guard excludes it."""
        index = first + lane
        if not lane or self.lane_guard is x.TRUE:
            return index
        return x.select(visitor.substitute(self.lane_guard, {self.lane: index}), index, first)

    def _along_rows(self, load: BufferLoad, first_row: PrimExpr, lane: PrimExpr,
                    size: int) -> PrimExpr:
        """A vector load along the source's contiguous axis: ``load`` at ``size`` rows, one lane."""
        masked = load if self.row_guard is x.TRUE else BufferLoad(
            load.buffer, load.indices, self.row_guard)
        at_lane = visitor.substitute(masked, {self.lane: lane})
        loop = s.For(self.row, first_row, const(size), ForKind.VECTORIZED, s.SeqStmt(()))
        return vectorize_loop.Vectorizer(loop, size).wide(at_lane)

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
        values = {load: Var("transposed", load.dtype) for load in loads}
        stores = [self._row(values, columns, start, i, lanes) for i in range(rows)]
        result = s.seq(stores)
        for var, value in reversed(self.bound):
            result = s.LetStmt(var, value, result)
        return result

    def _row(self, values: Mapping[BufferLoad, Var], columns: Mapping[BufferLoad, list[PrimExpr]],
             start: tuple[PrimExpr, PrimExpr], i: int, lanes: int) -> Stmt:
        """The store of row ``i`` of a tile; ``values`` are the names of the transposed loads."""
        value = visitor.transform_expr(
            self.store.value, lambda e: values.get(e, e) if isinstance(e, BufferLoad) else e)
        store: Stmt = self.store.replace(value=value)
        if self.lane_guard is not x.TRUE:
            store = s.IfThenElse(self.lane_guard, store)
        at_row = {self.row: start[0] + i}
        store, guard = visitor.substitute(store, at_row), visitor.substitute(self.row_guard, at_row)
        if lanes == 1:
            store = visitor.substitute(store, {self.lane: start[1]})
        else:
            loop = s.For(self.lane, start[1], const(lanes), ForKind.VECTORIZED, store)
            vectorizer = vectorize_loop.Vectorizer(loop, lanes)
            for load, name in values.items():
                vectorizer.bind(name, columns[load][i])
            store = vectorizer.stmt(store, None)
        return store if guard is x.TRUE else s.IfThenElse(guard, store)


def _step(load: BufferLoad, var: Var, analyzer: Analyzer) -> PrimExpr:
    """The distance in elements between loads for ``var`` and ``var + 1``."""
    position = ravel(load.indices, load.buffer.shape)
    after = visitor.substitute(position, {var: var + 1})
    return analyzer.simplify(analyzer.simplify(after) - analyzer.simplify(position))


class _Transposer(RewriterWithAnalyzer):
    def loop(self, node: s.For) -> Stmt:
        if not node.annotations.get(ANNOTATION):
            return super().loop(node)
        plain = visitor.without_annotation(node, ANNOTATION).replace(kind=ForKind.SERIAL)
        inner, store, guards = _parts_of_tile(node)
        rows, lanes = int_value(node.extent), None if inner is None else int_value(inner.extent)
        if inner is None or rows is None or lanes is None or not isinstance(store, s.BufferStore):
            return super().loop(plain)
        self.analyzer.bind(node.loop_var, node.min, node.extent)
        self.analyzer.bind(inner.loop_var, inner.min, inner.extent)
        loads = self._transposed_loads(store.value, node, inner.loop_var)
        self.analyzer.release(inner.loop_var)
        self.analyzer.release(node.loop_var)
        if not loads:
            return super().loop(plain)
        try:
            builder = _TileBuilder(node.loop_var, inner.loop_var, store, guards)
            return _split_to_tiles(builder, (node.min, inner.min), loads, (rows, lanes))
        except vectorize_loop.CannotVectorizeError:
            return super().loop(plain)

    def _transposed_loads(self, value: PrimExpr, rows: s.For, lane: Var) -> list[BufferLoad]:
        """The loads that are contiguous along the rows and strided along the lanes.

        Empty if a condition guards loads: the vector loads would read elements that it excludes.
        """
        found: list[BufferLoad] = []
        row, is_any = rows.loop_var, rows.annotations[ANNOTATION] == ANY_COLUMNS
        for e in visitor.post_order(value):
            if isinstance(e, Call) and e.name == "if_then_else":
                return []
            if isinstance(e, BufferLoad) and e.predicate is None:
                along, across = (_step(e, v, self.analyzer) for v in (row, lane))
                is_regular = int_value(across) not in (0, 1) and not visitor.mentions(across, row,
                                                                                      lane)
                if int_value(along) == 1 and (is_regular or is_any):
                    found.append(e)
        return found


def _parts_of_tile(rows: s.For) -> tuple[s.For | None, Stmt, list[PrimExpr]]:
    """The vectorized loop of a tile, the store in it, and its conditions if masks may express them.

    The loop is ``None`` for a nest of another form.
    """
    outside, inner = _unguarded(rows.body)
    if not isinstance(inner, s.For) or inner.kind is not ForKind.VECTORIZED:
        return None, rows.body, []
    inside, store = _unguarded(inner.body)
    guards = [*outside, *inside]
    may_mask = MASKED_TAIL in inner.annotations and not any(
        visitor.mentions(g, rows.loop_var) and visitor.mentions(g, inner.loop_var) for g in guards)
    is_plain = isinstance(store, s.BufferStore) and store.predicate is None
    if not is_plain or (guards and not may_mask):
        return None, store, []
    return inner, store, guards


def _unguarded(node: Stmt) -> tuple[list[PrimExpr], Stmt]:
    """The conditions around a statement without an alternative, and the statement."""
    if isinstance(node, s.IfThenElse) and node.else_case is None:
        return list(_conjuncts(vectorize_loop.without_hints(node.condition))), node.then_case
    return [], node


def _conjuncts(condition: PrimExpr) -> Iterator[PrimExpr]:
    if isinstance(condition, x.And):
        yield from _conjuncts(condition.a)
        yield from _conjuncts(condition.b)
    else:
        yield condition


def _split_to_tiles(builder: _TileBuilder, start: tuple[PrimExpr, PrimExpr],
                    loads: list[BufferLoad], extents: tuple[int, int]) -> Stmt:
    """The nest as tiles whose sides are legal vector widths."""
    tiles: list[Stmt] = []
    row = start[0]
    for rows, times in vectorize_loop.legal_vector_widths(extents[0]):
        lane = start[1]
        for lanes, copies in vectorize_loop.legal_vector_widths(extents[1]):
            for i in range(times):
                tiles += [builder.tile(loads, (row + rows * i, lane + lanes * j), rows, lanes)
                          for j in range(copies)]
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
    if not visitor.has_annotation(func.body, ANNOTATION):
        return func
    return visitor.map_body(func, _Transposer(func).visit)
