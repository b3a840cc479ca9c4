"""Cholesky factorisation."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import float64, int32
from weft.topi.upcast import converted


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
