"""Functions of single elements: arithmetic, comparisons, activations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft import op
from weft.frontend.common.typed import tensor_type
from weft.frontend.tflite.model import Tensor
from weft.frontend.tflite.node import Node, known_options
from weft.frontend.tflite.registry import CONVERTERS, converts
from weft.ir.expr import Expr
from weft.ir.op import Op
from weft.op.composites import activations, pairs

_UNARY: dict[str, Op] = {
    "ABS": op.abs, "CEIL": op.ceil, "COS": op.cos, "EXP": op.exp, "FLOOR": op.floor,
    "LOG": op.log, "LOGICAL_NOT": op.logical_not, "LOGISTIC": op.sigmoid, "NEG": op.negative,
    "RELU": op.nn.relu, "ROUND": op.round, "RSQRT": op.rsqrt, "SIGN": op.sign, "SIN": op.sin,
    "SQRT": op.sqrt, "TANH": op.tanh, "ZEROS_LIKE": op.zeros_like,
}
_BINARY: dict[str, Op] = {
    "BITWISE_XOR": op.bitwise_xor, "EQUAL": op.equal, "FLOOR_DIV": op.floor_divide,
    "FLOOR_MOD": op.floor_mod, "GREATER": op.greater, "GREATER_EQUAL": op.greater_equal,
    "LESS": op.less, "LESS_EQUAL": op.less_equal, "LOGICAL_AND": op.logical_and,
    "LOGICAL_OR": op.logical_or, "MAXIMUM": op.maximum, "MINIMUM": op.minimum,
    "NOT_EQUAL": op.not_equal, "POW": op.power, "RIGHT_SHIFT": op.right_shift,
}
_ARITHMETIC: dict[str, Op] = {"ADD": op.add, "SUB": op.subtract, "MUL": op.multiply,
                              "DIV": op.divide}
_RANGES: dict[str, tuple[float, float]] = {
    "RELU6": (0.0, 6.0), "RELU_N1_TO_1": (-1.0, 1.0), "RELU_0_TO_1": (0.0, 1.0)}
# Numbers of the enumeration ActivationFunctionType.
_ACTIVATIONS = {0: "NONE", 1: "RELU", 2: "RELU_N1_TO_1", 3: "RELU6", 4: "TANH", 5: "SIGN_BIT"}


# Operations of StableHLO that files may contain, and builtin operators that compute the same.
_STABLEHLO = {
    "ABS": "ABS", "CONVERT": "CAST", "COSINE": "COS", "EXPONENTIAL": "EXP", "FLOOR": "FLOOR",
    "LOG": "LOG", "LOGISTIC": "LOGISTIC", "MAXIMUM": "MAXIMUM", "MINIMUM": "MINIMUM",
    "NEGATE": "NEG", "POWER": "POW", "RSQRT": "RSQRT", "SELECT": "SELECT_V2", "TANH": "TANH",
}
_STABLEHLO_BINARY: dict[str, Op] = {"ADD": op.add, "MULTIPLY": op.multiply, "SUBTRACT": op.subtract,
                                    "REMAINDER": op.trunc_mod}


def _unary(operator: Op) -> Callable[[Node], Expr]:
    return lambda node: node.call(operator, node.input(0))


def _binary(operator: Op) -> Callable[[Node], Expr]:
    return lambda node: node.call(operator, node.input(0), node.input(1))


for _name, _operator in _UNARY.items():
    converts(_name)(_unary(_operator))
for _name, _operator in _BINARY.items():
    converts(_name)(_binary(_operator))


for _name, _operator in _STABLEHLO_BINARY.items():
    converts(f"STABLEHLO_{_name}")(_binary(_operator))


@converts("STABLEHLO_DIVIDE")
def divide(node: Node) -> Expr:
    operator = op.divide if node.dtype().is_float else op.trunc_divide
    return node.call(operator, node.input(0), node.input(1))


@converts("STABLEHLO_AND", "STABLEHLO_OR")
def logical(node: Node) -> Expr:
    is_and, is_bool = node.op == "STABLEHLO_AND", node.dtype().is_bool
    operator: Op = (op.logical_and if is_and else op.logical_or) if is_bool else (
        op.bitwise_and if is_and else op.bitwise_or)
    return node.call(operator, node.input(0), node.input(1))


@converts(*_ARITHMETIC)
def arithmetic(node: Node) -> Expr:
    """Quotients of integers are rounded towards zero, as in C."""
    operator = _ARITHMETIC[node.op]
    if node.op == "DIV" and not node.dtype().is_float:
        operator = op.trunc_divide
    return activated(node, node.call(operator, node.input(0), node.input(1)))


def activated(node: Node, x: Expr) -> Expr:
    """``x`` after the activation that is part of the operator."""
    name = known_options(node, _ACTIVATIONS, node.option("FusedActivationFunction"), "activation")
    return activation(node, name, x)


def activation(node: Node, name: str, x: Expr) -> Expr:
    """``x`` after an activation of the schema; quantized results are clipped by their range."""
    if name == "NONE":
        return x
    info = node.results[0] if node.results else None
    if name == "RELU":
        return x if _covers(info, 0.0, None) else node.call(op.nn.relu, x)
    if name in _RANGES:
        low, high = _RANGES[name]
        return x if _covers(info, low, high) else node.call(op.clip, x, a_min=low, a_max=high)
    if name == "TANH":
        return node.call(op.tanh, x)
    raise node.unsupported("this activation", got=name)


def _covers(info: Tensor | None, low: float, high: float | None) -> bool:
    """Whether the integers of a tensor stand for no number outside of the range."""
    by = info.quantization if info is not None else None
    if by is None or info is None or info.dtype is None or by.scale.size != 1:
        return False
    limits = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}
    if info.dtype.name not in limits:
        return False
    scale, zero = float(by.scale[0]), int(by.zero[0])
    least, most = ((limit - zero) * scale for limit in limits[info.dtype.name])
    return least >= low and (high is None or most <= high)


@converts(*_RANGES)
def clipped(node: Node) -> Expr:
    return activation(node, node.op, node.input(0))


@converts("SQUARE")
def square(node: Node) -> Expr:
    return node.call(op.multiply, node.input(0), node.input(0))


@converts("SQUARED_DIFFERENCE")
def squared_difference(node: Node) -> Expr:
    difference = node.call(op.subtract, node.input(0), node.input(1))
    return node.call(op.multiply, difference, difference)


@converts("ADD_N")
def add_all(node: Node) -> Expr:
    return functools.reduce(lambda a, b: node.call(op.add, a, b), node.inputs())


@converts("ATAN2")
def atan2(node: Node) -> Expr:
    return node.composed(pairs.atan2, node.input(0), node.input(1))


@converts("ELU")
def elu(node: Node) -> Expr:
    return node.composed(activations.elu, node.input(0))


@converts("GELU")
def gelu(node: Node) -> Expr:
    return node.composed(activations.gelu, node.input(0),
                         approximate="tanh" if node.option("Approximate") else "none")


@converts("HARD_SWISH")
def hard_swish(node: Node) -> Expr:
    return node.composed(activations.hardswish, node.input(0))


@converts("LEAKY_RELU")
def leaky_relu(node: Node) -> Expr:
    return node.call(op.nn.leaky_relu, node.input(0), alpha=float(node.option("Alpha", 0.0)))


@converts("PRELU")
def prelu(node: Node) -> Expr:
    """The slopes broadcast."""
    x = node.input(0)
    zero: Any = node.scalar_like(0, x)
    below = node.call(op.multiply, x, node.input(1))
    return node.call(op.where, node.call(op.greater_equal, x, zero), x, below)


@converts("SELECT", "SELECT_V2")
def select(node: Node) -> Expr:
    """The condition of ``SELECT`` may be a vector that chooses rows.

    Quantized numbers are chosen as they are stored.
    """
    condition, x = node.input(0), node.stored(1)
    rank = node.rank(1)
    if node.op == "SELECT" and node.rank(0) == 1 and rank > 1:
        condition = node.reshape(condition, (node.shape(0)[0], *(1,) * (rank - 1)))
    return node.call(op.where, condition, x, node.stored(2))


@converts("CAST")
def cast(node: Node) -> Expr:
    """The stored numbers in another type; quantized ones are not dequantized."""
    x, dtype = node.stored(0), node.results[0].dtype
    if dtype is None:
        raise node.unsupported("a result of a type that weft lacks", got=node.results[0].type)
    if dtype.is_bool and not tensor_type(x).dtype.is_bool:
        return node.call(op.not_equal, x, node.scalar_like(0, x))
    return node.cast(x, dtype)


@converts("BITCAST")
def bitcast(node: Node) -> Expr:
    return node.call(op.reinterpret, node.stored(0), dtype=node.results[0].dtype)


for _name, _same in _STABLEHLO.items():
    _found = CONVERTERS.find(_same)
    if _found is not None:
        CONVERTERS.register(f"STABLEHLO_{_name}", _found)
