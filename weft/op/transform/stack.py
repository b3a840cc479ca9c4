"""Stacking along a new axis, repetition of elements, and sliding windows: stack, repeat,
sliding_window.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, TensorType, Tuple, TupleType, attr, normalize_axis, size_from
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.shape import Dim, KnownDim, dim_add, dim_floordiv, dim_mul, dim_product, dim_sub
from weft.ir.traits import COPIES_ELEMENTS, linear
from weft.ir.typing.relation import RelationContext
from weft.op.batching import along, with_attrs
from weft.op.gradients import attrs_of, known_shape, tensor_type
from weft.op.indexing_gradients import gather_gradient
from weft.support.dataclass import dataclass
from weft.topi import indexing, transform
from weft.topi.sizes import as_size


@dataclass(frozen=True, kw_only=True)
class StackAttrs(Attrs):
    axis: int = attr(0, "position of the new axis in the result")


def _stack_relation(ctx: RelationContext) -> bool:
    parts = ctx.tensors(0)
    if parts is None:
        return False
    if not parts:
        ctx.fail("there is nothing to stack", arg=0, expected="one tensor or more",
                 got="an empty tuple")
    first = parts[0]
    axis = normalize_axis(ctx, ctx.attrs_as(StackAttrs).axis, first.ndim + 1)
    shape: list[Dim] = list(first.shape)
    for part in parts[1:]:
        ctx.expect_rank(0, part, first.ndim)
        ctx.expect_same_dtype(0, part, first.dtype)
        for i, size in enumerate(part.shape):
            shape[i] = ctx.expect_dim(0, i, shape[i], size, "the tensors differ in shape")
    ctx.output(TensorType((*shape[:axis], len(parts), *shape[axis:]), first.dtype))
    return True


@define_op("stack", attrs=StackAttrs, relation=_stack_relation, pattern=OpPattern.INJECTIVE,
           inputs=("*tensors",), level=3, traits=linear())
def stack(tensors: tuple[te.Tensor, ...], attrs: StackAttrs) -> te.Tensor:
    """The tensors of a tuple, all of one shape, stacked along a new axis."""
    axis = attrs.axis % (tensors[0].ndim + 1)
    return transform.concatenate([transform.expand_dims(t, axis, 1) for t in tensors], axis)


def _stack_reference(tensors: Sequence[np.ndarray], axis: int = 0) -> np.ndarray:
    return np.stack(tensors, axis)


stack.spec(_stack_reference, op_case([(2, 3), (2, 3)]), op_case([(2, 3), (2, 3), (2, 3)], axis=-1),
           op_case([(), ()]), op_case([(4,)], axis=1), op_case([(0, 2), (0, 2)], axis=1))


@stack.gradient
def _stack_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    type_ = call.args[0].checked_type
    count = len(type_.fields) if isinstance(type_, TupleType) else 0
    axis = attrs_of(call, StackAttrs).axis
    take = get_op("take")
    return [Tuple(tuple(take(dy, np.int64(n), axis=axis) for n in range(count)))]


@dataclass(frozen=True, kw_only=True)
class RepeatAttrs(Attrs):
    repeats: KnownDim = attr(doc="repetitions of each element", check=size_from(0),
                             expected="0 or more")
    axis: int | None = attr(None, "axis along which elements are repeated; None for all elements "
                            "in row-major order")


def _repeat_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(RepeatAttrs)
    shape = source.shape if attrs.axis is not None else (dim_product(source.shape),)
    axis = normalize_axis(ctx, attrs.axis or 0, len(shape))
    size = dim_mul(shape[axis], attrs.repeats)
    ctx.output(TensorType((*shape[:axis], size, *shape[axis + 1:]), source.dtype))
    return True


@define_op("repeat", attrs=RepeatAttrs, relation=_repeat_relation, pattern=OpPattern.INJECTIVE,
           level=3, traits=COPIES_ELEMENTS)
def repeat(x: te.Tensor, attrs: RepeatAttrs) -> te.Tensor:
    """Each element along an axis, repeated in place."""
    if attrs.axis is None:
        x = transform.reshape(x, transform.resolve_shape(x.shape, (-1,)), "flat")
    return indexing.repeat(x, as_size(attrs.repeats), (attrs.axis or 0) % x.ndim)


repeat.spec(np.repeat, op_case((2, 3), repeats=2, axis=1), op_case((2, 3), repeats=3, axis=-2),
            op_case((2, 3), repeats=2), op_case((), repeats=3), op_case((4,), repeats=0, axis=0),
            op_case((0, 2), repeats=2, axis=0))


@repeat.gradient
def _repeat_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The sum of the gradients of the copies of an element."""
    attrs, shape = attrs_of(call, RepeatAttrs), known_shape(call.args[0], call)
    axis = len(shape) if attrs.axis is None else attrs.axis % len(shape) + 1
    copies = (*shape[:axis], attrs.repeats, *shape[axis:])
    return [get_op("sum")(get_op("reshape")(dy, newshape=copies, allowzero=True), axis=axis)]


