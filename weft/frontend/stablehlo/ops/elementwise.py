"""Operations on single elements; most are an operator of weft by another name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common.typed import dtype_in, shape_in
from weft.frontend.stablehlo.node import Node, constant_in
from weft.frontend.stablehlo.registry import CONVERTERS, converts
from weft.frontend.stablehlo.types import DTYPES
from weft.ir.dtype import DType
from weft.ir.expr import Expr
from weft.ir.op import Op

_UNARY: dict[str, Op] = {
    "stablehlo.abs": op.abs, "stablehlo.ceil": op.ceil, "stablehlo.cosine": op.cos,
    "stablehlo.exponential": op.exp, "stablehlo.exponential_minus_one": op.expm1,
    "stablehlo.floor": op.floor, "stablehlo.is_finite": op.isfinite, "stablehlo.log": op.log,
    "stablehlo.log_plus_one": op.log1p, "stablehlo.logistic": op.sigmoid,
    "stablehlo.negate": op.negative, "stablehlo.round_nearest_even": op.round,
    "stablehlo.rsqrt": op.rsqrt, "stablehlo.sine": op.sin, "stablehlo.sqrt": op.sqrt,
    "stablehlo.tan": op.tan, "stablehlo.tanh": op.tanh,
    "chlo.acos": op.acos, "chlo.acosh": op.acosh, "chlo.asin": op.asin, "chlo.asinh": op.asinh,
    "chlo.atan": op.atan, "chlo.atanh": op.atanh, "chlo.cosh": op.cosh, "chlo.sinh": op.sinh,
    "chlo.tan": op.tan, "chlo.digamma": op.special.digamma, "chlo.erf": op.erf,
    "chlo.erfc": op.special.erfc, "chlo.erf_inv": op.special.erfinv,
    "chlo.lgamma": op.special.lgamma, "chlo.is_inf": op.isinf,
    "chlo.bessel_i1e": op.special.modified_bessel_i1e,
    "@mhlo.erf": op.erf, "@mhlo.asin": op.asin, "@mhlo.acos": op.acos, "@mhlo.atan": op.atan,
    "@mhlo.asinh": op.asinh, "@mhlo.acosh": op.acosh, "@mhlo.atanh": op.atanh,
    "@mhlo.sinh": op.sinh, "@mhlo.cosh": op.cosh, "@mhlo.tan": op.tan,
}
# Operators of numbers, and what they are on truth values.
_BINARY: dict[str, tuple[Op, Op | None]] = {
    "add": (op.add, op.logical_or), "subtract": (op.subtract, None),
    "multiply": (op.multiply, op.logical_and), "maximum": (op.maximum, op.logical_or),
    "minimum": (op.minimum, op.logical_and), "and": (op.bitwise_and, op.logical_and),
    "or": (op.bitwise_or, op.logical_or), "xor": (op.bitwise_xor, op.not_equal),
}
_ORDERS: dict[str, Op] = {
    "EQ": op.equal, "NE": op.not_equal, "LT": op.less, "LE": op.less_equal, "GT": op.greater,
    "GE": op.greater_equal}
_OTHER = ("stablehlo.atan2", "stablehlo.cbrt", "stablehlo.clamp", "stablehlo.compare",
          "stablehlo.convert", "stablehlo.count_leading_zeros", "stablehlo.divide",
          "stablehlo.not", "stablehlo.popcnt", "stablehlo.power", "stablehlo.reduce_precision",
          "stablehlo.remainder", "stablehlo.round_nearest_afz", "stablehlo.select",
          "stablehlo.shift_left", "stablehlo.shift_right_arithmetic",
          "stablehlo.shift_right_logical", "stablehlo.sign", "stablehlo.bitcast_convert",
          "stablehlo.optimization_barrier")
NAMES = frozenset((*_UNARY, *(f"stablehlo.{name}" for name in _BINARY), *_OTHER))


def _register_tables() -> None:
    for name, operator in _UNARY.items():
        CONVERTERS.register(name, _unary(operator))
    for name, (number, truth) in _BINARY.items():
        CONVERTERS.register(f"stablehlo.{name}", _binary(number, truth))


def _unary(operator: Op) -> Callable[..., Expr]:
    def convert(node: Node, x: Expr) -> Expr:
        return node.call(operator, x)

    return convert


def _binary(number: Op, truth: Op | None) -> Callable[..., Expr]:
    def convert(node: Node, a: Expr, b: Expr) -> Expr:
        if dtype_in(a).is_bool and truth is None:
            raise node.fail("no such arithmetic on truth values")
        return node.call(truth if dtype_in(a).is_bool and truth is not None else number, a, b)

    return convert


_register_tables()


@converts("stablehlo.compare")
def compare(node: Node, a: Expr, b: Expr) -> Expr:
    direction = node.word("comparison_direction")
    if direction not in _ORDERS:
        raise node.fail("no such comparison", got=direction, expected=", ".join(_ORDERS))
    if node.word("compare_type") == "TOTALORDER" and dtype_in(a).is_float:
        a, b = total_order_key(node, a), total_order_key(node, b)
    if dtype_in(a).is_bool and direction not in ("EQ", "NE"):
        a, b = node.cast(a, "uint8"), node.cast(b, "uint8")
    return node.call(_ORDERS[direction], a, b)


def total_order_key(node: Node, x: Expr) -> Expr:
    """Integers in IEEE's total order of floats: -NaN, -inf, ..., -0, 0, ..., inf, NaN."""
    dtype = dtype_in(x)
    bits = node.call(op.reinterpret, x, dtype=DType.of(f"int{dtype.bits}"))
    lowest = node.constant(np.iinfo(f"int{dtype.bits}").max, f"int{dtype.bits}")
    flipped = node.call(op.bitwise_xor, bits, lowest)
    return node.call(op.where, node.call(op.less, bits, node.number(0, bits)), flipped, bits)


