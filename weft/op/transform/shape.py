"""Reshaping: reshape, transpose, expand_dims, squeeze, batch_flatten."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, TensorType, Type, attr, has_any, normalize_axes, sizes_from
from weft.ir.analysis import known_type
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import (
    Dim,
    KnownDim,
    Shape,
    SymDim,
    dim_floordiv,
    dim_mul,
    dim_product,
    dims_equal,
    may_be_equal,
    may_be_multiple,
)
from weft.ir.traits import COPIES_ELEMENTS, RESHAPE
from weft.ir.typing.relation import RelationContext, symbols_help
from weft.op.batching import to_example_shape, with_attrs
from weft.op.gradients import attrs_of, known_shape, tensor_type
from weft.op.layout_inference import (
    InputLayout,
    LayoutResult,
    data_layout,
    data_shape,
    keeps_order,
    without_letters,
)
from weft.op.relations import multiples_help
from weft.support.dataclass import dataclass
from weft.tir.expr import int_value
from weft.topi import transform
from weft.topi.sizes import as_sizes


@dataclass(frozen=True, kw_only=True)
class ReshapeAttrs(Attrs):
    newshape: tuple[KnownDim, ...] = attr(
        doc="sizes of the result; 0 copies that size of the argument, -1 stands for the rest",
        check=lambda s: sizes_from(-1)(s) and s.count(-1) <= 1,
        expected="sizes >= 0, 0 to copy, and at most one -1",
    )
    allowzero: bool = attr(False, "treat 0 as a size of zero instead")


def _reshape_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(ReshapeAttrs)
    shape: list[Dim] = [_copied(ctx, source, i, d, attrs) for i, d in enumerate(attrs.newshape)]
    if -1 in attrs.newshape:
        hole = attrs.newshape.index(-1)
        # Sizes that are copied leave the division: one of them may be 0.
        copied = [i for i, d in enumerate(attrs.newshape) if d == 0 and not attrs.allowzero]
        known = [d for i, d in enumerate(shape) if i != hole and i not in copied]
        shape[hole] = _rest(ctx, [d for i, d in enumerate(source.shape) if i not in copied], known)
    elif not may_be_equal(dim_product(source.shape), dim_product(tuple(shape))):
        ctx.fail("the number of elements changes", arg=0,
                 expected=f"{dim_product(source.shape)} elements, as {source} has",
                 got=f"newshape {_text(attrs.newshape)} with {dim_product(tuple(shape))}",
                 help=symbols_help(dim_product(source.shape), dim_product(tuple(shape))))
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


def _text(shape: Shape) -> str:
    return f"({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _copied(
    ctx: RelationContext, source: TensorType, axis: int, size: KnownDim, attrs: ReshapeAttrs
) -> Dim:
    if size != 0 or attrs.allowzero:
        return size
    if axis >= source.ndim:
        ctx.fail("newshape copies an axis that the argument lacks", arg=0,
                 expected=f"0 only up to position {source.ndim - 1}", got=attrs.newshape)
    return source.shape[axis]


def _rest(ctx: RelationContext, source: Sequence[Dim], known: Sequence[Dim]) -> Dim:
    """The size for -1; factors that both shapes share are cancelled first."""
    # The quotient of symbolic products would be symbolic even where it is a number.
    remaining = list(source)
    divisor: Dim = 1
    for dim in known:
        if not isinstance(dim, int) and dim in remaining:
            remaining.remove(dim)
        else:
            divisor = dim_mul(divisor, dim)
    total = dim_product(tuple(remaining))
    if divisor == 0 or (isinstance(divisor, int) and not may_be_multiple(total, divisor)):
        ctx.fail("the elements do not fit newshape", arg=0,
                 expected=f"a number of elements divisible by {divisor}", got=total,
                 help=multiples_help(total, divisor) if isinstance(divisor, int) else None)
    return dim_floordiv(total, divisor)


@define_op("reshape", attrs=ReshapeAttrs, relation=_reshape_relation,
           pattern=OpPattern.INJECTIVE, level=3, traits=RESHAPE)
def reshape(x: te.Tensor, attrs: ReshapeAttrs) -> te.Tensor:
    """The elements of x in row-major order in another shape."""
    shape = transform.resolve_shape(x.shape, as_sizes(attrs.newshape), allowzero=attrs.allowzero)
    return transform.reshape(x, shape)


def _reshape_reference(
    x: np.ndarray, newshape: tuple[int, ...], allowzero: bool = False
) -> np.ndarray:
    copied = () if allowzero else tuple(i for i, d in enumerate(newshape) if d == 0)
    sizes = [x.shape[i] if i in copied else d for i, d in enumerate(newshape)]
    if -1 in newshape and 0 in x.shape and copied:  # NumPy divides by the sizes that are copied
        left = math.prod(d for i, d in enumerate(x.shape) if i not in copied)
        given = math.prod(d for i, d in enumerate(newshape) if i not in copied and d != -1)
        sizes[newshape.index(-1)] = left // given
    return np.reshape(x, sizes)


@reshape.bind_sizes
def _reshape_at_sizes(attrs: ReshapeAttrs, result: Type) -> ReshapeAttrs:
    """The result's shape, because a symbol that becomes 0 neither copies a size nor divides."""
    if not isinstance(result, TensorType) or has_any(result.shape):
        return attrs
    return attrs.replace(newshape=result.shape, allowzero=True)


