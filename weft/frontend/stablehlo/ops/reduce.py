"""Reductions: those of weft, or a region that is applied to neighbours along an axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common.typed import dtype_in, shape_in, tensor_type
from weft.frontend.stablehlo.node import Body, Node, constant_in, rank_of
from weft.frontend.stablehlo.regions import (
    combinations,
    counts_along,
    extreme_with_position,
    is_neutral,
    lifted,
    monoid_of,
)
from weft.frontend.stablehlo.registry import converts
from weft.ir.expr import Expr


@converts("stablehlo.reduce")
def reduce(node: Node, *operands: Expr) -> Sequence[Expr]:
    count = len(operands) // 2
    xs, inits = operands[:count], operands[count:]
    if not xs or len(operands) % 2:
        raise node.fail("the operands are no pairs of tensors and initial values")
    axes = node.axes(node.ints("dimensions"), rank_of(xs[0]))
    if not axes:
        return [*lifted(node, node.bodies[0], [*inits, *xs], shape_in(xs[0]))]
    found = _extreme(node, xs, inits, axes)
    if found is not None:
        return found
    names = combinations(node.bodies[0], count)
    results = [_known(node, x, init, axes, name)
               for x, init, name in zip(xs, inits, names, strict=True)]
    known = [result for result in results if result is not None]
    return known if len(known) == count else folded(node, node.bodies[0], xs, inits, axes)


def _known(node: Node, x: Expr, init: Expr, axes: tuple[int, ...], name: str | None
           ) -> Expr | None:
    """The reduction of weft; ``None`` if there is none."""
    dtype = dtype_in(x)
    monoid = monoid_of(name, dtype)
    shape = shape_in(x)
    if monoid is None or (name in ("maximum", "minimum") and any(shape[a] == 0 for a in axes)):
        return None
    total = node.call(monoid.reduce, x, axis=axes)
    return total if is_neutral(init, monoid, dtype) else node.call(monoid.combine, init, total)


def _extreme(node: Node, xs: Sequence[Expr], inits: Sequence[Expr], axes: tuple[int, ...]
             ) -> list[Expr] | None:
    """Argmax and argmin; ``None`` for other reductions."""
    direction = extreme_with_position(node.bodies[0]) if len(xs) == 2 and len(axes) == 1 else None
    if direction is None or shape_in(xs[0])[axes[0]] == 0 or not counts_along(xs[1], axes[0]):
        return None
    dtype = dtype_in(xs[0])
    monoid = monoid_of("maximum" if direction == "GT" else "minimum", dtype)
    zero = constant_in(inits[1])
    if monoid is None or dtype.is_bool or zero is None or zero.any() \
            or not is_neutral(inits[0], monoid, dtype):
        return None
    position = node.call(op.argmax if direction == "GT" else op.argmin, xs[0], axis=axes[0])
    return [node.call(monoid.reduce, xs[0], axis=axes), node.cast(position, dtype_in(xs[1]))]


def folded(node: Node, body: Body, xs: Sequence[Expr], inits: Sequence[Expr],
           axes: Sequence[int]) -> list[Expr]:
    """The region applied to neighbours until one element is left; it has to be associative."""
    state = list(xs)
    for axis in sorted(axes, reverse=True):
        size = shape_in(state[0])[axis]
        if not isinstance(size, int):
            raise node.unsupported("a region of its own along a symbolic axis", got=str(size))
        if size == 0:
            rest = tuple(n for a, n in enumerate(shape_in(xs[0])) if a not in axes)
            return [node.broadcast(init, rest) for init in inits]
        state = [_without_axis(node, x, axis) for x in _halved(node, body, state, axis, size)]
    return lifted(node, body, [*inits, *state], shape_in(state[0]))


def _halved(node: Node, body: Body, state: list[Expr], axis: int, size: int) -> list[Expr]:
    while size > 1:
        pairs = size // 2
        left = [node.slice(x, {axis: 0}, {axis: 2 * pairs}, {axis: 2}) for x in state]
        right = [node.slice(x, {axis: 1}, {axis: 2 * pairs}, {axis: 2}) for x in state]
        joined = lifted(node, body, [*left, *right], shape_in(left[0]))
        if size % 2:
            joined = [node.tuple_call(op.concatenate,
                                      [x, node.slice(old, {axis: size - 1}, {axis: size})],
                                      axis=axis)
                      for x, old in zip(joined, state, strict=True)]
        state, size = joined, pairs + size % 2
    return state


def _without_axis(node: Node, x: Expr, axis: int) -> Expr:
    shape = shape_in(x)
    return node.reshape(x, (*shape[:axis], *shape[axis + 1:]))


@converts("stablehlo.map")
def map_(node: Node, *xs: Expr) -> Sequence[Expr]:
    """A region of scalars applied to all elements."""
    return lifted(node, node.bodies[0], xs, shape_in(xs[0]))


@converts("stablehlo.batch_norm_inference")
def batch_norm_inference(node: Node, x: Expr, scale: Expr, offset: Expr, mean: Expr,
                         variance: Expr) -> Expr:
    return _normalized(node, x, scale, offset, mean, variance)


@converts("stablehlo.batch_norm_training")
def batch_norm_training(node: Node, x: Expr, scale: Expr, offset: Expr) -> Sequence[Expr]:
    mean, variance = _moments(node, x)
    return [_normalized(node, x, scale, offset, mean, variance), mean, variance]


@converts("stablehlo.batch_norm_grad")
def batch_norm_grad(node: Node, x: Expr, scale: Expr, mean: Expr, variance: Expr, dy: Expr
                    ) -> Sequence[Expr]:
    """The gradients of the operand, the scale and the offset."""
    feature = _feature(node, x)
    others = tuple(a for a in range(rank_of(x)) if a != feature)
    count = node.number(int(np.prod([shape_in(x)[a] for a in others])), x)
    inverse = _line(node, x, node.call(op.rsqrt, node.call(
        op.add, variance, node.number(_epsilon(node), x))))
    centered = node.call(op.subtract, x, _line(node, x, mean))
    normalized = node.call(op.multiply, centered, inverse)
    d_scale = node.call(op.sum, node.call(op.multiply, dy, normalized), axis=others)
    d_offset = node.call(op.sum, dy, axis=others)
    spread = node.call(op.add, _line(node, x, d_offset),
                       node.call(op.multiply, normalized, _line(node, x, d_scale)))
    inner = node.call(op.subtract, dy, node.call(op.divide, spread, count))
    d_x = node.call(op.multiply, node.call(op.multiply, inner, inverse), _line(node, x, scale))
    return [d_x, d_scale, d_offset]


def _feature(node: Node, x: Expr) -> int:
    return node.axis(node.integer("feature_index"), rank_of(x))


def _epsilon(node: Node) -> float:
    value: Any = node.attributes.get("epsilon", 0.0)
    return float(value)


def _line(node: Node, x: Expr, values: Expr) -> Expr:
    """Values by feature, along the axis of features of ``x``."""
    feature = _feature(node, x)
    return node.reshape(values, [n if a == feature else 1 for a, n in enumerate(shape_in(x))])


def _moments(node: Node, x: Expr) -> tuple[Expr, Expr]:
    others = tuple(a for a in range(rank_of(x)) if a != _feature(node, x))
    mean = node.call(op.mean, x, axis=others)
    return mean, node.call(op.variance, x, _line(node, x, mean), axis=others)


def _normalized(node: Node, x: Expr, scale: Expr, offset: Expr, mean: Expr, variance: Expr
                ) -> Expr:
    spread = node.call(op.add, variance, node.number(_epsilon(node), variance))
    factor = _line(node, x, node.call(op.multiply, scale, node.call(op.rsqrt, spread)))
    centered = node.call(op.subtract, x, _line(node, x, mean))
    result = node.call(op.add, node.call(op.multiply, centered, factor), _line(node, x, offset))
    return node.cast(result, tensor_type(x).dtype)
