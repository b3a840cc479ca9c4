"""Converters of sequences and optional values.

A sequence is a tuple of tensors, so its length is known at import. Whether an optional value has
an element is also known at import.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from weft import op
from weft.frontend.onnx.node import ABSENT, Absent, Node, Value, items_of, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import stacked
from weft.ir import Constant, Expr, Tuple, TupleType
from weft.support.allocation import check_nodes
from weft.support.errors import UnsupportedModelError


def _items(node: Node, index: int = 0) -> list[Expr]:
    value = node.input(index)
    if not isinstance(value.checked_type, TupleType):
        raise node.fail(f"input {index} is not a sequence", got=str(value.checked_type))
    return items_of(value)


def _sequence(node: Node, items: Sequence[Expr]) -> Tuple:
    types = TupleType(tuple(tensor_type(item) for item in items))
    return Tuple(tuple(items), span=node.span, checked_type=types)


def _position(node: Node, index: int, count: int) -> int:
    """Return the constant index in input ``index`` as a non-negative number below ``count``."""
    position = node.integer(index, "position")
    if not -count <= position < count:
        raise node.fail("sequence index out of range", expected=f"{-count} to {count - 1}",
                        got=str(position))  # fmt: skip
    return position % count


@converts("SequenceEmpty", since=11, attributes=("dtype",))
def sequence_empty(node: Node) -> Expr:
    return _sequence(node, ())


@converts("SequenceConstruct", since=11)
def sequence_construct(node: Node) -> Expr:
    return _sequence(node, node.all_inputs())


@converts("SequenceInsert", since=11)
def sequence_insert(node: Node) -> Expr:
    """Insert before a position, or at the end if the position is omitted."""
    items = _items(node)
    position = node.integer(2, "position") if node.has_input(2) else len(items)
    if position != len(items):
        position = _position(node, 2, len(items))
    return _sequence(node, [*items[:position], node.input(1), *items[position:]])


@converts("SequenceErase", since=11)
def sequence_erase(node: Node) -> Expr:
    items = _items(node)
    position = _position(node, 1, len(items)) if node.has_input(1) else len(items) - 1
    return _sequence(node, [*items[:position], *items[position + 1 :]])


@converts("SequenceAt", since=11)
def sequence_at(node: Node) -> Expr:
    items = _items(node)
    return items[_position(node, 1, len(items))]


@converts("SequenceLength", since=11)
def sequence_length(node: Node) -> Expr:
    return node.constant(len(_items(node)), "int64")


@converts("SplitToSequence", since=11, attributes=("axis", "keepdims"))
def split_to_sequence(node: Node) -> Expr:
    """Split by a list of sizes, by one size (the last may be smaller), or into slices of size 1."""
    x, axis = node.input(0), node.axis(node.attrs.integer("axis", 0), node.rank())
    size = node.shape()[axis]
    if not isinstance(size, int):
        raise UnsupportedModelError("SplitToSequence along an axis of symbolic size",
                                    where=node.span)  # fmt: skip
    bounds = [0, *np.cumsum(_part_sizes(node, size)).tolist()]
    parts = [
        node.call(op.strided_slice, x, begin=(begin,), end=(end,), strides=(1,), axes=(axis,))
        for begin, end in pairwise(bounds)
    ]
    if not node.has_input(1) and not node.attrs.flag("keepdims", True):
        parts = [node.call(op.squeeze, part, axis=(axis,)) for part in parts]
    return _sequence(node, parts)


def _part_sizes(node: Node, size: int) -> list[int]:
    if not node.has_input(1):
        check_nodes(size)
        return [1] * size
    given = node.array(1, "split")
    sizes = [int(v) for v in given.reshape(-1)]
    if given.ndim == 0 and sizes[0] > 0:
        check_nodes(-(-size // sizes[0]))
        return [min(sizes[0], size - start) for start in range(0, size, sizes[0])]
    if given.ndim != 1 or min(sizes, default=0) < 0 or sum(sizes) != size:
        raise node.fail("wrong sum of the split sizes", expected=f"a sum of {size}",
                        got=str(sizes))  # fmt: skip
    return sizes


@converts("ConcatFromSequence", since=11, attributes=("axis", "new_axis"))
def concat_from_sequence(node: Node) -> Expr:
    items = _items(node)
    if not items:
        raise node.fail("the sequence is empty")
    is_new = node.attrs.flag("new_axis")
    rank = len(tensor_type(items[0]).shape)
    axis = node.axis(node.attrs.integer("axis", 0), rank + is_new)
    if is_new:
        return stacked(node, items, axis)
    return items[0] if len(items) == 1 else node.tuple_call(op.concatenate, items, axis=axis)


@converts("Optional", since=15, attributes=("type",))
def optional(node: Node) -> Value:
    return node.input(0) if node.has_input(0) else ABSENT


@converts("OptionalHasElement", since=15)
def optional_has_element(node: Node) -> Expr:
    is_there = node.has_input(0) and not isinstance(node.inputs[0], Absent)
    return Constant(np.asarray(is_there), span=node.span)


@converts("OptionalGetElement", since=15)
def optional_get_element(node: Node) -> Expr:
    return node.input(0)
