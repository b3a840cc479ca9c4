"""QR factorisation by Householder reflections."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import float64
from weft.tir.expr import minimum
from weft.topi.upcast import converted


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
