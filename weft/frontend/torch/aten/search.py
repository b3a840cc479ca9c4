"""Converters of sorted search, nonzero of a given size, and histograms."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.torch.aten.counted import is_set
from weft.frontend.torch.node import Node, dtype_in, rank_of, shape_in, size_of
from weft.frontend.torch.registry import converts
from weft.ir.expr import Constant, Expr


@converts("searchsorted.Tensor", "searchsorted.Scalar")
def searchsorted(node: Node, line: Expr, values: Any, _is_narrow: bool = False,
                 right: bool = False, side: str | None = None, sorter: Expr | None = None
                 ) -> Expr:
    """The insertion index of each value in the ascending last axis."""
    if sorter is not None:
        line = node.call(op.gather, line, sorter, axis=rank_of(line) - 1)
    return _positions(node, line, values, right=right or side == "right")


@converts("bucketize.Tensor", "bucketize.Scalar")
def bucketize(node: Node, values: Any, line: Expr, _is_narrow: bool = False,
              right: bool = False) -> Expr:
    return _positions(node, line, values, right=right)


def _positions(node: Node, line: Expr, values: Any, *, right: bool) -> Expr:
    """Search in the common dtype of both operands."""
    own = values if isinstance(values, Expr) else node.scalar_like(values, line)
    kinds = (dtype_in(line).numpy, dtype_in(own).numpy)
    common = kinds[0] if kinds[0] == kinds[1] else np.result_type(*kinds)
    line, own = node.cast(line, common.name), node.cast(own, common.name)
    return node.call(op.searchsorted, line, own, right=right, dtype=node.dtype().name)


@converts("nonzero_static")
def nonzero_static(node: Node, x: Expr, size: int, fill: int) -> Expr:
    """The indices (size, rank) of the first ``size`` nonzero elements, padded with ``fill``."""
    count, rank = size_of(x), rank_of(x)
    if not count or not size or not rank:
        if rank or not count:
            return node.call(op.full, node.constant(fill, "int64"), shape=(size, rank),
                             dtype="int64")
        return Constant(arrays.zeros((size, 0), np.int64), span=node.span)
    hit = node.reshape(is_set(node, x), (count,))
    number = node.call(op.subtract, node.call(op.cumsum, node.cast(hit, "int64"), axis=0),
                       node.constant(1, "int64"))
    # Zeros get an index beyond the end, which is not written.
    row = node.call(op.where, hit, number, node.constant(size, "int64"))
    empty = Constant(arrays.full(size, -1, np.int64), span=node.span)
    positions = Constant(arrays.arange(count, dtype=np.int64), span=node.span)
    found = node.call(op.scatter_elements, empty, row, positions, axis=0, reduction="update")
    return _unravelled(node, found, shape_in(x), fill)


def _unravelled(node: Node, found: Expr, shape: tuple[int, ...], fill: int) -> Expr:
    """Flat row-major positions as rows of indices; negative ones become rows of ``fill``."""
    absent = node.call(op.less, found, node.constant(0, "int64"))
    columns = []
    for axis, size in enumerate(shape):
        stride = math.prod(shape[axis + 1 :])
        index = node.call(op.floor_mod,
                          node.call(op.floor_divide, found, node.constant(stride, "int64")),
                          node.constant(size, "int64"))
        column = node.call(op.where, absent, node.constant(fill, "int64"), index)
        columns.append(node.call(op.expand_dims, column, axis=1, num_newaxis=1))
    return columns[0] if len(columns) == 1 else node.tuple_call(op.concatenate, columns, axis=1)


@converts("histc")
def histc(node: Node, x: Expr, bins: int, low: float, high: float) -> Expr:
    """Counts in ``bins`` equal bins from ``low`` to ``high``, or over the data's range if equal."""
    dtype = dtype_in(x)
    wide = x if dtype.is_float and dtype.bits >= 32 else node.cast(x, "float32")
    flat = node.reshape(wide, (size_of(x),))
    if not size_of(x):
        return node.broadcast(node.scalar_like(0, x), (bins,))
    first, last = _range_of_data(node, flat, 1) if low == high else \
        (node.scalar_like(low, flat), node.scalar_like(high, flat))
    counts = _counted(node, flat, None, bins, first, last)
    return node.cast(counts, dtype)


