"""Elementwise functions of tensors: arithmetic, comparison, mathematics."""

from __future__ import annotations

import builtins
import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes

from weft.eager.cell import MODE, Cell, node_of
from weft.eager.checks import known, no_zero
from weft.eager.dtypes import as_dtype, bool_, dtype, float64, get_default_dtype, int64, uint8
from weft.eager.emitter import TENSORS
from weft.eager.node import Node, Signature, number_node, scalar_node
from weft.eager.promotion import result_type_of, wrapped
from weft.eager.record import as_node, record, recorded, wrap
from weft.eager.signature import checked, pair, public, row
from weft.op.composites import pairs
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor

_NUMBERS = (float, int, bool, complex)


def cast(node: Node, d: dtype) -> Node:
    """The node converted to a dtype; itself if it has it."""
    if node.sig.out.dtype is d:
        return node
    if node.sig.kind == "number":
        return scalar_node(node.value, d, node.sig.out.device)
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
        common = result_type_of(tensors, numbers)
    if to_float and common.rank < 2:
        common = get_default_dtype()
    return tuple([scalar_node(wrapped(v, common), common) if n is None else cast(n, common)
                  for v, n in zip(values, nodes, strict=True)])


_FAST: dict[Any, Signature] = {}


def binary(name: str, a: Any, b: Any, *, to_float: bool = False) -> Tensor:
    """An elementwise operator of two tensors or numbers, which broadcast."""
    if isinstance(a, Cell) and isinstance(b, Cell):
        x, y = a._node, b._node  # noqa: SLF001 - cells are of this package
        if a._view is not None or b._view is not None or MODE.trace is not None \
                or x.__class__ is not Node or y.__class__ is not Node:  # noqa: SLF001
            x, y = node_of(a), node_of(b)
        sig = _FAST.get((name, x.sig.out, y.sig.out))
        if sig is not None:
            return recorded(sig, (x, y))
        if x.sig.out.dtype is y.sig.out.dtype and not (to_float and x.sig.out.dtype.rank < 2):
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
        node = record(name, nodes, {})
        if nodes[0].sig.out.dtype.is_complex:  # calls of the parts
            return wrap(node)
        _FAST[name, node.sig.args[0], node.sig.args[1]] = node.sig
        return wrap(node)
    return recorded(sig, nodes)


# What arithmetic means for booleans in torch, which refuses the other operators.
_BOOLEAN = {"add": "logical_or", "multiply": "logical_and", "maximum": "logical_or",
            "minimum": "logical_and", "equal": "equal", "not_equal": "not_equal"}
_COMPARISONS = ("less", "less_equal", "greater", "greater_equal")


def _of_booleans(name: str, nodes: tuple[Node, ...]) -> Tensor:
    if name in _COMPARISONS:
        return wrap(record(name, tuple([cast(n, uint8) for n in nodes]), {}))
    if name not in _BOOLEAN:
        raise InvalidInputError(f"{name} of booleans", got="bool",
                                expected="a number beside it, or integers",
                                help="use the logical functions, or convert with .to(weft.int64)")
    return wrap(record(_BOOLEAN[name], nodes, {}))


def unary(name: str, x: Any) -> Tensor:
    """An elementwise operator; integers become floats."""
    node = node_of(x) if isinstance(x, Cell) else as_node(x)
    if node.sig.out.dtype.rank < 2:
        node = cast(node, get_default_dtype())
    return _alone(name, node)


def _alone(name: str, node: Node) -> Tensor:
    """An operator without attributes of one operand, in its dtype; ``recorded`` says who calls."""
    sig = _FAST.get((name, node.sig.out))
    if sig is not None:
        return recorded(sig, (node,), 4)
    made = record(name, (node,), {})
    if not node.sig.out.dtype.is_complex:
        _FAST[name, node.sig.out] = made.sig
    return wrap(made)