@reshape.layout
def _reshape_layout(
    attrs: ReshapeAttrs, inputs: tuple[InputLayout, ...], types: tuple[Type, ...]
) -> LayoutResult | None:
    """Any reshape if the blocks are in the order of the elements (images of one pixel)."""
    layout, shape = data_layout(inputs), data_shape(types)
    if layout is None or not keeps_order(layout, shape):
        return None
    sizes: list[KnownDim] = []
    for axis, size in enumerate(attrs.newshape):
        if size != 0 or attrs.allowzero:
            sizes.append(size)
            continue
        copied = shape[axis]
        same_place = layout.axes[axis].letter == layout.primal_axes[axis]
        if isinstance(copied, int) and copied:
            sizes.append(copied)
        elif same_place and layout.factor_of(layout.primal_axes[axis]) == 1:
            sizes.append(0)
        else:
            return None
    changed = attrs.replace(newshape=tuple(sizes))
    return LayoutResult((layout,), (None,), changed)


reshape.spec(
    _reshape_reference,
    op_case((2, 3, 4), newshape=(6, 4)),
    op_case((2, 3, 4), newshape=(0, -1)),
    op_case((2, 3, 4), newshape=(-1,)),
    op_case((12,), newshape=(2, 1, 6)),
    op_case((), newshape=(1, 1)),
    op_case((1,), newshape=()),
    op_case((0, 3), newshape=(3, 0), allowzero=True),
    op_case((0, 6), newshape=(0, 2, -1)),
)


@reshape.gradient
def _reshape_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    x = call.args[0]
    if has_any(tensor_type(x).shape):
        return [op.reshape_like(dy, x)]
    return [op.reshape(dy, newshape=known_shape(x, call), allowzero=True)]


@dataclass(frozen=True, kw_only=True)
class TransposeAttrs(Attrs):
    axes: tuple[int, ...] | None = attr(
        None, "axis of the argument for each axis of the result; None reverses the order"
    )


def _permutation(axes: tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    return tuple(reversed(range(ndim))) if axes is None else tuple(a % ndim for a in axes)


def _transpose_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    axes = ctx.attrs_as(TransposeAttrs).axes
    if axes is not None:
        if len(axes) != source.ndim:
            ctx.fail("axes is not a permutation of the argument's axes", arg=0,
                     expected=f"{source.ndim} axes", got=axes)
        normalize_axes(ctx, axes, source.ndim, name="axes")
    order = _permutation(axes, source.ndim)
    ctx.output(TensorType(tuple(source.shape[a] for a in order), source.dtype))
    return True


@define_op("transpose", attrs=TransposeAttrs, relation=_transpose_relation,
           pattern=OpPattern.INJECTIVE, level=3, traits=COPIES_ELEMENTS)
def transpose(x: te.Tensor, attrs: TransposeAttrs) -> te.Tensor:
    """``x`` with its axes permuted."""
    return transform.transpose(x, _permutation(attrs.axes, x.ndim))


transpose.spec(
    lambda x, axes=None: np.transpose(x, axes).copy(order="C"),
    op_case((2, 3, 4), axes=(2, 0, 1)),
    op_case((2, 3, 4), axes=(0, -1, 1)),
    op_case((3, 5)),
    op_case(()),
    op_case((0, 3), axes=(1, 0)),
)


@transpose.identity
def _untransposed(call: Call) -> Expr | None:
    type_ = known_type(call)
    ndim = type_.ndim if isinstance(type_, TensorType) else 0
    order = _permutation(attrs_of(call, TransposeAttrs).axes, ndim)
    return call.args[0] if order == tuple(range(ndim)) else None


@transpose.gradient
def _transpose_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, TransposeAttrs)
    ndim = tensor_type(call).ndim
    axes = attrs.axes if attrs.axes is not None else tuple(reversed(range(ndim)))
    back = np.argsort([a % ndim for a in axes])
    return [op.transpose(dy, axes=tuple(int(a) for a in back))]


