"""Reads at computed places: gather, dynamic_slice, torch_index_select."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common.typed import dtype_in, shape_in
from weft.frontend.stablehlo.node import Node, Value, constant_in, is_symbolic, product, rank_of
from weft.frontend.stablehlo.ops.control import as_tensor
from weft.frontend.stablehlo.ops.shape import sizes_in
from weft.frontend.stablehlo.registry import converts
from weft.ir.expr import Expr
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class IndexAxes:
    """What the dimension numbers of a gather or a scatter say, in the words of a gather.

    ``offset`` are the axes of the result (the updates) that count within a slice, ``collapsed``
    those of the operand with slices of one element that the result lacks, ``batch`` and
    ``index_batch`` those that operand and indices share, ``start`` the axes of the operand that
    the components of an index belong to, and ``vector`` the axis of the components.
    """

    offset: tuple[int, ...]
    collapsed: tuple[int, ...]
    batch: tuple[int, ...]
    index_batch: tuple[int, ...]
    start: tuple[int, ...]
    vector: int

    @staticmethod
    def of(node: Node, attribute: str, names: Sequence[str]) -> IndexAxes:
        told = node.attributes.get(attribute)
        if not isinstance(told, Mapping):
            raise node.fail(f"the operation has no {attribute}")
        lists = [tuple(int(n) for n in told.get(name) or ()) for name in names[:-1]]
        return IndexAxes(*lists, int(told.get(names[-1]) or 0))  # type: ignore[arg-type]

    def window(self, rank: int) -> tuple[int, ...]:
        """The axes of the operand that slices keep, in order."""
        return tuple(a for a in range(rank) if a not in (*self.collapsed, *self.batch))


_GATHER = ("offset_dims", "collapsed_slice_dims", "operand_batching_dims",
           "start_indices_batching_dims", "start_index_map", "index_vector_dim")


@converts("stablehlo.gather")
def gather(node: Node, x: Expr, indices: Expr) -> Expr:
    return gathered(node, x, indices, node.ints("slice_sizes"))


@converts("stablehlo.dynamic_gather")
def dynamic_gather(node: Node, x: Expr, indices: Value, sizes: Value) -> Expr:
    return gathered(node, x, as_tensor(node, indices), sizes_in(node, sizes))


def gathered(node: Node, x: Expr, indices: Expr, sizes: Sequence[Any]) -> Expr:
    """Slices of ``x`` at index vectors, which are clamped so that slices lie within it."""
    axes = IndexAxes.of(node, "dimension_numbers", _GATHER)
    shape = shape_in(x)
    parts = components(node, indices, axes)
    batch = shape_in(parts[0]) if parts else _without(shape_in(indices), axes.vector)
    window = axes.window(len(shape))
    if len(sizes) != len(shape) or len(axes.offset) != len(window) \
            or len(parts) != len(axes.start):
        raise node.fail("the dimension numbers do not fit the operands", got=str(axes))
    starts = {a: _clamped(node, part, shape[a], sizes[a])
              for a, part in zip(axes.start, parts, strict=True)}
    starts.update(batch_positions(node, axes, batch))
    # Axes with more than one position in a slice that is not whole are read at sums of positions.
    partial = [a for a in window if a in starts and sizes[a] != 1 and sizes[a] != shape[a]]
    cut = [a for a in window if a not in starts and sizes[a] != shape[a]]
    x = node.slice(x, dict.fromkeys(cut, 0), {a: sizes[a] for a in cut})
    read = [a for a in starts if sizes[a] != shape[a] or a not in window]
    made = _read(node, x, {a: starts[a] for a in read}, {a: sizes[a] for a in partial}, batch)
    # Its axes: the batch, those of partial slices, then what was not read.
    rest = [a for a in range(len(shape)) if a not in read]
    have = [*range(len(batch)), *(("w", a) for a in partial), *(("w", a) for a in rest)]
    single = [a for a in window if a in read and a not in partial]
    return _arranged(node, made, have, single, axes, window, len(batch))


def _arranged(node: Node, made: Expr, have: list[Any], single: Sequence[int], axes: IndexAxes,
              window: Sequence[int], batch: int) -> Expr:
    """The axes in the order of the result; slices of one element get their axes back."""
    shape = list(shape_in(made))
    for axis in single:
        have.append(("w", axis))
        shape.append(1)
    made = node.reshape(made, shape)
    rank = batch + len(window)
    offsets = iter(window)
    counted = iter(range(batch))
    wanted = [("w", next(offsets)) if a in axes.offset else next(counted) for a in range(rank)]
    return node.transpose(made, [have.index(name) for name in wanted])


def _without(shape: Sequence[Any], axis: int) -> tuple[Any, ...]:
    return (*shape[:axis], *shape[axis + 1:])


def components(node: Node, indices: Expr, axes: IndexAxes) -> list[Expr]:
    """The components of the index vectors, each with the shape of the batch."""
    shape = shape_in(indices)
    if axes.vector > len(shape):
        raise node.fail("index_vector_dim is out of range", got=str(axes.vector))
    if axes.vector == len(shape):
        return [_signed(node, indices)]
    count = shape[axes.vector]
    if not isinstance(count, int):
        raise node.unsupported("index vectors of symbolic length")
    batch = _without(shape, axes.vector)
    return [_signed(node, node.reshape(node.slice(indices, {axes.vector: n}, {axes.vector: n + 1}),
                                       batch)) for n in range(count)]


def _signed(node: Node, index: Expr) -> Expr:
    """Indices with room for positions: int32, or int64 for 64 bits."""
    return node.cast(index, "int64" if dtype_in(index).bits > 32
                     or dtype_in(index).name == "uint32" else "int32")


def _clamped(node: Node, start: Expr, size: Any, length: Any) -> Expr:
    """A start from which ``length`` elements lie within ``size``."""
    if is_symbolic(size, length):
        top = node.call(op.squeeze, node.call(op.arange, start=size - length,
                                              stop=size - length + 1, step=1, dtype="int64"),
                        axis=(0,))
        last: Expr = node.cast(top, dtype_in(start))
    else:
        last = node.number(max(size - length, 0), start)
    return node.call(op.minimum, node.call(op.maximum, start, node.number(0, start)), last)


def batch_positions(node: Node, axes: IndexAxes, batch: Sequence[Any]) -> dict[int, Expr]:
    """The positions along axes that operand and indices share."""
    found: dict[int, Expr] = {}
    for axis, index_axis in zip(axes.batch, axes.index_batch, strict=True):
        at = index_axis - (index_axis > axes.vector)
        line = node.iota(batch[at], "int32")
        line = node.reshape(line, [n if a == at else 1 for a, n in enumerate(batch)])
        found[axis] = node.broadcast(line, batch)
    return found


def _read(node: Node, x: Expr, starts: Mapping[int, Expr], lengths: Mapping[int, Any],
          batch: Sequence[Any]) -> Expr:
    """``x`` at positions along some axes; ``lengths`` of those that are read in slices.

    The result has the axes of the batch, of the slices, and the others.
    """
    if not starts:
        return node.broadcast(x, (*batch, *shape_in(x)))
    read = list(starts)
    grid = (*batch, *lengths.values())
    positions = [slice_positions(node, a, starts[a], lengths, batch) for a in read]
    if len(read) == 1:
        order = (read[0], *(a for a in range(rank_of(x)) if a != read[0]))
        return node.call(op.take, node.transpose(x, order), positions[0], axis=0)
    rest = [a for a in range(rank_of(x)) if a not in read]
    x = node.transpose(x, (*read, *rest))
    rows = [node.reshape(node.broadcast(node.cast(p, "int64"), grid), (1, *grid))
            for p in positions]
    return node.call(op.gather_nd, x, node.tuple_call(op.concatenate, rows, axis=0))


def slice_positions(node: Node, axis: int, start: Expr, lengths: Mapping[int, Any],
                    batch: Sequence[Any]) -> Expr:
    """Positions along an axis, for the batch and the elements of slices."""
    inner = list(lengths)
    start = node.reshape(start, (*batch, *(1 for _ in inner)))
    if axis not in lengths:
        return node.broadcast(start, (*batch, *lengths.values()))
    line = node.iota(lengths[axis], dtype_in(start))
    line = node.reshape(line, (*(1 for _ in batch),
                               *(lengths[a] if a == axis else 1 for a in inner)))
    return node.broadcast(node.call(op.add, start, line), (*batch, *lengths.values()))


@converts("stablehlo.dynamic_slice")
def dynamic_slice(node: Node, x: Expr, *starts: Value) -> Expr:
    """A slice at a computed place: clamped, then read axis by axis."""
    sizes, shape = node.ints("slice_sizes"), shape_in(x)
    if not len(sizes) == len(shape) == len(starts):
        raise node.fail("the slice does not fit the operand", got=str(sizes))
    for axis, (value, length) in enumerate(zip(starts, sizes, strict=True)):
        size = shape[axis]
        if size == length:
            continue
        start = _signed(node, as_tensor(node, value))
        known = constant_in(start)
        if known is not None and isinstance(size, int):
            first = int(np.clip(int(known.reshape(())), 0, size - length))
            x = node.slice(x, {axis: first}, {axis: first + length})
            continue
        at = _clamped(node, start, size, length)
        line = node.call(op.add, node.reshape(at, (1,)), node.iota(length, dtype_in(at))) \
            if length != 1 else node.reshape(at, (1,))
        x = node.call(op.take, x, line, axis=axis)
    return x


@converts("stablehlo.torch_index_select")
def torch_index_select(node: Node, x: Expr, index: Expr) -> Expr:
    axis, batch = node.integer("dim"), node.integer("batch_dims", 0)
    if not batch:
        return node.call(op.take, x, index, axis=axis)
    shape, picks = shape_in(x), shape_in(index)
    outer = product(shape[:batch])
    parts = []
    for number in range(outer):
        whole = node.reshape(x, (outer, *shape[batch:]))
        row = node.reshape(node.slice(whole, {0: number}, {0: number + 1}), shape[batch:])
        lines = node.reshape(index, (outer, *picks[batch:]))
        line = node.reshape(node.slice(lines, {0: number}, {0: number + 1}), picks[batch:])
        taken = node.call(op.take, row, line, axis=axis - batch)
        parts.append(node.reshape(taken, (1, *shape_in(taken))))
    joined = node.tuple_call(op.concatenate, parts, axis=0)
    return node.reshape(joined, (*shape[:batch], *shape_in(joined)[1:]))
