"""Matrix multiplications: dense, batched, and grouped by rows."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.ir.dtype import DType, float32, int64
from weft.tir.expr import PrimExpr, const, if_then_else, int_value, select
from weft.topi.broadcast import broadcast_shape
from weft.topi.layout import Layout, convert_shape

NK = Layout.parse("NK")


def dense(
    data: te.Tensor, weight: te.Tensor, *, weight_layout: Layout, out_dtype: DType,
    units: int | None = None,
) -> te.Tensor:
    """``out[.., n] = sum over k of data[.., k] * weight[n, k]``, of shape (.., N).

    The weight may be stored ``KN`` or in panels (``NK16n``: shape (N / 16, K, 16)); with ``units``
    only that many of its columns count. Narrow floats are accumulated in float32 and rounded once.
    """
    columns = convert_shape(weight_layout, NK, weight.shape)[0] if units is None else const(units)
    k, accumulator = te.reduce_axis(data.shape[-1], name="k"), accumulator_dtype(out_dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        value = data[(*index[:-1], k.var)]
        factor = weight[weight_layout.indices({"N": index[-1], "K": k.var})]
        return te.sum(value.astype(accumulator) * factor.astype(accumulator), k)

    sums = te.compute((*data.shape[:-1], columns), element, name="dense")
    return _rounded(sums, out_dtype)


def matmul(
    a: te.Tensor, b: te.Tensor, *, transpose_a: bool, transpose_b: bool, out_dtype: DType
) -> te.Tensor:
    """``C[.., m, n] = sum over k of A[.., m, k] * B[.., k, n]``; leading axes broadcast.

    A vector is a row on the left and a column on the right, an axis that the result lacks. Narrow
    floats are accumulated in float32 and rounded once.
    """
    rows, depth = swapped(a.shape[-2:], transpose_a) if a.ndim > 1 else (None, a.shape[0])
    columns = swapped(b.shape[-2:], transpose_b)[1] if b.ndim > 1 else None
    batch = broadcast_shape(a.shape[:-2], b.shape[:-2])
    k, accumulator = te.reduce_axis(depth, name="k"), accumulator_dtype(out_dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        lead, rest = index[: len(batch)], list(index[len(batch):])
        row = [] if rows is None else [rest.pop(0)]
        left = (*row, k.var) if rows is None else swapped((*row, k.var), transpose_a)
        right = (k.var, *rest) if columns is None else swapped((k.var, *rest), transpose_b)
        value = a[(*batch_index(a, lead), *left)].astype(accumulator)
        return te.sum(value * b[(*batch_index(b, lead), *right)].astype(accumulator), k)

    name = "batch_matmul" if batch else "matmul"
    shape = [*batch, *(size for size in (rows, columns) if size is not None)]
    sums = te.compute(tuple(shape), element, name=name)
    return _rounded(sums, out_dtype)


def accumulator_dtype(dtype: DType) -> DType:
    """The dtype that products of ``dtype`` are summed in: float32 for floats of 16 bits or less."""
    return float32 if dtype.is_narrow_float else dtype


def swapped(pair: Sequence[PrimExpr], swap: bool) -> tuple[PrimExpr, PrimExpr]:
    """The sizes or indices of a matrix, exchanged if it is stored transposed."""
    first, second = pair
    return (second, first) if swap else (first, second)


def batch_index(
    x: te.Tensor, index: Sequence[PrimExpr], *, matrix_axes: int = 2
) -> tuple[PrimExpr, ...]:
    """The leading index into ``x``, whose axes of size 1 broadcast.

    ``index`` is that of the whole batch; ``x`` may have fewer axes, which align at the end.
    """
    sizes = x.shape[: max(0, x.ndim - matrix_axes)]
    return tuple(
        const(0) if int_value(size) == 1 else i
        for size, i in zip(sizes, index[len(index) - len(sizes):], strict=True)
    )


def _rounded(sums: te.Tensor, dtype: DType) -> te.Tensor:
    if sums.dtype is dtype:
        return sums
    return te.compute(sums.shape, lambda *i: sums[i].astype(dtype), name="rounded")


def grouped_matmul(
    data: te.Tensor, weight: te.Tensor, sizes: te.Tensor, *, weight_layout: Layout, units: PrimExpr
) -> te.Tensor:
    """``out[m, n] = sum over k of data[m, k] * weight[group of m, n, k]``, of shape (M, units).

    Group g has ``sizes[g]`` rows, after those of the groups before it. Rows of no group are zero.
    Narrow floats are accumulated in float32 and rounded once.
    """
    rows, depth = data.shape
    groups, dtype, accumulator = sizes.shape[0], data.dtype, accumulator_dtype(data.dtype)
    before = te.reduce_axis(groups, name="before")
    zero, one = const(0, int64), const(1, int64)
    ends = te.compute((groups,), lambda g: te.sum(
        select(before.var <= g, sizes[before.var].astype(int64), zero), before), name="ends")
    passed = te.reduce_axis(groups, name="passed")
    group = te.compute((rows,), lambda m: te.sum(
        select(ends[passed.var] <= m, one, zero), passed), name="group")
    k = te.reduce_axis(depth, name="k")

    def element(m: PrimExpr, n: PrimExpr) -> PrimExpr:
        index = weight_layout.indices({"G": group[m], "N": n, "K": k.var})
        factor = if_then_else(group[m] < groups, weight[index].astype(accumulator),
                              const(0, accumulator))
        # Rows of no group are zero even where the data is not finite.
        value = select(group[m] < groups, data[m, k].astype(accumulator), const(0, accumulator))
        return te.sum(value * factor, k)

    sums = te.compute((rows, units), element, name="grouped_matmul")
    if accumulator is dtype:
        return sums
    return te.compute(sums.shape, lambda *i: sums[i].astype(dtype), name="rounded")
