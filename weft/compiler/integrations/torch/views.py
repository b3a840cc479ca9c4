"""Views among the results of a region: torch makes them of the arrays that weft computed.

AOTAutograd expects outputs with the strides and offsets that it traced. Outputs that shared memory
must share it still, since a program may write to one and read the other.
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
    """Whether the operator returns views of an argument."""
    if node.target is torch.ops.aten._unsafe_view.default:  # noqa: SLF001 - a view all the same
        return True
    return isinstance(node.target, torch._ops.OpOverload) and node.target.is_view  # noqa: SLF001


def viewed(node: torch.fx.Node) -> torch.fx.Node | None:
    """The node whose memory a view (or an item of a tuple of views) shares, else ``None``."""
    if node.target is operator.getitem:
        source = node.args[0]
        is_item = isinstance(source, torch.fx.Node) and is_view(source)
        return source if is_item else None
    if not is_view(node):
        return None
    tensors = (a for a in node.all_input_nodes if isinstance(a.meta.get("val"), torch.Tensor))
    return next(tensors, None)


def results_and_views(inside: Sequence[torch.fx.Node]
                      ) -> tuple[list[torch.fx.Node], list[torch.fx.Node]]:
    """The results of a region, and the views that torch makes of them outside, both in order."""
    members = set(inside)
    wanted = {n for n in inside if any(u not in members for u in n.users)}
    roots = Counter(_root(n, members) for n in wanted)
    needed, views = set(wanted), []
    for node in reversed(inside):
        if node not in needed or viewed(node) is None:
            continue
        root = _root(node, members)
        if root in members and roots[root] == 1 and node in wanted and _is_whole(node, root):
            continue  # no other result shares the memory: the region may return this shape
        views.append(node)
        needed.update(a for a in node.all_input_nodes if a in members)
    made = set(views)
    return [n for n in inside if n in needed and n not in made], views[::-1]


def _root(node: torch.fx.Node, members: set[torch.fx.Node]) -> torch.fx.Node:
    """The first node up the chain of views that is outside the region or not a view."""
    while node in members:
        source = viewed(node)
        if source is None:
            break
        node = source
    return node


def _is_whole(node: torch.fx.Node, root: torch.fx.Node) -> bool:
    """Whether a view has all elements of a dense tensor, in order."""
    value, base = node.meta.get("val"), root.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(base, torch.Tensor):
        return False
    sizes, strides = (tuple(map(hint, numbers)) for numbers in (value.shape, value.stride()))
    shape = tuple(map(hint, base.shape))
    if None in (*sizes, *strides, *shape) or hint(value.storage_offset()) != 0:
        return False
    return is_row_major(sizes, strides) and math.prod(sizes) == math.prod(shape)  # type: ignore[arg-type]