@converts("stablehlo.select")
def select(node: Node, condition: Expr, a: Expr, b: Expr) -> Expr:
    return node.call(op.where, condition, a, b)


@converts("stablehlo.clamp")
def clamp(node: Node, low: Expr, x: Expr, high: Expr) -> Expr:
    return node.call(op.minimum, node.call(op.maximum, x, low), high)


@converts("stablehlo.convert")
def convert(node: Node, x: Expr) -> Expr:
    return node.cast(x, node.dtype())


@converts("stablehlo.bitcast_convert")
def bitcast_convert(node: Node, x: Expr) -> Expr:
    """Between elements of other widths the last axis is split or joined."""
    have, want = dtype_in(x), node.dtype()
    if have == want:
        return x
    if have.is_bool or want.is_bool or have.bits < 8 or want.bits < 8:
        raise node.unsupported("the bits of elements below a byte", got=f"{have} to {want}")
    if have.bits == want.bits:
        return node.call(op.reinterpret, x, dtype=want)
    return _joined(node, x, want) if have.bits < want.bits else _split(node, x, want)


def _split(node: Node, x: Expr, want: DType) -> Expr:
    """Each element as several narrow ones along a new last axis, the lowest bits first."""
    whole = node.call(op.reinterpret, x, dtype=DType.of(f"uint{dtype_in(x).bits}"))
    parts = []
    for shift in range(0, dtype_in(x).bits, want.bits):
        moved = node.call(op.right_shift, whole, node.number(shift, whole))
        part = node.call(op.cast, moved, dtype=DType.of(f"uint{want.bits}"))
        parts.append(node.call(op.expand_dims, part, axis=len(shape_in(x)), num_newaxis=1))
    joined = node.tuple_call(op.concatenate, parts, axis=len(shape_in(x)))
    return joined if dtype_in(joined) == want else node.call(op.reinterpret, joined, dtype=want)


