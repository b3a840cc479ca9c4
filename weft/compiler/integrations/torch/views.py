"""Views at the border of a region: torch makes them, in the memory that weft computed.

AOTAutograd expects outputs with the strides and the offset that it traced, and those that lie in
one memory to do so still: a program may write to one and read the other.
"""

from __future__ import annotations

import math
import operator
from collections import Counter
from collections.abc import Sequence

import torch
import torch.fx

from weft.compiler.integrations.torch.layout import is_row_major
from weft.frontend.torch.trial import hint


def is_view(node: torch.fx.Node) -> bool:
    """Whether the operator gives views of an argument."""
    if node.target is torch.ops.aten._unsafe_view.default:  # noqa: SLF001 - a view all the same
        return True
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view  # noqa: SLF001


def viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node whose memory the result lies in, where the node is a view or one of several."""
    if node.target is operator.getitem:
        source = node.args[0]
        is_item = isinstance(source, torch.fx.Node) and is_view(source)
        return source if is_item else None  # type: ignore[return-value]
    if not is_view(node):
        return None
    tensors = (a for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor))
    return next(tensors, None)


def crossing(inside: Sequence[torch.fx.Node]) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    """What a region gives, and the views that are made of it outside, both in order."""
    members = set(inside)
    wanted = {n for n in inside if any(u not in members for u in n.users)}
    roots = Counter(_root(n, members) for n in wanted)
    needed, views = set(wanted), []
    for node in reversed(inside):
        if node not in needed or viewed(node) is None:
            continue
        root = _root(node, members)
        if root in members and roots[root] == 1 and node in wanted and _is_whole(node, root):
            continue  # nobody else sees the memory, so the region may write it in this shape
        views.append(node)
        needed.update(a for a in node.all_input_nodes if a in members)
    made = set(views)
    return [n for n in inside if n in needed and n not in made], views[::-1]


def _root(node: torch.fx.Node, members: set[torch.fx.Node]) -> torch.fx.Node:
    """The node outside, or that is no view, in whose memory ``node`` lies."""
    while node in members:
        source = viewed(node)
        if source is None:
            break
        node = source
    return node


def _is_whole(node: torch.fx.Node, root: torch.fx.Node) -> bool:
    """Whether a view is all of a dense memory in order, and not a part of a tuple."""
    value, base = node.meta.get("val"), root.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(base, torch.Tensor):
        return False
    sizes, strides = (tuple(map(hint, numbers)) for numbers in (value.shape, value.stride()))
    shape = tuple(map(hint, base.shape))
    if None in (*sizes, *strides, *shape) or hint(value.storage_offset()) != 0:
        return False
    return is_row_major(sizes, strides) and math.prod(sizes) == math.prod(shape)  # type: ignore[arg-type]
