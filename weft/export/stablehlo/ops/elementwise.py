"""Elementwise operations."""

from __future__ import annotations

import numpy as np

from weft.export.stablehlo.call import CallWriter, writes
from weft.export.stablehlo.text import type_text
from weft.export.writers import Value
from weft.ir import TensorType
from weft.op.reduce import reduced_axes

_UNARY = {
    "abs": "abs", "ceil": "ceil", "cos": "cosine", "exp": "exponential",
    "expm1": "exponential_minus_one", "floor": "floor", "log": "log", "log1p": "log_plus_one",
    "logical_not": "not", "bitwise_not": "not", "negative": "negate", "round": "round_nearest_even",
    "rsqrt": "rsqrt", "sigmoid": "logistic", "sign": "sign", "sin": "sine", "sqrt": "sqrt",
    "tanh": "tanh", "fast_exp": "exponential", "fast_tanh": "tanh",
}
# CHLO, which every compiler of StableHLO from JAX legalises.
_CHLO = {"acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh", "atan": "atan",
         "atanh": "atanh", "cosh": "cosh", "sinh": "sinh", "tan": "tan", "erf": "erf",
         "fast_erf": "erf"}
_BINARY = {
    "add": "add", "subtract": "subtract", "multiply": "multiply", "divide": "divide",
    "trunc_divide": "divide", "maximum": "maximum", "minimum": "minimum", "power": "power",
    "mod": "remainder", "trunc_mod": "remainder", "left_shift": "shift_left",
    "bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor", "logical_and": "and",
    "logical_or": "or", "logical_xor": "xor",
}
_COMPARED = {"equal": "EQ", "not_equal": "NE", "less": "LT", "less_equal": "LE", "greater": "GT",
             "greater_equal": "GE"}


@writes(*_UNARY)
def unary(c: CallWriter) -> Value:
    if c.name in ("ceil", "floor", "round") and not c.dtype.is_float:
        return c.inputs[0]
    return c.emit(f"stablehlo.{_UNARY[c.name]}", c.inputs, c.result)


@writes(*_CHLO)
def chlo(c: CallWriter) -> Value:
    text = type_text(c.result)
    return c.body.add(f"chlo.{_CHLO[c.name]} {c.inputs[0]} : {text} -> {text}", c.result)


@writes(*_BINARY)
def binary(c: CallWriter) -> Value | None:
    if c.name == "trunc_divide" and c.dtype.is_float:
        return c.no_form("rounded quotients of floats")
    shape = c.result.concrete_shape
    operands = [c.broadcast(name, shape) for name in c.inputs]
    return c.emit(f"stablehlo.{_BINARY[c.name]}", operands, c.result)


@writes("right_shift")
def right_shift(c: CallWriter) -> Value:
    kind = "logical" if c.dtype.code == "uint" else "arithmetic"
    operands = [c.broadcast(name, c.result.concrete_shape) for name in c.inputs]
    return c.emit(f"stablehlo.shift_right_{kind}", operands, c.result)


@writes(*_COMPARED)
def comparison(c: CallWriter) -> Value:
    a, b = (c.broadcast(name, c.result.concrete_shape) for name in c.inputs)
    return c.compared(_COMPARED[c.name], a, b)


@writes("where")
def where(c: CallWriter) -> Value:
    flag, yes, no = (c.broadcast(name, c.result.concrete_shape) for name in c.inputs)
    types = f"{type_text(c.type(flag))}, {type_text(c.result)}"
    return c.body.add(f"stablehlo.select {flag}, {yes}, {no} : {types}", c.result)


@writes("copy", "annotation.barrier", "annotation.checkpoint", "annotation.on_device",
        "annotation.stop_fusion", "annotation.stop_gradient", "annotation.match_cast",
        "device_copy")
def same(c: CallWriter) -> Value:
    return c.inputs[0]


@writes("cast", "cast_like")
def cast(c: CallWriter) -> Value:
    return c.converted(c.inputs[0], c.result.dtype)


@writes("reinterpret")
def reinterpret(c: CallWriter) -> Value:
    return c.typed("stablehlo.bitcast_convert", c.inputs, c.result)


@writes("isfinite", "isnan", "isinf")
def classified(c: CallWriter) -> Value:
    name = c.inputs[0]
    if c.name == "isnan":
        return c.compared("NE", name, name)
    if c.name == "isfinite":
        return c.typed("stablehlo.is_finite", [name], c.result)
    size = c.emit("stablehlo.abs", [name], c.type(name))
    return c.compared("EQ", size, c.filled(float("inf"), c.type(name)))


@writes("nn.relu")
def relu(c: CallWriter) -> Value:
    return c.emit("stablehlo.maximum", [c.inputs[0], c.filled(0, c.result)], c.result)


_REDUCTIONS = {"sum": ("add", 0), "prod": ("multiply", 1), "all": ("and", True),
               "any": ("or", False)}


@writes(*_REDUCTIONS, "max", "min", "mean")
def reduction(c: CallWriter) -> Value:
    name = c.inputs[0]
    have = c.type(name)
    axes = reduced_axes(c.attrs, have.ndim)
    if c.name in ("max", "min"):
        op, first = f"{c.name}imum", _bound(c, is_low=c.name == "max")
    else:
        op, neutral = _REDUCTIONS["sum" if c.name == "mean" else c.name]
        first = c.const(neutral, have.dtype)
    kept = tuple(d for a, d in enumerate(have.concrete_shape) if a not in axes)
    found = reduced(c, name, first, op, axes)
    if c.name == "mean":
        count = c.filled(have_count(have, axes), TensorType(kept, have.dtype))
        found = c.emit("stablehlo.divide", [found, count], TensorType(kept, have.dtype))
    return c.reshaped(found, c.result.concrete_shape)


def have_count(type_: TensorType, axes: tuple[int, ...]) -> int:
    """The number of elements along ``axes``."""
    count = 1
    for axis in axes:
        count *= type_.concrete_shape[axis]
    return count


def _bound(c: CallWriter, *, is_low: bool) -> str:
    if c.dtype.is_float:
        return c.const(-np.inf if is_low else np.inf, c.dtype)
    info = np.iinfo(c.dtype.numpy)
    return c.const(info.min if is_low else info.max, c.dtype)


def reduced(c: CallWriter, name: str, first: str, op: str, axes: tuple[int, ...]) -> str:
    """A reduction by one operation."""
    have = c.type(name)
    kept = TensorType(tuple(d for a, d in enumerate(have.shape) if a not in axes), have.dtype)
    return c.body.add(
        f"stablehlo.reduce({name} init: {first}) applies stablehlo.{op} across dimensions = "
        f"[{', '.join(map(str, axes))}] : ({type_text(have)}, {type_text(c.type(first))}) -> "
        f"{type_text(kept)}", kept)
