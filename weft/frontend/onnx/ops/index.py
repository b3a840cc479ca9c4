"""Converters of Concat, Split, Slice, Gather and Pad."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import accumulate

from weft import op
from weft.frontend.common import arrays
from weft.frontend.onnx.node import Node, constant_value, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import known_sizes, sliced_positions
from weft.ir.expr import Expr
from weft.ir.shape import (
    Dim,
    at_least,
    bounds_of,
    dim_add,
    dim_floordiv,
    dims_equal,
    may_be_multiple,
)
from weft.support.allocation import check_nodes
from weft.support.errors import UnsupportedModelError


@converts("Concat", attributes=("axis",))
def concat(node: Node) -> Expr:
    parts = node.all_inputs()
    if "axis" not in node.attrs:
        raise node.fail("attribute 'axis' is missing")
    axis = node.axis(node.attrs.integer("axis", 0), node.rank())
    return parts[0] if len(parts) == 1 else node.tuple_call(op.concatenate, parts, axis=axis)


@converts("Split", attributes=("axis", "split"), outputs=1 << 20)
def split_by_attribute(node: Node) -> Sequence[Expr]:
    return _split(node, node.attrs.integers("split"), node.output_count)


@converts("Split", since=13, attributes=("axis",), outputs=1 << 20)
def split_by_input(node: Node) -> Sequence[Expr]:
    return _split(node, node.optional_dims(1, "split"), node.output_count)


@converts("Split", since=18, attributes=("axis", "num_outputs"), outputs=1 << 20)
def split_by_count(node: Node) -> Sequence[Expr]:
    count = node.attrs.integer("num_outputs", node.output_count)
    check_nodes(count)
    sizes = node.optional_dims(1, "split")
    if sizes is not None and "num_outputs" in node.attrs and len(sizes) != count:
        raise node.fail("num_outputs differs from the number of split sizes",
                        expected=str(len(sizes)), got=str(count))
    return _split(node, sizes, count)


def _split(node: Node, sizes: Sequence[Dim] | None, count: int) -> Sequence[Expr]:
    axis = node.axis(node.attrs.integer("axis", 0), node.rank())
    length = node.shape()[axis]
    if sizes is None:
        sizes = _even_sizes(node, length, count)
    equal = dims_equal(reduce(dim_add, sizes, 0), length)
    differ = equal is False
    if differ or not all(at_least(d, 0) for d in sizes) or len(sizes) < max(node.output_count, 1):
        raise node.fail(
            "wrong sum or number of split sizes",
            expected=f"{node.output_count} sizes that sum to {length}",
            got=str(tuple(map(str, sizes))),
        )
    if equal is None:
        raise UnsupportedModelError("Split of a size that its parts may not add up to",
                                    where=node.span, got=str(length),
                                    expected=str(reduce(dim_add, sizes, 0)))
    if len(sizes) == 1:
        return (node.input(0),)
    bounds = known_sizes(node, tuple(accumulate(sizes, dim_add))[:-1])
    parts = node.call(op.split, node.input(0), indices_or_sections=bounds, axis=axis)
    return [node.field(parts, i) for i in range(len(sizes))]


def _even_sizes(node: Node, length: Dim, count: int) -> tuple[Dim, ...]:
    """Return equal sizes; the last one may be smaller (opset 18)."""
    if not isinstance(length, int):
        if count < 1 or not may_be_multiple(length, count):
            raise UnsupportedModelError(
                "Split of a symbolic size into parts that may differ", where=node.span,
                expected=f"a multiple of {count}", got=str(length),
                help=f'say that it is one: "{length} % {count} == 0"')
        return (dim_floordiv(length, count),) * count
    if count < 1 or count > max(length, 1):
        raise node.fail(
            "invalid number of outputs", expected=f"1 to {length}", got=str(count)
        )
    part = -(-length // count)
    return (*(part,) * (count - 1), length - part * (count - 1))


@converts("Slice", attributes=("starts", "ends", "axes"))
def slice_by_attributes(node: Node) -> Expr:
    starts, ends = node.attrs.integers("starts"), node.attrs.integers("ends")
    if starts is None or ends is None:
        raise node.fail("attribute 'starts' or 'ends' is missing")
    axes = node.attrs.integers("axes")
    return _slice(node, starts, ends, axes, None)


@converts("Slice", since=10)
def slice_by_inputs(node: Node) -> Expr:
    return _slice(
        node,
        node.dims(1, "starts"),
        node.dims(2, "ends"),
        node.optional_ints(3, "axes"),
        node.optional_ints(4, "steps"),
    )


def _slice(
    node: Node,
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    axes: tuple[int, ...] | None,
    steps: tuple[int, ...] | None,
) -> Expr:
    """Slice as Python does: negative bounds count from the end, all bounds are clipped."""
    shape = node.shape()
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise node.fail(
            "starts, ends, axes and steps do not match",
            expected="as many of each, steps not 0",
            got=f"{starts}, {ends}, {axes}, {steps}",
        )
    axes = tuple(node.axis(a, len(shape)) for a in axes)
    bounds = [
        _bounds(shape[axis], start, stop, step)
        for axis, start, stop, step in zip(axes, starts, ends, steps, strict=True)
    ]
    begin, end = (known_sizes(node, side) for side in zip(*bounds, strict=True)) if bounds \
        else ((), ())
    return node.call(
        op.strided_slice, node.input(0), begin=begin, end=end, strides=steps, axes=axes
    )


def _bounds(size: Dim, start: Dim, stop: Dim, step: int) -> tuple[Dim, Dim]:
    if not isinstance(size, int) or not isinstance(start, int) or not isinstance(stop, int):
        return start, min(stop, 2**31 - 1) if isinstance(stop, int) else stop
    span = sliced_positions(size, start, stop, step)
    # With a negative step, stop -1 (before the first element) would count from the end.
    return span.start, span.stop if span.stop >= 0 else -size - 1


@converts("Gather", attributes=("axis",))
def gather(node: Node) -> Expr:
    """Take slices along ``axis``; negative indices count from the end."""
    axis = node.axis(node.attrs.integer("axis", 0), node.rank())
    data, indices = node.input(0), node.input(1)
    if not tensor_type(indices).dtype.is_int:
        raise node.fail("the indices are not integers", got=str(tensor_type(indices).dtype))
    known = constant_value(indices)
    if known is not None and (known >= 0).all():
        return node.call(op.take, data, indices, axis=axis, mode="clip")
    length = node.size(node.shape()[axis], tensor_type(indices).dtype)
    negative = node.call(op.less, indices, node.scalar_like(0, indices))
    wrapped = node.call(op.where, negative, node.call(op.add, indices, length), indices)
    return node.call(op.take, data, wrapped, axis=axis, mode="clip")


_PAD_MODES = ("constant", "edge", "reflect")


@converts("Pad", since=2, attributes=("pads", "value"), only={"mode": _PAD_MODES})
def pad_by_attributes(node: Node) -> Expr:
    fill = node.scalar_like(node.attrs.number("value", 0.0), node.input(0))
    return _pad(node, node.attrs.integers("pads") or (), None, fill)


@converts("Pad", since=11, only={"mode": _PAD_MODES})
@converts("Pad", since=19, only={"mode": (*_PAD_MODES, "wrap")})
def pad_by_inputs(node: Node) -> Expr:
    fill = node.input(2) if node.has_input(2) else node.scalar_like(0, node.input(0))
    return _pad(node, node.dims(1, "pads"), node.optional_ints(3, "axes"), fill)


def _pad(node: Node, pads: Sequence[Dim], axes: tuple[int, ...] | None, fill: Expr) -> Expr:
    """Pad ``axes`` (all if ``None``); negative amounts crop."""
    rank = node.rank()
    axes = tuple(range(rank)) if axes is None else node.axes(axes, rank)
    if len(pads) != 2 * len(axes) or any(
            isinstance(p, int) and abs(p) >= 1 << 31 for p in pads):
        raise node.fail(
            "the pads do not match the input",
            expected=f"{2 * len(axes)} numbers",
            got=str(pads),
        )
    width: list[tuple[Dim, Dim]] = [(0, 0)] * rank
    for axis, before, after in zip(axes, pads, pads[len(axes) :], strict=False):
        width[axis] = (_settled(node, before), _settled(node, after))
    data = _cropped(node, width)
    width = [(_added(b), _added(a)) for b, a in width]
    if all(pair == (0, 0) for pair in width):
        return data
    mode = node.attrs.text("mode", "constant")
    if mode == "wrap":
        return _wrapped(node, data, width)
    fill = node.call(op.reshape, fill, newshape=()) if tensor_type(fill).shape else fill
    return node.call(op.nn.pad, data, fill, pad_width=tuple(width), pad_mode=mode)


def _settled(node: Node, amount: Dim) -> Dim:
    """An amount of padding; symbolic ones must not be negative, which would crop."""
    if not isinstance(amount, int) and (bounds_of(amount)[0] or 0) < 0:
        raise UnsupportedModelError("Pad by a symbolic amount that may be negative",
                                    where=node.span, got=str(amount))
    return amount


def _added(amount: Dim) -> Dim:
    return max(amount, 0) if isinstance(amount, int) else amount


def _wrapped(node: Node, data: Expr, width: list[tuple[Dim, Dim]]) -> Expr:
    """Pad periodically: indices wrap around at both ends of an axis."""
    for axis, (before, after) in enumerate(width):
        size = tensor_type(data).shape[axis]
        if not before and not after:
            continue
        if not isinstance(before, int) or not isinstance(after, int) \
                or not isinstance(size, int) or size == 0:
            raise UnsupportedModelError("Pad wraps an axis of symbolic or zero size",
                                        where=node.span)  # fmt: skip
        positions = node.constant(arrays.arange(-before, size + after) % size, "int64")
        data = node.call(op.take, data, positions, axis=axis, mode="clip")
    return data


def _cropped(node: Node, width: list[tuple[Dim, Dim]]) -> Expr:
    """Drop the elements that negative amounts take away."""
    shape = node.shape()
    cut = [tuple(min(a, 0) if isinstance(a, int) else 0 for a in pair) for pair in width]
    axes = [i for i, pair in enumerate(cut) if any(pair)]
    if not axes:
        return node.input(0)
    end: list[int] = []
    for axis in axes:
        size, (before, after) = shape[axis], cut[axis]
        if isinstance(size, int) and -before - after > size:
            raise node.fail("the pads crop more than the axis", expected=f"at most {size}",
                            got=str(width[axis]))
        end.append(size + after if isinstance(size, int) else after or 2**31 - 1)
    return node.call(
        op.strided_slice,
        node.input(0),
        begin=tuple(-cut[axis][0] for axis in axes),
        end=tuple(end),
        strides=(1,) * len(axes),
        axes=tuple(axes),
    )
