"""Fourier transforms on CPUs: fast transforms, of vectors where the sizes allow it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from weft import te
from weft.ir import Attrs, Call
from weft.op.transform.spectrum import DFTAttrs, IRDFTAttrs
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget
from weft.tir import int_value
from weft.topi.fourier.any_size import fft
from weft.topi.fourier.columns import fft_columns
from weft.topi.fourier.convolution import fft_by_convolution
from weft.topi.fourier.inverse_real import irfft_by_fft, irfft_rows
from weft.topi.fourier.plan import is_smooth
from weft.topi.fourier.real import rfft_by_fft, rfft_rows
from weft.topi.fourier.rows import fft_rows
from weft.topi.sizes import as_size


@strategy("dft", target="cpu", complete=True)
def dft(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Vector passes for fixed sizes, else a loop over the factors of any size."""
    bits = target.vector_bits

    def compute(real: te.Tensor, imaginary: te.Tensor, attrs: DFTAttrs) -> tuple[te.Tensor, ...]:
        size = int_value(real.shape[attrs.axis])
        if attrs.axis != -1 and size and is_smooth(size) and int_value(real.shape[-1]):
            return fft_columns(real, imaginary, attrs.axis, inverse=attrs.inverse,
                               vector_bits=bits)
        parts = [_swapped(x, attrs.axis) for x in (real, imaginary)]
        found = _of_rows(size, bits)(*parts, inverse=attrs.inverse)
        return tuple(_swapped(x, attrs.axis) for x in found)

    yield Implementation("dft.cpu.stockham", schedule_default, compute=compute,
                         seconds=roofline_seconds(call, target))


@strategy("rdft", target="cpu", complete=True)
def rdft(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Of rows of an even size two elements are one complex number."""

    def compute(data: te.Tensor, _: Attrs) -> tuple[te.Tensor, ...]:
        size, bits = int_value(data.shape[-1]), target.vector_bits
        if size and size % 2 == 0 and is_smooth(size):
            return rfft_rows(data, vector_bits=bits)
        return rfft_by_fft(data, _of_rows(size, bits))

    yield Implementation("rdft.cpu.stockham", schedule_default, compute=compute,
                         seconds=roofline_seconds(call, target))


@strategy("irdft", target="cpu", complete=True)
def irdft(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """To rows of an even size from as many complex numbers as half of it."""

    def compute(real: te.Tensor, imaginary: te.Tensor, attrs: IRDFTAttrs) -> te.Tensor:
        size, bits = as_size(attrs.size), target.vector_bits
        if not isinstance(size, int):
            return irfft_by_fft(real, imaginary, size, fft)
        if size % 2 == 0 and is_smooth(size):
            return irfft_rows(real, imaginary, size, vector_bits=bits)
        return irfft_by_fft(real, imaginary, size, _of_rows(size, bits))

    yield Implementation("irdft.cpu.stockham", schedule_default, compute=compute,
                         seconds=roofline_seconds(call, target))


def _of_rows(size: int | None, vector_bits: int) -> Callable[..., tuple[te.Tensor, ...]]:
    """The transform of rows of a size; that of any size where it is symbolic, or 0."""
    if not size:
        return fft
    of_fixed_size = fft_rows if is_smooth(size) else fft_by_convolution
    return functools.partial(of_fixed_size, vector_bits=vector_bits)


def _swapped(x: te.Tensor, axis: int) -> te.Tensor:
    """``x`` with ``axis``, which is negative, as the last one, and the last one there."""
    if axis == -1:
        return x
    order = list(range(x.ndim))
    order[axis], order[-1] = order[-1], order[axis]
    return te.compute([x.shape[a] for a in order], lambda *i: x[tuple(i[a] for a in order)],
                      name="swapped")
