"""Matrix multiplication by groups of rows, by definition."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import int64
from weft.tir.expr import PrimExpr, const, if_then_else, select
from weft.topi.layout import Layout
from weft.topi.nn.dense import accumulator_dtype


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
