"""Discrete Fourier transforms as products with the DFT matrix.

The work is quadratic in the length, all of it vector multiply-adds. The roots of unity come from a
table indexed by ``k * n`` modulo the length, so that angles are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import te
from weft.ir.dtype import DType, float64
from weft.tir.expr import PrimExpr, any_of, as_prim, const, maximum, select
from weft.topi.sizes import fixed_size


def roots(size: PrimExpr, dtype: DType) -> tuple[te.Tensor, te.Tensor]:
    """Cosine and sine of ``2 pi n / size`` for n below ``size``.

    In float64: sin(pi) in float32 is 1e-7, an error that would remain in sums that cancel.
    """

    def angle(n: PrimExpr) -> PrimExpr:
        return n.astype(float64) * const(2 * math.pi, float64) / size.astype(float64)

    cosine = te.compute((size,), lambda n: te.cos(angle(n)).astype(dtype), name="cosine")
    sine = te.compute((size,), lambda n: te.sin(angle(n)).astype(dtype), name="sine")
    return cosine, sine


def dft(
    real: te.Tensor, imaginary: te.Tensor, *, inverse: bool, axis: int
) -> tuple[te.Tensor, te.Tensor]:
    """``sum(x[n] * exp(-2 pi i k n / size))``; ``inverse``: opposite sign, divided by the size.

    ``axis`` is negative.
    """
    place = real.ndim + axis
    size = real.shape[place]
    cosine, sine = roots(size, real.dtype)
    sign = const(1 if inverse else -1, real.dtype)

    def component(name: str, first: te.Tensor, second: te.Tensor, factor: PrimExpr) -> te.Tensor:
        n = te.reduce_axis(size, name="n")

        def element(*i: PrimExpr) -> PrimExpr:
            root, at = (i[place] * n.var) % maximum(size, 1), (*i[:place], n.var, *i[place + 1:])
            return te.sum(first[at] * cosine[root] + factor * second[at] * sine[root], n)

        total = te.compute(real.shape, element, name=name)
        if not inverse:
            return total
        count = size.astype(real.dtype)
        return te.compute(real.shape, lambda *i: total[i] / count, name=f"{name}_mean")

    minus = const(-1, real.dtype) * sign
    return component("real", real, imaginary, minus), component("imaginary", imaginary, real, sign)


def rdft(data: te.Tensor) -> tuple[te.Tensor, ...]:
    """``sum(x[n] * exp(-2 pi i k n / size))`` for k up to half of the size."""
    size = data.shape[-1]

    def component(name: str, factors: te.Tensor, sign: int) -> te.Tensor:
        n = te.reduce_axis(size, name="n")

        def element(*i: PrimExpr) -> PrimExpr:
            root = (i[-1] * n.var) % maximum(size, 1)
            return te.sum(data[(*i[:-1], n.var)] * factors[root], n)

        total = te.compute((*data.shape[:-1], size // 2 + 1), element, name=name)
        return total if sign > 0 else te.compute(
            total.shape, lambda *i: const(-1, data.dtype) * total[i], name=f"{name}_negated")

    cosine, sine = roots(size, data.dtype)
    return component("real", cosine, 1), component("imaginary", sine, -1)


def irdft(real: te.Tensor, imaginary: te.Tensor, size: PrimExpr | int) -> te.Tensor:
    """The real numbers of ``size`` whose frequencies up to half of the size are given."""
    size = as_prim(size)
    cosine, sine = roots(size, real.dtype)
    k = te.reduce_axis(real.shape[-1], name="k")

    def element(*i: PrimExpr) -> PrimExpr:
        root, at = i[-1] * k.var % maximum(size, 1), (*i[:-1], k.var)
        part = real[at] * cosine[root] - imaginary[at] * sine[root]
        is_single = any_of((k.var * 2).equal(0), (k.var * 2).equal(size))
        return te.sum(select(is_single, real[at] * cosine[root], part + part), k)

    total = te.compute((*real.shape[:-1], size), element, name="irdft")
    return te.compute(total.shape, lambda *i: total[i] / size.astype(real.dtype), name="mean")


def frequencies(n_fft: int, *, onesided: bool) -> int:
    """The number of frequencies; ``onesided`` omits the conjugate half."""
    return n_fft // 2 + 1 if onesided else n_fft


def stft(
    data: te.Tensor, window: te.Tensor, hop: int, *, normalized: bool, onesided: bool
) -> te.Tensor:
    """The short-time Fourier transform: (batch, frequency, frame, real and imaginary)."""
    n_fft = fixed_size(window.shape[0], "the window")
    cosine, sine = roots(const(n_fft), data.dtype)
    frames = (data.shape[1] - n_fft) // hop + 1
    shape: Sequence[PrimExpr | int] = (data.shape[0], frequencies(n_fft, onesided=onesided),
                                       frames, 2)
    n = te.reduce_axis(n_fft, name="n")

    def element(b: PrimExpr, k: PrimExpr, frame: PrimExpr, part: PrimExpr) -> PrimExpr:
        root = (k * n.var) % n_fft
        factor = select(part.equal(0), cosine[root], const(-1, data.dtype) * sine[root])
        return te.sum(data[b, frame * hop + n.var] * window[n.var] * factor, n)

    total = te.compute(shape, element, name="stft")
    scale = const(1 / math.sqrt(n_fft) if normalized else 1.0, data.dtype)
    return te.compute(shape, lambda *i: total[i] * scale, name="scaled")
