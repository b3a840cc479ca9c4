"""Slices and gathers as TensorFlow and TensorFlow Lite write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.common.node import NodeBase
from weft.frontend.common.typed import tensor_type
from weft.ir import Expr
from weft.support.dataclass import dataclass

FAR = 2**62  # beyond the end of every axis
_WHOLE = (0, FAR, 1)

Range = tuple[Any, Any, int]


@dataclass(frozen=True, slots=True)
class SliceMasks:
    """Bit i of each mask is about entry i of a strided slice."""

    begin: int = 0
    end: int = 0
    ellipsis: int = 0
    new_axis: int = 0
    shrink_axis: int = 0


def masked_slice(node: NodeBase, x: Expr, begin: Sequence[Any], end: Sequence[Any],
                 strides: Sequence[int], masks: SliceMasks) -> Expr:
    """The strided slice of ``x``; starts and ends may be symbolic sizes.

    An entry is a range, an index (shrink), a new axis, or an ellipsis for the axes between. Raises
    ``InvalidModelError`` for entries that contradict each other or the shape.
    """
    if not len(begin) == len(end) == len(strides):
        raise node.fail("start, end and steps differ in length",
                        got=f"{begin}, {end}, {strides}")
    ranges: list[Range] = []
    kinds: list[str] = []
    for entry in _entries(node, tensor_type(x).ndim, masks, len(begin)):
        if entry is None:
            ranges.append(_WHOLE)
            kinds.append("axis")
        elif masks.new_axis >> entry & 1:
            kinds.append("new")
        elif masks.shrink_axis >> entry & 1:
            ranges.append(_index(node, tensor_type(x).shape[len(ranges)], begin[entry]))
            kinds.append("drop")
        else:
            told = begin[entry], end[entry], strides[entry]
            ranges.append(_range(node, masks, 1 << entry, told))
            kinds.append("axis")
    return _shaped(node, x, ranges, kinds)


def index_first(node: NodeBase, indices: Expr) -> Expr:
    """Indices along axis 0, where weft has them; the model has them along the last axis."""
    rank = tensor_type(indices).ndim
    return node.call(op.transpose, indices, axes=(rank - 1, *range(rank - 1)))


def _entries(node: NodeBase, rank: int, masks: SliceMasks, count: int) -> list[int | None]:
    """The entries in the order of axes; ``None`` for an axis without one."""
    used = sum(1 for i in range(count) if not (masks.new_axis | masks.ellipsis) >> i & 1)
    rest = rank - used
    if rest < 0:
        raise node.fail("more indices than axes", expected=str(rank), got=str(used))
    found: list[int | None] = []
    has_ellipsis = False
    for i in range(count):
        if not masks.ellipsis >> i & 1:
            found.append(i)
            continue
        if has_ellipsis:
            raise node.fail("more than one ellipsis")
        has_ellipsis = True
        found.extend([None] * rest)
    return found if has_ellipsis else found + [None] * rest


def _index(node: NodeBase, total: Any, index: Any) -> Range:
    """The range of one element; negative indices count from the end."""
    if isinstance(total, int) and isinstance(index, int) and not -total <= index < total:
        raise node.fail("the index is outside of the axis", got=str(index),
                        expected=f"[{-total}, {total})")
    return index, FAR if index == -1 else index + 1, 1


def _range(node: NodeBase, masks: SliceMasks, bit: int, told: Range) -> Range:
    first, last, step = told
    if step == 0:
        raise node.fail("a step is zero")
    if masks.begin & bit:
        first = 0 if step > 0 else FAR
    if masks.end & bit:
        last = FAR if step > 0 else -FAR
    return first, last, step


def _shaped(node: NodeBase, x: Expr, ranges: Sequence[Range], kinds: Sequence[str]) -> Expr:
    """The slice, without the axes that are dropped and with those that are new."""
    if any(r != _WHOLE for r in ranges):
        begin, end, strides = (tuple(r[i] for r in ranges) for i in range(3))
        x = node.call(op.strided_slice, x, begin=begin, end=end, strides=strides)
    kept = [kind for kind in kinds if kind != "new"]
    dropped = tuple(i for i, kind in enumerate(kept) if kind == "drop")
    if dropped:
        x = node.call(op.squeeze, x, axis=dropped)
    position = 0
    for kind in kinds:
        if kind == "new":
            x = node.call(op.expand_dims, x, axis=position)
        position += kind != "drop"
    return x
