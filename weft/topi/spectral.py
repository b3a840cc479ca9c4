"""Eigenvalues of symmetric matrices and singular values, by Jacobi rotations in float64.

Tensors are batches of matrices, (batch, rows, columns). The algorithms are the cyclic and the
one-sided Jacobi method (Golub and Van Loan, Matrix Computations, 8.5 and 8.6), which find small
values to high relative accuracy. Of a vector and its negative, either of which would do, the one
whose first element of largest magnitude is positive is taken.
"""

from __future__ import annotations

from weft import te
from weft.ir import float64
from weft.topi.upcast import converted

_SWEEPS = 60
_EPSILON = 2.0**-53


def diagonalize(a, values, vectors, work, sweeps, epsilon) -> None:  # noqa: ANN001
    """``a = vectors diag(values) vectors'``, from the lower triangle of ``a``."""
    size = a.shape[1]
    for b in range(a.shape[0]):
        total = 0.0
        for i in range(size):
            for j in range(size):
                work[i, j] = a[b, i, j] if j <= i else a[b, j, i]
                vectors[b, i, j] = 1.0 if i == j else 0.0
                total += work[i, j] * work[i, j]
        for _ in range(sweeps):
            beside = 0.0
            for i in range(size):
                for j in range(i):
                    beside += work[i, j] * work[i, j]
            if not beside > epsilon * epsilon * total:
                break
            for p in range(size):
                for q in range(p + 1, size):
                    if work[p, q] == 0.0:
                        continue
                    slope = (work[q, q] - work[p, p]) / (2.0 * work[p, q])
                    root = (slope * slope + 1.0) ** 0.5
                    tangent = 1.0 / (slope + root) if slope >= 0.0 else -1.0 / (root - slope)
                    cosine = 1.0 / (tangent * tangent + 1.0) ** 0.5
                    sine = tangent * cosine
                    for k in range(size):
                        left, right = work[k, p], work[k, q]
                        work[k, p] = cosine * left - sine * right
                        work[k, q] = sine * left + cosine * right
                        left, right = vectors[b, k, p], vectors[b, k, q]
                        vectors[b, k, p] = cosine * left - sine * right
                        vectors[b, k, q] = sine * left + cosine * right
                    for k in range(size):
                        left, right = work[p, k], work[q, k]
                        work[p, k] = cosine * left - sine * right
                        work[q, k] = sine * left + cosine * right
                    work[p, q] = 0.0
                    work[q, p] = 0.0
        for i in range(size):
            values[b, i] = work[i, i]


def orthogonalize(a, rotated, lengths, right, sweeps, epsilon) -> None:  # noqa: ANN001
    """``a = rotated right'``: the columns of ``rotated`` are orthogonal and have these lengths."""
    rows, columns = a.shape[1], a.shape[2]
    for b in range(a.shape[0]):
        for j in range(columns):
            for i in range(rows):
                rotated[b, i, j] = a[b, i, j]
            for i in range(columns):
                right[b, i, j] = 1.0 if i == j else 0.0
        for _ in range(sweeps):
            rotations = 0
            for p in range(columns):
                for q in range(p + 1, columns):
                    first, second, both = 0.0, 0.0, 0.0
                    for k in range(rows):
                        first += rotated[b, k, p] * rotated[b, k, p]
                        second += rotated[b, k, q] * rotated[b, k, q]
                        both += rotated[b, k, p] * rotated[b, k, q]
                    if not abs(both) > epsilon * (first * second) ** 0.5:
                        continue
                    rotations += 1
                    slope = (second - first) / (2.0 * both)
                    root = (slope * slope + 1.0) ** 0.5
                    tangent = 1.0 / (slope + root) if slope >= 0.0 else -1.0 / (root - slope)
                    cosine = 1.0 / (tangent * tangent + 1.0) ** 0.5
                    sine = tangent * cosine
                    for k in range(rows):
                        one, other = rotated[b, k, p], rotated[b, k, q]
                        rotated[b, k, p] = cosine * one - sine * other
                        rotated[b, k, q] = sine * one + cosine * other
                    for k in range(columns):
                        one, other = right[b, k, p], right[b, k, q]
                        right[b, k, p] = cosine * one - sine * other
                        right[b, k, q] = sine * one + cosine * other
            if rotations == 0:
                break
        for j in range(columns):
            total = 0.0
            for k in range(rows):
                total += rotated[b, k, j] * rotated[b, k, j]
            lengths[b, j] = total**0.5


