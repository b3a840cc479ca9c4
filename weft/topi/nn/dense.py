"""Matrix products."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.ir.dtype import DType, float32
from weft.tir.expr import PrimExpr, const, int_value
from weft.topi.broadcast import broadcast_shape
from weft.topi.layout import Layout, convert_shape

NK = Layout.parse("NK")


def dense(
    data: te.Tensor, weight: te.Tensor, *, weight_layout: Layout, out_dtype: DType,
    units: int | None = None,
) -> te.Tensor:
    """``data[…, k] * weight[n, k]`` summed over ``k``.

    Narrow floats are summed in float32 and rounded once.

    The weight may be packed in panels (``NK16n``: shape (N // 16, K, 16)) or stored ``KN``. With
    ``units`` only so many columns of it are used.
    """
    columns = convert_shape(weight_layout, NK, weight.shape)[0] if units is None else const(units)
    k, wide = te.reduce_axis(data.shape[-1], name="k"), accumulator_dtype(out_dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        value = data[(*index[:-1], k.var)]
        factor = weight[weight_layout.indices({"N": index[-1], "K": k.var})]
        return te.sum(value.astype(wide) * factor.astype(wide), k)

    sums = te.compute((*data.shape[:-1], columns), element, name="dense")
    return _rounded(sums, out_dtype)


def matmul(
    a: te.Tensor, b: te.Tensor, *, transpose_a: bool, transpose_b: bool, out_dtype: DType
) -> te.Tensor:
    """The product of matrices, for each index of the leading axes, which broadcast.

    A vector is a row on the left and a column on the right, an axis that the result lacks. Tag
    ``matmul`` for two matrices, ``batch_matmul`` for stacks of them, none with vectors.
    """
    rows, depth = _swapped(a.shape[-2:], transpose_a) if a.ndim > 1 else (None, a.shape[0])
    columns = _swapped(b.shape[-2:], transpose_b)[1] if b.ndim > 1 else None
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    k, wide = te.reduce_axis(depth, name="k"), accumulator_dtype(out_dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        lead, rest = index[: len(batch)], list(index[len(batch):])
        row = [] if rows is None else [rest.pop(0)]
        left = _swapped((*row, k.var), transpose_a)
        right = _swapped((k.var, *rest), transpose_b)
        value = a[(*_own(a, lead), *left)].astype(wide)
        return te.sum(value * b[(*_own(b, lead), *right)].astype(wide), k)

    name = "batch_matmul" if batch else "matmul"
    shape = [*batch, *(size for size in (rows, columns) if size is not None)]
    sums = te.compute(tuple(shape), element, name=name)
    return _rounded(sums, out_dtype)


def accumulator_dtype(dtype: DType) -> DType:
    """What products of ``dtype`` are added up in: floats of 16 bits and fewer in float32."""
    return float32 if dtype.is_narrow_float else dtype


def _rounded(sums: te.Tensor, dtype: DType) -> te.Tensor:
    if sums.dtype is dtype:
        return sums
    return te.compute(sums.shape, lambda *i: sums[i].astype(dtype), name="rounded")


def _own(x: te.Tensor, lead: Sequence[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The leading index into ``x``, whose axes of size 1 repeat; others count from the last."""
    sizes = x.shape[:-2]
    return tuple(
        const(0) if int_value(size) == 1 else i
        for i, size in zip(lead[len(lead) - len(sizes):], sizes, strict=True)
    )


def _swapped(pair: tuple[PrimExpr, ...], swap: bool) -> tuple[PrimExpr, ...]:
    return pair[::-1] if swap else pair
