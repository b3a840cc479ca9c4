"""Elementwise functions of tensors: arithmetic, comparison, mathematics."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import ml_dtypes

from weft.eager.cell import Cell, node_of
from weft.eager.checks import known, no_zero
from weft.eager.dtypes import as_dtype, bool_, dtype, get_default_dtype, uint8
from weft.eager.emitter import TENSORS
from weft.eager.node import Node, Signature, call_signature, number_node
from weft.eager.promotion import result_type
from weft.eager.record import as_node, made, record, wrap
from weft.op.composites import pairs
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor

_NUMBERS = (float, int, bool)


def cast(node: Node, d: dtype) -> Node:
    """The node converted to a dtype; itself if it has it."""
    if node.sig.out.dtype is d:
        return node
    if node.sig.kind == "number":
        return number_node(node.value, d)
    attrs = {"dtype": d.ir}
    return record("cast", (node,), attrs)


def operands(*values: Any, to_float: bool = False) -> tuple[Node, ...]:
    """The nodes of operands in their common dtype, by torch's promotion.

    ``to_float`` makes the common dtype of integers and booleans the default dtype.
    """
    nodes = [None if type(v) in _NUMBERS else as_node(v) for v in values]
    tensors = [(n.sig.out.dtype, len(n.sig.out.shape)) for n in nodes if n is not None]
    numbers = [v for v, n in zip(values, nodes, strict=True) if n is None]
    if not numbers and len(set(tensors)) == 1:
        common = tensors[0][0]
    else:
        common = result_type(tensors, numbers)
    if to_float and not common.is_floating_point:
        common = get_default_dtype()
    return tuple([number_node(v, common) if n is None else cast(n, common)
                  for v, n in zip(values, nodes, strict=True)])


_FAST: dict[Any, Signature] = {}


def binary(name: str, a: Any, b: Any, *, to_float: bool = False) -> Tensor:
    """An elementwise operator of two tensors or numbers, which broadcast."""
    if isinstance(a, Cell) and isinstance(b, Cell):
        x, y = node_of(a), node_of(b)
        if x.sig.out.dtype is y.sig.out.dtype and not (to_float and x.sig.out.dtype.rank != 2):
            nodes = (x, y)
        else:
            nodes = operands(a, b, to_float=to_float)
    elif type(b) is float and isinstance(a, Cell):
        x = node_of(a)
        d = x.sig.out.dtype
        nodes = (x, number_node(b, d)) if d.rank == 2 else operands(a, b, to_float=to_float)
    else:
        nodes = operands(a, b, to_float=to_float)
    sig = _FAST.get((name, nodes[0].sig.out, nodes[1].sig.out))
    if sig is None:
        if nodes[0].sig.out.dtype is bool_:
            return _of_booleans(name, nodes)
        sig = call_signature(name, {}, None, nodes)
        _FAST[name, nodes[0].sig.out, nodes[1].sig.out] = sig
    return wrap(made(sig, nodes))


# What arithmetic means for booleans in torch, which refuses the other operators.
_BOOLEAN = {"add": "logical_or", "multiply": "logical_and", "maximum": "logical_or",
            "minimum": "logical_and"}
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal")


def _of_booleans(name: str, nodes: tuple[Node, ...]) -> Tensor:
    if name in _COMPARISONS:
        nodes = tuple([cast(n, uint8) for n in nodes])
    return wrap(record(_BOOLEAN.get(name, name), nodes, {}))


def unary(name: str, x: Any) -> Tensor:
    """An elementwise operator; integers become floats."""
    node = as_node(x)
    if node.sig.out.dtype.rank != 2:
        node = cast(node, get_default_dtype())
    return wrap(record(name, (node,), {}))


def _whole(name: str, x: Any) -> Tensor:
    """An elementwise operator that keeps integers."""
    return wrap(record(name, (as_node(x),), {}))


def is_one(factor: Any) -> bool:
    """Whether a factor is the number 1; a tensor is not looked at."""
    return type(factor) in _NUMBERS and factor == 1


def add(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input + alpha * other``."""
    return binary("add", input, other if is_one(alpha) else mul(other, alpha))


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``input - alpha * other``."""
    return binary("subtract", input, other if is_one(alpha) else mul(other, alpha))


def mul(input: Any, other: Any) -> Tensor:
    """``input * other``."""
    return binary("multiply", input, other)


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``; ``rounding_mode`` is None, ``"trunc"`` or ``"floor"``."""
    if rounding_mode == "floor":
        return floor_divide(input, other)
    if rounding_mode == "trunc":
        return _quotient("trunc_divide", input, other)
    return binary("divide", input, other, to_float=True)


def floor_divide(input: Any, other: Any) -> Tensor:
    """The quotient, rounded down; ``ZeroDivisorError`` for integers divided by zero."""
    return _quotient("floor_divide", input, other)


