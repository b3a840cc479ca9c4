"""Padding by a constant, by edge elements, or by reflection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Call, Expr, OpTraits, RelationContext, TensorType, Tuple, Type, linear
from weft.ir.attrs import Attrs, attr, one_of, sizes_from
from weft.ir.op import OpPattern, define_op, get_op, op_case
from weft.ir.shape import Dim, KnownDim, dim_add, dim_max, may_be_at_least
from weft.op.batching import with_attrs
from weft.op.gradients import attrs_of, known_shape, tensor_type, typed_zeros
from weft.op.layout_inference import InputLayout, LayoutResult, data_layout, unsplit_axis
from weft.op.relations import range_help
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.topi.nn import pad as topi_pad
from weft.topi.sizes import as_size


@dataclass(frozen=True, kw_only=True)
class PadAttrs(Attrs):
    pad_width: tuple[tuple[KnownDim, KnownDim], ...] = attr(
        doc="elements before and after, for each axis",
        check=lambda w: all(map(sizes_from(0), w)),
        expected="pairs of numbers >= 0",
    )
    pad_mode: str = attr("constant", "value of the new elements: the pad value, the nearest "
                         "element, or the reflected tensor",
                         check=one_of("constant", "edge", "reflect"),
                         expected='"constant", "edge" or "reflect"')


def _pad_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    source, value = types
    attrs = ctx.attrs_as(PadAttrs)
    if len(attrs.pad_width) != source.ndim:
        ctx.fail("wrong length of pad_width", arg=0,
                 expected=f"{source.ndim} pairs", got=f"{len(attrs.pad_width)} pairs")
    if value.ndim:
        ctx.fail("the pad value is not a scalar", arg=1, expected="rank 0", got=value)
    ctx.expect_same_dtype(1, value, source.dtype)
    shape = tuple(_padded(ctx, axis, size, *attrs.pad_width[axis], mode=attrs.pad_mode)
                  for axis, size in enumerate(source.shape))
    ctx.output(TensorType(shape, source.dtype))
    return True


def _padded(
    ctx: RelationContext, axis: int, size: Dim, before: KnownDim, after: KnownDim, *, mode: str
) -> Dim:
    widest = dim_max(before, after)
    needed: Dim = 0
    if mode != "constant" and widest != 0:
        needed = 1 if mode == "edge" else dim_add(widest, 1)
    if needed != 0 and not may_be_at_least(size, needed):
        ctx.fail(f"too few elements for pad_mode {mode!r}", arg=0, axis=axis,
                 expected=f"a size of {needed} or more", got=size, help=range_help(size, needed))
    return dim_add(size, dim_add(before, after))


@define_op("nn.pad", attrs=PadAttrs, relation=_pad_relation, pattern=OpPattern.INJECTIVE, level=2,
           traits=linear(OpTraits(is_identity_at_same_type=True)))
def pad(x: te.Tensor, pad_value: te.Tensor, attrs: PadAttrs) -> te.Tensor:
    """``x`` with padding; ``pad_value`` is a scalar tensor."""
    widths = tuple((as_size(before), as_size(after)) for before, after in attrs.pad_width)
    if attrs.pad_mode == "edge":
        return topi_pad.edge_pad(x, widths)
    if attrs.pad_mode == "reflect":
        return topi_pad.reflect_pad(x, widths)
    return topi_pad.constant_pad(x, widths, pad_value[()])


def _pad_reference(
    x: np.ndarray, value: Any, pad_width: Sequence[tuple[int, int]], pad_mode: str = "constant"
) -> np.ndarray:
    if pad_mode == "constant":
        return np.pad(x, pad_width, constant_values=np.asarray(value).item())
    return np.pad(x, pad_width, mode=pad_mode)  # pyrefly: ignore


@pad.expansion
def _pad_by_slices(call: Call) -> Expr | None:
    """Padding as slices of the data concatenated to its ends, for modes other than constant."""
    attrs: Any = call.attrs
    if attrs.pad_mode == "constant":
        return None
    x, shape = call.args[0], tensor_type(call.args[0]).shape
    for axis, (size, pair) in enumerate(zip(shape, attrs.pad_width, strict=True)):
        if not any(pair):
            continue
        if not isinstance(size, int) or not all(isinstance(n, int) for n in pair):
            return None
        if attrs.pad_mode == "reflect":
            x = join_mirrored(x, axis, size, pair, repeats_edge=False)
        else:
            x = _join_edges(x, axis, size, pair)
    return x


def join_mirrored(
    x: Expr, axis: int, size: int, pair: tuple[int, int], *, repeats_edge: bool
) -> Expr:
    """``x`` with reversed slices of itself concatenated to the ends of an axis."""
    (before, after), skip = pair, 0 if repeats_edge else 1

    def reversed_slice(first: int, stop: int) -> Expr:
        """The elements from ``first`` down to ``stop``, exclusive."""
        # A slice counts negative bounds from the end; -1 stands for the position before the first.
        end = stop if stop >= 0 else stop - size
        return get_op("strided_slice")(x, begin=(first,), end=(end,), strides=(-1,), axes=(axis,))

    front = [reversed_slice(before + skip - 1, skip - 1)] if before else []
    back = [reversed_slice(size - 1 - skip, size - 1 - skip - after)] if after else []
    return get_op("concatenate")(Tuple((*front, x, *back)), axis=axis)


def _join_edges(x: Expr, axis: int, size: int, pair: tuple[int, int]) -> Expr:
    """``x`` with its outermost elements repeated at the ends of an axis."""
    cut = get_op("strided_slice")
    first, last = (cut(x, begin=(i,), end=(i + 1,), axes=(axis,)) for i in (0, size - 1))
    return get_op("concatenate")(Tuple((*(first,) * pair[0], x, *(last,) * pair[1])), axis=axis)


@pad.layout
def _pad_layout(
    attrs: PadAttrs, inputs: tuple[InputLayout, ...], _types: tuple[Type, ...]
) -> LayoutResult | None:
    """Only unsplit axes can be padded."""
    layout = data_layout(inputs)
    if layout is None:
        return None
    widths: list[tuple[KnownDim, KnownDim]] = [(0, 0)] * layout.ndim
    for axis, pair in enumerate(attrs.pad_width):
        position = unsplit_axis(layout, axis)
        if position is not None:
            widths[position] = pair
        elif any(pair):
            return None
    return LayoutResult((layout, None), (layout,), attrs.replace(pad_width=tuple(widths)))


pad.spec(
    _pad_reference,
    op_case((3, 4), (), pad_width=((1, 2), (0, 3))),
    op_case((2, 3), (), pad_width=((0, 0), (0, 0))),
    op_case((3, 4), (), pad_width=((1, 2), (3, 0)), pad_mode="reflect"),
    op_case((3, 4), (), pad_width=((2, 1), (0, 5)), pad_mode="edge"),
    op_case((0, 2), (), pad_width=((1, 1), (0, 0))),
)


@pad.gradient
def _pad_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, PadAttrs)
    x, value = call.args
    if attrs.pad_mode != "constant":
        raise PassError(f"unsupported gradient of padding by {attrs.pad_mode!r}",
                        where=call.span,
                        expected="constant")
    shape = known_shape(x, call)
    begin = tuple(before for before, _ in attrs.pad_width)
    end = tuple(b + size for b, size in zip(begin, shape, strict=True))
    inner = op.strided_slice(dy, begin=begin, end=end)
    # The pad value is every element of the border.
    border = op.subtract(op.sum(dy), op.sum(inner))
    return [inner, border if tensor_type(value).ndim == 0 else typed_zeros(value)]


@pad.batching
def _pad_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], _size: Dim
) -> Expr | None:
    widths = attrs_of(call, PadAttrs).pad_width
    return None if is_batched[1] else with_attrs(call, args, pad_width=((0, 0), *widths))
pad.refer(permuted="weft.op.permuted:pad")
