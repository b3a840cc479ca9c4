"""Converters that move elements: views, permutations, slices, joins, padding."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.node import (
    Node,
    axes_of,
    axis_of,
    dtype_in,
    is_symbolic,
    rank_of,
    shape_in,
    size_of,
)
from weft.frontend.torch.registry import converts
from weft.ir import Constant, Dim, Expr
from weft.ir.shape import dim_max, dim_min


@converts("view", "reshape", "_unsafe_view", "_reshape_copy", "view_copy")
def view(node: Node, x: Expr, shape: Sequence[int]) -> Expr:
    """One size may be -1."""
    target = list(shape)
    if -1 in target and is_symbolic(*target, *shape_in(x)):
        return node.call(op.reshape, x, newshape=tuple(target))
    if -1 in target:
        rest = 1
        for size in target:
            rest *= size if size != -1 else 1
        target[target.index(-1)] = size_of(x) // rest if rest else 0
    return node.reshape(x, target)


@converts("flatten")
def flatten(node: Node, x: Expr, first: int, last: int) -> Expr:
    shape, rank = shape_in(x), rank_of(x)
    first, last = axis_of(first, rank), axis_of(last, rank)
    middle = 1
    for size in shape[first : last + 1]:
        middle *= size
    return node.reshape(x, (*shape[:first], middle, *shape[last + 1 :]))


@converts("permute", "permute_copy")
def permute(node: Node, x: Expr, axes: Sequence[int]) -> Expr:
    return node.transpose(x, [axis_of(a, rank_of(x)) for a in axes])


@converts("transpose.int", "transpose_copy.int")
def transpose(node: Node, x: Expr, first: int, second: int) -> Expr:
    order = list(range(rank_of(x)))
    if not order:
        return x
    first, second = axis_of(first, len(order)), axis_of(second, len(order))
    order[first], order[second] = order[second], order[first]
    return node.transpose(x, order)


@converts("t", "t_copy", "numpy_T")
def matrix_transpose(node: Node, x: Expr) -> Expr:
    return node.transpose(x, tuple(reversed(range(rank_of(x)))))


@converts("unsqueeze", "unsqueeze_copy")
def unsqueeze(node: Node, x: Expr, axis: int) -> Expr:
    return node.call(op.expand_dims, x, axis=axis % (rank_of(x) + 1), num_newaxis=1)


@converts("squeeze", "squeeze_copy")
def squeeze(node: Node, x: Expr, axes: int | Sequence[int] | None = None) -> Expr:
    """Remove those of the named axes that have size 1."""
    shape = shape_in(x)
    named = () if axes == [] else axes_of(axes, rank_of(x))
    chosen = tuple(a for a in named if shape and shape[a] == 1)
    return node.call(op.squeeze, x, axis=chosen) if chosen else x


@converts("expand", "expand_copy")
def expand(node: Node, x: Expr, shape: Sequence[int], *_implicit: Any) -> Expr:
    """Broadcast ``x``; a size of -1 keeps the size of ``x``."""
    own = (1,) * (len(shape) - rank_of(x)) + shape_in(x)
    target = tuple(o if s == -1 else s for s, o in zip(shape, own, strict=True))
    return node.broadcast(x, target)


@converts("slice.Tensor", "slice_copy.Tensor")
def slice_(node: Node, x: Expr, axis: int, start: int | None, end: int | None,
           step: int) -> Expr:
    axis = axis_of(axis, rank_of(x))
    size = shape_in(x)[axis]
    if is_symbolic(size, start, end):
        first, last = slice_bound(start, size, 0), slice_bound(end, size, size)
        if has_data_size(node, axis):  # torch guards that bounds are within other sizes
            last = dim_min(dim_max(last, 0), size)
            first = dim_min(dim_max(first, 0), last)
        return node.slice(x, axis, first, last, step)
    first, last, _ = slice(start, end).indices(size)
    if last <= first:
        first, last = 0, 0
    return node.slice(x, axis, first, last, step)


def has_data_size(node: Node, axis: int) -> bool:
    """Whether data determines the size of an axis of the result."""
    return isinstance(node.result, torch.Tensor) \
        and bool(free_unbacked_symbols(node.result.shape[axis]))


def slice_bound(bound: Dim | None, size: Dim, default: Dim) -> Dim:
    """A bound of a slice of a symbolic axis; torch writes the largest int64 for the end."""
    if bound is None or (isinstance(bound, int) and bound >= sys.maxsize):
        return default
    return size + bound if isinstance(bound, int) and bound < 0 else bound


@converts("narrow", "narrow_copy")
def narrow(node: Node, x: Expr, axis: int, start: int, length: int) -> Expr:
    axis = axis_of(axis, rank_of(x))
    start = start + shape_in(x)[axis] if start < 0 else start
    return node.slice(x, axis, start, start + length)


@converts("select.int", "select_copy.int")
def select(node: Node, x: Expr, axis: int, index: int) -> Expr:
    axis = axis_of(axis, rank_of(x))
    size = shape_in(x)[axis]
    # The trace has checked that a symbolic axis has this element.
    if not is_symbolic(size) and not -size <= index < size:
        raise node.unsupported("an index outside of the axis", expected=f"-{size} to {size} - 1",
                               got=str(index))
    index = index + size if not is_symbolic(index) and index < 0 else index
    return node.call(op.squeeze, node.slice(x, axis, index, index + 1), axis=(axis,))


@converts("cat")
def cat(node: Node, tensors: Sequence[Expr], axis: int) -> Expr:
    """Concatenate; vectors of size 0 are skipped, as in torch."""
    dtype = node.dtype()
    parts = [node.cast(t, dtype) for t in tensors if shape_in(t) != (0,)] or [tensors[0]]
    return _joined(node, parts, axis_of(axis, rank_of(parts[0])))


def _joined(node: Node, parts: Sequence[Expr], axis: int) -> Expr:
    full = [p for p in parts if shape_in(p)[axis]] or [parts[0]]
    return full[0] if len(full) == 1 else node.tuple_call(op.concatenate, full, axis=axis)


@converts("stack")
def stack(node: Node, tensors: Sequence[Expr], axis: int) -> Expr:
    axis %= rank_of(tensors[0]) + 1
    dtype = node.dtype()
    wide = [node.call(op.expand_dims, node.cast(t, dtype), axis=axis, num_newaxis=1)
            for t in tensors]
    return _joined(node, wide, axis)


@converts("split_with_sizes", "split_with_sizes_copy")
def split_with_sizes(node: Node, x: Expr, sizes: Sequence[int], axis: int) -> tuple[Expr, ...]:
    axis = axis_of(axis, rank_of(x))
    parts, at = [], 0
    for size in sizes:
        parts.append(node.slice(x, axis, at, at + size))
        at += size
    return tuple(parts)


@converts("split.Tensor", "split_copy.Tensor")
def split(node: Node, x: Expr, size: int, axis: int) -> tuple[Expr, ...]:
    """Slices of ``size``; the last one may be smaller."""
    total = shape_in(x)[axis_of(axis, rank_of(x))]
    if is_symbolic(total, size):
        whole = len(node.result) - 1  # the number of parts is fixed
        return split_with_sizes(node, x, [*[size] * whole, total - size * whole], axis)
    starts = range(0, max(total, 1), max(size, 1))
    return split_with_sizes(node, x, [min(size, total - s) for s in starts], axis)


@converts("chunk")
def chunk(node: Node, x: Expr, chunks: int, axis: int) -> tuple[Expr, ...]:
    total = shape_in(x)[axis_of(axis, rank_of(x))]
    return split(node, x, -(-total // chunks), axis)


@converts("unbind.int", "unbind_copy.int")
def unbind(node: Node, x: Expr, axis: int) -> tuple[Expr, ...]:
    count = shape_in(x)[axis_of(axis, rank_of(x))]
    return tuple(select(node, x, axis, i) for i in range(count))


@converts("flip")
def flip(node: Node, x: Expr, axes: Sequence[int]) -> Expr:
    for axis in axes if rank_of(x) else ():
        x = node.call(op.reverse, x, axis=axis_of(axis, rank_of(x)))
    return x


@converts("roll")
def roll(node: Node, x: Expr, shifts: Sequence[int], axes: Sequence[int]) -> Expr:
    """Shift elements cyclically along the axes."""
    if not axes:
        flat = node.reshape(x, (size_of(x),))
        return node.reshape(roll(node, flat, shifts, (0,)), shape_in(x))
    for shift, named in zip(shifts, axes, strict=True):
        axis = axis_of(named, rank_of(x))
        size = shape_in(x)[axis]
        if is_symbolic(size):
            x = _rolled(node, x, axis, shift)
            continue
        cut = (size - shift) % size if size else 0
        if cut:
            x = _joined(node, [node.slice(x, axis, cut, size), node.slice(x, axis, 0, cut)], axis)
    return x


def _rolled(node: Node, x: Expr, axis: int, shift: int) -> Expr:
    """``roll`` along an axis of symbolic size."""
    size = shape_in(x)[axis]
    before = node.call(op.subtract, range_of_sizes(node, size), node.tensor(shift, "int64"))
    sources = node.call(op.floor_mod, before, node.tensor(size, "int64"))
    return node.call(op.take, x, sources, axis=axis, mode="clip")


def range_of_sizes(node: Node, stop: Dim, step: int = 1) -> Expr:
    """The integers 0, ``step``, ... below ``stop``, int64."""
    if is_symbolic(stop):
        return node.call(op.arange, start=0, stop=stop, step=step, dtype="int64")
    return Constant(arrays.arange(0, stop, step), span=node.span)  # type: ignore[arg-type]


@converts("repeat")
def repeat(node: Node, x: Expr, repeats: Sequence[int]) -> Expr:
    x = node.reshape(x, (1,) * (len(repeats) - rank_of(x)) + shape_in(x))
    return node.call(op.tile, x, reps=tuple(repeats)) if any(r != 1 for r in repeats) else x


@converts("repeat_interleave.self_int")
def repeat_interleave(node: Node, x: Expr, repeats: int, axis: int | None,
                      *_size: Any) -> Expr:
    """Repeat each slice ``repeats`` times in a row."""
    if axis is None:
        x, axis = node.reshape(x, (size_of(x),)), 0
    axis, shape = axis_of(axis, rank_of(x)), shape_in(x)
    wide = node.call(op.expand_dims, x, axis=axis + 1, num_newaxis=1)
    wide = node.broadcast(wide, (*shape[: axis + 1], repeats, *shape[axis + 1 :]))
    return node.reshape(wide, (*shape[:axis], shape[axis] * repeats, *shape[axis + 1 :]))


@converts("pixel_shuffle")
def pixel_shuffle(node: Node, x: Expr, factor: int) -> Expr:
    """Rearrange channels to pixels: (…, C r r, H, W) to (…, C, H r, W r)."""
    *batch, channels, height, width = shape_in(x)
    kept = len(batch)
    split_shape = (*batch, channels // factor**2, factor, factor, height, width)
    order = (*range(kept + 1), kept + 3, kept + 1, kept + 4, kept + 2)
    moved = node.transpose(node.reshape(x, split_shape), order)
    return node.reshape(moved, (*batch, channels // factor**2, height * factor, width * factor))


@converts("constant_pad_nd")
def constant_pad(node: Node, x: Expr, pad: Sequence[int], value: float) -> Expr:
    """Pad with a constant; negative amounts crop."""
    return padded(node, x, pad, "constant", value)


@converts("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")
def reflection_pad(node: Node, x: Expr, pad: Sequence[int]) -> Expr:
    return padded(node, x, pad, "reflect", 0)


@converts("replication_pad1d", "replication_pad2d", "replication_pad3d")
def replication_pad(node: Node, x: Expr, pad: Sequence[int]) -> Expr:
    """Pad with the elements at the ends of an axis, even if the other end is cropped."""
    if min(pad, default=0) >= 0:
        return padded(node, x, pad, "edge", 0)
    for index in range(len(pad) // 2):
        axis = rank_of(x) - 1 - index
        size = shape_in(x)[axis]
        positions = np.clip(arrays.arange(-pad[2 * index], size + pad[2 * index + 1]), 0, size - 1)
        x = node.call(op.take, x, Constant(positions, span=node.span), axis=axis, mode="clip")
    return x


def padded(node: Node, x: Expr, pad: Sequence[int], mode: str, value: float) -> Expr:
    """``pad`` holds (before, after) for the last axis, then for the one before it, …"""
    rank = rank_of(x)
    width = [(0, 0)] * rank
    for index in range(len(pad) // 2):
        axis = rank - 1 - index
        before, after = pad[2 * index], pad[2 * index + 1]
        x = node.slice(x, axis, max(-before, 0), shape_in(x)[axis] - max(-after, 0))
        width[axis] = (max(before, 0), max(after, 0))
    if not any(map(any, width)):
        return x
    return node.call(op.nn.pad, x, node.constant(value, dtype_in(x)), pad_width=tuple(width),
                     pad_mode=mode)


@converts("unfold", "unfold_copy")
def unfold(node: Node, x: Expr, axis: int, size: int, step: int) -> Expr:
    """Windows of ``size`` along an axis; a new last axis holds the elements of each window."""
    if not rank_of(x):
        return node.slice(node.reshape(x, (1,)), 0, 0, size)
    axis, rank = axis_of(axis, rank_of(x)), rank_of(x)
    starts = range_of_sizes(node, shape_in(x)[axis] - size + 1, step)
    positions = node.call(op.add, node.call(op.expand_dims, starts, axis=1, num_newaxis=1),
                          range_of_sizes(node, size))
    windows = node.call(op.take, x, positions, axis=axis, mode="clip")
    order = (*range(axis + 1), *range(axis + 2, rank + 1), axis + 1)
    return node.transpose(windows, order)