def remainder(input: Any, other: Any) -> Tensor:
    """The remainder with the sign of the divisor (Python's ``%``)."""
    return _quotient("floor_mod", input, other)


def fmod(input: Any, other: Any) -> Tensor:
    """The remainder with the sign of the dividend (C's ``fmod``)."""
    return _quotient("trunc_mod", input, other)


def _quotient(name: str, input: Any, other: Any) -> Tensor:
    """A whole quotient or a remainder; integers divided by zero are a ``ZeroDivisorError``.

    The smallest integer divided by -1 is itself, as in NumPy.
    """
    result = binary(name, input, other)
    node = node_of(result)
    if node.sig.out.dtype.is_floating_point or 0 in node.sig.out.shape or len(node.args) != 2:
        return result
    divisor = node.args[1]
    value = known(divisor)
    if value is None:
        node.check = no_zero(divisor, name)
    elif not value.all():
        raise no_zero(divisor, name).error(node)
    return result


def pow(input: Any, exponent: Any) -> Tensor:
    """``input ** exponent``; a whole exponent of at most 4 becomes products."""
    if type(exponent) is int or (type(exponent) is float and exponent.is_integer()):
        made_ = _product(input, int(exponent)) if 1 <= exponent <= 4 else None
        if made_ is not None and (type(exponent) is int or made_.dtype.is_floating_point):
            return made_
    if type(exponent) is float and exponent == 0.5 and isinstance(input, Cell):
        return sqrt(input)
    return binary("power", input, exponent)


def _product(x: Any, times: int) -> Tensor | None:
    if not _is_tensor_of_numbers(x):
        return None
    return _whole("copy", x) if times == 1 else pairs.small_power(TENSORS, x, times)


def _is_tensor_of_numbers(x: Any) -> bool:
    return isinstance(x, Cell) and node_of(x).sig.out.dtype is not bool_


def maximum(input: Any, other: Any) -> Tensor:
    """The larger of two elements."""
    return binary("maximum", input, other)


def minimum(input: Any, other: Any) -> Tensor:
    """The smaller of two elements."""
    return binary("minimum", input, other)


def atan2(input: Any, other: Any) -> Tensor:
    """The angle of the point (other, input), from -pi to pi."""
    y, x = [wrap(n) for n in operands(input, other, to_float=True)]
    return pairs.atan2(TENSORS, y, x)


def eq(input: Any, other: Any) -> Tensor:
    """Whether elements are equal."""
    return binary("equal", input, other)


def ne(input: Any, other: Any) -> Tensor:
    """Whether elements differ."""
    return binary("not_equal", input, other)


def lt(input: Any, other: Any) -> Tensor:
    """``input < other``."""
    return binary("less", input, other)


def le(input: Any, other: Any) -> Tensor:
    """``input <= other``."""
    return binary("less_equal", input, other)


def gt(input: Any, other: Any) -> Tensor:
    """``input > other``."""
    return binary("greater", input, other)


def ge(input: Any, other: Any) -> Tensor:
    """``input >= other``."""
    return binary("greater_equal", input, other)


def where(condition: Any, input: Any, other: Any) -> Tensor:
    """``input`` where ``condition`` holds, else ``other``; all broadcast."""
    x, y = operands(input, other)
    return wrap(record("where", (cast(as_node(condition), bool_), x, y), {}))


def neg(input: Any) -> Tensor:
    """``-input``."""
    return _whole("negative", input)


def abs(input: Any) -> Tensor:
    """The absolute value."""
    return _whole("abs", input)


def sign(input: Any) -> Tensor:
    """-1, 0 or 1."""
    return _whole("sign", input)


def relu(input: Any) -> Tensor:
    """``max(input, 0)``."""
    return _whole("nn.relu", input)


def _rounded(name: str, x: Any) -> Tensor:
    node = as_node(x)
    return wrap(record(name if node.sig.out.dtype.is_floating_point else "copy", (node,), {}))


def floor(input: Any) -> Tensor:
    """The largest integer that is not larger."""
    return _rounded("floor", input)


def ceil(input: Any) -> Tensor:
    """The smallest integer that is not smaller."""
    return _rounded("ceil", input)


def round(input: Any) -> Tensor:
    """The nearest integer, ties to even."""
    return _rounded("round", input)


def trunc(input: Any) -> Tensor:
    """The integer part."""
    return _rounded("trunc", input)


def exp(input: Any) -> Tensor:
    """``e ** input``."""
    return unary("exp", input)


def exp2(input: Any) -> Tensor:
    """2 to the power ``input``."""
    return binary("power", 2.0, input)


