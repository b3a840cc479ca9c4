"""Factorisations of small matrices in float64: LU, Cholesky, QR, and their solvers.

Tensors are batches of matrices, (batch, rows, columns). The algorithms are those of Golub and Van
Loan, Matrix Computations, 3.4, 4.2 and 5.2; the storage formats are LAPACK's.
"""

from __future__ import annotations

from weft import te
from weft.ir import float64, int32, int64
from weft.tir import PrimExpr, minimum
from weft.topi.upcast import converted


def substitute(a, b, x, is_lower, has_ones) -> None:  # noqa: ANN001
    """Solve ``a x = b`` by forward or backward substitution; only one triangle of ``a`` is read."""
    size = a.shape[1]
    for n in range(a.shape[0]):
        for step in range(size):
            i = step if is_lower else size - 1 - step
            first, last = (0, i) if is_lower else (i + 1, size)
            for j in range(b.shape[2]):
                x[n, i, j] = b[n, i, j]
            for k in range(first, last):
                factor = a[n, i, k]
                for j in range(b.shape[2]):
                    x[n, i, j] -= factor * x[n, k, j]
            if not has_ones:
                for j in range(b.shape[2]):
                    x[n, i, j] /= a[n, i, i]


def triangular_solve(a: te.Tensor, b: te.Tensor, *, lower: bool, unit: bool) -> te.Tensor:
    """``x`` with ``a x = b``; ``unit`` assumes a unit diagonal."""
    x = te.python_extern([b.shape], [converted(a, float64), converted(b, float64)], substitute,
                         [float64], scalars=[lower, unit], name="triangular_solve")[0]
    return converted(x, b.dtype)


# With this many terms the Taylor series of a matrix of norm 1/2 reaches 2**-53.
_TERMS = 15


def exponentiate(a, out, scaled, product, terms) -> None:  # noqa: ANN001
    """exp(a) by scaling and squaring: exp(a) = exp(a / 2**s)**(2**s)."""
    size = a.shape[1]
    for b in range(a.shape[0]):
        norm = 0.0
        for i in range(size):
            total = 0.0
            for j in range(size):
                total += abs(a[b, i, j])
            norm = max(norm, total)
        squarings, factor = 0, 1.0
        while norm * factor > 0.5 and squarings < 1100:
            squarings += 1
            factor *= 0.5
        for i in range(size):
            for j in range(size):
                scaled[i, j] = a[b, i, j] * factor
                out[b, i, j] = 1.0 if i == j else 0.0
        for step in range(terms + squarings):
            for i in range(size):
                for j in range(size):
                    total = 0.0
                    for k in range(size):
                        left = scaled[i, k] if step < terms else out[b, i, k]
                        total += left * out[b, k, j]
                    product[i, j] = total
            for i in range(size):
                for j in range(size):
                    if step < terms:  # Horner: 1 + x / n (...)
                        one = 1.0 if i == j else 0.0
                        out[b, i, j] = one + product[i, j] / (terms - step)
                    else:
                        out[b, i, j] = product[i, j]


def matrix_exp(x: te.Tensor) -> te.Tensor:
    """The exponential of each matrix of a batch (batch, n, n)."""
    size = x.shape[1]
    out = te.python_extern([x.shape], [converted(x, float64)], exponentiate, [float64],
                           scalars=[_TERMS],
                           scratch=[((size, size), float64), ((size, size), float64)],
                           name="matrix_exp")[0]
    return converted(out, x.dtype)


def factor_symmetric(a, lower, info) -> None:  # noqa: ANN001
    """``a = lower lower'`` from the lower triangle of ``a``.

    ``info`` is the order of the first leading minor that is not positive, 0 for none; from that
    column on ``lower`` holds the columns of ``a``.
    """
    size = a.shape[1]
    for b in range(a.shape[0]):
        info[b] = 0
        for i in range(size):
            for j in range(size):
                lower[b, i, j] = a[b, i, j] if j <= i else 0.0
        for j in range(size):
            rest = lower[b, j, j]
            for k in range(j):
                rest -= lower[b, j, k] * lower[b, j, k]
            if not rest > 0.0:
                info[b] = j + 1
                break
            root = rest**0.5
            lower[b, j, j] = root
            for i in range(j + 1, size):
                total = lower[b, i, j]
                for k in range(j):
                    total -= lower[b, i, k] * lower[b, j, k]
                lower[b, i, j] = total / root


def cholesky(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """The lower factor (batch, n, n) and info (batch,), int32."""
    lower, info = te.python_extern([x.shape, (x.shape[0],)], [converted(x, float64)],
                                   factor_symmetric, [float64, int32], name="cholesky")
    return converted(lower, x.dtype), info


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


def factor_columns(a, packed, scales) -> None:  # noqa: ANN001
    """R on and above the diagonal of ``packed``, the vectors ``v`` below it.

    They define the reflections ``1 - s v v'``; the leading one of ``v`` is not stored.
    """
    rows, columns = a.shape[1], a.shape[2]
    for b in range(a.shape[0]):
        for i in range(rows):
            for j in range(columns):
                packed[b, i, j] = a[b, i, j]
        for k in range(min(rows, columns)):
            below = 0.0
            for i in range(k + 1, rows):
                below += packed[b, i, k] * packed[b, i, k]
            first = packed[b, k, k]
            if below == 0.0:
                scales[b, k] = 0.0
                continue
            length = (first * first + below) ** 0.5
            head = -length if first >= 0.0 else length
            scales[b, k] = (head - first) / head
            for i in range(k + 1, rows):
                packed[b, i, k] /= first - head
            packed[b, k, k] = head
            for j in range(k + 1, columns):
                total = packed[b, k, j]
                for i in range(k + 1, rows):
                    total += packed[b, i, k] * packed[b, i, j]
                total *= scales[b, k]
                packed[b, k, j] -= total
                for i in range(k + 1, rows):
                    packed[b, i, j] -= total * packed[b, i, k]


def apply_reflections(packed, scales, c, out, backwards) -> None:  # noqa: ANN001
    """The product of all reflections and ``c``; ``backwards``: with the transposed product."""
    rows, count = c.shape[1], scales.shape[1]
    for b in range(c.shape[0]):
        for i in range(rows):
            for j in range(c.shape[2]):
                out[b, i, j] = c[b, i, j]
        for step in range(count):
            k = step if backwards else count - 1 - step
            for j in range(c.shape[2]):
                total = out[b, k, j]
                for i in range(k + 1, rows):
                    total += packed[b, i, k] * out[b, i, j]
                total *= scales[b, k]
                out[b, k, j] -= total
                for i in range(k + 1, rows):
                    out[b, i, j] -= total * packed[b, i, k]


def qr(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """The packed reflections with R, and the scales of the reflections."""
    batch, rows, columns = x.shape
    packed, scales = te.python_extern(
        [x.shape, (batch, minimum(rows, columns))], [converted(x, float64)], factor_columns,
        [float64, float64], name="qr")
    return converted(packed, x.dtype), converted(scales, x.dtype)


def reflect(packed: te.Tensor, scales: te.Tensor, c: te.Tensor, *, transpose: bool) -> te.Tensor:
    """``Q c`` or ``Q' c`` for the factor Q that ``packed`` and ``scales`` represent."""
    wide = [converted(t, float64) for t in (packed, scales, c)]
    out = te.python_extern([c.shape], wide, apply_reflections, [float64], scalars=[transpose],
                           name="reflect")[0]
    return converted(out, c.dtype)
