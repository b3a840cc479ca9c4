"""A few rows side by side, as the channels of ``NHWC`` images: vectors that are interleaved.

Lanes along the result's contiguous axis would be two or three, or gather. Each of the columns is
computed as a vector along the rows instead, and shuffles put the vectors together: 16 rows of 3
channels are 3 loads, 6 shuffles and 3 stores.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.tir import stmt as s
from weft.tir.expr import PrimExpr, Ramp, Shuffle, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.rewriter import RewriterWithAnalyzer
from weft.tir.transform.vectorize_loop import CannotVectorizeError, Vectorizer, legal_vector_widths
from weft.tir.visitor import has_annotation, map_body, substitute, without_annotation

ANNOTATION = "interleave"


class _Interleaver(RewriterWithAnalyzer):
    def loop(self, node: s.For) -> Stmt:
        if not node.annotations.get(ANNOTATION):
            return super().loop(node)
        plain = without_annotation(node, ANNOTATION)
        inner, rows = node.body, int_value(node.extent)
        columns = int_value(inner.extent) if isinstance(inner, s.For) else None
        if rows is None or columns is None or not isinstance(inner, s.For):
            return super().loop(plain)
        store = inner.body
        if not isinstance(store, s.BufferStore) or store.predicate is not None:
            return super().loop(plain)
        if not self._is_row_by_row(store, (node.loop_var, inner.loop_var), columns):
            return super().loop(plain)
        parts: list[Stmt] = []
        start = node.min
        try:
            for size, times in legal_vector_widths(rows):
                for _ in range(times):
                    parts.append(self._piece(node, inner, store, start, size))
                    start = start + size
        except CannotVectorizeError:
            return super().loop(plain)
        return self.visit(s.seq(parts))

    def _is_row_by_row(self, store: s.BufferStore, loops: tuple[Var, Var], columns: int) -> bool:
        """Whether all columns of a row, then those of the next, are neighbours in memory."""
        [index] = store.indices
        steps = []
        for var in loops:
            after = self.analyzer.simplify(substitute(index, {var: var + 1}))
            steps.append(int_value(self.analyzer.simplify(after - index)))
        return steps == [columns, 1]

    def _piece(self, row: s.For, column: s.For, store: s.BufferStore, start: PrimExpr,
               rows: int) -> Stmt:
        """``rows`` rows, a power of two."""
        columns = int_value(column.extent) or 0
        at = [column.min + c for c in range(columns)]
        if rows == 1:
            single = substitute(store, {row.loop_var: start})
            return s.seq([substitute(single, {column.loop_var: c}) for c in at])
        loop = row.replace(min=start, extent=const(rows), kind=ForKind.VECTORIZED)
        vectors = [Vectorizer(loop, rows).wide(substitute(store.value, {column.loop_var: c}))
                   for c in at]
        names = [Var("column", v.dtype) for v in vectors]
        [index] = store.indices
        first = substitute(index, {row.loop_var: start, column.loop_var: column.min})
        result = s.seq([
            s.BufferStore(store.buffer, _interleaved(names, part),
                          (Ramp(self.analyzer.simplify(first + part * rows), const(1), rows),))
            for part in range(columns)
        ])
        for name, vector in reversed(list(zip(names, vectors, strict=True))):
            result = s.LetStmt(name, vector, result)
        return result


def _interleaved(vectors: Sequence[PrimExpr], part: int) -> PrimExpr:
    """Vector ``part`` of lane 0 of each, then lane 1 of each, and so on."""
    lanes, count = vectors[0].dtype.lanes, len(vectors)
    places = [divmod(part * lanes + lane, count) for lane in range(lanes)]
    result = vectors[0]
    for number, vector in enumerate(vectors[1:], 1):
        kept = [lane if number > 1 else place for lane, (place, _) in enumerate(places)]
        picks = [lanes + place if source == number else kept[lane]
                 for lane, (place, source) in enumerate(places)]
        result = Shuffle((result, vector), tuple(picks))
    return result


def interleave_tile(func: PrimFunc) -> PrimFunc:
    """Compute the columns of an annotated tile along its rows, and interleave them.

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
