"""Converters of strided views, and of writes into views."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.aten.shape import slice_bound
from weft.frontend.torch.node import Node, axis_of, is_symbolic, rank_of, shape_in, size_of
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr

# Size limit of the offset tables, which are constants of the module.
_TABLE_ELEMENTS = 1 << 20


@converts("as_strided", "as_strided_copy")
def as_strided(node: Node, x: Expr, shape: Sequence[int], stride: Sequence[int],
               offset: int | None) -> Expr:
    """Gather elements by their offsets in the memory of ``x``."""
    if not offset and _is_same_view(node, x, shape, stride):
        return x
    if not math.prod(shape):
        return node.broadcast(node.scalar_like(0, x), shape)
    table = Constant(_positions(node, x, shape, stride, offset), span=node.span)
    return node.call(op.take, node.reshape(x, (size_of(x),)), table, axis=0, mode="clip")


@converts("as_strided_scatter")
def as_strided_scatter(node: Node, x: Expr, part: Expr, shape: Sequence[int],
                       stride: Sequence[int], offset: int | None) -> Expr:
    """``x`` with the elements of a strided view replaced by ``part``."""
    if not math.prod(shape):
        return x
    table = _positions(node, x, shape, stride, offset).reshape(-1)
    flat = node.reshape(x, (size_of(x),))
    made = node.call(op.scatter_elements, flat, Constant(table, span=node.span),
                     node.reshape(part, (size_of(part),)), axis=0, reduction="update")
    return node.reshape(made, shape_in(x))


def _is_same_view(node: Node, x: Expr, shape: Sequence[int], stride: Sequence[int]) -> bool:
    return tuple(shape) == shape_in(x) and all(
        mine == theirs or size == 1
        for mine, theirs, size in zip(stride, node.traced[0].stride(), shape, strict=False))


def _positions(node: Node, x: Expr, shape: Sequence[int], stride: Sequence[int],
            offset: int | None) -> np.ndarray:
    """Row-major positions in ``x`` of the view's elements."""
    traced = node.traced[0]
    own = traced.storage_offset()
    wanted = _memory(shape, stride, own if offset is None else offset)
    if max(wanted.size, size_of(x)) > _TABLE_ELEMENTS:
        raise node.unsupported("too many elements for a table of memory offsets",
                               got=str(wanted.size))
    held = _memory(shape_in(x), traced.stride(), own).reshape(-1)
    order = np.argsort(held, kind="stable")
    found = np.searchsorted(held, wanted, sorter=order)
    found = order[np.minimum(found, held.size - 1)]
    if not (held[found] == wanted).all():
        raise node.unsupported("memory offsets outside the tensor",
                               help="use slices and permutations")
    return found.astype(np.int64)


def _memory(shape: Sequence[int], stride: Sequence[int], offset: int) -> np.ndarray:
    offsets = np.full((), offset, np.int64)
    for axis, (size, step) in enumerate(zip(shape, stride, strict=True)):
        steps = arrays.arange(size, dtype=np.int64) * step
        offsets = offsets + steps.reshape(-1, *(1,) * (len(shape) - axis - 1))
    return offsets


@converts("slice_scatter")
def slice_scatter(node: Node, x: Expr, part: Expr, axis: int, start: int | None,
                  end: int | None, step: int) -> Expr:
    """``x`` with a slice replaced by ``part``."""
    axis = axis_of(axis, rank_of(x))
    size = shape_in(x)[axis]
    if is_symbolic(size, start, end) and step == 1:
        first = slice_bound(start, size, 0)
        return _with_middle(node, x, part, axis, first, first + shape_in(part)[axis])
    first, last, _ = slice(start, end).indices(size)
    chosen = arrays.arange(first, max(first, last), step)
    if not chosen.size or not size_of(x):
        return x
    if step == 1:
        return _with_middle(node, x, part, axis, first, max(first, last))
    inside = np.isin(arrays.arange(size), chosen)
    source = np.clip((arrays.arange(size) - first) // step, 0, len(chosen) - 1)
    scattered = node.call(op.take, part, Constant(source, span=node.span), axis=axis, mode="clip")
    mask = inside.reshape(-1, *(1,) * (rank_of(x) - axis - 1))
    return node.call(op.where, Constant(mask, span=node.span), scattered, x)


def _with_middle(node: Node, x: Expr, part: Expr, axis: int, first: Any, last: Any) -> Expr:
    size = shape_in(x)[axis]
    slices = [node.slice(x, axis, 0, first)] if first != 0 else []
    slices += [node.broadcast(part, (*shape_in(x)[:axis], last - first, *shape_in(x)[axis + 1:]))]
    slices += [node.slice(x, axis, last, size)] if last != size else []
    return slices[0] if len(slices) == 1 else node.tuple_call(op.concatenate, slices, axis=axis)


@converts("select_scatter")
def select_scatter(node: Node, x: Expr, part: Expr, axis: int, index: int) -> Expr:
    axis = axis_of(axis, rank_of(x))
    index %= shape_in(x)[axis]
    part = node.call(op.expand_dims, part, axis=axis, num_newaxis=1)
    return slice_scatter(node, x, part, axis, index, index + 1, 1)


@converts("diagonal_scatter")
def diagonal_scatter(node: Node, x: Expr, part: Expr, offset: int, first: int, second: int
                     ) -> Expr:
    """``x`` with a diagonal of two axes replaced by the last axis of ``part``."""
    rank = rank_of(x)
    first, second = axis_of(first, rank), axis_of(second, rank)
    order = (*(a for a in range(rank) if a not in (first, second)), first, second)
    rows, columns = shape_in(x)[first], shape_in(x)[second]
    row, column = arrays.arange(rows)[:, None], arrays.arange(columns)[None, :]
    is_on = column - row == offset
    count = shape_in(part)[-1]
    if not count or not size_of(x):
        return x
    number = np.clip(row - max(-offset, 0) + 0 * column, 0, count - 1)
    scattered = node.call(op.take, part, Constant(number, span=node.span), axis=rank - 2,
                       mode="clip")
    made = node.call(op.where, Constant(is_on, span=node.span), scattered,
                     node.transpose(x, order))
    return node.transpose(made, tuple(np.argsort(order).tolist()))


@converts("empty_strided", "empty_permuted")
def empty_strided(node: Node, shape: Sequence[int], *_options: Any) -> Expr:
    """Tensors that torch leaves uninitialised are filled with zeros."""
    return node.broadcast(node.constant(0, node.dtype()), shape)


@converts("new_empty_strided")
def new_empty_strided(node: Node, _like: Expr, shape: Sequence[int], *_options: Any) -> Expr:
    return node.broadcast(node.constant(0, node.dtype()), shape)
