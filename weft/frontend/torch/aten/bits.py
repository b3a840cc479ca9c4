"""Converters of functions on the bits of floats: sign, next float, exponent."""

from __future__ import annotations

from typing import Any

from weft import op
from weft.frontend.torch.node import Node, dtype_in, shape_in
from weft.frontend.torch.registry import converts
from weft.ir import DType, Expr

# Number of fraction bits, and exponent bias.
_FRACTIONS = {"float16": (10, 15), "bfloat16": (7, 127), "float32": (23, 127),
              "float64": (52, 1023)}


def _integers_of(dtype: DType) -> str:
    return f"int{dtype.bits}"


def _bits(node: Node, x: Expr) -> Expr:
    return node.call(op.reinterpret, x, dtype=_integers_of(dtype_in(x)))


def _floats(node: Node, bits: Expr, dtype: DType) -> Expr:
    return node.call(op.reinterpret, bits, dtype=dtype.name)


def sign_is_set(node: Node, x: Expr) -> Expr:
    """Whether a number is negative; true for -0 and for NaN with a sign."""
    dtype = dtype_in(x)
    if dtype.is_bool:
        return node.call(op.logical_xor, x, x)
    looked_at = _bits(node, x) if dtype.is_float else x
    return node.call(op.less, looked_at, node.scalar_like(0, looked_at))


@converts("signbit")
def signbit(node: Node, x: Expr) -> Expr:
    return sign_is_set(node, x)


@converts("copysign")
def copysign(node: Node, x: Any, y: Any) -> Expr:
    """The magnitude of ``x`` with the sign of ``y``."""
    dtype = node.dtype()
    return with_sign_of(node, node.tensor(x, dtype), node.tensor(y, dtype))


def with_sign_of(node: Node, x: Expr, y: Expr) -> Expr:
    """The magnitude of ``x`` with the sign of ``y``, for floats of one dtype.

    Not computed on the bits of ``x``, because gradients do not flow through ``reinterpret``.
    """
    magnitude = node.call(op.abs, x)
    return node.call(op.where, sign_is_set(node, y), node.call(op.negative, magnitude), magnitude)


@converts("nextafter")
def nextafter(node: Node, x: Expr, y: Expr) -> Expr:
    """The next float after ``x`` towards ``y``.

    As an integer, the bits of a float increase with its magnitude.
    """
    dtype = node.dtype()
    x, y = node.cast(x, dtype), node.cast(y, dtype)
    bits = _bits(node, x)
    one = node.scalar_like(1, bits)
    zero = node.scalar_like(0, x)
    grows = node.call(op.equal, node.call(op.greater, y, x), node.call(op.greater, x, zero))
    stepped = node.call(op.where, grows, node.call(op.add, bits, one),
                        node.call(op.subtract, bits, one))
    smallest = with_sign_of(node, node.broadcast(_floats(node, one, dtype), shape_in(y)), y)
    moved = node.call(op.where, node.call(op.equal, x, zero), smallest,
                      _floats(node, stepped, dtype))
    reached = node.call(op.where, node.call(op.equal, x, y), y, moved)
    unordered = node.call(op.logical_or, node.call(op.isnan, x), node.call(op.isnan, y))
    return node.call(op.where, unordered, node.call(op.add, x, y), reached)


@converts("frexp")
def frexp(node: Node, x: Expr) -> tuple[Expr, Expr]:
    """The fraction, from 0.5 to 1, and the exponent with x = fraction * 2**exponent."""
    dtype = dtype_in(x)
    fraction_bits, bias = _FRACTIONS[dtype.name]
    # Scale subnormal numbers to normal ones first.
    scale = fraction_bits + 2
    is_small = node.call(op.less, node.call(op.abs, x),
                         node.scalar_like(2.0 ** (1 - bias), x))
    normal = node.call(op.where, is_small,
                       node.call(op.multiply, x, node.scalar_like(2.0**scale, x)), x)
    bits = _bits(node, normal)
    field = (1 << (dtype.bits - 1 - fraction_bits)) - 1
    raw = node.call(op.bitwise_and,
                    node.call(op.right_shift, bits, node.scalar_like(fraction_bits, bits)),
                    node.scalar_like(field, bits))
    exponent = node.call(op.subtract, node.cast(raw, "int32"), node.constant(bias - 1, "int32"))
    lowered = node.call(op.subtract, exponent, node.constant(scale, "int32"))
    exponent = node.call(op.where, is_small, lowered, exponent)
    kept = node.call(op.bitwise_and, bits, node.scalar_like(~(field << fraction_bits), bits))
    half = node.scalar_like((bias - 1) << fraction_bits, bits)
    fraction = _floats(node, node.call(op.bitwise_or, kept, half), dtype)
    finite = node.call(op.logical_and, node.call(op.isfinite, x),
                       node.call(op.not_equal, x, node.scalar_like(0, x)))
    return (node.call(op.where, finite, fraction, x),
            node.call(op.where, finite, exponent, node.constant(0, "int32")))