def expm1(input: Any) -> Tensor:
    """``exp(input) - 1``."""
    return unary("expm1", input)


def log(input: Any) -> Tensor:
    """The natural logarithm."""
    return unary("log", input)


def log2(input: Any) -> Tensor:
    """The logarithm to base 2."""
    return unary("log2", input)


def log10(input: Any) -> Tensor:
    """The logarithm to base 10."""
    return unary("log10", input)


def log1p(input: Any) -> Tensor:
    """``log(1 + input)``."""
    return unary("log1p", input)


def sqrt(input: Any) -> Tensor:
    """The square root."""
    return unary("sqrt", input)


def rsqrt(input: Any) -> Tensor:
    """``1 / sqrt(input)``."""
    return unary("rsqrt", input)


def square(input: Any) -> Tensor:
    """``input * input``."""
    return mul(input, input)


def reciprocal(input: Any) -> Tensor:
    """``1 / input``."""
    return div(1.0, input)


def sin(input: Any) -> Tensor:
    """The sine."""
    return unary("sin", input)


def cos(input: Any) -> Tensor:
    """The cosine."""
    return unary("cos", input)


def tan(input: Any) -> Tensor:
    """The tangent."""
    return unary("tan", input)


def asin(input: Any) -> Tensor:
    """The inverse sine."""
    return unary("asin", input)


def acos(input: Any) -> Tensor:
    """The inverse cosine."""
    return unary("acos", input)


def atan(input: Any) -> Tensor:
    """The inverse tangent."""
    return unary("atan", input)


def sinh(input: Any) -> Tensor:
    """The hyperbolic sine."""
    return unary("sinh", input)


def cosh(input: Any) -> Tensor:
    """The hyperbolic cosine."""
    return unary("cosh", input)


def tanh(input: Any) -> Tensor:
    """The hyperbolic tangent."""
    return unary("tanh", input)


def sigmoid(input: Any) -> Tensor:
    """``1 / (1 + exp(-input))``."""
    return unary("sigmoid", input)


def erf(input: Any) -> Tensor:
    """The error function."""
    return unary("erf", input)


def isnan(input: Any) -> Tensor:
    """Whether elements are NaN."""
    return unary("isnan", input)


def isinf(input: Any) -> Tensor:
    """Whether elements are infinite."""
    return unary("isinf", input)


def isfinite(input: Any) -> Tensor:
    """Whether elements are neither infinite nor NaN."""
    return unary("isfinite", input)


def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """``input`` limited to the range from ``min`` to ``max``, numbers or tensors."""
    if min is None and max is None:
        raise InvalidInputError("clamp needs min or max")
    node = as_node(input)
    if node.sig.out.dtype.is_floating_point and all(
            v is None or type(v) in _NUMBERS for v in (min, max)):
        low = -math.inf if min is None else float(min)
        high = math.inf if max is None else float(max)
        return wrap(record("clip", (node,), {"a_min": low, "a_max": high}))
    # Elements at a bound get the whole gradient, where maximum and minimum share it.
    found = input if min is None else _bounded(input, min, ge)
    return found if max is None else _bounded(found, max, le)


def _bounded(input: Any, bound: Any, fits: Any) -> Tensor:
    """``input`` where it fits ``bound``, else ``bound``; not a number where either is none."""
    x, limit = [wrap(n) for n in operands(input, bound)]
    return where(fits(x, limit) | ne(x, x), x, limit)


clip = clamp
multiply, subtract, divide, true_divide, negative, absolute = mul, sub, div, div, neg, abs
equal_elements = eq
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
arcsin, arccos, arctan, arctan2 = asin, acos, atan, atan2


def lerp(input: Any, end: Any, weight: Any) -> Tensor:
    """``input + weight * (end - input)``."""
    return add(input, mul(weight, sub(end, input)))


def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    return add(input, mul(mul(tensor1, tensor2), value))


def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    return add(input, mul(div(tensor1, tensor2), value))


def nan_to_num(input: Any, nan: float = 0.0, posinf: float | None = None,
               neginf: float | None = None) -> Tensor:
    """NaN and infinities replaced, by default by 0 and the largest finite numbers."""
    node = as_node(input)
    if not node.sig.out.dtype.is_floating_point:
        return wrap(node)
    limit = float(_largest(node.sig.out.dtype))
    high = limit if posinf is None else posinf
    low = -limit if neginf is None else neginf
    x = where(isnan(input), nan, input)
    x = where(eq(x, math.inf), high, x)
    return where(eq(x, -math.inf), low, x)


def _largest(d: dtype) -> Any:
    return ml_dtypes.finfo(d.dtype).max


def to_dtype(input: Any, d: Any) -> Tensor:
    """``input`` converted to a dtype."""
    return wrap(cast(as_node(input), as_dtype(d)))