def _whole(name: str, x: Any) -> Tensor:
    """An elementwise operator that keeps integers."""
    return _alone(name, as_node(x))


def _signed(name: str, x: Any) -> Tensor:
    """An elementwise operator that changes neither booleans nor unsigned integers."""
    node = as_node(x)
    return _alone(name if node.sig.out.dtype is not bool_ else "copy", node)


def _rounded(name: str, x: Any) -> Tensor:
    """An elementwise operator that leaves integers as they are."""
    node = as_node(x)
    return _alone(name if node.sig.out.dtype.rank > 1 else "copy", node)


def _negated(x: Any) -> Tensor:
    node = as_node(x)
    if node.sig.out.dtype is bool_:
        raise InvalidInputError("negation of booleans", help="use ~x or logical_not")
    return _alone("negative", node)


def _positive(x: Any) -> Any:
    if as_node(x).sig.out.dtype is bool_:
        raise InvalidInputError("positive of booleans", help="convert with .to(weft.int64)")
    return x


def _float_pair(name: str, a: Any, b: Any) -> Tensor:
    """``binary`` of operands that become floats."""
    return binary(name, a, b, to_float=True)


def composite(function: Callable[..., Any], *operands_: Any) -> Tensor:
    """A composite of operands in their common float dtype."""
    return function(TENSORS, *[wrap(n) for n in operands(*operands_, to_float=True)])


def is_one(factor: Any) -> bool:
    """Whether a factor is the number 1; a tensor is not looked at."""
    return type(factor) in _NUMBERS and factor == 1


def _sum_of(op: str, input: Any, other: Any, alpha: Any = 1) -> Tensor:
    return binary(op, input, other if is_one(alpha) else _scaled(input, other, alpha))


add = pair("add", "``input + alpha * other``.", _sum_of, "add", alpha=1)
sub = pair("sub", "``input - alpha * other``.", _sum_of, "subtract", alpha=1)


@public
def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Tensor:
    """``other - alpha * input``."""
    return sub(other, input, alpha=alpha)


def _scaled(input: Any, other: Any, alpha: Any) -> Any:
    result = operands(input, other)[0].sig.out.dtype
    if type(alpha) is float and result.rank < 2:
        raise InvalidInputError("alpha is a float for tensors of integers", got=repr(alpha))
    return mul(wrap(cast(as_node(other, result), result)), alpha)


@public
def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Tensor:
    """``input / other``; ``rounding_mode`` is None, ``"trunc"`` or ``"floor"``."""
    if rounding_mode is None:
        return binary("divide", input, other, to_float=True)
    if rounding_mode not in {"floor", "trunc"}:
        raise InvalidInputError("unknown rounding_mode of div", got=repr(rounding_mode),
                                expected='None, "trunc" or "floor"')
    return _quotient(f"{rounding_mode}_divide", input, other)


def _quotient(name: str, input: Any, other: Any) -> Tensor:
    """A whole quotient or a remainder; integers divided by zero are a ``ZeroDivisorError``.

    The smallest integer divided by -1 is itself, as in NumPy.
    """
    result = binary(name, input, other)
    node = node_of(result)
    if node.sig.out.dtype.rank > 1 or 0 in node.sig.out.shape or len(node.args) != 2:
        return result
    divisor = node.args[1]
    value = known(divisor)
    if value is None:
        node.check = no_zero(divisor, name)
    elif not value.all():
        raise no_zero(divisor, name).error(node)
    return result


@public
def pow(input: Any, exponent: Any) -> Tensor:
    """``input ** exponent``; a whole exponent of at most 4 becomes products."""
    if type(exponent) is int or (type(exponent) is float and exponent.is_integer()):
        made_ = _product(input, int(exponent)) if 1 <= exponent <= 4 else None
        if made_ is not None and (type(exponent) is int or made_.dtype.rank > 1):
            return made_
    if type(exponent) is float and exponent == 0.5 and isinstance(input, Cell):
        return sqrt(input)
    x, y = operands(input, exponent)
    if x.sig.out.dtype.rank > 1:
        return wrap(record("power", (x, y), {}))
    return _whole_power(wrap(x), wrap(y), exponent)


