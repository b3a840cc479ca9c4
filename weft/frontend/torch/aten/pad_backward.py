"""Converters of the gradients of replication and reflection padding."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.torch.node import Node, rank_of, shape_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr


@converts("replication_pad1d_backward", "replication_pad2d_backward",
          "replication_pad3d_backward", "reflection_pad1d_backward", "reflection_pad2d_backward",
          "reflection_pad3d_backward")
def pad_backward(node: Node, grad: Expr, x: Expr, pads: Sequence[int]) -> Expr:
    """Add the gradient of each padding element to the element that it copies."""
    reflects = node.op.startswith("aten.reflection")
    for i in range(len(pads) // 2):
        axis = rank_of(x) - 1 - i
        grad = _folded(node, grad, axis, (pads[2 * i], pads[2 * i + 1]), shape_in(x)[axis],
                       reflects)
    return grad


def _folded(node: Node, grad: Expr, axis: int, pads: tuple[int, int], size: int,
            reflects: bool) -> Expr:
    """Remove the padding of one axis from ``grad`` and add it to the elements that it copies."""
    before, after = (max(p, 0) for p in pads)
    end = shape_in(grad)[axis]
    total = _embedded(node, node.slice(grad, axis, before, end - after), axis, max(-pads[0], 0),
                    size)
    # A cropped end has no padding; the other end's padding copies the elements that remain.
    first, last = max(-pads[0], 0), size - 1 - max(-pads[1], 0)
    for count, part, edge in ((before, (0, before), first), (after, (end - after, end), last)):
        if not count:
            continue
        copies = node.slice(grad, axis, *part)
        if reflects:
            copies = node.call(op.reverse, copies, axis=axis)
            position = edge + 1 if edge == first else edge - count
        else:
            copies, position = node.call(op.sum, copies, axis=(axis,), keepdims=True), edge
        total = node.call(op.add, total, _embedded(node, copies, axis, position, size))
    return total


def _embedded(node: Node, x: Expr, axis: int, position: int, size: int) -> Expr:
    """Pad ``x`` with zeros to ``size`` along ``axis``, so that it starts at ``position``."""
    after = size - position - shape_in(x)[axis]
    if not position and not after:
        return x
    width = [(position, after) if a == axis else (0, 0) for a in range(rank_of(x))]
    return node.call(op.nn.pad, x, node.scalar_like(0, x), pad_width=tuple(width))
