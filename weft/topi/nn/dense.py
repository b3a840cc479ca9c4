"""Matrix products."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import DType, float32
from weft.tir.expr import PrimExpr, const, int_value
from weft.topi.layout import Layout, convert_shape

NK = Layout.parse("NK")


def dense(
    data: te.Tensor, weight: te.Tensor, *, weight_layout: Layout, out_dtype: DType,
    units: int | None = None,
) -> te.Tensor:
    """``data[…, k] * weight[n, k]`` summed over ``k``; tag ``dense`` or ``dense_pack``.

    Narrow floats are summed in float32 and rounded once.

    The weight may be packed in panels (``NK16n``: shape (N // 16, K, 16)) or stored ``KN``. With
    ``units`` only so many columns of it are used.
    """
    columns = convert_shape(weight_layout, NK, weight.shape)[0] if units is None else const(units)
    k, wide = te.reduce_axis(data.shape[-1], name="k"), sum_type(out_dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        value = data[(*index[:-1], k.var)]
        factor = weight[weight_layout.indices({"N": index[-1], "K": k.var})]
        return te.sum(value.astype(wide) * factor.astype(wide), k)

    packed = weight_layout.block_index_of("N") is not None
    sums = te.compute((*data.shape[:-1], columns), element, name="dense",
                      tag="dense_pack" if packed else "dense")
    return _rounded(sums, out_dtype)


def matmul(
    a: te.Tensor, b: te.Tensor, *, transpose_a: bool, transpose_b: bool, out_dtype: DType
) -> te.Tensor:
    """The product of matrices, for each index of the leading axes, which broadcast.

    Tag ``matmul`` for two matrices, ``batch_matmul`` for stacks of them.
    """
    rows, depth = _swapped(a.shape[-2:], transpose_a)
    columns = _swapped(b.shape[-2:], transpose_b)[1]
    batch = tuple(
        y if int_value(x) == 1 else x for x, y in zip(a.shape[:-2], b.shape[:-2], strict=True)
    )
    k, wide = te.reduce_axis(depth, name="k"), sum_type(out_dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        *lead, i, j = index
        left = (*_own(a, lead), *_swapped((i, k.var), transpose_a))
        right = (*_own(b, lead), *_swapped((k.var, j), transpose_b))
        return te.sum(a[left].astype(wide) * b[right].astype(wide), k)

    name = "batch_matmul" if batch else "matmul"
    return _rounded(te.compute((*batch, rows, columns), element, name=name, tag=name), out_dtype)


def sum_type(dtype: DType) -> DType:
    """What products of ``dtype`` are added up in: floats of 16 bits and fewer in float32."""
    return float32 if dtype.is_float and dtype.bits <= 16 else dtype


def _rounded(sums: te.Tensor, dtype: DType) -> te.Tensor:
    if sums.dtype is dtype:
        return sums
    return te.compute(sums.shape, lambda *i: sums[i].astype(dtype), name="rounded",
                      tag="injective")


def _own(x: te.Tensor, lead: list[PrimExpr]) -> tuple[PrimExpr, ...]:
    """The leading index into ``x``, whose axes of size 1 repeat."""
    return tuple(
        const(0) if int_value(size) == 1 else i
        for i, size in zip(lead, x.shape[:-2], strict=True)
    )


def _swapped(pair: tuple[PrimExpr, ...], swap: bool) -> tuple[PrimExpr, PrimExpr]:
    first, second = pair
    return (second, first) if swap else (first, second)