def _range_of_data(node: Node, flat: Expr, widening: float) -> tuple[Expr, Expr]:
    """The minimum and maximum; if equal, each is moved outwards by ``widening``."""
    first = node.call(op.min, flat, axis=(0,))
    last = node.call(op.max, flat, axis=(0,))
    same = node.call(op.equal, first, last)
    step = node.scalar_like(widening, flat)
    return (node.call(op.where, same, node.call(op.subtract, first, step), first),
            node.call(op.where, same, node.call(op.add, last, step), last))


def _counted(node: Node, flat: Expr, weights: Expr | None, bins: int, first: Expr, last: Expr
             ) -> Expr:
    width = node.call(op.subtract, last, first)
    distance = node.call(op.subtract, flat, first)
    position = node.call(op.divide, node.call(op.multiply, distance, node.scalar_like(bins, flat)),
                      width)
    inside = node.call(op.logical_and, node.call(op.greater_equal, flat, first),
                       node.call(op.less_equal, flat, last))
    position = node.call(op.where, inside, position, node.scalar_like(0, flat))
    number = node.call(op.minimum, node.cast(position, "int64"), node.constant(bins - 1, "int64"))
    number = node.call(op.where, inside, number, node.constant(bins, "int64"))
    return _summed(node, flat, number, weights, bins)


def _summed(node: Node, flat: Expr, number: Expr, weights: Expr | None, bins: int) -> Expr:
    zeros = Constant(arrays.zeros(bins, dtype_in(flat).numpy), span=node.span)
    added = weights if weights is not None else \
        node.broadcast(node.scalar_like(1, flat), shape_in(flat))
    return node.call(op.scatter_elements, zeros, number, added, axis=0, reduction="add")


@converts("histogram.bin_ct")
def histogram(node: Node, x: Expr, bins: int, limits: Any, weight: Expr | None, density: bool
              ) -> tuple[Expr, Expr]:
    flat = node.reshape(x, (size_of(x),))
    if not size_of(x):
        raise node.unsupported("no elements")
    if limits is None:
        first, last = _range_of_data(node, flat, 0.5)
    else:
        wider = 0.5 if limits[0] == limits[1] else 0
        first, last = (node.scalar_like(limits[0] - wider, flat),
                       node.scalar_like(limits[1] + wider, flat))
    weights = None if weight is None else node.reshape(weight, (size_of(x),))
    counts = _counted(node, flat, weights, bins, first, last)
    steps = Constant(arrays.arange(bins + 1).astype(dtype_in(x).numpy), span=node.span)
    width = node.call(op.divide, node.call(op.subtract, last, first),
                      node.scalar_like(bins, flat))
    edges = node.call(op.add, node.call(op.multiply, steps, width), first)
    is_last = Constant(arrays.arange(bins + 1) == bins, span=node.span)
    edges = node.call(op.where, is_last, last, edges)
    return _as_density(node, counts, edges, bins) if density else counts, edges


@converts("histogram.bins_tensor")
def histogram_of_edges(node: Node, x: Expr, edges: Expr, weight: Expr | None, density: bool
                       ) -> tuple[Expr, Expr]:
    flat, bins = node.reshape(x, (size_of(x),)), shape_in(edges)[0] - 1
    weights = None if weight is None else node.reshape(weight, (size_of(x),))
    after = node.call(op.searchsorted, edges, flat, right=True, dtype="int64")
    number = node.call(op.subtract, after, node.constant(1, "int64"))
    at_end = node.call(op.equal, flat, node.slice(edges, 0, bins, bins + 1))
    number = node.call(op.where, at_end, node.constant(bins - 1, "int64"), number)
    counts = _summed(node, flat, number, weights, bins)
    return _as_density(node, counts, edges, bins) if density else counts, edges


def _as_density(node: Node, counts: Expr, edges: Expr, bins: int) -> Expr:
    widths = node.call(op.subtract, node.slice(edges, 0, 1, bins + 1),
                       node.slice(edges, 0, 0, bins))
    total = node.call(op.sum, counts, axis=(0,))
    return node.call(op.divide, node.call(op.divide, counts, total), widths)
