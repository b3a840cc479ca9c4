"""Converters of Reshape, Flatten, Transpose, Unsqueeze and Squeeze."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import flatten_at, reshape_to
from weft.ir import Expr, dims_equal
from weft.support.errors import UnsupportedModelError


@converts("Reshape", since=5, attributes=("allowzero",))
def reshape(node: Node) -> Expr:
    """Reshape; -1 is inferred, and 0 copies the size of the input unless ``allowzero`` is set."""
    target, shape = node.dims(1, "shape"), node.shape()
    if not node.attrs.flag("allowzero"):
        beyond = [i for i, d in enumerate(target) if d == 0 and i >= len(shape)]
        if beyond:
            raise node.fail(
                "a size of 0 copies an axis that the input does not have",
                expected=f"at most {len(shape)} axes",
                got=f"axis {beyond[0]}",
            )
        target = tuple(shape[i] if d == 0 else d for i, d in enumerate(target))
    return reshape_to(node, node.input(0), target)


@converts("Flatten", attributes=("axis",))
def flatten(node: Node) -> Expr:
    """Flatten to a matrix; if ``axis`` is the rank, the second axis has size 1."""
    rank = node.rank()
    axis = node.attrs.integer("axis", 1)
    split = axis if axis == rank else node.axis(axis, rank)
    return flatten_at(node, node.input(0), split)


@converts("Transpose", attributes=("perm",))
def transpose(node: Node) -> Expr:
    rank = node.rank()
    axes = node.attrs.integers("perm")
    if axes is None:
        axes = tuple(reversed(range(rank)))
    if sorted(axes) != list(range(rank)):
        raise node.fail(
            "attribute 'perm' is not a permutation",
            expected=f"the axes 0 to {rank - 1} in some order",
            got=str(axes),
        )
    return node.call(op.transpose, node.input(0), axes=axes)


@converts("Unsqueeze", attributes=("axes",))
def unsqueeze_by_attribute(node: Node) -> Expr:
    return _unsqueeze(node, node.attrs.integers("axes") or ())


@converts("Unsqueeze", since=13)
def unsqueeze_by_input(node: Node) -> Expr:
    return _unsqueeze(node, node.ints(1, "axes"))


def _unsqueeze(node: Node, axes: tuple[int, ...]) -> Expr:
    """Insert ``axes``, which refer to the result; several axes are inserted by one reshape."""
    rank = node.rank() + len(axes)
    positions = {node.axis(a, rank) for a in axes}
    if len(positions) < len(axes):
        raise node.fail("duplicate axis", got=str(axes))
    sizes = iter(node.shape())
    if len(positions) == 1:
        return node.call(op.expand_dims, node.input(0), axis=positions.pop(), num_newaxis=1)
    target = tuple(1 if a in positions else next(sizes) for a in range(rank))
    return reshape_to(node, node.input(0), target)


@converts("Squeeze", attributes=("axes",))
def squeeze_by_attribute(node: Node) -> Expr:
    return _squeeze(node, node.attrs.integers("axes"))


@converts("Squeeze", since=13)
def squeeze_by_input(node: Node) -> Expr:
    return _squeeze(node, node.optional_ints(1, "axes"))


def _squeeze(node: Node, axes: tuple[int, ...] | None) -> Expr:
    shape = node.shape()
    if axes is None:
        axes = tuple(i for i, d in enumerate(shape) if d == 1)
        unclear = [d for d in shape if d != 1 and dims_equal(d, 1) is None]
        if unclear:  # which axes the result has must not depend on sizes
            raise UnsupportedModelError("Squeeze of axes that may have size 1", where=node.span,
                                        got=", ".join(map(str, unclear)),
                                        help="give Squeeze its axes, or bound the sizes")
    chosen = tuple(sorted({node.axis(a, len(shape)) for a in axes}))
    wrong = [a for a in chosen if shape[a] != 1]
    if wrong:
        raise node.fail(
            f"axis {wrong[0]} cannot be squeezed", expected="size 1", got=f"size {shape[wrong[0]]}"
        )
    return node.call(op.squeeze, node.input(0), axis=chosen) if chosen else node.input(0)
