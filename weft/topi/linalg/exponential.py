"""The matrix exponential."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import float64
from weft.topi.upcast import converted

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