@dataclass(frozen=True, kw_only=True)
class ExpandDimsAttrs(Attrs):
    axis: int = attr(doc="position of the new axes; negative counts from the end of the result",
                     expected="an int")
    num_newaxis: int = attr(1, "how many axes", check=lambda n: n >= 0, expected="0 or more")


def _new_axis(attrs: ExpandDimsAttrs, ndim: int) -> int:
    return attrs.axis if attrs.axis >= 0 else attrs.axis + ndim + 1


def _expand_dims_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(ExpandDimsAttrs)
    axis = _new_axis(attrs, source.ndim)
    if not 0 <= axis <= source.ndim:
        ctx.fail("axis is out of range", arg=0,
                 expected=f"{-source.ndim - 1} to {source.ndim}", got=attrs.axis)
    ones = (1,) * attrs.num_newaxis
    shape = (*source.shape[:axis], *ones, *source.shape[axis:])
    ctx.output(TensorType(shape, source.dtype))
    return True


@define_op("expand_dims", attrs=ExpandDimsAttrs, relation=_expand_dims_relation,
           pattern=OpPattern.INJECTIVE, level=1, traits=RESHAPE)
def expand_dims(x: te.Tensor, attrs: ExpandDimsAttrs) -> te.Tensor:
    """``x`` with new axes of size 1."""
    return transform.expand_dims(x, _new_axis(attrs, x.ndim), attrs.num_newaxis)


def _expand_dims_reference(x: np.ndarray, axis: int, num_newaxis: int = 1) -> np.ndarray:
    at = axis if axis >= 0 else axis + x.ndim + 1
    return x.reshape(*x.shape[:at], *(1,) * num_newaxis, *x.shape[at:])


expand_dims.spec(_expand_dims_reference, op_case((3, 4), axis=1), op_case((3, 4), axis=-1),
                 op_case((3,), axis=0, num_newaxis=2), op_case((), axis=0))


@expand_dims.gradient
def _expand_dims_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, ExpandDimsAttrs)
    first = attrs.axis % tensor_type(call).ndim if attrs.axis >= 0 else (
        attrs.axis + tensor_type(call.args[0]).ndim + 1
    )
    axes = tuple(range(first, first + attrs.num_newaxis))
    return [op.squeeze(dy, axis=axes) if axes else dy]


@dataclass(frozen=True, kw_only=True)
class SqueezeAttrs(Attrs):
    axis: int | tuple[int, ...] | None = attr(None, "axes removed; None for all of size 1")


def _squeezed(axis: int | tuple[int, ...] | None, shape: tuple[object, ...]) -> tuple[int, ...]:
    if axis is None:
        return tuple(i for i, size in enumerate(shape) if size == 1)
    return tuple(a % len(shape) for a in ((axis,) if isinstance(axis, int) else axis))


def _squeeze_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    axis = ctx.attrs_as(SqueezeAttrs).axis
    if axis is not None:
        normalize_axes(ctx, (axis,) if isinstance(axis, int) else axis, source.ndim)
    removed = _squeezed(axis, source.shape)
    for a in removed:
        if not may_be_equal(source.shape[a], 1):
            ctx.fail("only an axis of size 1 can be removed", arg=0, axis=a, expected=1,
                     got=source.shape[a])
    if axis is None:
        _expect_known_ones(ctx, source.shape)
    kept = tuple(d for i, d in enumerate(source.shape) if i not in removed)
    ctx.output(TensorType(kept, source.dtype))
    return True


def _expect_known_ones(ctx: RelationContext, shape: Shape) -> None:
    for a, size in enumerate(shape):
        if isinstance(size, SymDim) and dims_equal(size, 1) is None:
            ctx.fail("the axes of size 1 are not known", arg=0, axis=a, expected="fixed sizes",
                     got=size, help="name the axes to remove, or give the symbol a range: n{2..}")


@define_op("squeeze", attrs=SqueezeAttrs, relation=_squeeze_relation,
           pattern=OpPattern.INJECTIVE, level=3, traits=RESHAPE)
def squeeze(x: te.Tensor, attrs: SqueezeAttrs) -> te.Tensor:
    """``x`` without axes of size 1."""
    return transform.squeeze(x, _squeezed(attrs.axis, tuple(int_value(s) for s in x.shape)))