def arrange(values, first, second, sorted_values, sorted_first, sorted_second,  # noqa: ANN001
            is_descending) -> None:  # noqa: ANN001
    """The columns of two matrices in the order of values, with the signs that ``first`` decides."""
    for b in range(values.shape[0]):
        count = values.shape[1]
        for j in range(count):
            place = 0
            for k in range(count):
                above, below = values[b, k] > values[b, j], values[b, j] > values[b, k]
                if not is_descending:
                    above, below = below, above
                if above or (k < j and not below):
                    place += 1
            largest = 0
            for k in range(first.shape[1]):
                if abs(first[b, k, j]) > abs(first[b, largest, j]) * (1.0 + 1e-9):
                    largest = k
            sign = -1.0 if first[b, largest, j] < 0.0 else 1.0
            sorted_values[b, place] = values[b, j]
            for k in range(first.shape[1]):
                sorted_first[b, k, place] = sign * first[b, k, j]
            for k in range(second.shape[1]):
                sorted_second[b, k, place] = sign * second[b, k, j]


def complete(rotated, lengths, left, epsilon) -> None:  # noqa: ANN001
    """Columns divided by their lengths; where these are 0, and behind them, an orthogonal basis."""
    rows, columns, count = rotated.shape[1], rotated.shape[2], left.shape[2]
    for b in range(rotated.shape[0]):
        start, largest = 0, lengths[b, 0] if columns > 0 else 0.0
        for j in range(count):
            length = lengths[b, j] if j < columns else 0.0
            if not length <= epsilon * rows * largest:
                for k in range(rows):
                    left[b, k, j] = rotated[b, k, j] / length
                continue
            for candidate in range(start, rows):
                start = candidate + 1
                for k in range(rows):
                    left[b, k, j] = 1.0 if k == candidate else 0.0
                for _ in range(2):
                    for q in range(j):
                        total = 0.0
                        for k in range(rows):
                            total += left[b, k, q] * left[b, k, j]
                        for k in range(rows):
                            left[b, k, j] -= total * left[b, k, q]
                total = 0.0
                for k in range(rows):
                    total += left[b, k, j] * left[b, k, j]
                if total * rows > 0.5:
                    for k in range(rows):
                        left[b, k, j] /= total**0.5
                    break


def eigh(x: te.Tensor) -> tuple[te.Tensor, te.Tensor]:
    """Eigenvalues (batch, n), ascending, and eigenvectors as columns (batch, n, n)."""
    batch, size, _ = x.shape
    values, vectors = te.python_extern(
        [(batch, size), x.shape], [converted(x, float64)], diagonalize, [float64, float64],
        scalars=[_SWEEPS, _EPSILON], scratch=[((size, size), float64)], name="eigh")
    values, vectors, _ = _arranged(values, vectors, vectors, is_descending=False)
    return converted(values, x.dtype), converted(vectors, x.dtype)


def svd(x: te.Tensor, *, full: bool) -> tuple[te.Tensor, te.Tensor, te.Tensor]:
    """Left vectors, singular values (batch, columns), descending, and right vectors, as columns.

    There are as many left vectors as rows with ``full``, else as columns.
    """
    batch, rows, columns = x.shape
    rotated, lengths, right = te.python_extern(
        [x.shape, (batch, columns), (batch, columns, columns)], [converted(x, float64)],
        orthogonalize, [float64] * 3, scalars=[_SWEEPS, _EPSILON], name="svd")
    lengths, right, rotated = _arranged(lengths, right, rotated, is_descending=True)
    left = te.python_extern([(batch, rows, rows if full else columns)], [rotated, lengths],
                            complete, [float64], scalars=[_EPSILON], name="complete_basis")[0]
    return converted(left, x.dtype), converted(lengths, x.dtype), converted(right, x.dtype)


def _arranged(values: te.Tensor, first: te.Tensor, second: te.Tensor, *, is_descending: bool
              ) -> tuple[te.Tensor, ...]:
    return te.python_extern([values.shape, first.shape, second.shape], [values, first, second],
                            arrange, [float64] * 3, scalars=[is_descending], name="arrange")
