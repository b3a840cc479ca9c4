"""Converters of functions of two numbers (maxima, shifts, divisors, powers), and of angles."""

from __future__ import annotations

import math
from typing import Any

from weft import op
from weft.frontend.torch.aten.bits import sign_is_set, with_sign_of
from weft.frontend.torch.node import Node, dtype_in
from weft.frontend.torch.registry import converts
from weft.ir.expr import Expr
from weft.ir.op import Op


def _in_float(node: Node, *values: Any) -> list[Expr]:
    """Cast the arguments to the dtype of the result, or to float32 if it is a 16-bit float."""
    dtype = node.dtype()
    wide = "float32" if dtype.is_narrow_float else dtype
    return [node.cast(node.tensor(value, dtype), wide) for value in values]


def _ordered(node: Node, x: Expr, y: Expr) -> tuple[Expr, Expr]:
    """The larger and the smaller magnitude; NaN if either argument is NaN."""
    x, y = node.call(op.abs, x), node.call(op.abs, y)
    return node.call(op.maximum, x, y), node.call(op.minimum, x, y)


def _ratio(node: Node, small: Expr, large: Expr) -> Expr:
    """The ratio of ``small <= large``: 1 if they are equal, also if infinite, but 0 for zeros."""
    zero = node.scalar_like(0, large)
    divisor = node.call(op.where, node.call(op.equal, large, zero), node.scalar_like(1, large),
                        large)
    same = node.call(op.logical_and, node.call(op.equal, small, large),
                     node.call(op.not_equal, large, zero))
    return node.call(op.where, same, node.scalar_like(1, large),
                     node.call(op.divide, small, divisor))


@converts("atan2")
def atan2(node: Node, y: Any, x: Any) -> Expr:
    """The angle of the point (x, y): computed in the first octant, then mirrored."""
    y, x = _in_float(node, y, x)
    large, small = _ordered(node, x, y)
    angle = node.call(op.atan, _ratio(node, small, large))
    steep = node.call(op.greater, node.call(op.abs, y), node.call(op.abs, x))
    quarter, half = node.scalar_like(math.pi / 2, x), node.scalar_like(math.pi, x)
    angle = node.call(op.where, steep, node.call(op.subtract, quarter, angle), angle)
    angle = node.call(op.where, sign_is_set(node, x), node.call(op.subtract, half, angle), angle)
    return node.cast(with_sign_of(node, angle, y), node.dtype())


@converts("hypot")
def hypot(node: Node, x: Expr, y: Expr) -> Expr:
    """The root of x² + y², without overflow: the larger magnitude is factored out.

    The result is infinite if either argument is, even if the other one is NaN.
    """
    x, y = _in_float(node, x, y)
    large, small = _ordered(node, x, y)
    ratio = _ratio(node, small, large)
    under_root = node.call(op.add, node.call(op.multiply, ratio, ratio),
                           node.scalar_like(1, ratio))
    length = node.call(op.multiply, large, node.call(op.sqrt, under_root))
    endless = node.call(op.logical_or, node.call(op.isinf, x), node.call(op.isinf, y))
    length = node.call(op.where, endless, node.scalar_like(math.inf, x), length)
    return node.cast(length, node.dtype())


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