def _product(input: Any, times: int) -> Tensor | None:
    if not isinstance(input, Cell):
        return None
    x: Any = input
    if node_of(x).sig.out.dtype is bool_:
        x = wrap(cast(node_of(x), int64))
    return _whole("copy", x) if times == 1 else pairs.small_power(TENSORS, x, times)


def _whole_power(x: Tensor, y: Tensor, exponent: Any) -> Tensor:
    """A power of integers, by squaring; a negative exponent leaves 1 and -1 alone."""
    d = x.dtype
    if d is bool_:
        raise InvalidInputError("pow of booleans", help="convert with .to(weft.int64)")
    if type(exponent) in _NUMBERS and exponent < 0:
        raise InvalidInputError("an integer to a negative power", got=repr(exponent),
                                help="convert the tensor to a float dtype")
    found: Any = ones_like_of(x, y)
    bits = int(exponent).bit_length() if type(exponent) in _NUMBERS else _EXPONENT_BITS
    base = x
    for bit in range(min(bits, 8 * d.itemsize - 1)):
        odd = ne(binary("bitwise_and", y, 1 << bit), 0)
        found = where(odd, mul(found, base), found)
        base = mul(base, base)
    if type(exponent) in _NUMBERS or not d.is_signed:
        return found
    parity = where(ne(binary("bitwise_and", y, 1), 0), x, 1)
    ends = where(eq(x, 1), 1, where(eq(x, -1), parity, 0))
    return where(lt(y, 0), ends.to(d), found)


# Exponents of integer tensors count to 2**16 - 1; the powers wrap around long before.
_EXPONENT_BITS = 16


def ones_like_of(*tensors: Any) -> Tensor:
    """Ones in the common shape and dtype of tensors."""
    zero = functools.reduce(lambda a, b: binary("multiply", a, b),
                            [binary("multiply", t, 0) for t in tensors])
    return binary("add", zero, 1)


@public
def float_power(input: Any, exponent: Any) -> Tensor:
    """``input ** exponent`` in float64; of complex numbers, in complex128."""
    nodes = operands(input, exponent)
    wide = float64.to_complex() if nodes[0].sig.out.dtype.is_complex else float64
    base, power = [wrap(cast(as_node(v), wide)) if isinstance(v, Cell) else v
                   if isinstance(v, complex) else float(v) for v in (input, exponent)]
    return pow(base, power)


mul = pair("mul", "``input * other``.", binary, "multiply")
floor_divide = pair("floor_divide", "The quotient, rounded down; ``ZeroDivisorError`` for integers "
                    "divided by zero.", _quotient, "floor_divide")
remainder = pair("remainder", "The remainder with the sign of the divisor (Python's ``%``).",
                 _quotient, "floor_mod")
fmod = pair("fmod", "The remainder with the sign of the dividend (C's ``fmod``).", _quotient,
            "trunc_mod")
maximum = pair("maximum", "The larger of two elements; NaN if one is.", binary, "maximum")
minimum = pair("minimum", "The smaller of two elements; NaN if one is.", binary, "minimum")
eq = pair("eq", "Whether elements are equal.", binary, "equal")
ne = pair("ne", "Whether elements differ.", binary, "not_equal")
lt = pair("lt", "``input < other``.", binary, "less")
le = pair("le", "``input <= other``.", binary, "less_equal")
gt = pair("gt", "``input > other``.", binary, "greater")
ge = pair("ge", "``input >= other``.", binary, "greater_equal")
atan2 = pair("atan2", "The angle of the point (other, input), from -pi to pi.", composite,
             pairs.atan2)
hypot = pair("hypot", "The root of ``input**2 + other**2``, without overflow.", composite,
             pairs.hypot)
