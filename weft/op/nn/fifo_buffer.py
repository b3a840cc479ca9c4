"""A FIFO buffer along an axis, for streaming models."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Dim, Expr, RelationContext, Tuple, attr, linear, normalize_axis
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.op.gradients import attrs_of, tensor_type
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr, if_then_else


@dataclass(frozen=True, kw_only=True)
class FifoBufferAttrs(Attrs):
    axis: int = attr(0, "axis along which elements are shifted")


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    data, buffer = types
    ctx.expect_rank(1, buffer, data.ndim)
    ctx.expect_same_dtype(1, buffer, data.dtype)
    along = normalize_axis(ctx, ctx.attrs_as(FifoBufferAttrs).axis, data.ndim)
    for axis, (size, held) in enumerate(zip(data.shape, buffer.shape, strict=True)):
        if axis != along:
            ctx.expect_dim(1, axis, held, size, "the buffer does not fit the data")
        elif _is_longer(size, held):
            ctx.fail("the data is longer than the buffer", arg=0, axis=axis,
                     expected=f"at most {held}", got=size)
    ctx.output(buffer)
    return True


def _is_longer(size: Dim, held: Dim) -> bool:
    return isinstance(size, int) and isinstance(held, int) and size > held


@define_op("nn.fifo_buffer", attrs=FifoBufferAttrs, relation=_relation,
           pattern=OpPattern.INJECTIVE, level=3, traits=linear())
def fifo_buffer(data: te.Tensor, buffer: te.Tensor, attrs: FifoBufferAttrs) -> te.Tensor:
    """The buffer shifted along an axis by the length of the data, which fills its end."""
    axis = attrs.axis % data.ndim
    step = data.shape[axis]
    held = buffer.shape[axis] - step

    def element(*index: PrimExpr) -> PrimExpr:
        def at(position: PrimExpr) -> tuple[PrimExpr, ...]:
            return (*index[:axis], position, *index[axis + 1:])

        return if_then_else(index[axis] < held, buffer[at(index[axis] + step)],
                            data[at(index[axis] - held)])

    return te.compute(buffer.shape, element, name="fifo_buffer")


def _reference(data: np.ndarray, buffer: np.ndarray, axis: int = 0) -> np.ndarray:
    step = data.shape[axis]
    kept = np.take(buffer, range(step, buffer.shape[axis]), axis)
    return np.concatenate([kept, data], axis=axis)


@fifo_buffer.expansion
def _as_concatenation(call: Call) -> Expr | None:
    data, buffer = call.args
    axis = attrs_of(call, FifoBufferAttrs).axis % tensor_type(data).ndim
    step, size = tensor_type(data).shape[axis], tensor_type(buffer).shape[axis]
    if not isinstance(step, int) or not isinstance(size, int):
        return None
    kept = get_op("strided_slice")(buffer, begin=(step,), end=(size,), axes=(axis,))
    return get_op("concatenate")(Tuple((kept, data)), axis=axis)


fifo_buffer.spec(_reference, op_case((2, 3), (5, 3)), op_case((2, 1, 2), (2, 3, 2), axis=-2),
                 op_case((0, 3), (2, 3)))
