"""Tensors made from attributes or from a shape: zeros, ones, full, shape_of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Dim, Expr, KnownDim, RelationContext, TensorType, attr, sizes_from
from weft.ir.dtype import DType, float32, int64
from weft.ir.op import Op, OpPattern, define_op, op_case
from weft.ir.traits import ZERO_GRADIENT, OpTraits, linear
from weft.op.batching import aligned, with_attrs
from weft.op.gradients import attrs_of, known_shape, tensor_type
from weft.support.dataclass import dataclass
from weft.tir.expr import const
from weft.topi import indexing
from weft.topi.sizes import as_sizes


@dataclass(frozen=True, kw_only=True)
class CreateAttrs(Attrs):
    shape: tuple[KnownDim, ...] = attr(doc="sizes of the result", expected="sizes >= 0",
                                       check=sizes_from(0))
    dtype: DType = attr(float32, "dtype of the result")


def _created(ctx: RelationContext) -> bool:
    attrs = ctx.attrs_as(CreateAttrs)
    ctx.output(TensorType(attrs.shape, attrs.dtype))
    return True


def _constant_op(name: str, value: int, doc: str) -> Op:
    def run(attrs: CreateAttrs) -> te.Tensor:
        return indexing.full(as_sizes(attrs.shape), const(value, attrs.dtype), name)

    run.__doc__ = doc
    op = define_op(name, attrs=CreateAttrs, relation=_created, pattern=OpPattern.ELEMWISE,
                   inputs=(), level=3,
                   traits=OpTraits(is_creation=True, has_zero_gradient=True))(run)
    op.spec(lambda shape, dtype=float32: np.full(shape, value, DType.of(dtype).numpy),
            op_case(shape=(2, 3)), op_case(shape=(), dtype="int32"), op_case(shape=(0, 2)))
    return op


zeros = _constant_op("zeros", 0, "A tensor of zeros.")
ones = _constant_op("ones", 1, "A tensor of ones.")


@dataclass(frozen=True, kw_only=True)
class FullAttrs(Attrs):
    shape: tuple[KnownDim, ...] = attr(doc="sizes of the result", expected="sizes >= 0",
                                       check=sizes_from(0))
    dtype: DType | None = attr(None, "dtype of the result; None for that of the value")


def _full_relation(ctx: RelationContext) -> bool:
    value = ctx.tensor(0)
    if value is None:
        return False
    if value.ndim:
        ctx.fail("the fill value is not a scalar", arg=0, expected="rank 0", got=value)
    attrs = ctx.attrs_as(FullAttrs)
    ctx.output(TensorType(attrs.shape, attrs.dtype or value.dtype))
    return True


@define_op("full", attrs=FullAttrs, relation=_full_relation, pattern=OpPattern.BROADCAST, level=3,
           traits=linear(OpTraits(is_creation=True)))
def full(fill_value: te.Tensor, attrs: FullAttrs) -> te.Tensor:
    """A tensor filled with a scalar."""
    value = fill_value[()].astype(attrs.dtype or fill_value.dtype)
    return indexing.full(as_sizes(attrs.shape), value)


def _full_reference(value: Any, shape: tuple[int, ...], dtype: DType | None = None) -> np.ndarray:
    array = np.asarray(value)
    return np.full(shape, array, array.dtype if dtype is None else DType.of(dtype).numpy)


full.refer(shape_value="weft.op.shape_values:filled")
full.spec(_full_reference, op_case((), shape=(2, 3)), op_case((), shape=(), dtypes="int32"),
          op_case((), shape=(4,), dtype="int64", low=-9, high=9))


@full.gradient
def _full_gradient(_call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [op.sum(dy)]


@dataclass(frozen=True, kw_only=True)
class ShapeOfAttrs(Attrs):
    dtype: DType = attr(int64, "dtype of the sizes",
                        check=lambda d: DType.of(d).is_int, expected="an integer dtype")


def _shape_of_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.output(TensorType((source.ndim,), ctx.attrs_as(ShapeOfAttrs).dtype))
    return True


@define_op("shape_of", attrs=ShapeOfAttrs, relation=_shape_of_relation, pattern=OpPattern.OPAQUE,
           level=10, traits=replace(ZERO_GRADIENT, reads_shape_only=True))
def shape_of(x: te.Tensor, attrs: ShapeOfAttrs) -> te.Tensor:
    """The sizes of x as a tensor of one axis."""
    return indexing.shape_of(x, attrs.dtype)


shape_of.refer(shape_value="weft.op.shape_values:sizes")
shape_of.spec(lambda x, dtype=int64: np.asarray(x.shape, DType.of(dtype).numpy),
              op_case((2, 3, 5)), op_case((4,), dtype="int32"))


@full.batching
def _full_each(call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], size: Dim) -> Expr:
    type_ = tensor_type(call)
    value = op.cast(aligned(args[0], call.args[0], type_.ndim), dtype=type_.dtype)
    return op.broadcast_to(value, shape=(size, *attrs_of(call, FullAttrs).shape))


@shape_of.batching
def _shape_of_each(
    call: Call, _args: Sequence[Expr], _is_batched: Sequence[bool], size: Dim
) -> Expr:
    """The same sizes for all examples, read off a tensor of one example's shape."""
    one = op.zeros(shape=known_shape(call.args[0], call), dtype="bool")
    return op.broadcast_to(with_attrs(call, (one,)), shape=(size, tensor_type(call.args[0]).ndim))
