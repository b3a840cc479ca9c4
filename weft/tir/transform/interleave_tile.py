"""Interleaves the columns of narrow tiles, such as the channels of ``NHWC`` images.

Vectors along the contiguous axis of the result would have two or three lanes, or need gathers.
Instead, each column is computed as a vector along the rows, and shuffles interleave the columns: 16
rows of 3 channels take 3 loads, 6 shuffles and 3 stores. The last tile of a symbolic extent has a
guard, which becomes masks if the loop has the pragma ``masked_tail``.

Packing interleaves groups of rows: consecutive lanes come from different rows, so gathers alternate
between a few contiguous runs. Each row is loaded as a contiguous vector, and shuffles interleave
the vectors: first pairs, then pairs of pairs.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.dtype import int64
from weft.support.dataclass import dataclass
from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.expr import Broadcast, BufferLoad, PrimExpr, Ramp, Shuffle, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.simplify import Analyzer
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform import vectorize_loop
from weft.tir.transform.masked_tail import MASKED_TAIL
from weft.tir.transform.rewriter import RewriterWithAnalyzer
from weft.tir.visitor import (
    has_annotation,
    map_body,
    post_order,
    substitute,
    with_children,
    without_annotation,
)

ANNOTATION = "interleave"


@dataclass(frozen=True, slots=True)
class _Mask:
    """The condition of the store of a tile; it holds for the elements up to ``last``."""

    guard: PrimExpr
    last: PrimExpr


def _guarded(columns: s.For) -> tuple[Stmt, PrimExpr | None]:
    """The statement in the innermost loop, and its condition if masks may express it."""
    body = columns.body
    if isinstance(body, s.IfThenElse) and body.else_case is None and MASKED_TAIL in (
            columns.annotations):
        return body.then_case, vectorize_loop.without_hints(body.condition)
    return body, None


class _Interleaver(RewriterWithAnalyzer):
    def loop(self, node: s.For) -> Stmt:
        if not node.annotations.get(ANNOTATION):
            return super().loop(node)
        plain = without_annotation(node, ANNOTATION)
        inner, rows = node.body, int_value(node.extent)
        columns = int_value(inner.extent) if isinstance(inner, s.For) else None
        if rows is None or columns is None or not isinstance(inner, s.For):
            return super().loop(plain)
        store, guard = _guarded(inner)
        if not isinstance(store, s.BufferStore) or store.predicate is not None:
            return super().loop(plain)
        if not self._is_row_by_row(store, (node.loop_var, inner.loop_var), columns):
            return super().loop(plain)
        mask = None if guard is None else self._mask_of(guard, (node, inner), columns)
        if guard is not None and mask is None:
            return super().loop(plain)
        tiles: list[Stmt] = []
        start = node.min
        try:
            for size, times in vectorize_loop.legal_vector_widths(rows):
                for _ in range(times):
                    tiles.append(self._tile(node, inner, store, start, size, mask))
                    start = start + size
        except vectorize_loop.CannotVectorizeError:
            return super().loop(plain)
        return self.visit(s.seq(tiles))

    def _is_row_by_row(self, store: s.BufferStore, loops: tuple[Var, Var], columns: int) -> bool:
        """Whether the tile is contiguous in memory in row-major order."""
        [index] = store.indices
        steps = []
        for var in loops:
            after = self.analyzer.simplify(substitute(index, {var: var + 1}))
            steps.append(int_value(self.analyzer.simplify(after - index)))
        return steps == [columns, 1]

    def _mask_of(self, guard: PrimExpr, loops: tuple[s.For, s.For], columns: int) -> _Mask | None:
        """The guard for the elements of a tile; ``None`` if it does not exclude the last ones."""
        row, column = loops
        for loop in loops:
            self.analyzer.bind(loop.loop_var, loop.min, loop.extent)
        total = self.analyzer.nonnegative_form(guard) if isinstance(guard, x.Compare) else None
        for loop in loops:
            self.analyzer.release(loop.loop_var)
        if total is None:
            return None
        by_row, by_column = (total.terms.get(loop.loop_var, 0) for loop in loops)
        first = total.to_expr()
        if by_column == 0 and by_row == -1:  # row r has the elements from r * columns on
            left = (first + 1) * columns - 1
        elif by_column == -1 and by_row == -columns:
            left = first
        else:
            return None
        return _Mask(guard, substitute(left, {row.loop_var: row.min, column.loop_var: const(0)}))

    def _tile(self, row: s.For, column: s.For, store: s.BufferStore, start: PrimExpr,
              rows: int, mask: _Mask | None) -> Stmt:
        """The stores of ``rows`` rows (a power of two) from ``start``."""
        columns = int_value(column.extent) or 0
        at = [column.min + c for c in range(columns)]
        if mask is not None:
            store = store.replace(value=vectorize_loop.mask_loads(store.value, mask.guard))
        if rows == 1 and mask is None:
            single = substitute(store, {row.loop_var: start})
            return s.seq([substitute(single, {column.loop_var: c}) for c in at])
        loop = row.replace(min=start, extent=const(rows), kind=ForKind.VECTORIZED)
        vectors = [vectorize_loop.Vectorizer(loop, rows).wide(substitute(store.value,
                                                                         {column.loop_var: c}))
                   for c in at]
        names = [Var("column", v.dtype) for v in vectors]
        [index] = store.indices
        first = substitute(index, {row.loop_var: start, column.loop_var: column.min})
        before = const(columns) * (start - row.min)  # elements of the rows before ``start``
        stores: list[Stmt] = []
        for number in range(columns):
            index = Ramp(self.analyzer.simplify(first + number * rows), const(1), rows)
            value = _interleaved(names, number)
            if mask is None:
                stores.append(s.BufferStore(store.buffer, value, (index,)))
                continue
            # A store without active lanes, beyond the end of the buffer, would be slow.
            element = self.analyzer.simplify(before + number * rows)
            where = x.LE(Ramp(element, const(1), rows), Broadcast(mask.last, rows))
            stores.append(s.IfThenElse(x.LE(element, mask.last), s.BufferStore(
                store.buffer, value, (index,), where)))
        result = s.seq(stores)
        for name, vector in reversed(list(zip(names, vectors, strict=True))):
            result = s.LetStmt(name, vector, result)
        return result


def _interleaved(vectors: Sequence[PrimExpr], number: int) -> PrimExpr:
    """Vector ``number`` of the interleaved sequence: lane 0 of each vector, lane 1 of each, ..."""
    lanes, count = vectors[0].dtype.lanes, len(vectors)
    origins = [divmod(number * lanes + lane, count) for lane in range(lanes)]  # (lane, vector)
    result = vectors[0]
    for source, vector in enumerate(vectors[1:], 1):
        # Merge one more vector: take its lanes, keep the others of the previous result.
        kept = [lane if source > 1 else origin for lane, (origin, _) in enumerate(origins)]
        picks = [lanes + origin if wanted == source else kept[lane]
                 for lane, (origin, wanted) in enumerate(origins)]
        result = Shuffle((result, vector), tuple(picks))
    return result


def interleave_tile(func: PrimFunc) -> PrimFunc:
    """Compute each column of an annotated tile as a vector, and interleave the vectors.

    for i in range(4):  # interleave = 1
        for j in range(2):  # interleave = 1
            B[i * 2 + j] = A[j * 4 + i]
    =>
    column = A[ramp(0, 1, 4)]
    column_1 = A[ramp(4, 1, 4)]
    B[ramp(0, 1, 4)] = shuffle([column, column_1], [0, 4, 1, 5])
    B[ramp(4, 1, 4)] = shuffle([column, column_1], [2, 6, 3, 7])
    """
    if not has_annotation(func.body, ANNOTATION):
        return func
    return map_body(func, _Interleaver(func).visit)


_RUNS = (2, 4)  # supported numbers of runs


def of_lane(e: PrimExpr, lane: Var) -> PrimExpr | None:
    """Lane ``lane`` of a vector index, a scalar; ``None`` unless it is arithmetic on ramps."""
    if e.dtype.lanes == 1:
        return e
    if isinstance(e, Ramp):
        return e.base + e.stride * lane
    if isinstance(e, Broadcast):
        return e.value
    if not isinstance(e, x.Binary) or e.dtype.element is not int64:
        return None
    a, b = of_lane(e.a, lane), of_lane(e.b, lane)
    return None if a is None or b is None else with_children(e, (a, b))


def interleaved_starts(index: PrimExpr, analyzer: Analyzer) -> list[PrimExpr] | None:
    """The start of each run, if lane ``q * runs + r`` of ``index`` is element ``q`` of run ``r``.

    ``None`` for other indices. Tries 2 and 4 runs.
    """
    lanes = index.dtype.lanes
    lane, step = Var("lane", int64), Var("step", int64)
    position = of_lane(index, lane)
    if position is None or any(type(e) is BufferLoad for e in post_order(position)):
        return None
    for runs in _RUNS:
        if lanes % runs or lanes == runs:
            continue
        analyzer.bind(step, 0, lanes // runs)
        starts = [_start(substitute(position, {lane: step * runs + r}), step, analyzer)
                  for r in range(runs)]
        analyzer.release(step)
        found = [s for s in starts if s is not None]
        if len(found) == runs:
            return found
    return None


def _start(position: PrimExpr, step: Var, analyzer: Analyzer) -> PrimExpr | None:
    """``position`` at step 0 if it advances by one element per step; else ``None``."""
    here = analyzer.simplify(position)
    start = analyzer.simplify(substitute(here, {step: const(0)}))
    return start if int_value(analyzer.simplify(here - start - step)) == 0 else None


def interleave(vectors: Sequence[PrimExpr]) -> PrimExpr:
    """Lane 0 of each vector, then lane 1 of each, and so on; 2**k vectors of equal width."""
    while len(vectors) > 1:
        half = len(vectors) // 2
        vectors = [_pair(vectors[i], vectors[i + half]) for i in range(half)]
    return vectors[0]


def _pair(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    lanes = a.dtype.lanes
    return Shuffle((a, b), tuple(i // 2 + (i % 2) * lanes for i in range(2 * lanes)))
