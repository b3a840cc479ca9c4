"""Converters of elementwise functions, with broadcasting.

Results have the dtype that torch traced. Arguments are cast to it; those of comparisons are cast
to the dtype in which torch would compare them.
"""

from __future__ import annotations

from typing import Any

import torch

from weft import op
from weft.frontend.torch.node import Node, dtype_in, shape_in
from weft.frontend.torch.registry import ConvertFunction, converts, register
from weft.ir import Constant, DType, Expr, Op
from weft.op.composites import pairs

_FLOAT_FUNCTIONS: dict[str, Op] = {
    "acos": op.acos,
    "acosh": op.acosh,
    "asin": op.asin,
    "asinh": op.asinh,
    "atan": op.atan,
    "atanh": op.atanh,
    "cos": op.cos,
    "cosh": op.cosh,
    "erf": op.erf,
    "exp": op.exp,
    "expm1": op.expm1,
    "log": op.log,
    "log10": op.log10,
    "log1p": op.log1p,
    "log2": op.log2,
    "rsqrt": op.rsqrt,
    "sigmoid": op.sigmoid,
    "sin": op.sin,
    "sinh": op.sinh,
    "sqrt": op.sqrt,
    "tan": op.tan,
    "tanh": op.tanh,
}
# Functions that keep the dtype; the flag says which ones are the identity on integers.
_KEEPING: dict[str, tuple[Op, bool]] = {
    "abs": (op.abs, False),
    "ceil": (op.ceil, True),
    "floor": (op.floor, True),
    "neg": (op.negative, False),
    "sign": (op.sign, False),
    "trunc": (op.trunc, True),
}
_ARITHMETIC: dict[str, Op] = {
    "floor_divide": op.floor_divide,
    "fmod": op.mod,
    "maximum": op.maximum,
    "minimum": op.minimum,
    "mul": op.multiply,
    "remainder": op.floor_mod,
}
# Arithmetic on booleans.
_OF_BOOLS: dict[Op, Op] = {
    op.maximum: op.logical_or,
    op.minimum: op.logical_and,
    op.multiply: op.logical_and,
}
_COMPARISONS: dict[str, Op] = {
    "eq": op.equal,
    "ge": op.greater_equal,
    "gt": op.greater,
    "le": op.less_equal,
    "lt": op.less,
    "ne": op.not_equal,
}
_LOGICAL: dict[str, Op] = {
    "logical_and": op.logical_and,
    "logical_or": op.logical_or,
    "logical_xor": op.logical_xor,
}
_BITWISE: dict[str, tuple[Op, Op]] = {  # on integers, on booleans
    "bitwise_and": (op.bitwise_and, op.logical_and),
    "bitwise_or": (op.bitwise_or, op.logical_or),
    "bitwise_xor": (op.bitwise_xor, op.logical_xor),
}


def _float_function(operator: Op) -> ConvertFunction:
    return lambda node, x: node.call(operator, node.cast(x, node.dtype()))


def _keeping(operator: Op, idle_on_integers: bool) -> ConvertFunction:
    def convert(node: Node, x: Expr) -> Expr:
        dtype = dtype_in(x)
        idle = dtype.is_bool or (idle_on_integers and not dtype.is_float)
        return x if idle else node.call(operator, x)

    return convert


def _arithmetic(operator: Op) -> ConvertFunction:
    def convert(node: Node, x: Any, y: Any) -> Expr:
        dtype = node.dtype()
        chosen = _OF_BOOLS.get(operator, operator) if dtype.is_bool else operator
        return node.call(chosen, node.tensor(x, dtype), node.tensor(y, dtype))

    return convert


def _comparison(operator: Op) -> ConvertFunction:
    def convert(node: Node, x: Any, y: Any) -> Expr:
        dtype = node.dtype_named(torch.result_type(node.traced[0], node.traced[1]))
        x, y = node.tensor(x, dtype), node.tensor(y, dtype)
        if dtype.is_bool and operator is not op.equal:
            if operator is op.not_equal:
                return node.call(op.logical_xor, x, y)
            x, y = node.cast(x, "uint8"), node.cast(y, "uint8")
        return node.call(operator, x, y)

    return convert


def _logical(operator: Op) -> ConvertFunction:
    return lambda node, x, y: node.call(operator, node.tensor(x, "bool"), node.tensor(y, "bool"))


