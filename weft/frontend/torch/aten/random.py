"""Converters of operators that draw numbers, from the key that the model gains as an input."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import op
from weft.frontend.torch.node import Node, dtype_in, shape_in
from weft.frontend.torch.registry import converts
from weft.ir import Expr, Op


def _drawn(node: Node, operator: Op, shape: Sequence[Any], first: float, second: float) -> Expr:
    dtype = node.dtype()
    wide = "float32" if dtype.is_narrow_float else dtype
    limits = (node.constant(value, wide) for value in (first, second))
    made = node.call(operator, node.random_key(), *limits, out_shape=tuple(shape))
    return node.cast(node.field(made, 1), dtype)


@converts("rand.default")
def rand(node: Node, shape: Sequence[Any], *_options: Any) -> Expr:
    """Numbers from 0 up to 1."""
    return _drawn(node, op.random.uniform, shape, 0, 1)


@converts("randn.default")
def randn(node: Node, shape: Sequence[Any], *_options: Any) -> Expr:
    """Normally distributed numbers."""
    return _drawn(node, op.random.normal, shape, 0, 1)


@converts("rand_like.default", "randn_like.default")
def like(node: Node, x: Expr, *_options: Any) -> Expr:
    function = randn if "randn" in node.op else rand
    return function(node, shape_in(x))


@converts("randperm.default")
def randperm(node: Node, count: Any, *_options: Any) -> Expr:
    """The order of as many random numbers."""
    limits = (node.constant(value, "float64") for value in (0, 1))
    made = node.call(op.random.uniform, node.random_key(), *limits, out_shape=(count,))
    order = node.call(op.argsort, node.field(made, 1), axis=0, dtype="int64")
    return node.cast(order, node.dtype())


@converts("bernoulli.default")
def bernoulli(node: Node, p: Expr, *_generator: Any) -> Expr:
    """1 with the probability that an element of ``p`` says, else 0."""
    limits = (node.constant(value, dtype_in(p)) for value in (0, 1))
    made = node.call(op.random.uniform, node.random_key(), *limits, out_shape=shape_in(p))
    return node.cast(node.call(op.less, node.field(made, 1), p), node.dtype())
