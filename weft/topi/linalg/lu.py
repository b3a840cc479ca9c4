"""LU factorisation with partial pivoting."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import float64, int32, int64
from weft.tir.expr import PrimExpr, minimum
from weft.topi.upcast import converted


def factor_rows(a, packed, pivots, order, info) -> None:  # noqa: ANN001
    """``a[order] = L U``; ``packed`` has L without its unit diagonal below the diagonal, and U.

    ``pivots`` holds, counted from 1, the row with which each row was exchanged; ``info`` is the
    index, from 1, of the first zero on the diagonal of U, 0 for none.
    """
    rows, columns = a.shape[1], a.shape[2]
    steps = min(rows, columns)
    for b in range(a.shape[0]):
        info[b] = 0
        for i in range(rows):
            order[b, i] = i
            for j in range(columns):
                packed[b, i, j] = a[b, i, j]
        for k in range(steps):
            best = k
            for i in range(k + 1, rows):
                if abs(packed[b, i, k]) > abs(packed[b, best, k]):
                    best = i
            pivots[b, k] = best + 1
            if best != k:
                for j in range(columns):
                    kept = packed[b, k, j]
                    packed[b, k, j] = packed[b, best, j]
                    packed[b, best, j] = kept
                number = order[b, k]
                order[b, k] = order[b, best]
                order[b, best] = number
            pivot = packed[b, k, k]
            if pivot == 0.0:
                if info[b] == 0:
                    info[b] = k + 1
                continue
            for i in range(k + 1, rows):
                factor = packed[b, i, k] / pivot
                packed[b, i, k] = factor
                for j in range(k + 1, columns):
                    packed[b, i, j] -= factor * packed[b, k, j]


def exchange(pivots, order) -> None:  # noqa: ANN001
    """The permutation of rows that the exchanges of ``pivots`` produce in sequence."""
    for b in range(pivots.shape[0]):
        for i in range(order.shape[1]):
            order[b, i] = i
        for k in range(pivots.shape[1]):
            other = pivots[b, k] - 1
            if 0 <= other < order.shape[1]:
                kept = order[b, k]
                order[b, k] = order[b, other]
                order[b, other] = kept


def lu(x: te.Tensor) -> tuple[te.Tensor, ...]:
    """Packed factors, pivots (int32), the order of rows (int64) and info (int32)."""
    batch, rows, columns = x.shape
    packed, pivots, order, info = te.python_extern(
        [x.shape, (batch, minimum(rows, columns)), (batch, rows), (batch,)],
        [converted(x, float64)], factor_rows, [float64, int32, int64, int32], name="lu")
    return converted(packed, x.dtype), pivots, order, info


def pivot_order(pivots: te.Tensor, rows: PrimExpr | int) -> te.Tensor:
    """Which row of the matrix stands in each position after its exchanges: (batch, rows), int64."""
    return te.python_extern([(pivots.shape[0], rows)], [pivots], exchange, [int64],
                            name="pivot_order")[0]