def _squeeze_reference(x: np.ndarray, axis: int | tuple[int, ...] | None = None) -> np.ndarray:
    return np.squeeze(x, axis)


@squeeze.layout
def _squeeze_layout(
    attrs: SqueezeAttrs, inputs: tuple[InputLayout, ...], types: tuple[Type, ...]
) -> LayoutResult | None:
    """Removed axes must be unsplit, and leave the layout too."""
    layout = data_layout(inputs)
    if layout is None:
        return None
    letters = "".join(layout.primal_axes[a] for a in _squeezed(attrs.axis, data_shape(types)))
    axes = tuple(layout.index_of(letter) for letter in letters)
    if any(layout.block_index_of(letter) is not None for letter in letters):
        return None
    result = without_letters(layout, letters)
    return LayoutResult((layout,), (result,), attrs.replace(axis=axes))


squeeze.spec(_squeeze_reference, op_case((1, 3, 1), axis=0), op_case((1, 3, 1), axis=(-1,)),
             op_case((1, 3, 1, 2)), op_case((1, 1), axis=(0, 1)))


@squeeze.gradient
def _squeeze_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, SqueezeAttrs)
    shape = tensor_type(call.args[0]).shape
    axes = attrs.axis
    if axes is None:
        axes = tuple(i for i, d in enumerate(shape) if d == 1)
    wanted = {a % len(shape) for a in ((axes,) if isinstance(axes, int) else axes)}
    for axis in sorted(wanted):
        dy = op.expand_dims(dy, axis=axis)
    return [dy]


def _batch_flatten_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.expect_min_rank(0, source, 1)
    rest = dim_product(source.shape[1:])
    ctx.output(TensorType((source.shape[0], rest), source.dtype))
    return True


@define_op("nn.batch_flatten", relation=_batch_flatten_relation, pattern=OpPattern.INJECTIVE,
           level=2, inputs=("x",), traits=RESHAPE)
def batch_flatten(x: te.Tensor, _attrs: Attrs) -> te.Tensor:
    """``x`` of shape (d0, d1, …) as (d0, d1 * …)."""
    rest = transform.resolve_shape(x.shape[1:], (-1,))
    return transform.reshape(x, (x.shape[0], *rest), "batch_flatten")


def _batch_flatten_reference(x: np.ndarray) -> np.ndarray:
    return x.reshape(x.shape[0], int(np.prod(x.shape[1:], dtype=np.int64)))


@batch_flatten.layout
def _batch_flatten_layout(
    attrs: Attrs, inputs: tuple[InputLayout, ...], types: tuple[Type, ...]
) -> LayoutResult | None:
    """If the blocks are in the order of the elements, and the first axis is unsplit."""
    layout = data_layout(inputs)
    if layout is None or not keeps_order(layout, data_shape(types)):
        return None
    first = layout.axes[0]
    if not first.is_primal or layout.factor_of(first.letter) != 1:
        return None
    return LayoutResult((layout,), (None,), attrs)


batch_flatten.spec(_batch_flatten_reference, op_case((2, 3, 4)), op_case((3, 4)), op_case((3,)))


batch_flatten.gradient(_reshape_gradient)


@batch_flatten.canonical_form
def _flattened(call: Call) -> Expr | None:
    """A reshape."""
    type_ = known_type(call.args[0])
    if not isinstance(type_, TensorType):
        return None
    batch, *rest = type_.shape
    size = dim_product(tuple(rest))
    # 0 copies a symbolic batch; then no other size may be zero, for 0 must keep that meaning.
    no_copy = isinstance(batch, int) and 0 in (batch, size)
    if not isinstance(size, int) or (size == 0 and not no_copy):
        return None
    return op.reshape(call.args[0], newshape=(batch if isinstance(batch, int) else 0, size),
                      allowzero=no_copy, span=call.span)


for _op in (reshape, expand_dims, squeeze, batch_flatten):
    _op.batching(to_example_shape)


@transpose.batching
def _transpose_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], _size: Dim
) -> Expr:
    order = _permutation(attrs_of(call, TransposeAttrs).axes, tensor_type(call).ndim)
    return with_attrs(call, args, axes=(0, *(a + 1 for a in order)))


for _op in (reshape, transpose, expand_dims, squeeze):
    _op.refer(shape_value="weft.op.shape_values:moved")
transpose.refer(permuted="weft.op.permuted:transpose",
                integer_form="weft.op.qnn.integer_forms:transpose")