def _bitwise(on_integers: Op, on_bools: Op) -> ConvertFunction:
    def convert(node: Node, x: Any, y: Any) -> Expr:
        dtype = node.dtype()
        operator = on_bools if dtype.is_bool else on_integers
        return node.call(operator, node.tensor(x, dtype), node.tensor(y, dtype))

    return convert


def _register_all() -> None:
    for name, operator in _FLOAT_FUNCTIONS.items():
        register(name, _float_function(operator))
    for name, (operator, idle) in _KEEPING.items():
        register(name, _keeping(operator, idle))
    for name, operator in _ARITHMETIC.items():
        register(name, _arithmetic(operator))
    for name, operator in _COMPARISONS.items():
        register(name, _comparison(operator))
    for name, operator in _LOGICAL.items():
        register(name, _logical(operator))
    for name, pair in _BITWISE.items():
        register(name, _bitwise(*pair))


_register_all()


@converts("add")
def add(node: Node, x: Any, y: Any, alpha: Any = 1) -> Expr:
    """The sum x + alpha * y."""
    return _scaled_sum(node, op.add, x, y, alpha)


@converts("sub")
def sub(node: Node, x: Any, y: Any, alpha: Any = 1) -> Expr:
    return _scaled_sum(node, op.subtract, x, y, alpha)


@converts("rsub")
def rsub(node: Node, x: Any, y: Any, alpha: Any = 1) -> Expr:
    """The difference y - alpha * x."""
    return _scaled_sum(node, op.subtract, y, x, alpha)


def _scaled_sum(node: Node, operator: Op, x: Any, y: Any, alpha: Any) -> Expr:
    dtype = node.dtype()
    if dtype.is_bool:
        return node.call(op.logical_or, node.tensor(x, dtype), node.tensor(y, dtype))
    x, y = node.tensor(x, dtype), node.tensor(y, dtype)
    if alpha != 1:
        y = node.call(op.multiply, y, node.scalar_like(alpha, y))
    return node.call(operator, x, y)


@converts("div", "true_divide")
def div(node: Node, x: Any, y: Any, rounding_mode: str | None = None) -> Expr:
    dtype = node.dtype()
    x, y = node.tensor(x, dtype), node.tensor(y, dtype)
    if rounding_mode == "floor":
        return node.call(op.floor_divide, x, y)
    quotient = node.call(op.divide, x, y)  # integer division rounds towards zero
    return node.call(op.trunc, quotient) if rounding_mode and dtype.is_float else quotient


@converts("reciprocal")
def reciprocal(node: Node, x: Expr) -> Expr:
    x = node.cast(x, node.dtype())
    return node.call(op.divide, node.scalar_like(1, x), x)


@converts("pow")
def pow_(node: Node, x: Any, exponent: Any) -> Expr:
    """Small integer exponents give products; other powers of integers are computed in float64."""
    dtype = node.dtype()
    if isinstance(exponent, (int, float)):
        known = _known_power(node, node.tensor(x, dtype), exponent)
        if known is not None:
            return known
    wide = dtype if dtype.is_float else "float64"
    power = node.call(op.power, node.tensor(x, wide), node.tensor(exponent, wide))
    return node.cast(power, dtype)


def _known_power(node: Node, x: Expr, exponent: float) -> Expr | None:
    if exponent in pairs.SMALL_POWERS:
        return node.composed(pairs.small_power, x, exponent)
    if not dtype_in(x).is_float:
        return None
    if exponent == -1:
        return node.call(op.divide, node.scalar_like(1, x), x)
    # pow and sqrt differ only at -0 and -inf, where torch itself computes the root.
    root = {0.5: op.sqrt, -0.5: op.rsqrt}.get(exponent)
    return None if root is None else node.call(root, x)


@converts("round")
def round_(node: Node, x: Expr, decimals: int = 0) -> Expr:
    """Round halves to even."""
    if not dtype_in(x).is_float:
        return x
    if decimals == 0:
        return node.call(op.round, x)
    scale = node.scalar_like(10.0 ** abs(decimals), x)
    up, down = (op.multiply, op.divide) if decimals > 0 else (op.divide, op.multiply)
    return node.call(down, node.call(op.round, node.call(up, x, scale)), scale)