def _joined(node: Node, x: Expr, want: DType) -> Expr:
    """The elements along the last axis as the bits of one."""
    narrow = DType.of(f"uint{dtype_in(x).bits}")
    wide = DType.of(f"uint{want.bits}")
    bits = x if dtype_in(x) == narrow else node.call(op.reinterpret, x, dtype=narrow)
    axis = len(shape_in(x)) - 1
    total: Expr | None = None
    for position in range(want.bits // narrow.bits):
        part = node.slice(bits, {axis: position}, {axis: position + 1})
        part = node.call(op.cast, node.call(op.squeeze, part, axis=(axis,)), dtype=wide)
        part = node.call(op.left_shift, part, node.number(position * narrow.bits, part))
        total = part if total is None else node.call(op.bitwise_or, total, part)
    if total is None:
        raise node.fail("no elements to join")
    return total if wide == want else node.call(op.reinterpret, total, dtype=want)


@converts("stablehlo.divide")
def divide(node: Node, a: Expr, b: Expr) -> Expr:
    """Integers are rounded to zero; a quotient by 0 has all bits set, as XLA gives it."""
    dtype = dtype_in(a)
    if dtype.is_float:
        return node.call(op.divide, a, b)
    return _by_nonzero(node, op.trunc_divide, a, b, node.number(_all_bits(dtype), a))


@converts("stablehlo.remainder")
def remainder(node: Node, a: Expr, b: Expr) -> Expr:
    """The remainder has the sign of the dividend, which a remainder by 0 is."""
    if dtype_in(a).is_float:
        return node.call(op.trunc_mod, a, b)
    return _by_nonzero(node, op.trunc_mod, a, b, a)


def _all_bits(dtype: DType) -> int:
    return -1 if dtype.code == "int" else (1 << dtype.bits) - 1


def _by_nonzero(node: Node, operator: Op, a: Expr, b: Expr, otherwise: Expr) -> Expr:
    known = constant_in(b)
    if known is not None and known.all():
        return node.call(operator, a, b)
    zero = node.number(0, b)
    is_zero = node.call(op.equal, b, zero)
    safe = node.call(op.where, is_zero, node.number(1, b), b)
    return node.call(op.where, is_zero, otherwise, node.call(operator, a, safe))


@converts("stablehlo.power")
def power(node: Node, a: Expr, b: Expr) -> Expr:
    if dtype_in(a).is_float:
        return node.call(op.power, a, b)
    return _integer_power(node, a, b)


def _integer_power(node: Node, a: Expr, b: Expr) -> Expr:
    """By squaring: a negative exponent gives 0, and 1 or -1 for the base 1 or -1."""
    bits = dtype_in(b).bits
    one, zero = node.number(1, a), node.number(0, b)
    result, base, rest = node.call(op.broadcast_to, one, shape=shape_in(a)), a, b
    for _ in range(min(bits, 6)):
        odd = node.call(op.not_equal, node.call(op.bitwise_and, rest, node.number(1, b)), zero)
        result = node.call(op.where, odd, node.call(op.multiply, result, base), result)
        base = node.call(op.multiply, base, base)
        rest = node.call(op.right_shift, rest, node.number(1, b))
    if dtype_in(a).code != "int":
        return result
    is_odd = node.call(op.not_equal, node.call(op.bitwise_and, b, node.number(1, b)), zero)
    minus = node.number(-1, a)
    unit = node.call(op.where, node.call(op.equal, a, one), one, node.call(
        op.where, node.call(op.equal, a, minus), node.call(op.where, is_odd, minus, one),
        node.number(0, a)))
    return node.call(op.where, node.call(op.less, b, zero), unit, result)


@converts("stablehlo.sign")
def sign(node: Node, x: Expr) -> Expr:
    """Of NaN and of both zeros it is the argument itself."""
    if not dtype_in(x).is_float:
        return node.call(op.sign, x)
    keeps = node.call(op.logical_or, node.call(op.isnan, x),
                      node.call(op.equal, x, node.number(0, x)))
    return node.call(op.where, keeps, x, node.call(op.sign, x))


@converts("stablehlo.not")
def not_(node: Node, x: Expr) -> Expr:
    return node.call(op.logical_not if dtype_in(x).is_bool else op.bitwise_not, x)


@converts("stablehlo.atan2")
def atan2(node: Node, y: Expr, x: Expr) -> Expr:
    from weft.op.composites.pairs import atan2 as composite

    return node.composed(composite, y, x)


@converts("stablehlo.cbrt")
def cbrt(node: Node, x: Expr) -> Expr:
    third = node.number(1 / 3, x)
    root = node.call(op.power, node.call(op.abs, x), third)
    # One step of Newton's method: 1/3 is rounded, which large numbers show.
    square = node.call(op.multiply, root, root)
    error = node.call(op.subtract, node.call(op.multiply, square, root), node.call(op.abs, x))
    step = node.call(op.divide, error, node.call(op.multiply, node.number(3, x), square))
    fine = node.call(op.logical_and, node.call(op.isfinite, step), node.call(op.isfinite, root))
    root = node.call(op.where, fine, node.call(op.subtract, root, step), root)
    return node.call(op.multiply, sign(node, x), root)


@converts("stablehlo.round_nearest_afz")
def round_nearest_afz(node: Node, x: Expr) -> Expr:
    """Halves are rounded away from zero."""
    size = node.call(op.abs, x)
    whole = node.call(op.floor, size)
    up = node.call(op.greater_equal, node.call(op.subtract, size, whole), node.number(0.5, x))
    rounded = node.call(op.where, up, node.call(op.add, whole, node.number(1, x)), whole)
    return node.call(op.multiply, sign(node, x), rounded)


@converts("stablehlo.shift_left")
def shift_left(node: Node, a: Expr, b: Expr) -> Expr:
    return node.call(op.left_shift, a, b)


@converts("stablehlo.shift_right_arithmetic")
def shift_right_arithmetic(node: Node, a: Expr, b: Expr) -> Expr:
    return _shifted_right(node, a, b, DType.of(f"int{dtype_in(a).bits}"))


@converts("stablehlo.shift_right_logical")
def shift_right_logical(node: Node, a: Expr, b: Expr) -> Expr:
    return _shifted_right(node, a, b, DType.of(f"uint{dtype_in(a).bits}"))


def _shifted_right(node: Node, a: Expr, b: Expr, kind: DType) -> Expr:
    """The shift of the bits as ``kind``, whose sign says what comes in at the top."""
    dtype = dtype_in(a)
    if dtype == kind:
        return node.call(op.right_shift, a, b)
    x, by = (node.call(op.reinterpret, v, dtype=kind) for v in (a, b))
    return node.call(op.reinterpret, node.call(op.right_shift, x, by), dtype=dtype)


@converts("stablehlo.popcnt")
def popcnt(node: Node, x: Expr) -> Expr:
    """Ones are counted in fields of 2, 4, 8, ... bits."""
    dtype = dtype_in(x)
    unsigned = DType.of(f"uint{dtype.bits}")
    total = x if dtype == unsigned else node.call(op.reinterpret, x, dtype=unsigned)
    width = 1
    while width < dtype.bits:
        mask = node.number(sum(((1 << width) - 1) << at for at in range(0, dtype.bits, 2 * width)),
                           total)
        low = node.call(op.bitwise_and, total, mask)
        high = node.call(op.bitwise_and, node.call(op.right_shift, total,
                                                   node.number(width, total)), mask)
        total, width = node.call(op.add, low, high), 2 * width
    return total if dtype == unsigned else node.call(op.reinterpret, total, dtype=dtype)


@converts("stablehlo.count_leading_zeros")
def count_leading_zeros(node: Node, x: Expr) -> Expr:
    """The zeros of a number are the ones of its complement with all bits below the first set."""
    dtype = dtype_in(x)
    unsigned = DType.of(f"uint{dtype.bits}")
    filled = x if dtype == unsigned else node.call(op.reinterpret, x, dtype=unsigned)
    width = 1
    while width < dtype.bits:
        shifted = node.call(op.right_shift, filled, node.number(width, filled))
        filled, width = node.call(op.bitwise_or, filled, shifted), 2 * width
    zeros = popcnt(node, node.call(op.bitwise_not, filled))
    return zeros if dtype == unsigned else node.call(op.reinterpret, zeros, dtype=dtype)


@converts("stablehlo.reduce_precision")
def reduce_precision(node: Node, x: Expr) -> Expr:
    """Through the dtype of these bits, if there is one."""
    kinds = {(8, 7): "bfloat16", (5, 10): "float16", (8, 23): "float32", (11, 52): "float64"}
    bits = node.integer("exponent_bits"), node.integer("mantissa_bits")
    if bits not in kinds or dtype_in(x).name not in DTYPES.values():
        raise node.unsupported("a precision without a dtype", got=f"e{bits[0]}m{bits[1]}",
                               expected=", ".join(f"e{e}m{m}" for e, m in kinds))
    return node.cast(node.cast(x, kinds[bits]), dtype_in(x))


@converts("stablehlo.optimization_barrier")
def optimization_barrier(_node: Node, *values: Any) -> Any:
    return values
