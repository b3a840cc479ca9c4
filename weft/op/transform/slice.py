"""Slices of axes with steps: strided_slice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import COPIES_ELEMENTS, Attrs, Call, Expr, RelationContext, attr, normalize_axes
from weft.ir.analysis import known_type
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import AnyDim, Dim, KnownDim, bounds_of, dim_max, dim_min
from weft.ir.types import TensorType, Type, has_any
from weft.op.batching import with_attrs
from weft.op.gradients import attrs_of, known_shape, spread_along, tensor_type
from weft.op.indexing_gradients import gather_gradient
from weft.op.layout_inference import (
    InputLayout,
    LayoutResult,
    axis_letter,
    data_layout,
    data_shape,
)
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr, as_prim, const, int_value, maximum, minimum
from weft.topi import transform
from weft.topi.sizes import as_size, is_natural


@dataclass(frozen=True, kw_only=True)
class StridedSliceAttrs(Attrs):
    begin: tuple[KnownDim, ...] = attr(
        doc="first index along each axis; negative counts from the end",
        expected="a tuple of ints")
    end: tuple[KnownDim, ...] = attr(doc="exclusive last index along each axis",
                                     expected="a tuple of ints")
    strides: tuple[int, ...] | None = attr(None, "steps, negative to go backwards; None for 1",
                                           check=lambda s: s is None or 0 not in s,
                                           expected="nonzero steps")
    axes: tuple[int, ...] | None = attr(None, "axes that are sliced; None for the first ones")


@dataclass(frozen=True, slots=True)
class AxisSlice:
    """The slice of one axis: result ``i`` is element ``begin + stride * i``."""

    axis: int
    begin: KnownDim
    end: KnownDim
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
    attrs = ctx.attrs_as(StridedSliceAttrs)
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
    if isinstance(size, AnyDim):
        return _sliced_any(ctx, size, cut)
    if isinstance(size, int) and isinstance(cut.begin, int) and isinstance(cut.end, int):
        return len(range(*slice(cut.begin, cut.end, cut.stride).indices(size)))
    signs = [_counts_from_front(bound) for bound in (cut.begin, cut.end)]
    for bound, sign in zip((cut.begin, cut.end), signs, strict=True):
        if sign is None:
            ctx.fail("the sign of a bound is not known", arg=0, axis=cut.axis,
                     expected="a symbolic bound that is never negative, or always",
                     got=f"{cut.begin}:{cut.end}:{cut.stride}, where {bound} may be both",
                     help="give its symbols a range, such as n{1..}")
    return DIMS.start_and_length(size, cut, bool(signs[0]), bool(signs[1]))[1]


def _sliced_any(ctx: RelationContext, size: AnyDim, cut: AxisSlice) -> Dim:
    to_the_end = isinstance(cut.end, int) and cut.end >= TO_THE_END and cut.stride == 1
    if to_the_end and cut.begin == 0:
        return size
    if to_the_end and isinstance(cut.begin, int) and cut.begin < 0:
        return -cut.begin
    return ctx.fail(
        "an axis of unknown size can be sliced only at its end", arg=0, axis=cut.axis,
        expected="begin=0 with an end beyond every size, or the last elements",
        got=f"{cut.begin}:{cut.end}:{cut.stride} of size {size}",
    )


def _counts_from_front(bound: KnownDim) -> bool | None:
    """Whether a bound is never negative (false: always negative), ``None`` if that varies."""
    low, high = bounds_of(bound)
    if low is not None and low >= 0:
        return True
    return False if high is not None and high < 0 else None


# Bounds from here on stand for the end of every axis.
TO_THE_END = 2**31 - 1


@dataclass(frozen=True, slots=True)
class AxisMath:
    """The slice of an axis of symbolic size, over dimensions or over tensor expressions.

    These differ in ``larger`` and ``smaller``; ``is_natural`` says whether a value is known to be
    0 or more.
    """

    larger: Callable[[Any, Any], Any]
    smaller: Callable[[Any, Any], Any]
    is_natural: Callable[[Any], bool]

    def start_and_length(
        self, size: Any, cut: AxisSlice, begin_at_front: bool, end_at_front: bool
    ) -> tuple[Any, Any]:
        """The first index and the number of elements; the flags say from where bounds count."""
        forward = cut.stride > 0
        last = size if forward else size - 1
        start = self._clamped(cut.begin, size, last, begin_at_front)
        stop = self._clamped(cut.end, size, last, end_at_front)
        length = stop - start if forward else start - stop
        span = cut.end - cut.begin if forward else cut.begin - cut.end
        if forward and stop is size:
            # Of equal values, the forms with the fewest terms.
            length = (self.larger(size - cut.begin, 0) if begin_at_front
                      else self.smaller(-cut.begin, size))
        elif begin_at_front != end_at_front or not self.is_natural(span):
            length = self.larger(length, 0)
        step = abs(cut.stride)
        return start, length if step == 1 else (length + (step - 1)) // step

    def _clamped(self, bound: Any, size: Any, last: Any, at_front: bool) -> Any:
        least = 0 if last is size else -1
        if isinstance(bound, int) and abs(bound) >= TO_THE_END:
            return last if bound > 0 else least
        if at_front:
            return bound if isinstance(bound, int) and bound == least else self.smaller(bound, last)
        return self.larger(size + bound, least)


DIMS = AxisMath(dim_max, dim_min, lambda dim: _counts_from_front(dim) is True)


@define_op("strided_slice", attrs=StridedSliceAttrs, relation=_strided_slice_relation,
           pattern=OpPattern.INJECTIVE, level=4, traits=replace(COPIES_ELEMENTS, keeps_scale=True))
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
    known, begin, end = int_value(size), as_size(cut.begin), as_size(cut.end)
    if known is not None and isinstance(begin, int) and isinstance(end, int):
        span = range(*slice(begin, end, cut.stride).indices(known))
        return const(span.start), const(len(span))
    math_ = AxisMath(maximum, minimum, is_natural)
    start, length = math_.start_and_length(size, cut, is_natural(begin), is_natural(end))
    return as_prim(start), as_prim(length)


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
    if not isinstance(size, int) or cut.stride != 1 or not (
        isinstance(cut.begin, int) and isinstance(cut.end, int)
    ):
        return None
    begin, end, _ = slice(cut.begin, cut.end).indices(size)
    if begin % factor or end % factor:
        return None
    return replace(cut, begin=begin // factor, end=end // factor)


strided_slice.spec(
    _strided_slice_reference,
    op_case((4, 6), begin=(1, 0), end=(3, 6)),
    op_case((4, 6), begin=(-3,), end=(100,), axes=(1,)),
    op_case((7,), begin=(0,), end=(7,), strides=(2,)),
    op_case((7, 2), begin=(6,), end=(-8,), strides=(-2,), axes=(0,)),
    op_case((4, 3), begin=(2,), end=(2,)),
)


@strided_slice.identity
def _whole(call: Call) -> Expr | None:
    """A slice that keeps the type; a negative stride may keep it and reverse the elements."""
    type_ = known_type(call)
    if not isinstance(type_, TensorType) or has_any(type_.shape) \
            or min(attrs_of(call, StridedSliceAttrs).strides or (), default=1) <= 0:
        return None
    return call.args[0] if known_type(call.args[0]) == type_ else None


@strided_slice.gradient
def _strided_slice_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Write elements back between zeros, axis by axis; reverse backward slices first."""
    attrs = attrs_of(call, StridedSliceAttrs)
    shape, result = known_shape(call.args[0], call), known_shape(call, call)
    cuts = axis_slices(attrs, len(shape))
    if any(abs(cut.stride) > 1 and not isinstance(shape[cut.axis], int) for cut in cuts):
        return gather_gradient(call, _y, dy)
    for cut in cuts:
        axis, size, count = cut.axis, shape[cut.axis], result[cut.axis]
        first = _first(size, cut, count)
        if cut.stride < 0 and isinstance(count, int) and count:
            dy = op.strided_slice(dy, begin=(count - 1,), end=(-count - 1,), strides=(-1,),
                                  axes=(axis,))
        elif cut.stride < 0 and count != 0:
            dy = op.reverse(dy, axis=axis)
        dy = spread_along(dy, axis, first, abs(cut.stride), size, count)
    return [dy]


def _first(size: KnownDim, cut: AxisSlice, count: KnownDim) -> KnownDim:
    """The smallest index that a slice reads; one up to ``size`` if it reads none."""
    if count == 0:
        return size
    signs = [_counts_from_front(bound) is True for bound in (cut.begin, cut.end)]
    start, _ = DIMS.start_and_length(size, cut, *signs)
    if cut.stride < 0:
        start = dim_min(start + cut.stride * (count - 1), size)
    return start


@strided_slice.batching
def _slice_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], _size: Dim
) -> Expr:
    attrs = attrs_of(call, StridedSliceAttrs)
    cuts = axis_slices(attrs, tensor_type(call.args[0]).ndim)
    return with_attrs(call, args, axes=tuple(c.axis + 1 for c in cuts),
                      strides=tuple(c.stride for c in cuts))

strided_slice.refer(shape_value="weft.op.shape_values:moved")
