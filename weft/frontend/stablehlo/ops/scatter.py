"""Writes at computed places: scatter, dynamic_update_slice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.typed import dtype_in, shape_in
from weft.frontend.stablehlo.node import Body, Node, Value, constant_in, rank_of
from weft.frontend.stablehlo.ops.control import as_tensor
from weft.frontend.stablehlo.ops.gather import (
    IndexAxes,
    batch_positions,
    components,
    slice_positions,
)
from weft.frontend.stablehlo.ops.shape import padded
from weft.frontend.stablehlo.regions import combination, monoid_of, trees
from weft.frontend.stablehlo.registry import converts
from weft.ir.expr import Expr

_SCATTER = ("update_window_dims", "inserted_window_dims", "input_batching_dims",
            "scatter_indices_batching_dims", "scatter_dims_to_operand_dims", "index_vector_dim")


@converts("stablehlo.scatter")
def scatter(node: Node, *operands: Expr) -> Sequence[Expr]:
    """Elements of the updates out of range are left out."""
    count = (len(operands) - 1) // 2
    xs, indices, updates = operands[:count], operands[count], operands[count + 1:]
    if count < 1 or len(updates) != count:
        raise node.fail("the operands are no tensors, indices and updates")
    modes = [_mode(node, n, count) for n in range(count)]
    return [_scattered(node, x, indices, update, mode)
            for x, update, mode in zip(xs, updates, modes, strict=True)]


def _mode(node: Node, position: int, count: int) -> str:
    """How ``scatter_nd`` combines an update with what is there."""
    body: Body = node.bodies[0]
    found = trees(body)
    if found is not None and len(found) == count:
        tree = found[position]
        if tree == ("arg", position + count):
            return "update"
        monoid = monoid_of(combination(tree, position, count), dtype_in_text(node, position))
        if monoid is not None:
            return monoid.scatter
    raise node.unsupported("a region of its own in a scatter",
                           expected="the update itself, a sum, product, maximum or minimum",
                           help="write x.at[i].set(f(x[i])) for indices that are all different")


def dtype_in_text(node: Node, position: int) -> Any:
    """The dtype of an operand."""
    return dtype_in(as_tensor(node, node.operands[position]))


def _scattered(node: Node, x: Expr, indices: Expr, updates: Expr, mode: str) -> Expr:
    axes = IndexAxes.of(node, "scatter_dimension_numbers", _SCATTER)
    shape, rank = shape_in(x), rank_of(x)
    parts = components(node, indices, axes)
    window = axes.window(rank)
    if len(axes.offset) != len(window) or len(parts) != len(axes.start):
        raise node.fail("the dimension numbers do not fit the operands", got=str(axes))
    outer = [a for a in range(rank_of(updates)) if a not in axes.offset]
    updates = node.transpose(updates, (*outer, *axes.offset))
    batch = shape_in(updates)[:len(outer)]
    sizes = dict(zip(window, shape_in(updates)[len(outer):], strict=True))
    starts = dict(zip(axes.start, parts, strict=True))
    starts.update(batch_positions(node, axes, batch))
    zero = None
    for axis in window:  # a slice that is neither whole nor at an index starts at 0
        if axis not in starts and sizes[axis] != shape[axis]:
            zero = node.constant(0, "int32") if zero is None else zero
            starts[axis] = node.broadcast(zero, batch)
    if not starts:
        return _everywhere(node, x, updates, mode, len(outer))
    lengths = {a: sizes[a] for a in window if a in starts}
    read = list(starts)
    rest = [a for a in range(rank) if a not in read]
    # Updates: the batch, slices along written axes, then whole axes.
    order = [*range(len(outer)), *(len(outer) + window.index(a) for a in lengths),
             *(len(outer) + window.index(a) for a in rest)]
    updates = node.transpose(updates, order)
    grid = (*batch, *lengths.values())
    rows = [node.reshape(node.cast(slice_positions(node, a, starts[a], lengths, batch), "int64"),
                         (1, *grid)) for a in read]
    where = rows[0] if len(rows) == 1 else node.tuple_call(op.concatenate, rows, axis=0)
    forward = (*read, *rest)
    moved = written(node, node.transpose(x, forward), where, updates, mode)
    back = [forward.index(a) for a in range(rank)]
    return node.transpose(moved, back)


def _everywhere(node: Node, x: Expr, updates: Expr, mode: str, batch: int) -> Expr:
    """Whole updates, one after the other, without indices."""
    shape = shape_in(updates)[batch:]
    updates = node.reshape(updates, (-1, *shape) if 0 not in shape_in(updates) else (0, *shape))
    count = shape_in(updates)[0]
    lifted = node.reshape(x, (1, *shape_in(x)))
    where = node.broadcast(node.constant(0, "int64"), (1, count))
    return node.reshape(written(node, lifted, where, updates, mode), shape_in(x))


def written(node: Node, x: Expr, where: Expr, updates: Expr, mode: str) -> Expr:
    """``scatter_nd``, on truth values through numbers."""
    dtype = dtype_in(x)
    if not dtype.is_bool or mode == "update":
        return node.call(op.scatter_nd, x, where, updates, mode=mode)
    narrow = [node.cast(value, "uint8") for value in (x, updates)]
    return node.cast(node.call(op.scatter_nd, narrow[0], where, narrow[1], mode=mode), dtype)


@converts("stablehlo.dynamic_update_slice")
def dynamic_update_slice(node: Node, x: Expr, update: Expr, *starts: Value) -> Expr:
    """``update`` over a part of ``x``, moved so that it lies within."""
    shape, sizes = shape_in(x), shape_in(update)
    if not len(shape) == len(sizes) == len(starts):
        raise node.fail("the update does not fit the operand", got=str(sizes))
    partial = [a for a in range(len(shape)) if sizes[a] != shape[a]]
    if not partial or 0 in sizes:
        return update if not partial else x
    if not all(isinstance(shape[a], int) and isinstance(sizes[a], int) for a in partial):
        raise node.unsupported("an update of symbolic size", got=str(sizes))
    firsts = {a: node.call(op.minimum, node.call(op.maximum, start, node.number(0, start)),
                           node.number(shape[a] - sizes[a], start))
              for a, start in ((a, node.cast(as_tensor(node, starts[a]), "int64"))
                               for a in partial)}
    known = {a: constant_in(first) for a, first in firsts.items()}
    if all(value is not None for value in known.values()):
        return _overlaid(node, x, update, {a: int(v) for a, v in known.items() if v is not None})
    rest = [a for a in range(len(shape)) if a not in partial]
    order = (*partial, *rest)
    lengths = {a: sizes[a] for a in partial}
    grid = tuple(lengths.values())
    rows = [node.reshape(slice_positions(node, a, firsts[a], lengths, ()), (1, *grid))
            for a in partial]
    where = rows[0] if len(rows) == 1 else node.tuple_call(op.concatenate, rows, axis=0)
    moved = node.call(op.scatter_nd, node.transpose(x, order), where,
                      node.transpose(update, order), mode="update")
    return node.transpose(moved, [order.index(a) for a in range(len(shape))])


def _overlaid(node: Node, x: Expr, update: Expr, starts: dict[int, int]) -> Expr:
    """The update at known places: what lies around it is joined to it along one axis, or chosen."""
    shape, sizes = shape_in(x), shape_in(update)
    if len(starts) == 1:
        ((axis, first),) = starts.items()
        parts = [node.slice(x, {axis: 0}, {axis: first}), update,
                 node.slice(x, {axis: first + sizes[axis]}, {axis: shape[axis]})]
        kept = [p for p in parts if shape_in(p)[axis] != 0]
        return kept[0] if len(kept) == 1 else node.tuple_call(op.concatenate, kept, axis=axis)
    low = [starts.get(a, 0) for a in range(len(shape))]
    high = [shape[a] - sizes[a] - low[a] for a in range(len(shape))]
    inside = np.zeros((), bool)
    for axis in starts:
        line = arrays.zeros(shape[axis], bool)
        line[low[axis]:low[axis] + sizes[axis]] = True
        line = line.reshape([-1 if a == axis else 1 for a in range(len(shape))])
        inside = line if inside.ndim == 0 else inside & line
    wide = padded(node, update, node.number(0, update), low, high, (0,) * len(shape))
    return node.call(op.where, node.constant(inside, "bool"), wide, x)
