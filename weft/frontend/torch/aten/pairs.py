"""Converters of functions of two numbers (maxima, shifts, divisors, powers), and of angles."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft import op
from weft.frontend.torch.node import Node, dtype_in
from weft.frontend.torch.registry import converts
from weft.ir import Expr, Op
from weft.op.composites import pairs


@converts("atan2")
def atan2(node: Node, y: Any, x: Any) -> Expr:
    return _in_float(node, pairs.atan2, y, x)


@converts("hypot")
def hypot(node: Node, x: Any, y: Any) -> Expr:
    return _in_float(node, pairs.hypot, x, y)


def _in_float(node: Node, composite: Callable[..., Any], *values: Any) -> Expr:
    """A composite in the dtype of the result, or in float32 if that is a 16-bit float."""
    dtype = node.dtype()
    wide = "float32" if dtype.is_narrow_float else dtype
    operands = (node.cast(node.tensor(value, dtype), wide) for value in values)
    return node.cast(node.composed(composite, *operands), dtype)


@converts("angle")
def angle(node: Node, x: Expr) -> Expr:
    """The angle of real numbers: pi for negative ones, else 0; NaN stays NaN."""
    is_unsigned = dtype_in(x).is_bool or dtype_in(x).code == "uint"
    below = node.call(op.less, node.cast(x, "float32") if is_unsigned else x,
                      node.scalar_like(0, node.cast(x, "float32") if is_unsigned else x))
    x = node.cast(x, node.dtype())
    known = node.call(op.where, below, node.scalar_like(math.pi, x), node.scalar_like(0, x))
    return node.call(op.where, node.call(op.isnan, x), x, known)


@converts("fmax")
def fmax(node: Node, x: Expr, y: Expr) -> Expr:
    """The larger argument; if one of them is NaN, the other one."""
    return _number_of(node, op.maximum, op.logical_or, x, y)


@converts("fmin")
def fmin(node: Node, x: Expr, y: Expr) -> Expr:
    return _number_of(node, op.minimum, op.logical_and, x, y)


def _number_of(node: Node, operator: Op, of_bools: Op, x: Expr, y: Expr) -> Expr:
    dtype = node.dtype()
    x, y = node.cast(x, dtype), node.cast(y, dtype)
    chosen = node.call(of_bools if dtype.is_bool else operator, x, y)
    if not dtype.is_float:
        return chosen
    chosen = node.call(op.where, node.call(op.isnan, x), y, chosen)
    return node.call(op.where, node.call(op.isnan, y), x, chosen)


@converts("exp2")
def exp2(node: Node, x: Expr) -> Expr:
    x = node.cast(x, node.dtype())
    return node.call(op.power, node.scalar_like(2, x), x)


@converts("ldexp")
def ldexp(node: Node, x: Expr, exponent: Any) -> Expr:
    """The product x * 2**exponent."""
    dtype = node.dtype()
    x, exponent = node.cast(x, dtype), node.tensor(exponent, dtype)
    return node.call(op.multiply, x, node.call(op.power, node.scalar_like(2, x), exponent))


@converts("bitwise_left_shift", "__lshift__")
def left_shift(node: Node, x: Any, count: Any) -> Expr:
    return _shifted(node, op.left_shift, x, count)


@converts("bitwise_right_shift", "__rshift__")
def right_shift(node: Node, x: Any, count: Any) -> Expr:
    """Arithmetic shift: negative numbers keep their sign."""
    return _shifted(node, op.right_shift, x, count)


def _shifted(node: Node, operator: Op, x: Any, count: Any) -> Expr:
    dtype = node.dtype()
    return node.call(operator, node.tensor(x, dtype), node.tensor(count, dtype))


@converts("gcd")
def gcd(node: Node, x: Expr, y: Expr) -> Expr:
    dtype = node.dtype()
    return node.call(op.gcd, node.cast(x, dtype), node.cast(y, dtype))


@converts("lcm")
def lcm(node: Node, x: Expr, y: Expr) -> Expr:
    """The least common multiple; 0 if either argument is 0."""
    dtype = node.dtype()
    x, y = node.cast(x, dtype), node.cast(y, dtype)
    common = node.call(op.gcd, x, y)
    zero, one = node.scalar_like(0, x), node.scalar_like(1, x)
    divisor = node.call(op.where, node.call(op.equal, common, zero), one, common)
    product = node.call(op.multiply, node.call(op.trunc_divide, x, divisor), y)
    return node.call(op.abs, product)
