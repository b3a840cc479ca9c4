"""Converters that create tensors: filled, ranges, triangles, diagonals, one-hot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.node import (
    Node,
    axis_of,
    dtype_in,
    is_symbolic,
    rank_of,
    shape_in,
)
from weft.frontend.torch.registry import converts
from weft.ir import Constant, Dim, Expr

# Larger tensors are filled at run time, to keep large constants out of the module.
_CONSTANT_ELEMENTS = 4096


def _filled(node: Node, shape: Sequence[int], value: Any) -> Expr:
    dtype = node.dtype()
    if isinstance(value, Expr):
        return node.broadcast(node.cast(value, dtype), shape)
    one = node.constant(value, dtype)
    if not is_symbolic(*shape) and math.prod(shape) <= _CONSTANT_ELEMENTS:
        return Constant(arrays.full(tuple(shape), one.data), span=node.span)
    return node.call(op.full, one, shape=tuple(shape), dtype=dtype.name)


@converts("full")
def full(node: Node, shape: Sequence[int], value: Any, *_options: Any) -> Expr:
    return _filled(node, shape, value)


@converts("full_like")
def full_like(node: Node, x: Expr, value: Any, *_options: Any) -> Expr:
    return _filled(node, shape_in(x), value)


@converts("new_full")
def new_full(node: Node, _like: Expr, shape: Sequence[int], value: Any, *_options: Any) -> Expr:
    return _filled(node, shape, value)


@converts("zeros", "ones", "empty")
def zeros(node: Node, shape: Sequence[int], *_options: Any) -> Expr:
    """Tensors that torch leaves uninitialised are filled with zeros."""
    return _filled(node, shape, int(node.op.startswith("aten.ones")))


@converts("zeros_like", "ones_like", "empty_like")
def zeros_like(node: Node, x: Expr, *_options: Any) -> Expr:
    return _filled(node, shape_in(x), int(node.op.startswith("aten.ones")))


@converts("new_zeros", "new_ones", "new_empty")
def new_zeros(node: Node, _like: Expr, shape: Sequence[int], *_options: Any) -> Expr:
    return _filled(node, shape, int(node.op.startswith("aten.new_ones")))


@converts("scalar_tensor", "lift_fresh")
def scalar_tensor(node: Node, value: Any, *_options: Any) -> Expr:
    return node.tensor(value, node.dtype())


@converts("arange.start_step")
def arange(node: Node, start: float, end: float, step: float, *_options: Any) -> Expr:
    dtype = node.dtype()
    if is_symbolic(start, end, step):
        return node.call(op.arange, start=start, stop=end, step=step, dtype=dtype.name)
    count = max(math.ceil((end - start) / step), 0)
    return Constant((start + arrays.arange(count) * step).astype(dtype.numpy), span=node.span)


@converts("arange.start")
def arange_from(node: Node, start: float, end: float, *_options: Any) -> Expr:
    return arange(node, start, end, 1)


@converts("arange.default")
def arange_to(node: Node, end: float, *_options: Any) -> Expr:
    return arange(node, 0, end, 1)


@converts("linspace.default")  # torch decomposes the overloads with tensor arguments
def linspace(node: Node, start: float, end: float, count: int, *_options: Any) -> Expr:
    return Constant(arrays.linspace(start, end, count).astype(node.dtype().numpy), span=node.span)


@converts("eye.default")
def eye(node: Node, rows: int, *_options: Any) -> Expr:
    return _unit(node, rows, rows)


@converts("eye.m")
def eye_rectangular(node: Node, rows: int, columns: int, *_options: Any) -> Expr:
    return _unit(node, rows, columns)


def _unit(node: Node, rows: int, columns: int) -> Expr:
    if not is_symbolic(rows, columns):
        return Constant(arrays.eye(rows, columns, dtype=node.dtype().numpy), span=node.span)
    row, column = (node.call(op.arange, start=0, stop=size, step=1, dtype="int64")
                   for size in (rows, columns))
    same = node.call(op.equal, node.call(op.expand_dims, row, axis=1, num_newaxis=1), column)
    return node.cast(same, node.dtype())


@converts("tril", "triu")
def triangle(node: Node, x: Expr, diagonal: int) -> Expr:
    rows, columns = shape_in(x)[-2:]
    lower = node.op.startswith("aten.tril")
    if is_symbolic(rows, columns):
        kept: Expr = triangle_mask(node, rows, columns, diagonal, lower=lower)
    else:
        ones = arrays.ones((rows, columns), bool)
        whole = np.tril(ones, diagonal) if lower else np.triu(ones, diagonal)
        kept = Constant(whole, span=node.span)
    return node.call(op.where, kept, x, node.scalar_like(0, x))


def triangle_mask(node: Node, rows: Dim, columns: Dim, diagonal: int, *, lower: bool) -> Expr:
    """Which elements of a matrix of symbolic size are in a triangle."""
    row, column = (node.call(op.arange, start=0, stop=size, step=1, dtype="int64")
                   for size in (rows, columns))
    shifted = node.call(op.add, row, node.constant(diagonal, "int64"))
    last = node.call(op.expand_dims, shifted, axis=1, num_newaxis=1)
    return node.call(op.less_equal if lower else op.greater_equal, column, last)


@converts("diagonal", "diagonal_copy")
def diagonal(node: Node, x: Expr, offset: int, first: int, second: int) -> Expr:
    """The diagonal of two axes, as a new last axis."""
    rank = rank_of(x)
    first, second = axis_of(first, rank), axis_of(second, rank)
    rest = [a for a in range(rank) if a not in (first, second)]
    x = node.transpose(x, (*rest, first, second))
    *batch, rows, columns = shape_in(x)
    row = arrays.arange(max(-offset, 0), rows)
    row = row[(row + offset >= 0) & (row + offset < columns)]
    positions = Constant(row * columns + row + offset, span=node.span)
    flat = node.reshape(x, (*batch, rows * columns))
    return node.call(op.take, flat, positions, axis=len(batch), mode="clip")


@converts("one_hot")
def one_hot(node: Node, x: Expr, classes: int) -> Expr:
    if classes < 0:
        raise node.unsupported("a data-dependent number of classes",
                               help="give num_classes")
    wide = node.call(op.expand_dims, x, axis=rank_of(x), num_newaxis=1)
    numbers = Constant(arrays.arange(classes, dtype=dtype_in(x).numpy), span=node.span)
    return node.cast(node.call(op.equal, wide, numbers), "int64")


@converts("tril_indices", "triu_indices")
def triangle_indices(node: Node, rows: int, columns: int, offset: int, *_options: Any) -> Expr:
    """Row and column indices, (2, count), of a triangle's elements in row-major order."""
    ones = arrays.ones((rows, columns), bool)
    lower = node.op.startswith("aten.tril")
    kept = np.tril(ones, offset) if lower else np.triu(ones, offset)
    return Constant(np.stack(np.nonzero(kept)).astype(node.dtype().numpy), span=node.span)
