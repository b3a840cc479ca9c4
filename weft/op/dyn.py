"""Operators with a shape, axes or a count as an operand: ``op.dyn.reshape(x, newshape)``.

Each is the operator of that name with an attribute moved to an operand; unknown sizes of its result
are ``?``. Once the operand is known, the call becomes one of the static operator. So these have a
compute only where arguments bound the result (see ``weft.ir.dynamic``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import op
from weft.ir import (
    ANY,
    Call,
    Constant,
    DType,
    Expr,
    GradientRule,
    Linearity,
    OpTraits,
    Shape,
    TensorType,
    Tuple,
    TupleType,
    Type,
    const,
    dim_product,
    infer_expr,
    int64,
)
from weft.ir.attrs import Attrs, NoAttrs, attrs_without
from weft.ir.dynamic import Bounds, StaticForm
from weft.ir.op import Case, Op, OpPattern, define_op, op_case
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import normalize_axes, normalize_axis
from weft.op import broadcast
from weft.op.gradients import (
    applied_to_first_tangent,
    fixed_sizes,
    known_shape,
    numbered,
    scalar,
    tensor_type,
    to_order,
    typed_zeros,
)
from weft.op.image import resize
from weft.op.indexing_gradients import gather_gradient
from weft.op.nn.pad import PadAttrs as StaticPadAttrs
from weft.op.nn.pad import pad as static_pad
from weft.op.nn.upsampling import UpSampling3DAttrs as StaticUpSampling3DAttrs
from weft.op.nn.upsampling import UpSamplingAttrs as StaticUpSamplingAttrs
from weft.op.nn.upsampling import upsampling as static_upsampling
from weft.op.nn.upsampling import upsampling3d as static_upsampling3d
from weft.op.relations import tensor_of
from weft.op.transform import arange as counting
from weft.op.transform import create, mask, order, repeat, sparse
from weft.op.transform import shape as shapes
from weft.op.transform import slice as slice_
from weft.support.errors import LoweringError
from weft.topi import locate


def _typed(x: Expr) -> Expr:
    return infer_expr(x, trust=True)


def pad_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The operator applied to the numbers of the elements tells where each result comes from.

    The value that pads has number -1, which ``scatter_elements`` drops.
    """
    x, widths, _ = call.args
    shape = known_shape(x, call)
    numbers = call.op(numbered(shape), widths, const(-1, int64), **dict(call.attrs.items()))
    origin = _typed(op.reshape(numbers, newshape=(-1,)))
    flat = _typed(op.reshape(dy, newshape=(-1,)))
    clear = op.zeros(shape=(dim_product(shape),), dtype=tensor_type(x).dtype)
    added = op.scatter_elements(clear, origin, flat, reduction="add")
    is_padding = op.less(origin, const(0, int64))
    d_value = op.sum(op.where(is_padding, flat, scalar(0.0, flat)))
    return [op.reshape(added, newshape=shape, allowzero=True), typed_zeros(widths), d_value]


def one_hot_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each value receives the gradients of the elements where it stands."""
    indices, on_value, off_value, depth = call.args
    one, zero = scalar(1, on_value), scalar(0, off_value)
    hit = call.op(indices, one, zero, depth, **dict(call.attrs.items()))
    return [typed_zeros(indices), op.sum(op.multiply(dy, hit)),
            op.sum(op.multiply(dy, op.subtract(one, hit))), typed_zeros(depth)]


def sparse_to_dense_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each value gets the gradient where it was written, the default that of all other elements."""
    indices, values, default, shape = call.args
    (count,) = known_shape(values, call)
    # Numbers from 1, because 0 stands for the default value.
    owner = call.op(indices, numbered((count,), start=1), Constant(np.asarray(0)), shape)
    shares = op.scatter_elements(op.zeros(shape=(count + 1,), dtype=tensor_type(values).dtype),
                                 op.reshape(owner, newshape=(-1,)),
                                 op.reshape(dy, newshape=(-1,)), reduction="add")
    rest = op.squeeze(op.strided_slice(shares, begin=(0,), end=(1,)), axis=0)
    return [typed_zeros(indices), op.strided_slice(shares, begin=(1,), end=(count + 1,)),
            op.cast(rest, dtype=tensor_type(default).dtype), typed_zeros(shape)]


