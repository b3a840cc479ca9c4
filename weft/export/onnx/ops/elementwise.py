"""Elementwise functions of one, two and three tensors."""

from __future__ import annotations

import math

import numpy as np

from weft.export.onnx.call import CallWriter, arithmetic_dtype
from weft.export.onnx.registry import renamed, writes
from weft.export.writers import Value
from weft.ir import DType
from weft.ir.dtype import bool_, float32

for _name, _onnx in (
    ("acos", "Acos"), ("acosh", "Acosh"), ("asin", "Asin"), ("asinh", "Asinh"), ("atan", "Atan"),
    ("atanh", "Atanh"), ("bitwise_not", "BitwiseNot"), ("ceil", "Ceil"), ("cos", "Cos"),
    ("cosh", "Cosh"), ("erf", "Erf"), ("exp", "Exp"), ("fast_erf", "Erf"), ("fast_exp", "Exp"),
    ("fast_tanh", "Tanh"), ("floor", "Floor"), ("isnan", "IsNaN"), ("log", "Log"),
    ("logical_not", "Not"), ("round", "Round"), ("sigmoid", "Sigmoid"), ("sin", "Sin"),
    ("sinh", "Sinh"), ("sqrt", "Sqrt"), ("tan", "Tan"), ("tanh", "Tanh"),
    ("bitwise_and", "BitwiseAnd"), ("bitwise_or", "BitwiseOr"), ("bitwise_xor", "BitwiseXor"),
    ("logical_and", "And"), ("logical_or", "Or"), ("logical_xor", "Xor"),
):
    renamed(_name, _onnx)
for _name, _onnx in (
    ("abs", "Abs"), ("sign", "Sign"), ("negative", "Neg"), ("add", "Add"), ("subtract", "Sub"),
    ("multiply", "Mul"), ("greater", "Greater"), ("greater_equal", "GreaterOrEqual"),
    ("less", "Less"), ("less_equal", "LessOrEqual"), ("equal", "Equal"),
):
    renamed(_name, _onnx, upcast=True)


@writes("copy", "annotation.barrier", "annotation.checkpoint", "annotation.on_device",
        "annotation.stop_fusion", "annotation.stop_gradient", "annotation.match_cast",
        "device_copy")
def same(c: CallWriter) -> Value:
    """A value that is the first argument; devices and hints have no place in ONNX."""
    return c.emit("Identity", c.inputs[0])


@writes("where")
def choose(c: CallWriter) -> Value:
    condition, yes, no = c.inputs
    return where(c, condition, yes, no, c.result.dtype)


def where(c: CallWriter, condition: str, yes: str, no: str, dtype: DType) -> str:
    """``Where``, of integers that runtimes choose between."""
    wide = arithmetic_dtype(dtype, is_ordered=False)
    found = c.emit("Where", condition, c.as_dtype(yes, dtype, wide), c.as_dtype(no, dtype, wide))
    return c.as_dtype(found, wide, dtype)


@writes("not_equal")
def not_equal(c: CallWriter) -> Value:
    return c.emit("Not", c.upcast("Equal", *c.inputs))


@writes("nn.relu")
def relu(c: CallWriter) -> Value:
    if c.dtype.is_float:
        return c.emit("Relu", *c.inputs)
    return c.upcast("Max", c.inputs[0], c.const(0))


@writes("nn.leaky_relu")
def leaky_relu(c: CallWriter) -> Value:
    return c.emit("LeakyRelu", *c.inputs, alpha=c.attrs.alpha)


@writes("rsqrt")
def rsqrt(c: CallWriter) -> Value:
    return c.emit("Reciprocal", c.emit("Sqrt", *c.inputs))


@writes("log2", "log10")
def log_to_base(c: CallWriter) -> Value:
    base = 2 if c.name == "log2" else 10
    return c.emit("Mul", c.emit("Log", *c.inputs), c.const(1 / math.log(base)))


@writes("isinf", "isfinite")
def is_infinite(c: CallWriter) -> Value:
    if c.name == "isinf":
        return c.emit("IsInf", *c.inputs)
    return c.emit("Less", c.emit("Abs", *c.inputs), c.const(math.inf))


@writes("log1p")
def log1p(c: CallWriter) -> Value:
    """log(u) x / (u - 1) with u = 1 + x (Kahan), which is accurate near 0."""
    x, one = c.inputs[0], c.const(1)
    u = c.emit("Add", x, one)
    d = c.emit("Sub", u, one)
    scaled = c.emit("Div", c.emit("Mul", c.emit("Log", u), x), d)
    near = c.emit("Where", c.emit("Equal", d, c.const(0)), x, scaled)
    return c.emit("Where", c.emit("Equal", u, c.const(math.inf)), u, near)


@writes("expm1")
def expm1(c: CallWriter) -> Value:
    """2 sinh(x/2) e**(x/2): no cancellation near 0."""
    half = c.emit("Mul", c.inputs[0], c.const(0.5))
    scale = c.emit("Mul", c.emit("Exp", half), c.const(2))
    exact = c.emit("Mul", c.emit("Sinh", half), scale)
    is_small = c.emit("Less", c.emit("Abs", c.inputs[0]), c.const(1))
    plain = c.emit("Sub", c.emit("Exp", *c.inputs), c.const(1))
    return c.emit("Where", is_small, exact, plain)