@converts("isnan", "isinf", "isfinite")
def classify(node: Node, x: Expr) -> Expr:
    name = node.op.split(".")[1]
    if not dtype_in(x).is_float:
        never = node.call(op.not_equal, node.cast(x, "int64"), node.cast(x, "int64"))
        return node.call(op.logical_not, never) if name == "isfinite" else never
    return node.call({"isnan": op.isnan, "isinf": op.isinf, "isfinite": op.isfinite}[name], x)


@converts("logical_not")
def logical_not(node: Node, x: Expr) -> Expr:
    return node.call(op.logical_not, node.cast(x, "bool"))


@converts("bitwise_not")
def bitwise_not(node: Node, x: Expr) -> Expr:
    return node.call(op.logical_not if dtype_in(x).is_bool else op.bitwise_not, x)


@converts("where")
def where(node: Node, condition: Expr, x: Any, y: Any) -> Expr:
    dtype = node.dtype()
    return node.call(op.where, node.cast(condition, "bool"), node.tensor(x, dtype),
                     node.tensor(y, dtype))


@converts("masked_fill")
def masked_fill(node: Node, x: Expr, mask: Expr, value: Any) -> Expr:
    return node.call(op.where, node.cast(mask, "bool"), node.tensor(value, dtype_in(x)), x)


@converts("clamp", "clamp_min", "clamp_max", "hardtanh")
def clamp(node: Node, x: Expr, low: Any = None, high: Any = None) -> Expr:
    if node.op.startswith("aten.clamp_max"):
        low, high = None, low
    dtype = node.dtype()
    if dtype.is_bool:
        return _clamped_bool(node, node.cast(x, dtype), low, high)
    x = node.cast(x, dtype)
    fixed = all(b is None or isinstance(b, (int, float)) for b in (low, high))
    if fixed and dtype.is_float:
        return node.call(op.clip, x, a_min=float("-inf") if low is None else float(low),
                         a_max=float("inf") if high is None else float(high),
                         flat_ends=node.op.startswith("aten.hardtanh"))
    if low is not None:
        x = node.call(op.maximum, x, node.tensor(low, dtype))
    return x if high is None else node.call(op.minimum, x, node.tensor(high, dtype))


def _clamped_bool(node: Node, x: Expr, low: Any, high: Any) -> Expr:
    if low is not None:
        x = node.call(op.logical_or, x, node.tensor(low, "bool"))
    return x if high is None else node.call(op.logical_and, x, node.tensor(high, "bool"))


@converts("_to_copy", "to.dtype", "prims.convert_element_type")
def to_copy(node: Node, x: Expr, *_options: Any) -> Expr:
    """Cast to the traced dtype; the other options of ``to`` are about devices and strides."""
    return node.cast(x, node.dtype())


@converts("alias", "clone", "contiguous", "lift_fresh_copy")
def same(node: Node, x: Expr, *_options: Any) -> Expr:  # noqa: ARG001
    return x


@converts("detach")
def detach(node: Node, x: Expr) -> Expr:
    """The identity, at which ``weft.grad`` stops."""
    flows = dtype_in(x).is_float and not isinstance(x, Constant)
    return node.call(op.annotation.stop_gradient, x) if flows else x


@converts("copy", "fill")
def copy(node: Node, x: Expr, value: Any, *_options: Any) -> Expr:
    """Broadcast ``value`` to the shape of ``x``, in its dtype."""
    return node.broadcast(node.tensor(value, dtype_in(x)), shape_in(x))


@converts("native_dropout", "dropout", "alpha_dropout", "feature_dropout")
def dropout(node: Node, x: Expr, rate: float, train: bool | None) -> Expr | tuple[Expr, ...]:
    """The identity at inference; in training elements dropped by a key (not by torch's generator).

    ``native_dropout`` also returns the mask.
    """
    is_plain = node.op.startswith("aten.dropout")
    if train or (train is None and not is_plain):
        if "alpha" in node.op or "feature" in node.op:
            raise node.unsupported("training mode",
                                   help="export the model in eval mode: model.eval()")
        dropped = node.call(op.random.dropout, node.random_key(), x, rate=float(rate))
        return node.field(dropped, 1) if is_plain else (node.field(dropped, 1),
                                                        node.field(dropped, 2))
    if not node.op.startswith("aten.native_dropout"):
        return x
    somewhere = node.call(op.logical_or, node.cast(x, "bool"), node.constant(True, "bool"))
    return x, somewhere


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
