"""Matrix products and the addition of a bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import te
from weft.ir.attrs import Attrs, attr
from weft.ir.dtype import DType
from weft.ir.expr import Call, Expr
from weft.ir.op import OpPattern, case, define_op
from weft.ir.shape import Dim
from weft.ir.types import TensorType
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import broadcast_dims, normalize_axis
from weft.op.gradients import attrs_of
from weft.op.layout_inference import along_axis
from weft.op.relations import (
    attrs_as,
    expect_dim,
    expect_factor,
    expect_min_rank,
    expect_number,
    expect_rank,
    expect_same_dtype,
    layout_attr,
    output_dtype,
    tensors_known,
    to_layout,
)
from weft.tir.expr import PrimExpr
from weft.topi.layout import Layout, transform_array
from weft.topi.nn import dense as topi_dense

NK = Layout.parse("NK")


@dataclass(frozen=True, kw_only=True)
class DenseAttrs(Attrs):
    units: int | None = attr(None, "size of the result's last axis; None to read it off the "
                             "weight")
    out_dtype: DType | None = attr(None, "dtype of the sum and the result; None for the data's")
    weight_layout: str = attr("NK", "layout of the weight: NK, KN, or in panels such as NK16n")


def _dense_relation(ctx: RelationContext) -> bool:
    types = tensors_known(ctx, 2)
    if types is None:
        return False
    data, weight = types
    attrs = attrs_as(ctx, DenseAttrs)
    layout = layout_attr(ctx, "weight_layout")
    expect_min_rank(ctx, 0, data, 1)
    expect_rank(ctx, 1, weight, layout.ndim)
    expect_number(ctx, 0, data)
    expect_factor(ctx, weight, data, attrs.out_dtype)
    units, depth = to_layout(ctx, layout, NK, weight.shape, arg=1)
    if not _is_filled(depth, data.shape[-1], layout.factor_of("K")):
        expect_dim(ctx, 1, layout.index_of("K"), depth, data.shape[-1],
                   "the inner sizes do not match", why=" (the last axis of the data)",
                   help=f"the weight layout is {layout}: (units, inner size)"
                   if layout == NK else None)
    if attrs.units is not None:
        if not _is_filled(units, attrs.units, layout.factor_of("N")):
            expect_dim(ctx, 1, layout.index_of("N"), units, attrs.units,
                       "the number of units does not match", why=" (the attribute units)")
        units = attrs.units
    ctx.output(TensorType((*data.shape[:-1], units), output_dtype(attrs, data.dtype)))
    return True


def _is_filled(size: Dim, wanted: Dim, factor: int) -> bool:
    """Whether the last block of an axis in blocks of ``factor`` is filled up with what is not
    used.
    """
    both = isinstance(size, int) and isinstance(wanted, int)
    return both and 0 < size - wanted < factor


@define_op("nn.dense", attrs=DenseAttrs, relation=_dense_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1)
def dense(data: te.Tensor, weight: te.Tensor, attrs: DenseAttrs) -> te.Tensor:
    """out[…, n] = sum over k of data[…, k] * weight[n, k]

    Of a weight in panels the last ones may be filled up: ``units`` and the data say what is used.
    """
    return topi_dense.dense(data, weight, weight_layout=Layout.parse(attrs.weight_layout),
                            out_dtype=attrs.out_dtype or data.dtype, units=attrs.units)


def accumulate_in(dtype: Any) -> type:
    """The type in which references sum."""
    return np.int64 if np.issubdtype(dtype, np.integer) else np.float64


def _dense_reference(data: np.ndarray, weight: np.ndarray, out_dtype: DType | None = None,
                     weight_layout: str = "NK", units: int | None = None,
                     **_: Any) -> np.ndarray:
    wide = accumulate_in(data.dtype)
    plain = transform_array(weight, Layout.parse(weight_layout), NK)[:units, :data.shape[-1]]
    result = data.astype(wide) @ plain.astype(wide).T
    return np.asarray(result).astype(data.dtype if out_dtype is None else out_dtype.numpy)


dense.spec(_dense_reference, case((3, 5), (4, 5)), case((2, 3, 5), (7, 5), units=7),
           case((5,), (4, 5)), case((3, 5), (5, 4), weight_layout="KN"),
           case((3, 5), (2, 5, 4), weight_layout="NK4n"),
           case((3, 5), (2, 3, 4, 2), weight_layout="NK4n2k", units=7),
           case((3, 5), (4, 5), dtypes="int32", low=-9, high=9), case((0, 5), (4, 5)),
           case((2, 0), (3, 0)))


@dataclass(frozen=True, kw_only=True)
class MatmulAttrs(Attrs):
    transpose_a: bool = attr(False, "the first matrix is stored transposed")
    transpose_b: bool = attr(False, "the second matrix is stored transposed")
    out_dtype: DType | None = attr(None, "dtype of the sum and the result; None for that of a")


@dataclass(frozen=True, kw_only=True)
class BatchMatmulAttrs(Attrs):
    transpose_a: bool = attr(False, "the first matrices are stored transposed")
    transpose_b: bool = attr(True, "the second matrices are stored transposed, as in Relay")
    out_dtype: DType | None = attr(None, "dtype of the sum and the result; None for that of a")


def _product_relation(ctx: RelationContext) -> bool:
    """Two matrices, or two stacks of matrices of rank 3 whose counts broadcast."""
    types = tensors_known(ctx, 2)
    if types is None:
        return False
    a, b = types
    attrs = ctx.attrs
    rank = 3 if isinstance(attrs, BatchMatmulAttrs) else 2
    for arg, type_ in enumerate(types):
        expect_rank(ctx, arg, type_, rank)
        expect_number(ctx, arg, type_)
    expect_factor(ctx, b, a, getattr(attrs, "out_dtype", None))
    swap_a, swap_b = getattr(attrs, "transpose_a", False), getattr(attrs, "transpose_b", False)
    rows, depth = a.shape[-2:][::-1] if swap_a else a.shape[-2:]
    inner, columns = b.shape[-2:][::-1] if swap_b else b.shape[-2:]
    expect_dim(ctx, 1, rank - (1 if swap_b else 2), inner, depth, "the inner sizes do not match",
               why=f" (axis {rank - (2 if swap_a else 1)} of the first argument)",
               help=f"transpose_a is {swap_a}, transpose_b is {swap_b}")
    batch = _batch(ctx, a, b) if rank > 2 else ()
    ctx.output(TensorType((*batch, rows, columns), output_dtype(attrs, a.dtype)))
    return True


def _batch(ctx: RelationContext, a: TensorType, b: TensorType) -> tuple[Dim, ...]:
    size = broadcast_dims(a.shape[0], b.shape[0])
    if size is None:
        ctx.fail("the numbers of matrices do not match", arg=1, axis=0,
                 expected=f"{a.shape[0]} or 1", got=b.shape[0])
        return ()
    return (size,)


def _product_reference(a: np.ndarray, b: np.ndarray, transpose_a: bool = False,
                       transpose_b: bool = False, out_dtype: DType | None = None) -> np.ndarray:
    wide = accumulate_in(a.dtype)
    left = (a.swapaxes(-1, -2) if transpose_a else a).astype(wide)
    right = (b.swapaxes(-1, -2) if transpose_b else b).astype(wide)
    return (left @ right).astype(a.dtype if out_dtype is None else out_dtype.numpy)


def _batch_reference(a: np.ndarray, b: np.ndarray, transpose_a: bool = False,
                     transpose_b: bool = True, out_dtype: DType | None = None) -> np.ndarray:
    return _product_reference(a, b, transpose_a, transpose_b, out_dtype)


@define_op("nn.matmul", attrs=MatmulAttrs, relation=_product_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1)
def matmul(a: te.Tensor, b: te.Tensor, attrs: MatmulAttrs) -> te.Tensor:
    """The product of two matrices, either of which may be stored transposed."""
    return topi_dense.matmul(a, b, transpose_a=attrs.transpose_a, transpose_b=attrs.transpose_b,
                             out_dtype=attrs.out_dtype or a.dtype)


matmul.spec(_product_reference, case((3, 5), (5, 4)), case((5, 3), (5, 4), transpose_a=True),
            case((3, 5), (4, 5), transpose_b=True),
            case((5, 3), (4, 5), transpose_a=True, transpose_b=True), case((3, 0), (0, 2)))


@matmul.gradient
def _matmul_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    a, b = call.args
    attrs = attrs_of(call, MatmulAttrs)
    swap_a, swap_b = attrs.transpose_a, attrs.transpose_b
    da = (matmul(b, dy, transpose_a=swap_b, transpose_b=True) if swap_a
          else matmul(dy, b, transpose_b=not swap_b))
    db = (matmul(dy, a, transpose_a=True, transpose_b=swap_a) if swap_b
          else matmul(a, dy, transpose_a=not swap_a))
    return [da, db]


@define_op("nn.batch_matmul", attrs=BatchMatmulAttrs, relation=_product_relation,
           pattern=OpPattern.OUT_FUSABLE, level=10)
def batch_matmul(a: te.Tensor, b: te.Tensor, attrs: BatchMatmulAttrs) -> te.Tensor:
    """The products of two stacks of matrices; a stack of one is used for all of the other."""
    return topi_dense.matmul(a, b, transpose_a=attrs.transpose_a, transpose_b=attrs.transpose_b,
                             out_dtype=attrs.out_dtype or a.dtype)


batch_matmul.spec(_batch_reference, case((2, 3, 5), (2, 4, 5)),
                  case((2, 3, 5), (2, 5, 4), transpose_b=False),
                  case((1, 5, 3), (2, 5, 4), transpose_a=True, transpose_b=False),
                  case((3, 2, 4), (1, 5, 4)))


@dataclass(frozen=True, kw_only=True)
class BiasAddAttrs(Attrs):
    axis: int = attr(1, "axis of the data that the bias runs along")


def _bias_add_relation(ctx: RelationContext) -> bool:
    types = tensors_known(ctx, 2)
    if types is None:
        return False
    data, bias = types
    axis = normalize_axis(ctx, attrs_as(ctx, BiasAddAttrs).axis, data.ndim)
    expect_rank(ctx, 1, bias, 1)
    expect_number(ctx, 0, data)
    expect_same_dtype(ctx, 1, bias, data.dtype)
    size = expect_dim(ctx, 1, 0, bias.shape[0], data.shape[axis], "the bias does not fit the data",
                      why=f" (axis {axis} of the data)")
    ctx.output(TensorType((*data.shape[:axis], size, *data.shape[axis + 1:]), data.dtype))
    return True


@define_op("nn.bias_add", attrs=BiasAddAttrs, relation=_bias_add_relation,
           pattern=OpPattern.BROADCAST, level=1)
def bias_add(data: te.Tensor, bias: te.Tensor, attrs: BiasAddAttrs) -> te.Tensor:
    """``data`` plus a vector along one axis."""
    axis = attrs.axis % data.ndim

    def element(*index: PrimExpr) -> PrimExpr:
        return data[index] + bias[index[axis]]

    return te.compute(data.shape, element, name="bias_add", tag="broadcast")


def _bias_add_reference(data: np.ndarray, bias: np.ndarray, axis: int = 1) -> np.ndarray:
    shape = [1] * data.ndim
    shape[axis] = bias.size
    return data + bias.reshape(shape)


bias_add.layout(along_axis())
bias_add.spec(_bias_add_reference, case((2, 3, 4, 5), (3,)), case((3, 5), (5,), axis=-1),
              case((3, 5), (3,), axis=0))