@writes("trunc")
def trunc(c: CallWriter) -> Value:
    x = c.inputs[0]
    if not c.dtype.is_float:
        return c.emit("Identity", x)
    return c.emit("Mul", c.emit("Floor", c.emit("Abs", x)), c.emit("Sign", x))


@writes("clip")
def clip(c: CallWriter) -> Value:
    """Bounds of integers beyond their dtype hold for every value."""
    bounds = [c.attrs.a_min, c.attrs.a_max]
    if not c.dtype.is_float:
        info = np.iinfo(c.dtype.numpy)
        bounds = [int(min(max(math.ceil(b) if i == 0 else math.floor(b), info.min), info.max))
                  if math.isfinite(b) else (info.min, info.max)[b > 0]
                  for i, b in enumerate(bounds)]
    low, high = map(c.const, bounds)
    return c.upcast("Min", c.upcast("Max", c.inputs[0], low), high)


@writes("maximum", "minimum")
def extreme(c: CallWriter) -> Value:
    onnx = "Max" if c.name == "maximum" else "Min"
    if c.dtype.is_bool:
        return c.emit("Or" if onnx == "Max" else "And", *c.inputs)
    return c.upcast(onnx, *c.inputs)


@writes("power")
def power(c: CallWriter) -> Value | None:
    if c.dtype.is_int and not _is_natural(c, c.inputs[1]):
        return c.no_form("integers to the power of negative ones")
    return c.upcast("Pow", *c.inputs)


def _is_natural(c: CallWriter, name: str) -> bool:
    value = c.value(name)
    return value is not None and bool((value >= 0).all())


@writes("divide", "trunc_divide")
def divide(c: CallWriter) -> Value:
    """Integers are divided towards zero, as by ``Div``."""
    quotient = c.upcast("Div", *c.inputs)
    if c.dtype.is_float and c.name == "trunc_divide":
        return c.emit("Mul", c.emit("Floor", c.emit("Abs", quotient)), c.emit("Sign", quotient))
    return quotient


@writes("floor_mod")
def floor_mod(c: CallWriter) -> Value:
    """The remainder with the sign of the divisor."""
    if not c.dtype.is_float:
        return c.emit("Mod", *c.inputs)
    rest, divisor = c.emit("Mod", *c.inputs, fmod=1), c.inputs[1]
    zero = c.const(0)
    differs = c.emit("Xor", c.emit("Less", rest, zero), c.emit("Less", divisor, zero))
    moves = c.emit("And", differs, c.emit("Not", c.emit("Equal", rest, zero)))
    return c.emit("Where", moves, c.emit("Add", rest, divisor), rest)


@writes("mod", "trunc_mod")
def trunc_mod(c: CallWriter) -> Value:
    """The remainder with the sign of the dividend."""
    return c.emit("Mod", *c.inputs, fmod=1)


@writes("floor_divide")
def floor_divide(c: CallWriter) -> Value:
    if c.dtype.is_float:
        return c.emit("Floor", c.emit("Div", *c.inputs))
    wide = arithmetic_dtype(c.dtype)
    a, b = (c.as_dtype(n, c.dtype, wide) for n in c.inputs)
    rest = c.emit("Mod", a, b)
    return c.as_dtype(c.emit("Div", c.emit("Sub", a, rest), b), wide, c.dtype)


@writes("left_shift", "right_shift")
def shift(c: CallWriter) -> Value:
    """``BitShift`` is of unsigned integers; negative ones are shifted right as complements."""
    direction = "LEFT" if c.name == "left_shift" else "RIGHT"
    if c.dtype.code == "uint":
        return c.emit("BitShift", *c.inputs, direction=direction)
    unsigned = DType("uint", max(c.dtype.bits, 8))
    x, is_negative = c.inputs[0], c.emit("Less", c.inputs[0], c.const(0))
    if direction == "RIGHT":
        x = where(c, is_negative, c.emit("BitwiseNot", x), x, c.dtype)
    x, count = (c.cast(name, unsigned) for name in (x, c.inputs[1]))
    found = c.cast(c.emit("BitShift", x, count, direction=direction), c.dtype)
    if direction == "LEFT":
        return found
    return where(c, is_negative, c.emit("BitwiseNot", found), found, c.dtype)


@writes("cast", "cast_like")
def cast(c: CallWriter) -> Value:
    """Floats go to integers towards zero in both; NaN becomes whatever the runtime says."""
    if c.result.dtype == bool_ and c.dtype.is_float:
        return c.emit("Not", c.emit("Equal", c.inputs[0], c.const(0)))
    return c.cast(c.inputs[0], c.result.dtype)


@writes("nn.prelu")
def prelu(c: CallWriter) -> Value | None:
    if c.dtype != float32:
        return c.no_form(f"slopes of {c.dtype}")
    axis = c.attrs.axis % c.ndim
    slope = c.reshaped(c.inputs[1], (c.types[1].shape[0], *(1,) * (c.ndim - axis - 1)))
    return c.emit("PRelu", c.inputs[0], slope)


@writes("nn.bias_add")
def bias_add(c: CallWriter) -> Value:
    axis = c.attrs.axis % c.ndim
    bias = c.reshaped(c.inputs[1], (c.types[1].shape[0], *(1,) * (c.ndim - axis - 1)))
    return c.upcast("Add", c.inputs[0], bias)
