"""Fast Fourier transforms, by the algorithm of Stockham, whose passes need no bit reversal.

There is one pass over a row for each prime factor, 4 as one: it combines elements that lie ``size /
radix`` apart. The work is the size times the sum of the factors.
"""

from __future__ import annotations

from typing import Any

from weft import te
from weft.ir.dtype import float64
from weft.tir import PrimExpr
from weft.tir.row_major import element_count, ravel, unravel
from weft.topi.spectrum import roots
from weft.topi.upcast import converted, upcast


def transform(real: Any, imaginary: Any, cosine: Any, sine: Any, out_real: Any, out_imaginary: Any,
              work: Any, inverse: bool) -> None:
    """The transform of each row; ``done`` and ``left`` are the factors behind and ahead."""
    size = real.shape[1]
    sign = 1.0 if inverse else -1.0
    for row in range(real.shape[0]):
        for i in range(size):
            work[0, i], work[1, i] = real[row, i], imaginary[row, i]
        here, done, left = 0, 1, size
        while left > 1:
            radix = 4 if left % 4 == 0 else 2
            while left % radix != 0:
                radix = left if radix * radix > left else radix + (1 if radix == 2 else 2)
            left //= radix
            xr, xi = work[2 * here], work[2 * here + 1]
            yr, yi = work[2 - 2 * here], work[3 - 2 * here]
            for p in range(left):
                if radix == 4:
                    at = done * p
                    wr1, wr2, wr3 = cosine[at], cosine[2 * at], cosine[3 * at]
                    wi1, wi2, wi3 = sign * sine[at], sign * sine[2 * at], sign * sine[3 * at]
                    a, b, y = done * p, done * (p + left), 4 * done * p
                    c, d = done * (p + 2 * left), done * (p + 3 * left)
                    for q in range(done):
                        ar, ai, br, bi = xr[a + q], xi[a + q], xr[b + q], xi[b + q]
                        cr, ci, dr, di = xr[c + q], xi[c + q], xr[d + q], xi[d + q]
                        er, ei, fr, fi = ar + cr, ai + ci, ar - cr, ai - ci
                        gr, gi, hr, hi = br + dr, bi + di, sign * (di - bi), sign * (br - dr)
                        yr[y + q], yi[y + q] = er + gr, ei + gi
                        tr, ti = fr + hr, fi + hi
                        yr[y + done + q] = tr * wr1 - ti * wi1
                        yi[y + done + q] = tr * wi1 + ti * wr1
                        tr, ti = er - gr, ei - gi
                        yr[y + 2 * done + q] = tr * wr2 - ti * wi2
                        yi[y + 2 * done + q] = tr * wi2 + ti * wr2
                        tr, ti = fr - hr, fi - hi
                        yr[y + 3 * done + q] = tr * wr3 - ti * wi3
                        yi[y + 3 * done + q] = tr * wi3 + ti * wr3
                    continue
                for k in range(radix):
                    y = done * (radix * p + k)
                    for q in range(done):
                        yr[y + q], yi[y + q] = xr[done * p + q], xi[done * p + q]
                    for j in range(1, radix):
                        at = j * k % radix * (size // radix)
                        wr, wi, x = cosine[at], sign * sine[at], done * (p + j * left)
                        for q in range(done):
                            yr[y + q] += xr[x + q] * wr - xi[x + q] * wi
                            yi[y + q] += xr[x + q] * wi + xi[x + q] * wr
                    wr, wi = cosine[done * k * p], sign * sine[done * k * p]
                    for q in range(done):
                        tr, ti = yr[y + q], yi[y + q]
                        yr[y + q], yi[y + q] = tr * wr - ti * wi, tr * wi + ti * wr
            done *= radix
            here = 1 - here
        scale = 1.0 / size if inverse else 1.0
        for i in range(size):
            out_real[row, i], out_imaginary[row, i] = (
                work[2 * here, i] * scale, work[2 * here + 1, i] * scale)


def fft(
    real: te.Tensor, imaginary: te.Tensor, *, inverse: bool
) -> tuple[te.Tensor, te.Tensor]:
    """As ``spectrum.dft``."""
    *outer, size = real.shape
    rows = element_count(outer)
    parts = [_as_rows(upcast(x), rows, outer) for x in (real, imaginary)]
    # Between the passes numbers are float64, which costs nothing in scalar code: terms that cancel
    # leave nothing, as in the sum of the definition.
    found = te.python_extern(
        [(rows, size)] * 2, [*parts, *roots(size, float64)], transform, [parts[0].dtype] * 2,
        scalars=[inverse], scratch=[((4, size), float64)], name="fft")
    first, second = (_in_shape(converted(x, real.dtype), real.shape) for x in found)
    return first, second


def _as_rows(x: te.Tensor, rows: PrimExpr, outer: list[PrimExpr]) -> te.Tensor:
    if x.ndim == 2:
        return x
    return te.compute((rows, x.shape[-1]), lambda row, n: x[(*unravel(row, outer), n)],
                      name="rows")


def _in_shape(x: te.Tensor, shape: tuple[PrimExpr, ...]) -> te.Tensor:
    if len(shape) == 2:
        return x
    return te.compute(shape, lambda *i: x[ravel(i[:-1], shape[:-1]), i[-1]], name="unrowed")
