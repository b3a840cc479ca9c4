"""Joining and slicing: concatenate, split, strided_slice."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from weft import op, te
from weft.ir.attrs import Attrs, attr
from weft.ir.expr import Call, Expr, Tuple, TupleGetItem
from weft.ir.op import OpPattern, case, define_op
from weft.ir.shape import Dim, Shape, dim_add, dim_floordiv, dim_sub, dims_equal
from weft.ir.traits import COPIES_ELEMENTS
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import normalize_axes, normalize_axis
from weft.op.gradients import attrs_of, spread_along, static_shape
from weft.op.layout_inference import (
    InputLayout,
    LayoutResult,
    axis_letter,
    block_size,
    data_layout,
    data_shape,
    divides,
    tuple_types,
)
from weft.op.relations import attrs_as, expect_rank, expect_same_dtype
from weft.tir.expr import PrimExpr, const, int_value, maximum, minimum
from weft.topi import transform
from weft.topi.layout import Layout


@dataclass(frozen=True, kw_only=True)
class ConcatenateAttrs(Attrs):
    axis: int = attr(0, "axis along which the tensors are joined")


def _concatenate_relation(ctx: RelationContext) -> bool:
    parts = ctx.tensors(0)
    if parts is None:
        return False
    if not parts:
        ctx.fail("concatenate needs at least one tensor", arg=0, expected="one tensor or more",
                 got="an empty tuple")
    first = parts[0]
    axis = normalize_axis(ctx, attrs_as(ctx, ConcatenateAttrs).axis, first.ndim)
    shape: list[Dim] = list(first.shape)
    for number, part in enumerate(parts[1:], start=1):
        expect_rank(ctx, 0, part, first.ndim)
        expect_same_dtype(ctx, 0, part, first.dtype)
        for i, dim in enumerate(part.shape):
            if i == axis:
                shape[i] = dim_add(shape[i], dim)
            elif dims_equal(shape[i], dim) is False:
                ctx.fail(f"tensor {number} does not fit tensor 0", arg=0, axis=i,
                         expected=shape[i], got=dim)
    ctx.output(TensorType(tuple(shape), first.dtype))
    return True


@define_op("concatenate", attrs=ConcatenateAttrs, relation=_concatenate_relation,
           pattern=OpPattern.INJECTIVE, inputs=("*tensors",), level=1)
def concatenate(tensors: tuple[te.Tensor, ...], attrs: ConcatenateAttrs) -> te.Tensor:
    """The tensors of a tuple, joined along an axis."""
    return transform.concatenate(tensors, attrs.axis % tensors[0].ndim)



@concatenate.layout
def _concatenate_layout(
    attrs: ConcatenateAttrs, inputs: tuple[InputLayout, ...], types: tuple[Type, ...]
) -> LayoutResult | None:
    """Of the current layouts, the one with the largest blocks that divide every tensor."""
    parts, arriving = tuple_types(types), inputs[0]
    if parts is None or not isinstance(arriving, tuple):
        return None
    known = dict.fromkeys(x for x in arriving if x is not None)
    for layout in sorted(known, key=block_size, reverse=True):
        if all(_fits(layout, part.shape) for part in parts):
            axis = layout.index_of(axis_letter(layout, attrs.axis))
            return LayoutResult(((layout,) * len(parts),), (layout,), attrs.replace(axis=axis))
    return None


def _fits(layout: Layout, shape: Shape) -> bool:
    return all(divides(layout.factor_of(letter), size)
               for letter, size in zip(layout.primal_axes, shape, strict=True)
               if layout.block_index_of(letter) is not None)


concatenate.spec(
    lambda tensors, axis=0: np.concatenate(tensors, axis),
    case([(2, 3), (4, 3)], axis=0),
    case([(2, 3, 5), (2, 1, 5), (2, 4, 5)], axis=1),
    case([(2, 3), (2, 2)], axis=-1),
    case([(3,)]),
    case([(2, 0), (2, 3)], axis=1),
)


def _fields(call: Call) -> tuple[TensorType, ...]:
    type_ = call.args[0].checked_type
    fields = type_.fields if isinstance(type_, TupleType) else ()
    return tuple(f for f in fields if isinstance(f, TensorType))


@concatenate.gradient
def _concatenate_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, ConcatenateAttrs)
    fields = _fields(call)
    axis = attrs.axis % fields[0].ndim
    sizes = [f.concrete_shape[axis] for f in fields]
    if len(sizes) == 1:
        return [Tuple((dy,))]
    parts = op.split(dy, indices_or_sections=tuple(np.cumsum(sizes[:-1]).tolist()), axis=axis)
    return [Tuple(tuple(TupleGetItem(parts, i) for i in range(len(sizes))))]


@dataclass(frozen=True, kw_only=True)
class SplitAttrs(Attrs):
    indices_or_sections: int | tuple[int, ...] = attr(
        doc="number of equal sections, or the positions at which to split",
        check=lambda v: v > 0 if isinstance(v, int) else all(i >= 0 for i in v)
        and list(v) == sorted(v),
        expected="a number of sections, or positions in ascending order",
    )
    axis: int = attr(0, "axis that is split")


def _split_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = attrs_as(ctx, SplitAttrs)
    axis = normalize_axis(ctx, attrs.axis, source.ndim)
    sizes = _part_sizes(ctx, source.shape[axis], attrs.indices_or_sections, axis)
    ctx.output(TupleType(tuple(
        TensorType((*source.shape[:axis], size, *source.shape[axis + 1:]), source.dtype)
        for size in sizes
    )))
    return True


def _part_sizes(
    ctx: RelationContext, size: Dim, sections: int | tuple[int, ...], axis: int
) -> list[Dim]:
    if isinstance(sections, int):
        if isinstance(size, int) and size % sections:
            ctx.fail("the axis cannot be split into equal sections", arg=0, axis=axis,
                     expected=f"a size divisible by {sections}", got=size)
        return [dim_floordiv(size, sections)] * sections
    if isinstance(size, int) and sections and sections[-1] > size:
        ctx.fail("a split position is out of range", arg=0, axis=axis,
                 expected=f"positions up to {size}", got=sections)
    bounds: list[Dim] = [0, *sections, size]
    return [dim_sub(b, a) for a, b in itertools.pairwise(bounds)]


@define_op("split", attrs=SplitAttrs, relation=_split_relation, pattern=OpPattern.INJECTIVE,
           level=3)
def split(x: te.Tensor, attrs: SplitAttrs) -> tuple[te.Tensor, ...]:
    """The sections of x along an axis, as a tuple."""
    axis = attrs.axis % x.ndim
    sections = attrs.indices_or_sections
    if isinstance(sections, tuple):
        return transform.split(x, sections, axis)
    part = x.shape[axis] // sections
    return transform.split(x, [part * k for k in range(1, sections)], axis)


def _split_reference(
    x: np.ndarray, indices_or_sections: int | tuple[int, ...], axis: int = 0
) -> tuple[np.ndarray, ...]:
    return tuple(p.copy() for p in np.split(x, indices_or_sections, axis))



@split.layout
def _split_layout(
    attrs: SplitAttrs, inputs: tuple[InputLayout, ...], types: tuple[Type, ...]
) -> LayoutResult | None:
    """A blocked axis can be split only between its blocks."""
    layout = data_layout(inputs)
    if layout is None:
        return None
    letter = axis_letter(layout, attrs.axis)
    factor, size = layout.factor_of(letter), data_shape(types)[attrs.axis]
    sections = attrs.indices_or_sections
    if isinstance(sections, int):
        count = sections
        if factor > 1 and not divides(factor * sections, size):
            return None
    else:
        count = len(sections) + 1
        if any(cut % factor for cut in sections):
            return None
        sections = tuple(cut // factor for cut in sections)
    changed = attrs.replace(axis=layout.index_of(letter), indices_or_sections=sections)
    return LayoutResult((layout,), (layout,) * count, changed)


split.spec(_split_reference, case((6, 4), indices_or_sections=3),
           case((2, 7), indices_or_sections=(2, 3), axis=-1),
           case((4, 3), indices_or_sections=(0, 4)), case((5,), indices_or_sections=1))


@split.gradient
def _split_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, SplitAttrs)
    type_ = call.checked_type
    count = len(type_.fields) if isinstance(type_, TupleType) else 0
    parts = tuple(TupleGetItem(dy, i) for i in range(count))
    return [op.concatenate(Tuple(parts), axis=attrs.axis)]


@dataclass(frozen=True, kw_only=True)
class StridedSliceAttrs(Attrs):
    begin: tuple[int, ...] = attr(doc="first index along each axis; negative counts from the end",
                                  expected="a tuple of ints")
    end: tuple[int, ...] = attr(doc="exclusive last index along each axis",
                                expected="a tuple of ints")
    strides: tuple[int, ...] | None = attr(None, "steps, negative to go backwards; None for 1",
                                           check=lambda s: s is None or 0 not in s,
                                           expected="nonzero steps")
    axes: tuple[int, ...] | None = attr(None, "axes that are sliced; None for the first ones")


@dataclass(frozen=True, slots=True)
class AxisSlice:
    """The slice of one axis: result ``i`` is element ``begin + stride * i``."""

    axis: int
    begin: int
    end: int
    stride: int


def axis_slices(attrs: StridedSliceAttrs, ndim: int) -> list[AxisSlice]:
    """The sliced axes, counted from the front, with begin and end as given."""
    count = len(attrs.begin)
    axes = attrs.axes if attrs.axes is not None else tuple(range(count))
    strides = attrs.strides if attrs.strides is not None else (1,) * count
    if len(strides) == 1 and count > 1:
        strides = strides * count
    return [AxisSlice(a % ndim, b, e, s)
            for a, b, e, s in zip(axes, attrs.begin, attrs.end, strides, strict=True)]


def _strided_slice_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = attrs_as(ctx, StridedSliceAttrs)
    lengths = {len(v) for v in (attrs.begin, attrs.end, attrs.axes) if v is not None}
    count = len(attrs.begin)
    if len(lengths) != 1 or (attrs.strides is not None and len(attrs.strides) not in (1, count)):
        ctx.fail("begin, end, strides and axes differ in length", expected=f"{count} values each",
                 got=f"begin {attrs.begin}, end {attrs.end}, strides {attrs.strides}, "
                 f"axes {attrs.axes}")
    if count > source.ndim:
        ctx.fail("more slices than axes", arg=0, expected=f"at most {source.ndim}",
                 got=count)
    normalize_axes(ctx, attrs.axes or tuple(range(count)), source.ndim, name="axes")
    shape = list(source.shape)
    for cut in axis_slices(attrs, source.ndim):
        shape[cut.axis] = _sliced_dim(ctx, shape[cut.axis], cut)
    ctx.output(TensorType(tuple(shape), source.dtype))
    return True


def _sliced_dim(ctx: RelationContext, size: Dim, cut: AxisSlice) -> Dim:
    if isinstance(size, int):
        return len(range(*slice(cut.begin, cut.end, cut.stride).indices(size)))
    if cut.begin == 0 and cut.end >= _TO_THE_END and cut.stride == 1:
        return size
    if cut.stride == 1 and cut.begin < 0 and cut.end >= _TO_THE_END:
        return -cut.begin
    return ctx.fail(
        "an axis of unknown size can be sliced only at its end", arg=0, axis=cut.axis,
        expected="begin=0 with an end beyond every size, or the last elements",
        got=f"{cut.begin}:{cut.end}:{cut.stride} of size {size}",
    )


_TO_THE_END = 2**31 - 1


@define_op("strided_slice", attrs=StridedSliceAttrs, relation=_strided_slice_relation,
           pattern=OpPattern.INJECTIVE, level=4, traits=COPIES_ELEMENTS)
def strided_slice(x: te.Tensor, attrs: StridedSliceAttrs) -> te.Tensor:
    """``x[begin:end:strides]`` along the given axes; bounds out of range are clamped."""
    begin: list[PrimExpr | int] = [0] * x.ndim
    strides = [1] * x.ndim
    shape = list(x.shape)
    for cut in axis_slices(attrs, x.ndim):
        start, length = _start_and_length(x.shape[cut.axis], cut)
        begin[cut.axis], strides[cut.axis], shape[cut.axis] = start, cut.stride, length
    return transform.strided_slice(x, begin, strides, shape)


def _start_and_length(size: PrimExpr, cut: AxisSlice) -> tuple[PrimExpr, PrimExpr]:
    known = int_value(size)
    if known is not None:
        span = range(*slice(cut.begin, cut.end, cut.stride).indices(known))
        return const(span.start), const(len(span))
    start = maximum(size + cut.begin, 0) if cut.begin < 0 else minimum(const(cut.begin), size)
    return start, size - start


def _strided_slice_reference(
    x: np.ndarray, begin: Sequence[int], end: Sequence[int],
    strides: Sequence[int] | None = None, axes: Sequence[int] | None = None,
) -> np.ndarray:
    attrs = StridedSliceAttrs.make({"begin": begin, "end": end, "strides": strides, "axes": axes})
    index = [slice(None)] * x.ndim
    for cut in axis_slices(attrs, x.ndim):
        span = range(*slice(cut.begin, cut.end, cut.stride).indices(x.shape[cut.axis]))
        stop = span.stop if span.stop >= 0 else None
        index[cut.axis] = slice(span.start, stop, cut.stride) if len(span) > 0 else slice(0, 0)
    return x[tuple(index)].copy()



@strided_slice.layout
def _strided_slice_layout(
    attrs: StridedSliceAttrs, inputs: tuple[InputLayout, ...], types: tuple[Type, ...]
) -> LayoutResult | None:
    """A blocked axis can be sliced only between its blocks, and without steps."""
    layout = data_layout(inputs)
    if layout is None:
        return None
    shape = data_shape(types)
    cuts: list[AxisSlice] = []
    for cut in axis_slices(attrs, len(shape)):
        letter = axis_letter(layout, cut.axis)
        moved = _in_blocks(cut, layout.factor_of(letter), shape[cut.axis])
        if moved is None:
            return None
        cuts.append(replace(moved, axis=layout.index_of(letter)))
    changed = StridedSliceAttrs(
        begin=tuple(c.begin for c in cuts), end=tuple(c.end for c in cuts),
        strides=tuple(c.stride for c in cuts), axes=tuple(c.axis for c in cuts),
    )
    return LayoutResult((layout,), (layout,), changed)


def _in_blocks(cut: AxisSlice, factor: int, size: Dim) -> AxisSlice | None:
    """The slice in units of blocks of ``factor``; ``None`` if a bound lies inside a block."""
    if factor == 1:
        return cut
    if not isinstance(size, int) or cut.stride != 1:
        return None
    begin, end, _ = slice(cut.begin, cut.end).indices(size)
    if begin % factor or end % factor:
        return None
    return replace(cut, begin=begin // factor, end=end // factor)


strided_slice.spec(
    _strided_slice_reference,
    case((4, 6), begin=(1, 0), end=(3, 6)),
    case((4, 6), begin=(-3,), end=(100,), axes=(1,)),
    case((7,), begin=(0,), end=(7,), strides=(2,)),
    case((7, 2), begin=(6,), end=(-8,), strides=(-2,), axes=(0,)),
    case((4, 3), begin=(2,), end=(2,)),
)


@strided_slice.gradient
def _strided_slice_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Write elements back between zeros, axis by axis; reverse backward slices first."""
    attrs = attrs_of(call, StridedSliceAttrs)
    shape, cut = static_shape(call.args[0], call), static_shape(call, call)
    axes = attrs.axes if attrs.axes is not None else tuple(range(len(attrs.begin)))
    strides = attrs.strides or (1,) * len(axes)
    for axis, begin, stride in zip(axes, attrs.begin, strides, strict=True):
        axis %= len(shape)  # noqa: PLW2901
        positions = _positions(shape[axis], begin, stride, cut[axis])
        if stride < 0 and positions:
            count = len(positions)
            dy = op.strided_slice(dy, begin=(count - 1,), end=(-count - 1,), strides=(-1,),
                                  axes=(axis,))
            positions = positions[::-1]
        first = positions[0] if positions else shape[axis]
        dy = spread_along(dy, axis, first, abs(stride), shape[axis], len(positions))
    return [dy]


def _positions(size: int, begin: int, stride: int, count: int) -> list[int]:
    first = begin + size if begin < 0 else begin
    first = min(max(first, 0), size - 1 if stride < 0 else size)
    return [first + i * stride for i in range(count)]
