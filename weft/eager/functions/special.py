"""Mathematical functions beside the elementary ones, mostly elementwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from weft.eager.cell import Cell
from weft.eager.dtypes import as_dtype, bool_, get_default_dtype, int32
from weft.eager.functions.elementwise import (
    abs,
    add,
    binary,
    cast,
    clamp,
    div,
    eq,
    floor,
    gt,
    isfinite,
    isnan,
    log,
    log1p,
    lt,
    mul,
    ne,
    operands,
    sub,
    trunc,
    where,
)
from weft.eager.record import as_node, record, wrap
from weft.eager.signature import pair, public, row
from weft.support.errors import InvalidInputError

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def _of_floats(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """``function`` of an operand whose integers become floats."""

    def apply(input: Any) -> Any:
        node = as_node(input)
        return function(wrap(node if node.sig.out.dtype.rank > 1
                             else cast(node, get_default_dtype())))

    return apply


def wide(name: str, input: Any, **attrs: Any) -> Any:
    """A special function; half precision is computed in float32."""
    node = as_node(input)
    d = node.sig.out.dtype
    if d.rank < 2:
        node = cast(node, get_default_dtype())
    elif d.itemsize == 2:
        return wrap(record(name, (cast(node, as_dtype("float32")),), attrs)).to(d)
    return wrap(record(name, (node,), attrs))


def _pair_of_floats(function: Callable[[Any, Any], Any], a: Any, b: Any) -> Any:
    """``function`` of two operands in their common float dtype."""
    x, y = [wrap(n) for n in operands(a, b, to_float=True)]
    return function(x, y)


def _sinc(x: Any) -> Any:
    angle = mul(where(eq(x, 0), 1.0, x), math.pi)
    # The slope at 0 is 0: x itself stays out of the branch that is not taken.
    return where(eq(x, 0), 1.0, div(angle.sin(), angle))


def _frac(x: Any) -> Any:
    return sub(x, trunc(x))


def _logaddexp2(x: Any, y: Any) -> Any:
    gap = where(eq(x, y), 0.0, sub(x, y))
    tail = div(log1p(binary("power", 2.0, mul(abs(gap), -1.0))), math.log(2))
    return add(binary("maximum", x, y), tail)


def _signbit(input: Any) -> Any:
    node = as_node(input)
    d = node.sig.out.dtype
    if not d.is_floating_point:
        if not d.is_signed:
            return wrap(record("zeros", (), {"shape": node.sig.out.shape, "dtype": bool_.ir}))
        return lt(wrap(node), 0)
    bits = as_dtype(f"int{8 * d.itemsize}")
    return lt(wrap(record("reinterpret", (node,), {"dtype": bits.ir})), 0)


def _copysign(x: Any, y: Any) -> Any:
    size = abs(x)
    flipped = where(_signbit(y), mul(size, -1.0), size)
    # The gradient by x at 0 is 0, as in torch.
    return where(eq(x, 0), flipped.detach(), flipped)


def _heaviside(input: Any, values: Any) -> Any:
    x, y = [wrap(n) for n in operands(input, values)]
    above = wrap(cast(as_node(gt(x, 0)), x.dtype))
    if x.dtype.is_floating_point:
        above = where(isnan(x), 0.0, above)
    return where(eq(x, 0), y, above)


def _xlogy(x: Any, y: Any) -> Any:
    inside = where(eq(x, 0), 1.0, y)
    found = where(eq(x, 0), 0.0, mul(x, log(inside)))
    return where(isnan(y), y, found)


def _xlog1py(x: Any, y: Any) -> Any:
    found = where(eq(x, 0), 0.0, mul(x, log1p(where(eq(x, 0), 0.0, y))))
    return where(isnan(y), y, found)


def _extreme(name: str, a: Any, b: Any) -> Any:
    """The larger or smaller operand; the other one where one is NaN."""
    x, y = [wrap(n) for n in operands(a, b)]
    found = binary(name, x, y)
    if not x.dtype.is_floating_point:
        return found
    # Where one is NaN, the other counts; of equals, the first has the gradient.
    first = eq(found, x) | isnan(y)
    return where(first, x, y)


def _lcm(a: Any, b: Any) -> Any:
    x, y = [wrap(n) for n in operands(a, b)]
    common = _gcd(x, y)
    safe = where(eq(common, 0), 1, common)
    return abs(mul(binary("trunc_divide", x, safe), y))


def _gcd(a: Any, b: Any) -> Any:
    x, y = operands(a, b)
    return abs(wrap(record("gcd", (x, y), {})))


def _ldexp(input: Any, other: Any) -> Any:
    power = binary("power", 2.0, other, to_float=True) if isinstance(other, Cell) else 2.0 ** other
    return mul(input, power)


def _nextafter(a: Any, b: Any) -> Any:
    """The next float of ``a`` towards ``b``: its bits plus or minus one, as of an integer."""
    x, y = [wrap(n) for n in operands(a, b)]
    x = x.expand(np.broadcast_shapes(tuple(x.shape), tuple(y.shape)))
    bits_of = as_dtype(f"int{8 * x.dtype.itemsize}")
    bits = wrap(record("reinterpret", (as_node(x),), {"dtype": bits_of.ir}))
    away = eq(gt(y, x), gt(x, 0))  # the magnitude grows
    moved = wrap(record("reinterpret", (as_node(add(bits, where(away, 1, -1).to(bits_of))),),
                        {"dtype": x.dtype.ir}))
    smallest = float(ml_dtypes.finfo(x.dtype.dtype).smallest_subnormal)
    moved = where(eq(x, 0), where(gt(y, 0), smallest, -smallest), moved)
    moved = where(eq(x, y), y, moved)
    moved = where(isnan(x) | isnan(y), math.nan, moved).detach()
    # The step is a constant of the gradient, and equal operands have none.
    # Subtracting 0 keeps the sign of -0.
    return sub(moved, where(ne(x, y) & isfinite(x), sub(x.detach(), x), 0.0))


def _is_end(input: Any, sign_: float) -> Any:
    return eq(as_tensor_of(input), sign_ * math.inf)


def as_tensor_of(value: Any) -> Any:
    """An operand as a tensor; a tensor is itself."""
    return value if isinstance(value, Cell) else wrap(as_node(value))


lgamma = row("lgamma", "The logarithm of the absolute value of the gamma function.", wide,
             "special.lgamma")
digamma = row("digamma", "The derivative of the logarithm of the gamma function.", wide,
              "special.digamma")
erfinv = row("erfinv", "The inverse of the error function.", wide, "special.erfinv")
erfc = row("erfc", "``1 - erf(input)``, accurate where it is small.", wide, "special.erfc")
i0 = row("i0", "The modified Bessel function of order 0.", wide, "special.modified_bessel_i0")
sinc = row("sinc", "``sin(pi x) / (pi x)``, 1 at 0.", _of_floats(_sinc))
frac = row("frac", "The part after the decimal point, with the sign of the input.", _frac)
deg2rad = row("deg2rad", "Degrees as radians.", _of_floats(lambda x: mul(x, math.pi / 180)))
rad2deg = row("rad2deg", "Radians as degrees.", _of_floats(lambda x: mul(x, 180 / math.pi)))
signbit = row("signbit", "Whether the sign is set, that of -0 too.", _signbit)
isposinf = row("isposinf", "Whether elements are infinity.", _is_end, 1.0)
isneginf = row("isneginf", "Whether elements are minus infinity.", _is_end, -1.0)

logaddexp2 = pair("logaddexp2", "``log2(2**input + 2**other)``, without overflow.",
                  _pair_of_floats, _logaddexp2)
copysign = pair("copysign", "The magnitude of ``input`` with the sign of ``other``.",
                _pair_of_floats, _copysign)
xlogy = pair("xlogy", "``input * log(other)``, 0 where ``input`` is.", _pair_of_floats, _xlogy)
xlog1py = pair("xlog1py", "``input * log1p(other)``, 0 where ``input`` is.", _pair_of_floats,
               _xlog1py)
fmax = pair("fmax", "The larger of two elements; the other one where one is NaN.", _extreme,
            "maximum")
fmin = pair("fmin", "The smaller of two elements; the other one where one is NaN.", _extreme,
            "minimum")
gcd = pair("gcd", "The greatest common divisor.", _gcd)
lcm = pair("lcm", "The least common multiple.", _lcm)
ldexp = pair("ldexp", "``input * 2**other``.", _ldexp)
nextafter = pair("nextafter", "The next float of ``input`` towards ``other``.", _nextafter)


@public
def heaviside(input: Any, values: Any) -> Tensor:
    """0 below 0, 1 above, and ``values`` at 0."""
    return _heaviside(input, values)


@public
def logit(input: Any, eps: float | None = None) -> Tensor:
    """``log(input / (1 - input))``; ``eps`` limits the input to ``[eps, 1 - eps]``."""
    x = _of_floats(lambda v: v)(input)
    if eps is not None:
        x = clamp(x, eps, 1 - eps)
    return log(div(x, sub(1.0, x)))


@public
def polygamma(n: int, input: Any) -> Tensor:
    """The derivative of order ``n`` of ``digamma``."""
    if isinstance(n, Cell):
        n, input = input, n
    if n < 0:
        raise InvalidInputError("polygamma of a negative order", got=str(n))
    return wide("special.digamma", input) if n == 0 else wide("special.polygamma", input, order=n)


@public
def mvlgamma(input: Any, p: int) -> Tensor:
    """The logarithm of the gamma function of ``p`` dimensions."""
    x = _of_floats(lambda v: v)(input)
    total: Any = p * (p - 1) / 4 * math.log(math.pi)
    for i in range(p):
        total = add(total, lgamma(sub(x, i / 2)))
    return total


@public
def igamma(input: Any, other: Any) -> Tensor:
    """The regularised lower incomplete gamma function of ``input`` at ``other``."""
    return _incomplete_gamma(input, other, upper=False)


@public
def igammac(input: Any, other: Any) -> Tensor:
    """The regularised upper incomplete gamma function of ``input`` at ``other``."""
    return _incomplete_gamma(input, other, upper=True)


def _incomplete_gamma(a: Any, x: Any, *, upper: bool) -> Any:
    first, second = [wrap(n) for n in operands(a, x, to_float=True)]
    shape = np.broadcast_shapes(tuple(first.shape), tuple(second.shape))
    flat = tuple([as_node(v.expand(shape).reshape(-1)) for v in (first, second)])
    return wrap(record("special.incomplete_gamma", flat, {"upper": upper})).reshape(shape)


@public
def frexp(input: Any) -> tuple[Tensor, Tensor]:
    """Mantissas from 0.5 to 1, and exponents: ``input = mantissa * 2**exponent``."""
    x = wrap(as_node(input))
    size = abs(x.detach())
    power = where(eq(size, 0), 0.0, floor(size.log2()) + 1)
    for _ in range(2):  # a logarithm may round to the next whole number
        scaled = mul(size, binary("power", 2.0, mul(power, -1.0)))
        power = add(power, where(scaled >= 1, 1.0, 0.0))
        power = sub(power, where((scaled < 0.5) & ne(size, 0), 1.0, 0.0))
    usual = isfinite(size)
    power = where(usual, power, 0.0)
    return mul(x, binary("power", 2.0, mul(power, -1.0))), power.to(int32)
