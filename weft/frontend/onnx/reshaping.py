"""Reshapes to inferred or symbolic dimensions, index vectors of symbolic length, slices."""

from __future__ import annotations

from collections.abc import Sequence

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.typed import FOLD_LIMIT_ELEMENTS
from weft.frontend.onnx.node import Node, tensor_type
from weft.ir import DType, Expr
from weft.ir.shape import (
    AnyDim,
    Dim,
    KnownDim,
    Shape,
    SymDim,
    dim_floordiv,
    dim_mul,
    dim_product,
    dims_equal,
)
from weft.support.errors import UnsupportedModelError


def positions(node: Node, end: Dim, dtype: DType | str = "int64", *, first: Dim = 0) -> Expr:
    """``first``, ``first`` + 1, … up to ``end`` (exclusive); a constant if they are few."""
    if isinstance(first, int) and isinstance(end, int) and end - first <= FOLD_LIMIT_ELEMENTS:
        return node.constant(arrays.arange(first, end), dtype)
    return node.call(op.arange, start=first, stop=end, step=1, dtype=DType.of(dtype))


def positions_along(node: Node, size: Dim, axis: int, rank: int, *, first: Dim = 0
                    ) -> Expr:
    """``first``, … up to ``size`` (exclusive), int64, along ``axis``.

    The other axes of the result have size 1; it broadcasts to ``rank`` axes.
    """
    line = positions(node, size, first=first)
    rest = rank - axis - 1
    return node.call(op.expand_dims, line, axis=1, num_newaxis=rest) if rest else line


def sliced_positions(size: int, start: int, stop: int, step: int) -> range:
    """Return the selected indices, as Python slicing does except for one case.

    For a negative step and a start before the first element, ONNX clamps the start to index 0 and
    selects that element; Python selects none.
    """
    if size == 0:
        return range(0)
    first, last, _ = slice(start, stop, step).indices(size)
    return range(max(first, 0), last, step)


def reshape_to(node: Node, value: Expr, target: Sequence[Dim]) -> Expr:
    """Reshape ``value``; at most one size of ``target`` may be -1 (inferred).

    Raises ``InvalidModelError`` if the number of elements differs, and ``UnsupportedModelError`` if
    several sizes are only known at run time.
    """
    shape = tensor_type(value).shape
    if tuple(target) == shape:
        return value
    inferred = [i for i, d in enumerate(target) if d == -1]
    if len(inferred) > 1 or any(isinstance(d, int) and d < -1 for d in target):
        raise node.fail("invalid size in the target shape", got=_text(target))
    rest = dim_product(tuple(d for d in target if d != -1))
    total = dim_product(shape)
    if inferred:
        total, rest = _cancelled(shape, [d for d in target if d != -1])
        target = _with_inferred(node, target, inferred[0], total, rest)
    elif total != rest and not isinstance(dim_mul(total, rest), AnyDim):
        _fail_count(node, shape, target)
    if any(isinstance(d, AnyDim) for d in (*shape, *target)):
        newshape: tuple[Dim, ...] = _as_newshape(node, tuple(target), shape)
    else:
        newshape = tuple(target)
    return node.call(op.reshape, value, newshape=newshape, allowzero=0 in target)


def _as_newshape(node: Node, target: Shape, source: Shape) -> tuple[int, ...]:
    """Return ``newshape`` for the reshape operator.

    A symbolic size is copied from the same axis of the input (0) or inferred (-1). Two ``ANY``
    sizes may differ at run time, so a single ``ANY`` in the target is inferred.
    """
    copies = 0 not in target
    only = sum(not isinstance(d, int) for d in target) == 1

    def resolved(i: int, d: Dim) -> int:
        if isinstance(d, int):
            return d
        same = copies and i < len(source) and source[i] == d
        return 0 if same and not (only and isinstance(d, AnyDim)) else -1

    newshape = tuple(resolved(i, d) for i, d in enumerate(target))
    if newshape.count(-1) > 1:
        raise UnsupportedModelError(
            f"{node.op} to a shape with several sizes that are only known at run time",
            where=node.span,
            got=_text(target),
            help='fix all but one of the sizes: inputs={"x": (1, 3, 224, 224)}',
        )
    return newshape


def _cancelled(shape: Sequence[Dim], target: Sequence[Dim]) -> tuple[Dim, Dim]:
    """The numbers of elements without the symbolic sizes that both shapes have.

    So the quotient is known where a size is a sum: (n, a + b, 8) as (-1, a + b).
    """
    have, want = list(shape), list(target)
    for dim in target:
        if isinstance(dim, SymDim) and dim in have:
            have.remove(dim)
            want.remove(dim)
    return dim_product(tuple(have)), dim_product(tuple(want))


def _with_inferred(
    node: Node, target: Sequence[Dim], index: int, total: Dim, rest: Dim
) -> tuple[Dim, ...]:
    known = isinstance(total, int) and isinstance(rest, int)
    if known and (rest == 0 or total % rest != 0):
        raise node.fail(
            "the size -1 of the target shape cannot be inferred",
            expected=f"a divisor of {total}",
            got=_text(target),
        )
    return (*target[:index], dim_floordiv(total, rest), *target[index + 1 :])


def _fail_count(node: Node, shape: Sequence[Dim], target: Sequence[Dim]) -> None:
    if not all(isinstance(d, int) for d in (*shape, *target)):
        raise UnsupportedModelError(  # it may hold for some sizes
            f"{node.op}: the target shape has a different number of elements", where=node.span,
            expected=f"as many as in {_text(shape)}", got=_text(target),
            help='fix the sizes for which it is right: inputs={"x": (1, 3, 224, 224)}')
    raise node.fail(
        "the target shape has a different number of elements",
        expected=f"as many as in {_text(shape)}",
        got=_text(target),
        help="the model fixes the target: keep the input shapes that it was exported for",
    )


def known_sizes(node: Node, dims: Sequence[Dim]) -> tuple[KnownDim, ...]:
    """``dims``, which must not depend on the data of tensors."""
    known = tuple(d for d in dims if not isinstance(d, AnyDim))
    if len(known) < len(dims):
        raise UnsupportedModelError(f"{node.op} to a data-dependent size",
                                    where=node.span, got=_text(dims))
    return known


def broadcast_to(node: Node, value: Expr, shape: Sequence[Dim]) -> Expr:
    """``value`` broadcast to ``shape``."""
    return node.call(op.broadcast_to, value, shape=known_sizes(node, shape))


def flatten_at(node: Node, value: Expr, axis: int) -> Expr:
    """Flatten to a matrix: axes before ``axis`` become the rows, the others the columns."""
    shape = tensor_type(value).shape
    return reshape_to(node, value, (dim_product(shape[:axis]), dim_product(shape[axis:])))


def stacked(node: Node, parts: Sequence[Expr], axis: int) -> Expr:
    """Stack ``parts`` along a new axis."""
    expanded = [node.call(op.expand_dims, p, axis=axis, num_newaxis=1) for p in parts]
    if len(expanded) == 1:
        return expanded[0]
    return node.tuple_call(op.concatenate, expanded, axis=axis)


def _text(dims: Sequence[Dim]) -> str:
    return f"({', '.join(map(str, dims))})"


def shapes_fit(shape: Shape, wanted: Shape) -> bool:
    """Whether two shapes may be equal."""
    return len(shape) == len(wanted) and all(
        dims_equal(a, b) is not False for a, b in zip(shape, wanted, strict=True))
