"""Converters of operators with data-dependent shapes: NonZero, Compress, Unique."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from weft import op
from weft.frontend.onnx.node import Node, constant_value, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir.expr import Expr
from weft.support.errors import UnsupportedModelError

# Slices are compared element by element, with several kernels per element.
_MAX_SLICE_ELEMENTS = 1024


@converts("NonZero", since=9)
def non_zero(node: Node) -> Expr:
    """Return the indices of non-zero elements, [rank, count]."""
    return node.call(op.transpose, _positions(node, node.input(0)), axes=(1, 0))


def _positions(node: Node, x: Expr) -> Expr:
    """Return the indices of non-zero elements, [count, rank]; constants are evaluated."""
    known = constant_value(x)
    if known is None:
        return node.call(op.argwhere, x)
    return node.constant(np.argwhere(known), "int64")


@converts("Compress", since=9, attributes=("axis",))
def compress(node: Node) -> Expr:
    """Select slices where the condition is true; without ``axis``, of the flattened tensor."""
    x, condition = node.input(0), node.input(1)
    if not tensor_type(condition).dtype.is_bool or node.rank(1) != 1:
        raise node.fail("the condition is not a vector of bool",
                        got=str(tensor_type(condition)))  # fmt: skip
    if "axis" in node.attrs:
        axis = node.axis(node.attrs.integer("axis", 0), node.rank())
    else:
        x, axis = reshape_to(node, x, (-1,)), 0
    positions = node.call(op.squeeze, _positions(node, condition), axis=(1,))
    return node.call(op.take, x, positions, axis=axis, mode="clip")


@converts("Unique", since=11, attributes=("axis", "sorted"), outputs=4)
def unique(node: Node) -> Sequence[Expr]:
    """Outputs: unique values, index of their first occurrence, inverse indices, counts."""
    if node.dtype().is_bool:
        bytes_ = replace(node, inputs=(node.call(op.cast, node.input(0), dtype="uint8"),))
        values, *positions = unique(bytes_)
        return [node.call(op.cast, values, dtype="bool"), *positions]
    x, is_sorted = node.input(0), node.attrs.flag("sorted", True)
    if "axis" not in node.attrs:
        found = node.call(op.unique, reshape_to(node, x, (-1,)), is_sorted=is_sorted)
        return [node.field(found, i) for i in range(4)]
    axis = node.axis(node.attrs.integer("axis", 0), node.rank())
    found = node.call(op.unique, _numbered(node, x, axis), is_sorted=is_sorted)
    _, first, inverse, counts = (node.field(found, i) for i in range(4))
    return node.call(op.take, x, first, axis=axis, mode="clip"), first, inverse, counts


def _numbered(node: Node, x: Expr, axis: int) -> Expr:
    """Return a rank for each slice along ``axis``: equal for equal slices, lexicographic order.

    Each step combines the ranks of the first elements with the rank of the next element.
    """
    shape = tensor_type(x).shape
    others = [d for i, d in enumerate(shape) if i != axis]
    known = [d for d in others if isinstance(d, int)]
    count = shape[axis]
    if len(known) < len(others) or not isinstance(count, int):
        raise UnsupportedModelError("Unique of slices of symbolic size", where=node.span)
    length = math.prod(known)
    if length > _MAX_SLICE_ELEMENTS:
        raise UnsupportedModelError("Unique of large slices", where=node.span, got=str(length),
                                    expected=f"at most {_MAX_SLICE_ELEMENTS} elements")  # fmt: skip
    order = (*(i for i in range(len(shape)) if i != axis), axis)
    rows = node.call(op.reshape, node.call(op.transpose, x, axes=order), newshape=(length, count))
    numbers = node.constant([0] * count, "int64")
    for position in range(length):
        column = node.call(op.take, rows, node.constant(position, "int64"), axis=0, mode="clip")
        ranks = node.field(node.call(op.unique, column), 2)
        pairs = node.call(op.multiply, numbers, node.constant(count, "int64"))
        pairs = node.call(op.add, pairs, ranks)
        numbers = node.field(node.call(op.unique, pairs), 2)
    return numbers
