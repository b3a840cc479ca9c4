"""Bit-serial matmul and convolution: low-bit integers by logical operations and popcount.

A tensor of low-bit integers becomes one bit plane per bit, packed into words along the reduced
axis. The product of two bits is their conjunction, so the dot product of two planes is the popcount
of the conjunction of their words.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te
from weft.ir.dtype import DType
from weft.tir.expr import PrimExpr, as_prim, const, if_then_else
from weft.topi.layout import Layout
from weft.topi.nn.conv import full_padding, pad_spatial
from weft.topi.nn.window import window_count


def bitpack(x: te.Tensor, bits: int, pack_axis: int, bit_axis: int, pack_dtype: DType) -> te.Tensor:
    """The bit planes of ``x`` along a new ``bit_axis``, with ``pack_axis`` packed into words.

    The first element is the highest bit; the last word is padded with zeros.
    """
    width = pack_dtype.bits
    size = x.shape[pack_axis]
    words = (size + (width - 1)) // width
    k = te.reduce_axis(width, name="k")

    def element(*index: PrimExpr) -> Any:
        plane = index[bit_axis]
        position = [*index[:bit_axis], *index[bit_axis + 1:]]
        at = position[pack_axis] * width + k.var
        position[pack_axis] = at
        value = if_then_else(at < size, x[tuple(position)], const(0, x.dtype))
        bit = te.bitwise_and(te.shift_right(value, plane.astype(x.dtype)), const(1, x.dtype))
        shift = (const(width - 1) - k.var).astype(pack_dtype)
        return te.sum(te.shift_left(bit.astype(pack_dtype), shift), k)

    packed = [words if axis == pack_axis else s for axis, s in enumerate(x.shape)]
    shape = (*packed[:bit_axis], as_prim(bits), *packed[bit_axis:])
    return te.compute(shape, element, name="bitpack")


def _bit_product(
    a: PrimExpr, w: PrimExpr, shift: PrimExpr, out_dtype: DType, *, unipolar: bool
) -> PrimExpr:
    """The popcount of ``x & w``, times ``2**shift``.

    With ``unipolar`` a clear bit of ``w`` means -1 instead of 0.
    """
    ones = te.popcount(te.bitwise_and(a, w)).astype(out_dtype)
    if unipolar:
        ones = ones - te.popcount(te.bitwise_and(a, te.bitwise_not(w))).astype(out_dtype)
    return te.shift_left(ones, shift.astype(out_dtype))


def bitserial_dense(
    data: te.Tensor, weight: te.Tensor, *, data_bits: int, weight_bits: int, pack_dtype: DType,
    out_dtype: DType, unipolar: bool,
) -> te.Tensor:
    """``data`` (M, K) times the transpose of ``weight`` (N, K)."""
    a = bitpack(data, data_bits, 1, 1, pack_dtype)
    w = bitpack(weight, weight_bits, 1, 1, pack_dtype)
    k = te.reduce_axis(a.shape[2], name="k")
    i, j = (te.reduce_axis(n, name=name) for n, name in ((data_bits, "i"), (weight_bits, "j")))

    def element(m: PrimExpr, n: PrimExpr) -> Any:
        # Bit i times bit j counts 2**(i + j).
        return te.sum(_bit_product(a[m, i.var, k.var], w[n, j.var, k.var], i.var + j.var,
                                   out_dtype, unipolar=unipolar), (k, i, j))

    return te.compute((data.shape[0], weight.shape[0]), element, name="bitserial_dense")


def bitserial_conv2d(
    data: te.Tensor, kernel: te.Tensor, *, strides: Sequence[int], padding: Sequence[int],
    activation_bits: int, weight_bits: int, data_layout: Layout, kernel_layout: Layout,
    pack_dtype: DType, out_dtype: DType, unipolar: bool,
) -> te.Tensor:
    """A convolution with packed channels; padding contributes 0, also with ``unipolar``."""
    padded = pad_spatial(data, data_layout, "HW", padding, const(0, data.dtype))
    c, i_axis = data_layout.index_of("C"), kernel_layout.index_of("I")
    a = bitpack(padded, activation_bits, c, data_layout.ndim, pack_dtype)
    w = bitpack(kernel, weight_bits, i_axis, kernel_layout.ndim, pack_dtype)
    top, left, bottom, right = full_padding(padding, 2)
    taps = {letter: te.reduce_axis(kernel.shape[kernel_layout.index_of(letter)],
                                   name=f"k{letter.lower()}") for letter in "HW"}
    words = te.reduce_axis(a.shape[c], name="ic")
    i, j = (te.reduce_axis(n, name=name)
            for n, name in ((activation_bits, "i"), (weight_bits, "j")))
    shape = list(data.shape)
    shape[c] = kernel.shape[kernel_layout.index_of("O")]
    for letter, step, sides in (("H", strides[0], top + bottom), ("W", strides[1], left + right)):
        axis = data_layout.index_of(letter)
        shape[axis] = window_count(data.shape[axis] + sides, taps[letter].extent, step)

    def element(*index: PrimExpr) -> Any:
        out = data_layout.blocked_indices(index)
        source = {"N": out["N"], "C": words.var, "H": out["H"] * strides[0] + taps["H"].var,
                  "W": out["W"] * strides[1] + taps["W"].var}
        position = {"O": out["C"], "I": words.var, "H": taps["H"].var, "W": taps["W"].var}
        value = a[(*data_layout.indices(source), i.var)]
        weight = w[(*kernel_layout.indices(position), j.var)]
        product = _bit_product(value, weight, i.var + j.var, out_dtype, unipolar=unipolar)
        return te.sum(product, (words, taps["H"], taps["W"], i, j))

    return te.compute(shape, element, name="bitserial_conv2d")
