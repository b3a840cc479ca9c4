"""Operators that take only the shape or dtype of a second tensor, not its elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, Call, DType, Expr, NoAttrs, TensorType, attr, int64, sizes_from
from weft.ir.op import BatchingRule, Case, Op, OpPattern, define_op, get_op, op_case
from weft.ir.shape import Dim, KnownDim, Shape, dim_product, dim_sub, may_be_at_least, may_be_equal
from weft.ir.traits import ZERO_GRADIENT, OpTraits, linear
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import broadcast_dims, identity_relation, normalize_axes
from weft.op.batching import aligned, all_repeated, to_example_shape, with_attrs
from weft.op.families import UNARY_CASES, unary
from weft.op.gradients import applied_to_first_tangent, attrs_of, known_shape, scalar, tensor_type
from weft.support.dataclass import dataclass
from weft.tir.expr import as_prim, const
from weft.topi import broadcast, elementwise, indexing, transform
from weft.topi import reduce as topi_reduce
from weft.topi.sizes import as_sizes

zeros_like = unary("zeros_like", np.zeros_like, doc="Zeros in the shape and dtype of x.",
                   compute=lambda x: indexing.full(x.shape, const(0, x.dtype), "zeros_like"),
                   relation=identity_relation,
                   cases=(*UNARY_CASES, op_case((2, 3), dtypes="int8", low=0, high=3)),
                   grad=lambda _call, _y, dy: [zeros_like(dy)],
                   traits=OpTraits(reads_shape_only=True))
ones_like = unary("ones_like", np.ones_like, doc="Ones in the shape and dtype of x.",
                  compute=lambda x: indexing.full(x.shape, const(1, x.dtype), "ones_like"),
                  relation=identity_relation,
                  cases=(*UNARY_CASES, op_case((2, 3), dtypes="int8", low=0, high=3)),
                  grad=lambda _call, _y, dy: [zeros_like(dy)],
                  traits=OpTraits(reads_shape_only=True))


def _like(
    name: str, reference: Callable[..., np.ndarray], shape: Callable[..., Shape],
    compute: Callable[[te.Tensor, te.Tensor, Any], te.Tensor],
    grad: Callable[[Call, Expr], Expr], *, doc: str, cases: Sequence[Case],
    attrs: type[Attrs] = NoAttrs, pattern: OpPattern = OpPattern.INJECTIVE,
) -> Op:
    """An operator on ``x`` that reads only the type of ``like``; ``shape(ctx, x, like)`` checks it.

    ``grad(call, dy)`` is the gradient of ``x``; the gradient of ``like`` is zero.
    """

    def run(x: te.Tensor, like: te.Tensor, attrs: Attrs) -> te.Tensor:
        return compute(x, like, attrs)

    def relation(ctx: RelationContext) -> bool:
        types = ctx.tensors_known(2)
        if types is None:
            return False
        dtype = types[name == "cast_like"].dtype
        ctx.output(TensorType(shape(ctx, *types), dtype))
        return True

    run.__doc__ = doc
    op = define_op(name, attrs=attrs, relation=relation, pattern=pattern, level=10,
                   inputs=("x", "like"))(run)
    op.spec(reference, *cases)
    op.gradient(lambda call, _y, dy: [grad(call, dy), zeros_like(call.args[1])])
    op.jvp(applied_to_first_tangent)
    return op


def _broadcast_shape(ctx: RelationContext, x: TensorType, like: TensorType) -> Shape:
    """The shape of ``like``, to which ``x`` must broadcast."""
    lead = like.ndim - x.ndim
    if lead < 0:
        ctx.fail("cannot broadcast to a smaller rank", arg=0, expected=f"rank {like.ndim} or less",
                 got=x)
    for axis, size in enumerate(x.shape):
        if broadcast_dims(like.shape[lead + axis], size) is None or (
            like.shape[lead + axis] == 1 and not may_be_equal(size, 1)
        ):
            ctx.fail("cannot broadcast", arg=0, axis=axis,
                     expected=f"{like.shape[lead + axis]} or 1", got=size)
    return like.shape


def _collapse(x: te.Tensor, like: te.Tensor, _attrs: Attrs) -> te.Tensor:
    return topi_reduce.collapse_sum(x, like.shape)


def collapse_reference(x: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """``x`` summed over the axes along which ``shape`` broadcasts to it."""
    lead = x.ndim - len(shape)
    axes = tuple(a for a in range(x.ndim)
                 if a < lead or (shape[a - lead] == 1 and x.shape[a] != 1))
    return np.sum(x, axis=axes, keepdims=True).reshape(shape).astype(x.dtype)


_SMALL = (op_case((3, 1), (2, 3, 5)), op_case((), (4,)), op_case((5,), (5,)),
          op_case((1, 2), (0, 2)))
_LARGE = (op_case((2, 3, 5), (3, 1)), op_case((4,), ()), op_case((5,), (5,)),
          op_case((0, 2), (1, 2)))

broadcast_to_like = _like(
    "broadcast_to_like", lambda x, like: np.array(np.broadcast_to(x, like.shape), order="C"),
    _broadcast_shape, lambda x, like, _: broadcast.broadcast_to(x, like.shape),
    lambda call, dy: collapse_sum_like(dy, call.args[0]),
    doc="x repeated to the shape of like.", cases=_SMALL, pattern=OpPattern.BROADCAST)
collapse_sum_like = _like(
    "collapse_sum_like", lambda x, like: collapse_reference(x, like.shape),
    lambda ctx, x, like: (_broadcast_shape(ctx, like, x), like.shape)[1], _collapse,
    lambda call, dy: broadcast_to_like(dy, call.args[0]),
    doc="x summed to the shape of like, which broadcasts to that of x.", cases=_LARGE,
    pattern=OpPattern.COMM_REDUCE)
cast_like = _like(
    "cast_like", lambda x, like: x.astype(like.dtype), lambda _ctx, x, _like: x.shape,
    lambda x, like, _: elementwise.cast(x, like.dtype),
    lambda call, dy: get_op("cast")(dy, dtype=tensor_type(call.args[0]).dtype),
    doc="x in the dtype of like.",
    cases=(op_case((2, 3), (4,), dtypes=("int32", "float32"), low=-9, high=9),
           op_case((), (0,), dtypes=("float32", "int64"), low=-9, high=9)))


@dataclass(frozen=True, kw_only=True)
class SliceLikeAttrs(Attrs):
    axes: tuple[int, ...] | None = attr(None, "axes that are sliced; None for all")


def _cut_axes(axes: Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    return tuple(range(ndim)) if axes is None else tuple(a % ndim for a in axes)


def _slice_shape(ctx: RelationContext, x: TensorType, like: TensorType) -> Shape:
    attrs = ctx.attrs_as(SliceLikeAttrs)
    normalize_axes(ctx, attrs.axes or (), min(x.ndim, like.ndim), name="axes")
    axes = _cut_axes(attrs.axes, x.ndim)
    if any(a >= like.ndim for a in axes):
        ctx.fail("the tensors differ in rank", arg=1, expected=f"rank {x.ndim}", got=like,
                 help="name the axes to slice with axes=(...)")
    for axis in axes:
        have, want = x.shape[axis], like.shape[axis]
        if not may_be_at_least(have, want):
            ctx.fail("an axis of x is shorter than that of like", arg=0, axis=axis,
                     expected=f"{want} or more", got=have)
    return tuple(like.shape[a] if a in axes else d for a, d in enumerate(x.shape))


def _slice_like_compute(x: te.Tensor, like: te.Tensor, attrs: SliceLikeAttrs) -> te.Tensor:
    axes = _cut_axes(attrs.axes, x.ndim)
    shape = [like.shape[a] if a in axes else d for a, d in enumerate(x.shape)]
    return transform.strided_slice(x, [0] * x.ndim, [1] * x.ndim, shape)


def _slice_like_reference(
    x: np.ndarray, like: np.ndarray, axes: tuple[int, ...] | None = None
) -> np.ndarray:
    cut = _cut_axes(axes, x.ndim)
    return x[tuple(slice(like.shape[a] if a in cut else None) for a in range(x.ndim))].copy()


def _slice_like_gradient(call: Call, dy: Expr) -> Expr:
    """The gradient, padded with zeros at the end."""
    whole, part = tensor_type(call.args[0]), tensor_type(call)
    missing = [dim_sub(a, b) for a, b in zip(whole.shape, part.shape, strict=True)]
    return get_op("nn.pad")(dy, scalar(0.0, dy), pad_width=tuple((0, m) for m in missing))


slice_like = _like(
    "slice_like", _slice_like_reference, _slice_shape, _slice_like_compute, _slice_like_gradient,
    attrs=SliceLikeAttrs, doc="The leading elements of x, in the sizes of like along some axes.",
    cases=(op_case((4, 5), (2, 3)), op_case((4, 5, 2), (2, 9), axes=(0,)),
           op_case((3, 4), (0, 2), axes=(-1,)), op_case((3,), (0,))))


@dataclass(frozen=True, kw_only=True)
class ReshapeLikeAttrs(Attrs):
    lhs_begin: int = attr(0, "first axis of x that is replaced")
    lhs_end: int | None = attr(None, "axis of x after the last that is replaced; None for all")
    rhs_begin: int = attr(0, "first axis of like that replaces them")
    rhs_end: int | None = attr(None, "axis of like after the last; None for all")


def _reshaped(x: Sequence[Any], like: Sequence[Any], attrs: ReshapeLikeAttrs) -> tuple[Any, ...]:
    before, _, after = _parts(x, attrs.lhs_begin, attrs.lhs_end)
    _, middle, _ = _parts(like, attrs.rhs_begin, attrs.rhs_end)
    return (*before, *middle, *after)


def _parts(shape: Sequence[Any], begin: int, end: int | None) -> tuple[Sequence[Any], ...]:
    first, last, _ = slice(begin, end).indices(len(shape))
    return shape[:first], shape[first:max(first, last)], shape[max(first, last):]


def _reshape_like_shape(ctx: RelationContext, x: TensorType, like: TensorType) -> Shape:
    shape = _reshaped(x.shape, like.shape, ctx.attrs_as(ReshapeLikeAttrs))
    if not may_be_equal(dim_product(x.shape), dim_product(shape)):
        ctx.fail("the number of elements changes", arg=0,
                 expected=f"{dim_product(shape)} elements, as {like} asks for", got=x)
    return shape


reshape_like = _like(
    "reshape_like",
    lambda x, like, **attrs: x.reshape(_reshaped(x.shape, like.shape, ReshapeLikeAttrs(**attrs))),
    _reshape_like_shape,
    lambda x, like, attrs: transform.reshape(x, _reshaped(x.shape, like.shape, attrs)),
    lambda call, dy: reshape_like(dy, call.args[0]),
    attrs=ReshapeLikeAttrs, doc="The elements of x in the shape of like.",
    cases=(op_case((2, 6), (3, 4)), op_case((6, 5), (2, 3, 9), lhs_end=1, rhs_end=2),
           op_case((0, 3), (3, 0)), op_case((), (1, 1))))


def _full_like_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    if types[1].ndim:
        ctx.fail("the fill value is not a scalar", arg=1, expected="rank 0", got=types[1])
    ctx.expect_same_dtype(1, types[1], types[0].dtype)
    ctx.output(types[0])
    return True


@define_op("full_like", relation=_full_like_relation, pattern=OpPattern.BROADCAST, level=3,
           inputs=("x", "fill_value"))
def full_like(x: te.Tensor, fill_value: te.Tensor, _attrs: Attrs) -> te.Tensor:
    """A tensor of the shape of x, filled with a scalar."""
    return indexing.full(x.shape, fill_value[()], "full_like")


full_like.spec(np.full_like, op_case((2, 3), ()), op_case((), ()), op_case((0, 2), ()),
               op_case((4,), (), dtypes="int32", low=-9, high=9))
full_like.gradient(lambda call, _y, dy: [zeros_like(call.args[0]), get_op("sum")(dy)])


@dataclass(frozen=True, kw_only=True)
class CollapseSumToAttrs(Attrs):
    shape: tuple[KnownDim, ...] = attr(doc="sizes of the result", expected="sizes >= 0",
                                       check=sizes_from(0))


def _collapse_sum_to_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    result = TensorType(ctx.attrs_as(CollapseSumToAttrs).shape, source.dtype)
    _broadcast_shape(ctx, result, source)
    ctx.output(result)
    return True


@define_op("collapse_sum_to", attrs=CollapseSumToAttrs, relation=_collapse_sum_to_relation,
           pattern=OpPattern.COMM_REDUCE, level=4, traits=linear())
def collapse_sum_to(x: te.Tensor, attrs: CollapseSumToAttrs) -> te.Tensor:
    """``x`` summed to a shape that broadcasts to the shape of x."""
    return topi_reduce.collapse_sum(x, [as_prim(d) for d in as_sizes(attrs.shape)])


collapse_sum_to.spec(collapse_reference, op_case((2, 3, 5), shape=(3, 1)), op_case((4,), shape=()),
                     op_case((2, 3), shape=(2, 3)), op_case((0, 2), shape=(1, 2)))
collapse_sum_to.gradient(lambda call, _y, dy: [broadcast_to_like(dy, call.args[0])])


@dataclass(frozen=True, kw_only=True)
class NdarraySizeAttrs(Attrs):
    dtype: DType = attr(int64, "dtype of the number", check=lambda d: DType.of(d).is_int,
                        expected="an integer dtype")


def _ndarray_size_relation(ctx: RelationContext) -> bool:
    if ctx.tensor(0) is None:
        return False
    ctx.output(TensorType((), ctx.attrs_as(NdarraySizeAttrs).dtype))
    return True


@define_op("ndarray_size", attrs=NdarraySizeAttrs, relation=_ndarray_size_relation, level=10,
           traits=replace(ZERO_GRADIENT, reads_shape_only=True))
def ndarray_size(x: te.Tensor, attrs: NdarraySizeAttrs) -> te.Tensor:
    """The number of elements of x, a scalar."""
    return indexing.full((), topi_reduce.count(x, range(x.ndim)).astype(attrs.dtype), "size")


ndarray_size.refer(shape_value="weft.op.shape_values:size")
ndarray_size.spec(lambda x, dtype=int64: np.asarray(x.size, DType.of(dtype).numpy),
                  op_case((2, 3)), op_case(()), op_case((0, 2), dtype="int32"))


def _as_static(operator: str) -> BatchingRule:
    """The rule of an operator that reads a shape of ``like``: ``operator`` has an attribute."""

    def rule(call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim) -> Expr:
        x, example = args[0], call.args[0]
        shape = known_shape(call, call)
        if not is_batched[0]:
            made = get_op(operator)(x, shape=shape)
            return get_op("broadcast_to")(made, shape=(size, *shape))
        rank = max(len(shape), tensor_type(example).ndim)
        spread = (size, *(1,) * (rank - len(shape)), *shape)
        made = get_op(operator)(aligned(x, example, rank), shape=spread)
        return get_op("reshape")(made, newshape=(size, *shape), allowzero=True)

    return rule


broadcast_to_like.batching(_as_static("broadcast_to"))
collapse_sum_like.batching(_as_static("collapse_sum_to"))


@collapse_sum_to.batching
def _collapse_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], size: Dim
) -> Expr:
    rank, shape = tensor_type(call.args[0]).ndim, attrs_of(call, CollapseSumToAttrs).shape
    made = with_attrs(call, args, shape=(size, *(1,) * (rank - len(shape)), *shape))
    return get_op("reshape")(made, newshape=(size, *shape), allowzero=True)


@reshape_like.batching
def _reshape_like_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    new = all_repeated(call, args, (is_batched[0], True), size)
    return to_example_shape(call, new, (True, False), size)


@cast_like.batching
def _cast_like_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr:
    new = all_repeated(call, args, (is_batched[0], True), size)
    return get_op("cast")(new[0], dtype=tensor_type(call).dtype)


@slice_like.batching
def _slice_like_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr:
    new = all_repeated(call, args, (is_batched[0], True), size)
    shape = known_shape(call, call)
    axes = tuple(range(1, len(shape) + 1))
    return get_op("strided_slice")(new[0], begin=(0,) * len(shape), end=shape, axes=axes)


@full_like.batching
def _full_like_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr:
    value = all_repeated(call, args, (True, is_batched[1]), size)[1]
    shape = known_shape(call, call)
    return get_op("broadcast_to")(aligned(value, call.args[1], len(shape)), shape=(size, *shape))


@ndarray_size.batching
def _size_of_each(
    call: Call, _args: Sequence[Expr], _is_batched: Sequence[bool], size: Dim
) -> Expr:
    """The same number for all examples, computed on one."""
    one = get_op("zeros")(shape=known_shape(call.args[0], call), dtype="bool")
    return get_op("broadcast_to")(with_attrs(call, (one,)), shape=(size,))