@dataclass(frozen=True, kw_only=True)
class SlidingWindowAttrs(Attrs):
    axis: int = attr(doc="first axis that the window slides along", expected="an int")
    window_shape: tuple[int, ...] = attr(doc="sizes of the window", expected="numbers >= 1",
                                         check=lambda s: len(s) > 0 and all(n > 0 for n in s))
    strides: tuple[int, ...] = attr(doc="steps of the window, one per axis of the window",
                                    expected="numbers >= 1",
                                    check=lambda s: all(n > 0 for n in s))


def _sliding_window_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(SlidingWindowAttrs)
    axis = normalize_axis(ctx, attrs.axis, source.ndim)
    window = attrs.window_shape
    if axis + len(window) != source.ndim or len(window) != len(attrs.strides):
        ctx.fail("the window must cover all axes from its first one on", arg=0,
                 expected=f"{source.ndim - axis} sizes and as many strides",
                 got=f"window_shape {window}, strides {attrs.strides}")
    positions = tuple(_positions(ctx, axis + n, source.shape[axis + n], size, stride)
                   for n, (size, stride) in enumerate(zip(window, attrs.strides, strict=True)))
    ctx.output(TensorType((*source.shape[:axis], *positions, *window), source.dtype))
    return True


def _positions(ctx: RelationContext, axis: int, size: Dim, window: int, stride: int) -> Dim:
    if isinstance(size, int) and size < window:
        ctx.fail("the window is larger than the data", arg=0, axis=axis,
                 expected=f"{window} or more", got=size)
    return dim_add(dim_floordiv(dim_sub(size, window), stride), 1)


@define_op("sliding_window", attrs=SlidingWindowAttrs, relation=_sliding_window_relation,
           pattern=OpPattern.INJECTIVE, level=10, traits=linear())
def sliding_window(x: te.Tensor, attrs: SlidingWindowAttrs) -> te.Tensor:
    """All positions of a sliding window: window positions first, then the axes of the window."""
    return indexing.sliding_window(x, attrs.axis % x.ndim, attrs.window_shape, attrs.strides)


def _sliding_window_reference(
    x: np.ndarray, axis: int, window_shape: Sequence[int], strides: Sequence[int]
) -> np.ndarray:
    axis %= x.ndim
    seen = np.lib.stride_tricks.sliding_window_view(
        x, tuple(window_shape), tuple(range(axis, x.ndim)))
    steps = (slice(None),) * axis + tuple(slice(None, None, s) for s in strides)
    return np.ascontiguousarray(seen[steps])


sliding_window.spec(
    _sliding_window_reference, op_case((2, 7), axis=1, window_shape=(3,), strides=(2,)),
    op_case((2, 6, 5), axis=-2, window_shape=(2, 3), strides=(2, 1)),
    op_case((4,), axis=0, window_shape=(4,), strides=(1,)),
    op_case((0, 3), axis=1, window_shape=(2,), strides=(1,)),
)


sliding_window.gradient(gather_gradient)


sliding_window.batching(along("axis"))


@stack.batching
def _stack_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], _size: Dim
) -> Expr:
    axis = attrs_of(call, StackAttrs).axis % tensor_type(call).ndim + 1
    return with_attrs(call, args, axis=axis)


@repeat.batching
def _repeat_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], size: Dim
) -> Expr:
    axis, x = attrs_of(call, RepeatAttrs).axis, args[0]
    shape = known_shape(call.args[0], call)
    if axis is None or not shape:
        flat = get_op("reshape")(x, newshape=(size, dim_product(shape)), allowzero=True)
        return with_attrs(call, [flat], axis=1)
    return with_attrs(call, [x], axis=axis % len(shape) + 1)

for _op in (stack, repeat):
    _op.refer(shape_value="weft.op.shape_values:moved")
