"""Converters of elementwise arithmetic, comparison and logic."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from weft import op
from weft.frontend.onnx.node import Node, Value, constant_value
from weft.frontend.onnx.ops.cast import cast_to
from weft.frontend.onnx.registry import ConvertFunction, converts, register
from weft.ir import DType, Expr, Op

_UNARY = {
    "Abs": op.abs,
    "Acos": op.acos,
    "Acosh": op.acosh,
    "Asin": op.asin,
    "Asinh": op.asinh,
    "Atan": op.atan,
    "Atanh": op.atanh,
    "BitwiseNot": op.bitwise_not,
    "Ceil": op.ceil,
    "Cos": op.cos,
    "Cosh": op.cosh,
    "Erf": op.erf,
    "Exp": op.exp,
    "Floor": op.floor,
    "IsNaN": op.isnan,
    "Log": op.log,
    "Neg": op.negative,
    "Not": op.logical_not,
    "Relu": op.nn.relu,
    "Round": op.round,
    "Sigmoid": op.sigmoid,
    "Sign": op.sign,
    "Sin": op.sin,
    "Sinh": op.sinh,
    "Sqrt": op.sqrt,
    "Tan": op.tan,
    "Tanh": op.tanh,
}
_BINARY = {
    "Add": op.add,
    "And": op.logical_and,
    "BitwiseAnd": op.bitwise_and,
    "BitwiseOr": op.bitwise_or,
    "BitwiseXor": op.bitwise_xor,
    "Div": op.divide,
    "Equal": op.equal,
    "Greater": op.greater,
    "GreaterOrEqual": op.greater_equal,
    "Less": op.less,
    "LessOrEqual": op.less_equal,
    "Mul": op.multiply,
    "Or": op.logical_or,
    "Sub": op.subtract,
    "Xor": op.logical_xor,
}
_VARIADIC = {"Max": op.maximum, "Min": op.minimum, "Sum": op.add}


def _unary(operator: Op) -> ConvertFunction:
    return lambda node: node.call(operator, node.input(0))


def _binary(operator: Op) -> ConvertFunction:
    return lambda node: node.call(operator, node.input(0), node.input(1))


def _variadic(operator: Op) -> ConvertFunction:
    return lambda node: _chain(node, operator)


def _chain(node: Node, operator: Op) -> Expr:
    return reduce(lambda a, b: node.call(operator, a, b), node.all_inputs())


def _register_all(table: dict[str, Op], family: Callable[[Op], ConvertFunction]) -> None:
    for name, operator in table.items():
        register(name, family(operator))


_register_all(_UNARY, _unary)
_register_all(_BINARY, _binary)
_register_all(_VARIADIC, _variadic)


@converts("Mean")
def mean(node: Node) -> Expr:
    total = _chain(node, op.add)
    return node.call(op.divide, total, node.scalar_like(len(node.inputs), total))


@converts("Reciprocal")
def reciprocal(node: Node) -> Expr:
    x = node.input(0)
    return node.call(op.divide, node.scalar_like(1, x), x)


@converts("Mod", attributes=("fmod",))
def mod(node: Node) -> Expr:
    """``fmod=0`` takes the sign of the divisor, ``fmod=1`` that of the dividend."""
    operator = op.mod if node.attrs.flag("fmod") else op.floor_mod
    return node.call(operator, node.input(0), node.input(1))


@converts("Pow")
def pow_(node: Node) -> Expr:
    """Convert Pow; the result has the dtype of the base, the exponent may have another one."""
    base, exponent = node.input(0), node.input(1)
    dtype = node.dtype(0)
    if dtype.is_float:
        return node.call(op.power, base, cast_to(node, exponent, dtype))
    double = DType.of("float64")
    wide = node.call(op.power, cast_to(node, base, double), cast_to(node, exponent, double))
    return cast_to(node, _snapped(node, wide), dtype)


def _snapped(node: Node, power: Expr) -> Expr:
    """Round powers within rounding error of an integer, so that truncation gives that integer."""
    nearest = node.call(op.round, power)
    error = node.call(op.abs, node.call(op.subtract, power, nearest))
    bound = node.call(op.multiply, node.call(op.abs, power), node.scalar_like(1e-14, power))
    return node.call(op.where, node.call(op.less_equal, error, bound), nearest, power)


@converts("Where")
def where(node: Node) -> Expr:
    return node.call(op.where, node.input(0), node.input(1), node.input(2))


@converts("Identity")
def identity(node: Node) -> Value:
    """Return the input, which may also be a sequence or an optional value."""
    value = node.inputs[0] if node.inputs else None
    return node.input(0) if value is None else value


@converts("BitShift", since=11, attributes=("direction",))
def bit_shift(node: Node) -> Expr:
    direction = node.attrs.one_of("direction", "", ("LEFT", "RIGHT"))
    operator = op.left_shift if direction == "LEFT" else op.right_shift
    return node.call(operator, node.input(0), node.input(1))


@converts("IsInf", since=10, attributes=("detect_negative", "detect_positive"))
def is_inf(node: Node) -> Expr:
    x = node.input(0)
    infinite = node.call(op.isinf, x)
    zero = node.scalar_like(0, x)
    if not node.attrs.flag("detect_negative", True):
        infinite = node.call(op.logical_and, infinite, node.call(op.greater, x, zero))
    if not node.attrs.flag("detect_positive", True):
        infinite = node.call(op.logical_and, infinite, node.call(op.less, x, zero))
    return infinite


@converts("Clip", attributes=("min", "max"))
def clip_by_attributes(node: Node) -> Expr:
    low = node.attrs.number("min", float("-inf"))
    high = node.attrs.number("max", float("inf"))
    return node.call(op.clip, node.input(0), a_min=low, a_max=high)


@converts("Clip", since=11)
def clip_by_inputs(node: Node) -> Expr:
    """Clip to bounds from inputs; integers use max and min, as float attributes lose precision."""
    low, high = _bound(node, 1, float("-inf")), _bound(node, 2, float("inf"))
    if low is not None and high is not None and node.dtype().is_float:
        return node.call(op.clip, node.input(0), a_min=low, a_max=high)
    result = node.input(0)
    if node.has_input(1):
        result = node.call(op.maximum, result, node.input(1))
    return node.call(op.minimum, result, node.input(2)) if node.has_input(2) else result


def _bound(node: Node, index: int, default: float) -> float | None:
    """Return a constant or default bound; ``None`` if it is only known at run time."""
    if not node.has_input(index):
        return default
    value = constant_value(node.input(index))
    if value is None:
        return None
    if value.size != 1:
        raise node.fail("a bound is not a scalar", got=f"shape {value.shape}")
    return float(value.reshape(()))