def arange_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Element i is ``start + i * step``; ``stop`` decides the number of elements alone."""
    start, stop, step = call.args
    numbers = op.subtract(op.cumsum(op.ones_like(dy), axis=0), scalar(1, dy))
    return [op.cast(op.sum(dy), dtype=tensor_type(start).dtype), typed_zeros(stop),
            op.cast(op.sum(op.multiply(dy, numbers)), dtype=tensor_type(step).dtype)]


def resize2d_gradient(call: Call, y: Expr, dy: Expr) -> Sequence[Expr]:
    """The adjoint of the weights of both axes (see ``resampling_gradient``)."""
    size = call.args[1]

    def operands(axis: int) -> tuple[Expr, ...]:
        one = Constant(np.ones(1, tensor_type(size).dtype.numpy))
        wanted = op.strided_slice(size, begin=(axis,), end=(axis + 1,))
        return (op.concatenate(Tuple((wanted, one) if axis == 0 else (one, wanted)), axis=0),)

    return resampling_gradient(operands, extrapolation_value=0.0, out_dtype=None)(call, y, dy)


def upsampling_gradient(call: Call, y: Expr, dy: Expr) -> Sequence[Expr]:
    """The adjoint of the weights of all axes (see ``resampling_gradient``)."""
    scales = call.args[1:]

    def operands(axis: int) -> tuple[Expr, ...]:
        return tuple(s if i == axis else scalar(1, s) for i, s in enumerate(scales))

    return resampling_gradient(operands)(call, y, dy)


def resampling_gradient(
    operands: Callable[[int], tuple[Expr, ...]], **changed: Any
) -> GradientRule:
    """The gradient of an operator that multiplies each spatial axis by a matrix of weights.

    The operator finds the matrix itself when it resamples an identity matrix along one axis, with
    ``operands(axis)``, which leave the other axes as they are. ``changed`` replaces attributes.
    """

    def rule(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
        data, attrs = call.args[0], dict(call.attrs.items())
        layout = attrs["layout"]
        first = "NCDHW" if "D" in layout else "NCHW"
        sizes = known_shape(to_order(data, layout, first), call)
        dtype = tensor_type(data).dtype
        rest = _typed(op.cast(to_order(_typed(dy), layout, first), dtype=dtype))
        shape_of_dy = op.shape_of(rest, dtype="int64")
        done = sizes[0] * sizes[1]
        for axis, size in enumerate(fixed_sizes(sizes[2:], call)):
            spatial = [1] * len(sizes[2:])
            spatial[axis] = size
            unit = const(np.eye(size).reshape(1, size, *spatial), dtype)
            weights = call.op(unit, *operands(axis), **(attrs | {"layout": first} | changed))
            matrix = _typed(op.dyn.reshape(weights, const(np.array([1, size, -1]), int64)))
            length = op.strided_slice(shape_of_dy, begin=(2 + axis,), end=(3 + axis,))
            split = op.concatenate(Tuple((const(np.array([done]), int64), length,
                                          const(np.array([-1]), int64))), axis=0)
            stack = _typed(op.dyn.reshape(rest, split))
            rest = _typed(op.nn.batch_matmul(matrix, stack, transpose_b=False))
            done *= size
        dx = to_order(_typed(op.reshape(rest, newshape=sizes)), first, layout)
        return [dx, *map(typed_zeros, call.args[1:])]

    return rule


Known = Sequence[TensorType]
_ANY_NUMBER = ("arange", "nn.upsampling", "nn.upsampling3d")
ResultOf = Callable[[RelationContext, Known], Type]


def _dynamic(
    static: Op, inputs: Sequence[str], given: Mapping[str, int], result: ResultOf, *,
    cases: Sequence[Case], attrs: type[Attrs] = NoAttrs, rank: int = 1,
    compute: Callable[..., Any] | None = None,
) -> Op:
    """``static`` with the attributes in ``given`` as operands (attribute to position).

    ``rank`` is the rank of these operands, which are integers unless ``static`` takes other
    numbers. ``result(ctx, types)`` is the type as far as argument types determine it. With
    ``compute``, which reads the operands, the operator also has bounds.
    """
    operands = tuple(sorted(given.values()))

    def run(*tensors: Any) -> Any:
        if compute is not None:
            return compute(*tensors)
        raise LoweringError(f"dyn.{static.name} cannot be compiled before its shape is known",
                            help="run it on the virtual machine, or make the operand constant")

    def relation(ctx: RelationContext) -> bool:
        types = ctx.tensors_known(len(inputs))
        if types is None:
            return False
        for position in operands:
            ctx.expect_rank(position, types[position], rank)
            if static.name not in _ANY_NUMBER:
                ctx.expect_int(position, types[position])
        ctx.output(result(ctx, types))
        return True

    def values_of(args: Sequence[Any]) -> dict[str, Any]:
        return {name: _attribute(args[at]) for name, at in given.items()}

    def reference(*args: Any, **attributes: Any) -> Any:
        kept = [a for n, a in enumerate(args) if n not in operands]
        return static.hook("reference")(*kept, **attributes, **values_of(args))

    def make(call: Call, values: Sequence[np.ndarray]) -> Expr:
        kept = [a for n, a in enumerate(call.args) if n not in operands]
        at = dict(zip(operands, values, strict=True))
        known = {name: _attribute(at[position]) for name, position in given.items()}
        return static(*kept, **dict(call.attrs.items()), **known, span=call.span)

    moved = " and ".join(given)
    run.__doc__ = f"``{static.name}`` with {moved} as operands."
    op = define_op(f"dyn.{static.name}", attrs=attrs, relation=relation, pattern=OpPattern.OPAQUE,
                   level=10, inputs=inputs, results=static.results,
                   traits=OpTraits(has_zero_gradient=static.traits.has_zero_gradient,
                                   linearity=Linearity.NONE if static.name in _ANY_NUMBER
                                   else static.traits.linearity))(run)
    op.static_form(StaticForm(operands, make))
    op.spec(reference, *cases)
    return op


def _attribute(operand: Any) -> Any:
    """An operand as the value of an attribute: a number, or a tuple of numbers or pairs."""
    array = np.asarray(operand)
    return array.item() if not array.ndim else tuple(map(_attribute, array))


def _unknown(ctx: RelationContext, arg: int, rank: object, dtype: DType) -> TensorType:
    """A tensor with ``rank`` unknown sizes; the rank is the length of an operand."""
    if not isinstance(rank, int) or rank < 0:
        ctx.fail("unknown rank of the result", arg=arg,
                 expected="an operand of static size", got=ctx.args[arg])
        return TensorType((), dtype)
    return TensorType((ANY,) * rank, dtype)


def _as_long_as(operand: int) -> ResultOf:
    """As many axes as an operand has elements, with the dtype of the first argument."""
    return lambda ctx, types: _unknown(ctx, operand, types[operand].shape[0], types[0].dtype)


def _attrs_of(ctx: RelationContext) -> Any:
    """The attributes; their record is derived from that of the static operator."""
    return ctx.attrs


def _open_at(shape: Shape, axis: int) -> Shape:
    return (*shape[:axis], ANY, *shape[axis + 1:])


def ints(*values: Any) -> np.ndarray:
    """An operand of a case."""
    return np.array(values, np.int64)


ReshapeAttrs = attrs_without(shapes.ReshapeAttrs, "newshape", module=__name__)
CreateAttrs = attrs_without(create.CreateAttrs, "shape", module=__name__)
FullAttrs = attrs_without(create.FullAttrs, "shape", module=__name__)
ArangeAttrs = attrs_without(counting.ArangeAttrs, "start", "stop", "step", module=__name__)
OneHotAttrs = attrs_without(mask.OneHotAttrs, "depth", module=__name__)
StridedSliceAttrs = attrs_without(slice_.StridedSliceAttrs, "begin", "end", "strides",
                                  module=__name__)
TopkAttrs = attrs_without(order.TopkAttrs, "k", module=__name__)
ExpandDimsAttrs = attrs_without(shapes.ExpandDimsAttrs, "axis", module=__name__)
PadAttrs = attrs_without(StaticPadAttrs, "pad_width", module=__name__)
Resize2DAttrs = attrs_without(resize.Resize2DAttrs, "size", module=__name__)
UpSamplingAttrs = attrs_without(StaticUpSamplingAttrs, "scale_h", "scale_w", module=__name__)
UpSampling3DAttrs = attrs_without(StaticUpSampling3DAttrs, "scale_d", "scale_h", "scale_w",
                                  module=__name__)


def _slice_type(ctx: RelationContext, types: Known) -> Type:
    source, count = types[0], types[1].shape[0]
    for arg in (2, 3):
        ctx.expect_dim(arg, 0, types[arg].shape[0], count, "the bounds differ in length")
    axes = _attrs_of(ctx).axes
    if not isinstance(count, int) or not 0 < count <= source.ndim or (
        axes is not None and len(axes) != count
    ):
        ctx.fail("the bounds do not fit the axes", arg=1,
                 expected=f"one number per sliced axis, at most {source.ndim}", got=types[1])
        return source
    cut = normalize_axes(ctx, range(count) if axes is None else axes, source.ndim, name="axes")
    return TensorType(tuple(ANY if a in cut else d for a, d in enumerate(source.shape)),
                      source.dtype)


def _cut_axes(axes: Sequence[int] | None, bounds: Sequence[int] | None, ndim: int) -> list[int]:
    """The sliced axes; ``bounds`` is the shape of an operand with one number for each."""
    named = range(bounds[0]) if axes is None and bounds is not None else axes or ()
    return [axis % ndim for axis in named]


def _topk_type(ctx: RelationContext, types: Known) -> Type:
    attrs = _attrs_of(ctx)
    source = types[0]
    shape = _open_at(source.shape, normalize_axis(ctx, attrs.axis, source.ndim))
    return TupleType((TensorType(shape, source.dtype), TensorType(shape, attrs.dtype)))


def _one_hot_type(ctx: RelationContext, types: Known) -> Type:
    attrs = _attrs_of(ctx)
    shape = types[0].shape
    axis = normalize_axis(ctx, attrs.axis, len(shape) + 1)
    return TensorType((*shape[:axis], ANY, *shape[axis:]), types[1].dtype)


def _created(ctx: RelationContext, types: Known) -> Type:
    attrs = _attrs_of(ctx)
    return _unknown(ctx, 0, types[0].shape[0], attrs.dtype)


def _full_type(ctx: RelationContext, types: Known) -> Type:
    attrs = _attrs_of(ctx)
    return _unknown(ctx, 1, types[1].shape[0], attrs.dtype or types[0].dtype)


def _tile_type(ctx: RelationContext, types: Known) -> Type:
    reps = types[1].shape[0]
    rank = max(reps, types[0].ndim) if isinstance(reps, int) else reps
    return _unknown(ctx, 1, rank, types[0].dtype)


def _squeeze_type(ctx: RelationContext, types: Known) -> Type:
    count = types[1].shape[0]
    rank = types[0].ndim - count if isinstance(count, int) else count
    return _unknown(ctx, 1, rank, types[0].dtype)


reshape = _dynamic(
    shapes.reshape, ("x", "newshape"), {"newshape": 1}, _as_long_as(1), attrs=ReshapeAttrs,
    cases=(op_case((2, 6), ints(3, 4)), op_case((2, 3, 4), ints(0, -1)), op_case((1,), ints()),
           op_case((0, 3), ints(3, 0), allowzero=True)))
broadcast_to = _dynamic(broadcast.broadcast_to, ("x", "shape"), {"shape": 1}, _as_long_as(1),
                        cases=(op_case((3, 1), ints(2, 3, 5)), op_case((), ints(4))))
tile = _dynamic(repeat.tile, ("x", "reps"), {"reps": 1}, _tile_type,
                cases=(op_case((2, 3), ints(2, 1)), op_case((3,), ints(2, 2)),
                       op_case((2, 3), ints(3))))
full = _dynamic(create.full, ("fill_value", "shape"), {"shape": 1}, _full_type, attrs=FullAttrs,
                cases=(op_case((), ints(2, 3)), op_case((), ints(), dtype="float64")))
zeros = _dynamic(create.zeros, ("shape",), {"shape": 0}, _created, attrs=CreateAttrs,
                 cases=(op_case(ints(2, 3)), op_case(ints(0, 2), dtype="int8")))
ones = _dynamic(create.ones, ("shape",), {"shape": 0}, _created, attrs=CreateAttrs,
                cases=(op_case(ints(2, 3)), op_case(ints(), dtype="int32")))
arange = _dynamic(
    counting.arange, ("start", "stop", "step"), {"start": 0, "stop": 1, "step": 2},
    lambda ctx, _types: TensorType((ANY,), _attrs_of(ctx).dtype), attrs=ArangeAttrs,
    rank=0, cases=(op_case(np.int64(2), np.int64(11), np.int64(3)),
                   op_case(np.float32(1), np.float32(0.1), np.float32(-0.25), dtype="float64")))
one_hot = _dynamic(
    mask.one_hot, ("indices", "on_value", "off_value", "depth"), {"depth": 3}, _one_hot_type,
    attrs=OneHotAttrs, rank=0,
    cases=(op_case(np.array([1, 0]), (), (), np.int64(3)),
           op_case(np.array([1, 0]), (), (), np.int64(2), axis=0)))
strided_slice = _dynamic(
    slice_.strided_slice, ("x", "begin", "end", "strides"), {"begin": 1, "end": 2, "strides": 3},
    _slice_type, attrs=StridedSliceAttrs,
    compute=lambda x, begin, end, strides, attrs: locate.strided_slice(
        x, begin, end, strides, _cut_axes(attrs.axes, begin.static_shape, x.ndim)),
    cases=(op_case((4, 6), ints(1, 0), ints(3, 6), ints(1, 2)),
           op_case((2, 7), ints(6), ints(-9), ints(-2), axes=(-1,)),
           op_case((5, 2), ints(-2), ints(99), ints(1)), op_case((3,), ints(2), ints(1), ints(1))))


@strided_slice.bounds
def _slice_bounds(attrs: Any, types: Sequence[Type]) -> Bounds:
    x, begin = tensor_of(types[0]), tensor_of(types[1])
    cut = _cut_axes(attrs.axes, begin.concrete_shape, x.ndim)
    return Bounds((x,), tuple((0, axis, n) for n, axis in enumerate(cut)))


topk = _dynamic(order.topk, ("x", "k"), {"k": 1}, _topk_type, attrs=TopkAttrs, rank=0,
                cases=(op_case((3, 5), np.int64(2)),
                       op_case((4, 2), np.int32(3), axis=0, is_ascend=True, dtype="int32")))
sparse_to_dense = _dynamic(
    sparse.sparse_to_dense, ("indices", "values", "default", "output_shape"), {"output_shape": 3},
    lambda ctx, types: _unknown(ctx, 3, types[3].shape[0], types[1].dtype),
    cases=(op_case(np.array([[0, 1], [2, 3]]), (2,), (), ints(3, 4)),
           op_case(np.array([[1]]), (1,), (), ints(3))))
squeeze = _dynamic(shapes.squeeze, ("x", "axis"), {"axis": 1}, _squeeze_type,
                   cases=(op_case((1, 3, 1), ints(0)), op_case((1, 3, 1), ints(-1, 0))))
expand_dims = _dynamic(
    shapes.expand_dims, ("x", "axis"), {"axis": 1},
    lambda ctx, types: _unknown(ctx, 0, types[0].ndim + _attrs_of(ctx).num_newaxis,
                                types[0].dtype),
    attrs=ExpandDimsAttrs, rank=0,
    cases=(op_case((3, 4), np.int64(1)), op_case((3,), np.int64(-1), num_newaxis=2)))
pad = _dynamic(
    static_pad, ("x", "pad_width", "pad_value"), {"pad_width": 1},
    lambda ctx, types: _unknown(ctx, 0, types[0].ndim, types[0].dtype), attrs=PadAttrs, rank=2,
    cases=(op_case((2, 3), ints((1, 0), (0, 2)), ()),
           op_case((4,), ints((2, 1)), np.float32(0), pad_mode="reflect")))
resize2d = _dynamic(
    resize.resize2d, ("data", "size"), {"size": 1},
    lambda ctx, types: _unknown(ctx, 0, types[0].ndim,
                                _attrs_of(ctx).out_dtype or types[0].dtype), attrs=Resize2DAttrs,
    cases=(op_case((1, 2, 3, 4), ints(5, 2)), op_case((1, 4, 4, 2), ints(3, 7), layout="NHWC")))
upsampling = _dynamic(
    static_upsampling, ("data", "scale_h", "scale_w"), {"scale_h": 1, "scale_w": 2},
    lambda ctx, types: _unknown(ctx, 0, types[0].ndim, types[0].dtype), attrs=UpSamplingAttrs,
    rank=0, cases=(op_case((1, 2, 3, 4), np.float32(2), np.float32(1.5)),))
upsampling3d = _dynamic(
    static_upsampling3d, ("data", "scale_d", "scale_h", "scale_w"),
    {"scale_d": 1, "scale_h": 2, "scale_w": 3},
    lambda ctx, types: _unknown(ctx, 0, types[0].ndim, types[0].dtype), attrs=UpSampling3DAttrs,
    rank=0, cases=(op_case((1, 1, 2, 3, 2), np.float32(2), np.float32(1), np.float32(2)),))
for _upsampling in (upsampling, upsampling3d):
    _upsampling.jvp(applied_to_first_tangent)  # the scales decide sizes


def _reshaped_like_argument(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The gradient of a reshape; the shape operand has none."""
    return [op.reshape_like(dy, call.args[0]), typed_zeros(call.args[1])]


reshape.gradient(_reshaped_like_argument)
expand_dims.gradient(_reshaped_like_argument)
squeeze.gradient(_reshaped_like_argument)
broadcast_to.gradient(lambda call, _y, dy: [
    op.collapse_sum_like(dy, call.args[0]), typed_zeros(call.args[1])])
full.gradient(lambda call, _y, dy: [
    op.cast(op.sum(dy), dtype=tensor_type(call.args[0]).dtype), typed_zeros(call.args[1])])
strided_slice.gradient(gather_gradient)
tile.gradient(gather_gradient)
topk.gradient(order.topk_gradient)
arange.gradient(arange_gradient)
one_hot.gradient(one_hot_gradient)
sparse_to_dense.gradient(sparse_to_dense_gradient)
pad.gradient(pad_gradient)
resize2d.gradient(resize2d_gradient)
upsampling.gradient(upsampling_gradient)
upsampling3d.gradient(upsampling_gradient)
topk.jvp(order.topk_tangent)