logaddexp = pair("logaddexp", "``log(exp(input) + exp(other))``, without overflow.", composite,
                 pairs.logaddexp)

neg = row("neg", "``-input``.", _negated)
abs = row("abs", "The absolute value.", _whole, "abs")
sign = row("sign", "-1, 0 or 1.", _signed, "sign")
relu = row("relu", "``max(input, 0)``.", _whole, "nn.relu")
positive = row("positive", "The tensor itself; booleans are refused.", _positive)
floor = row("floor", "The largest integer that is not larger.", _rounded, "floor")
ceil = row("ceil", "The smallest integer that is not smaller.", _rounded, "ceil")
trunc = row("trunc", "The integer part.", _rounded, "trunc")
exp = row("exp", "``e ** input``.", unary, "exp")
expm1 = row("expm1", "``exp(input) - 1``.", unary, "expm1")
log = row("log", "The natural logarithm.", unary, "log")
log2 = row("log2", "The logarithm to base 2.", unary, "log2")
log10 = row("log10", "The logarithm to base 10.", unary, "log10")
log1p = row("log1p", "``log(1 + input)``.", unary, "log1p")
sqrt = row("sqrt", "The square root.", unary, "sqrt")
rsqrt = row("rsqrt", "``1 / sqrt(input)``.", unary, "rsqrt")
sin = row("sin", "The sine.", unary, "sin")
cos = row("cos", "The cosine.", unary, "cos")
tan = row("tan", "The tangent.", unary, "tan")
asin = row("asin", "The inverse sine.", unary, "asin")
acos = row("acos", "The inverse cosine.", unary, "acos")
atan = row("atan", "The inverse tangent.", unary, "atan")
sinh = row("sinh", "The hyperbolic sine.", unary, "sinh")
cosh = row("cosh", "The hyperbolic cosine.", unary, "cosh")
tanh = row("tanh", "The hyperbolic tangent.", unary, "tanh")
asinh = row("asinh", "The inverse hyperbolic sine.", unary, "asinh")
acosh = row("acosh", "The inverse hyperbolic cosine.", unary, "acosh")
atanh = row("atanh", "The inverse hyperbolic tangent.", unary, "atanh")
sigmoid = row("sigmoid", "``1 / (1 + exp(-input))``.", unary, "sigmoid")
erf = row("erf", "The error function.", unary, "erf")
isnan = row("isnan", "Whether elements are NaN.", unary, "isnan")
isinf = row("isinf", "Whether elements are infinite.", unary, "isinf")
isfinite = row("isfinite", "Whether elements are neither infinite nor NaN.", unary, "isfinite")
square = row("square", "``input * input``.", lambda x: pow(x, 2))
reciprocal = row("reciprocal", "``1 / input``.", lambda x: _float_pair("divide", 1.0, x))
exp2 = row("exp2", "2 to the power ``input``.", lambda x: _float_pair("power", 2.0, x))


@public
def round(input: Any, *, decimals: int = 0) -> Tensor:
    """The nearest number with so many decimals, ties to even; fewer than 0 give tens."""
    if not decimals:
        return _rounded("round", input)
    if not as_node(input).sig.out.dtype.is_floating_point:
        raise InvalidInputError("round with decimals takes floating-point tensors")
    scale = 10.0 ** builtins.abs(decimals)
    if decimals > 0:
        return div(_rounded("round", mul(input, scale)), scale)
    return mul(_rounded("round", div(input, scale)), scale)


@public
def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """``input`` where ``condition`` holds, else ``other``; all broadcast.

    ``where(condition)`` alone gives the indices of what is not zero, one tensor per axis.
    """
    if input is None and other is None:
        return wrap(as_node(condition)).nonzero(as_tuple=True)
    x, y = operands(input, other)
    return wrap(record("where", (cast(as_node(condition), bool_), x, y), {}))


