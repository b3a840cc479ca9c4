"""Interleaves the columns of narrow tiles, such as the channels of ``NHWC`` images.

Along the contiguous axis of the result, vectors would have two or three lanes, or gather. Instead,
each column is computed as a vector along the rows, and shuffles interleave the columns: 16 rows of
3 channels take 3 loads, 6 shuffles and 3 stores.
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
        tiles: list[Stmt] = []
        start = node.min
        try:
            for size, times in legal_vector_widths(rows):
                for _ in range(times):
                    tiles.append(self._tile(node, inner, store, start, size))
                    start = start + size
        except CannotVectorizeError:
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

    def _tile(self, row: s.For, column: s.For, store: s.BufferStore, start: PrimExpr,
              rows: int) -> Stmt:
        """The stores of ``rows`` rows (a power of two) from ``start``."""
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
            s.BufferStore(store.buffer, _interleaved(names, number),
                          (Ramp(self.analyzer.simplify(first + number * rows), const(1), rows),))
            for number in range(columns)
        ])
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
