"""Joining and splitting: concatenate, split."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, OpTraits, Tuple, TupleGetItem, attr, linear, normalize_axis
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import (
    Dim,
    KnownDim,
    Shape,
    at_least,
    dim_add,
    dim_floordiv,
    dim_sub,
    may_be_equal,
    may_be_multiple,
)
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.typing.relation import RelationContext, symbols_help
from weft.op.batching import along, with_attrs
from weft.op.gradients import attrs_of, known_dim, tensor_type
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
from weft.op.relations import multiples_help
from weft.support.dataclass import dataclass
from weft.topi import transform
from weft.topi.layout import Layout
from weft.topi.sizes import as_sizes


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
    axis = normalize_axis(ctx, ctx.attrs_as(ConcatenateAttrs).axis, first.ndim)
    shape: list[Dim] = list(first.shape)
    for number, part in enumerate(parts[1:], start=1):
        ctx.expect_rank(0, part, first.ndim)
        ctx.expect_same_dtype(0, part, first.dtype)
        for i, dim in enumerate(part.shape):
            if i == axis:
                shape[i] = dim_add(shape[i], dim)
            elif not may_be_equal(shape[i], dim):
                ctx.fail(f"tensor {number} does not fit tensor 0", arg=0, axis=i,
                         expected=shape[i], got=dim, help=symbols_help(shape[i], dim))
    ctx.output(TensorType(tuple(shape), first.dtype))
    return True


@define_op("concatenate", attrs=ConcatenateAttrs, relation=_concatenate_relation,
           pattern=OpPattern.INJECTIVE, inputs=("*tensors",), level=1,
           traits=linear(OpTraits(takes_blocks=True)))
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
    op_case([(2, 3), (4, 3)], axis=0),
    op_case([(2, 3, 5), (2, 1, 5), (2, 4, 5)], axis=1),
    op_case([(2, 3), (2, 2)], axis=-1),
    op_case([(3,)]),
    op_case([(2, 0), (2, 3)], axis=1),
)


def _fields(call: Call) -> tuple[TensorType, ...]:
    type_ = call.args[0].checked_type
    fields = type_.fields if isinstance(type_, TupleType) else ()
    return tuple(f for f in fields if isinstance(f, TensorType))


@concatenate.identity
def _alone(call: Call) -> Expr | None:
    """The only tensor."""
    fields = call.args[0]
    return fields.fields[0] if isinstance(fields, Tuple) and len(fields.fields) == 1 else None


@concatenate.gradient
def _concatenate_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, ConcatenateAttrs)
    fields = _fields(call)
    axis = attrs.axis % fields[0].ndim
    sizes = [known_dim(f.shape[axis], call) for f in fields]
    if len(sizes) == 1:
        return [Tuple((dy,))]
    cuts = tuple(itertools.accumulate(sizes[:-1], dim_add))
    parts = op.split(dy, indices_or_sections=cuts, axis=axis)
    return [Tuple(tuple(TupleGetItem(parts, i) for i in range(len(sizes))))]


def _ascend(positions: Sequence[KnownDim]) -> bool:
    return all(at_least(dim_sub(b, a), 0) for a, b in itertools.pairwise((0, *positions)))


@dataclass(frozen=True, kw_only=True)
class SplitAttrs(Attrs):
    indices_or_sections: int | tuple[KnownDim, ...] = attr(
        doc="number of equal sections, or the positions at which to split",
        check=lambda v: v > 0 if isinstance(v, int) else _ascend(v),
        expected="a number of sections, or positions in ascending order",
    )
    axis: int = attr(0, "axis that is split")


def _split_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(SplitAttrs)
    axis = normalize_axis(ctx, attrs.axis, source.ndim)
    sizes = _part_sizes(ctx, source.shape[axis], attrs.indices_or_sections, axis)
    ctx.output(TupleType(tuple(
        TensorType((*source.shape[:axis], size, *source.shape[axis + 1:]), source.dtype)
        for size in sizes
    )))
    return True


def _part_sizes(
    ctx: RelationContext, size: Dim, sections: int | tuple[KnownDim, ...], axis: int
) -> list[Dim]:
    if isinstance(sections, int):
        if not may_be_multiple(size, sections):
            ctx.fail("the axis cannot be split into equal sections", arg=0, axis=axis,
                     expected=f"a size divisible by {sections}", got=size,
                     help=multiples_help(size, sections))
        return [dim_floordiv(size, sections)] * sections
    if sections and not at_least(dim_sub(size, sections[-1]), 0):
        ctx.fail("a split position is out of range", arg=0, axis=axis,
                 expected=f"positions up to {size}", got=sections)
    bounds: list[Dim] = [0, *sections, size]
    return [dim_sub(b, a) for a, b in itertools.pairwise(bounds)]


def _parts(attrs: SplitAttrs, _inputs: int) -> int:
    sections = attrs.indices_or_sections
    return sections if isinstance(sections, int) else len(sections) + 1


@define_op("split", attrs=SplitAttrs, relation=_split_relation, pattern=OpPattern.INJECTIVE,
           level=3, traits=linear(OpTraits(keeps_scale=True)), results=_parts)
def split(x: te.Tensor, attrs: SplitAttrs) -> tuple[te.Tensor, ...]:
    """The sections of x along an axis, as a tuple."""
    axis = attrs.axis % x.ndim
    sections = attrs.indices_or_sections
    if isinstance(sections, tuple):
        return transform.split(x, as_sizes(sections), axis)
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
        whole = [cut for cut in sections if isinstance(cut, int) and cut % factor == 0]
        if factor > 1 and len(whole) < len(sections):
            return None
        sections = tuple(cut // factor for cut in whole) if factor > 1 else sections
    changed = attrs.replace(axis=layout.index_of(letter), indices_or_sections=sections)
    return LayoutResult((layout,), (layout,) * count, changed)


split.spec(_split_reference, op_case((6, 4), indices_or_sections=3),
           op_case((2, 7), indices_or_sections=(2, 3), axis=-1),
           op_case((4, 3), indices_or_sections=(0, 4)), op_case((5,), indices_or_sections=1))


@split.gradient
def _split_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, SplitAttrs)
    type_ = call.checked_type
    count = len(type_.fields) if isinstance(type_, TupleType) else 0
    parts = tuple(TupleGetItem(dy, i) for i in range(count))
    return [op.concatenate(Tuple(parts), axis=attrs.axis)]


@concatenate.batching
def _concatenate_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], _size: Dim
) -> Expr:
    return with_attrs(call, args, axis=attrs_of(call, ConcatenateAttrs).axis
                      % tensor_type(call).ndim + 1)


split.batching(along("axis"))

concatenate.refer(shape_value="weft.op.shape_values:moved",
                  permuted="weft.op.permuted:concatenate",
                  requantized_form="weft.op.qnn.integer_forms:concatenate",
                  integer_form="weft.op.qnn.integer_forms:concatenate_alike")
split.refer(shape_value="weft.op.shape_values:moved")