@public
def clamp(input: Any, min: Any = None, max: Any = None) -> Tensor:
    """``input`` limited to the range from ``min`` to ``max``, numbers or tensors."""
    if min is None and max is None:
        raise InvalidInputError("clamp needs min or max")
    node = as_node(input)
    if node.sig.out.dtype.is_floating_point and all(
            v is None or type(v) in _NUMBERS for v in (min, max)):
        low = -math.inf if min is None else float(min)
        high = math.inf if max is None else float(max)
        if not (math.isnan(low) or math.isnan(high)):
            return wrap(record("clip", (node,), {"a_min": low, "a_max": high}))
    # Elements at a bound get the whole gradient, where maximum and minimum share it.
    found = input if min is None else _bounded(input, min, ge)
    return found if max is None else _bounded(found, max, le)


def _bounded(input: Any, bound: Any, fits: Any) -> Tensor:
    """``input`` where it fits ``bound``, else ``bound``; not a number where either is none."""
    x, limit = [wrap(n) for n in operands(input, bound)]
    if x.dtype is bool_:
        return maximum(x, limit) if fits is ge else minimum(x, limit)
    return where(fits(x, limit) | ne(x, x), x, limit)


@public
def clamp_min(input: Any, min: Any) -> Tensor:
    """``input``, at least ``min``."""
    return clamp(input, min)


@public
def clamp_max(input: Any, max: Any) -> Tensor:
    """``input``, at most ``max``."""
    return clamp(input, None, max)


@public
def lerp(input: Any, end: Any, weight: Any) -> Tensor:
    """``input + weight * (end - input)``, from the nearer end as torch computes it."""
    if type(weight) in _NUMBERS:
        gap = sub(end, input)
        if builtins.abs(weight) < 0.5:
            return add(input, mul(gap, weight))
        return sub(end, mul(gap, 1 - weight))
    gap = sub(end, input)
    return where(lt(abs(weight), 0.5), add(input, mul(weight, gap)),
                 sub(end, mul(gap, sub(1, weight))))


@public
def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 * tensor2``."""
    product = mul(tensor1, tensor2)
    return add(input, product if is_one(value) else mul(product, value))


@public
def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Tensor:
    """``input + value * tensor1 / tensor2``."""
    ratio = div(tensor1, tensor2)
    return add(input, ratio if is_one(value) else mul(ratio, value))


@public
def nan_to_num(input: Any, nan: float | None = 0.0, posinf: float | None = None,
               neginf: float | None = None) -> Tensor:
    """NaN and infinities replaced, by default by 0 and the largest finite numbers."""
    node = as_node(input)
    if not node.sig.out.dtype.is_floating_point:
        return wrap(record("copy", (node,), {}))
    limit = float(ml_dtypes.finfo(node.sig.out.dtype.dtype).max)
    high = limit if posinf is None else posinf
    low = -limit if neginf is None else neginf
    x = where(isnan(input), nan or 0.0, input)
    x = where(eq(x, math.inf), high, x)
    return where(eq(x, -math.inf), low, x)


@checked
def clone(input: Any, *, memory_format: Any = None) -> Tensor:  # noqa: ARG001 - row-major
    """A tensor of the same value, through which gradients flow."""
    return _whole("copy", input)


@public
def fill(input: Any, value: Any) -> Tensor:
    """A tensor of the shape and dtype of ``input`` whose elements are all ``value``."""
    found: Any = clone(input)
    return found.fill_(value)  # type: ignore[no-any-return]


def to_dtype(input: Any, d: Any) -> Tensor:
    """``input`` converted to a dtype."""
    return wrap(cast(as_node(input), as_dtype(d)))


clip = clamp
multiply, subtract, divide, true_divide, negative, absolute = mul, sub, div, div, neg, abs
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
arcsin, arccos, arctan, arctan2, fix = asin, acos, atan, atan2, trunc
arcsinh, arccosh, arctanh = asinh, acosh, atanh
