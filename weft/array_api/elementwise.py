"""Functions of elements: tables of operators, and a few compositions.

Operands are promoted as the standard has it: numbers take the dtype of the arrays, and arrays
without axes count like others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.array_api.data_types import promoted
from weft.eager.emitter import call
from weft.eager.functions import complex as complex_numbers
from weft.eager.functions import elementwise, logic, special
from weft.eager.functions.creation import full_like, tensor
from weft.eager.tensor import Tensor

Unary = Callable[[Tensor], Tensor]
Binary = Callable[[Any, Any], Tensor]


def _unary(name: str, doc: str, compute: Unary | None = None) -> Unary:
    """A function of one array: an operator of its name, or ``compute``."""
    def function(x: Tensor, /) -> Tensor:
        return call(name, x) if compute is None else compute(x)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _of_floats(name: str, doc: str, otherwise: Unary, op: str | None = None) -> Unary:
    """A function of one array whose integers have an answer of their own."""
    return _unary(name, doc, lambda x: call(op or name, x) if x.dtype.rank > 1
                  else otherwise(x))


def _binary(name: str, doc: str, compute: Binary | None = None, op: str | None = None) -> Binary:
    """A function of two arrays, of which one may be a number, in their common dtype."""
    def function(x1: Any, x2: Any, /) -> Tensor:
        a, b = promoted(x1, x2)
        return call(op or name, a, b) if compute is None else compute(a, b)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


def _false(x: Tensor) -> Tensor:
    return full_like(x, False, dtype="bool")


def _copied(x: Tensor) -> Tensor:
    return x.clone()


def _sign(x: Tensor) -> Tensor:
    return call("where", x == 0, 0.0, call("where", x == x, call("sign", x), x))  # noqa: PLR0124 - NaN


def _round(x: Tensor) -> Tensor:
    """The nearest integer; of both parts of complex numbers."""
    if x.is_complex():
        return complex_numbers.complex(_round(x.real), _round(x.imag))
    return call("round", x) if x.is_floating_point() else x.clone()


acos = _unary("acos", "The angle whose cosine is x.")
acosh = _unary("acosh", "The inverse of cosh.")
asin = _unary("asin", "The angle whose sine is x.")
asinh = _unary("asinh", "The inverse of sinh.")
atan = _unary("atan", "The angle whose tangent is x.")
atanh = _unary("atanh", "The inverse of tanh.")
cos = _unary("cos", "The cosine.")
cosh = _unary("cosh", "The hyperbolic cosine.")
exp = _unary("exp", "e to the power of x.")
expm1 = _unary("expm1", "exp(x) - 1, exact near 0.")
log = _unary("log", "The natural logarithm.")
log10 = _unary("log10", "The logarithm of base 10.")
log1p = _unary("log1p", "log(1 + x), exact near 0.")
log2 = _unary("log2", "The logarithm of base 2.")
sin = _unary("sin", "The sine.")
sinh = _unary("sinh", "The hyperbolic sine.")
sqrt = _unary("sqrt", "The square root.")
tan = _unary("tan", "The tangent.")
tanh = _unary("tanh", "The hyperbolic tangent.")
abs = _unary("abs", "The magnitude.")
negative = _unary("negative", "-x")
logical_not = _unary("logical_not", "Whether x is false.")
positive = _unary("positive", "x", _copied)
conj = _unary("conj", "The conjugate; of real numbers x.", complex_numbers.conj_physical)
real = _unary("real", "The real part.", lambda x: complex_numbers.real(x).clone())
imag = _unary("imag", "The imaginary part; 0 of real numbers.",
              lambda x: complex_numbers.imag(x).clone() if x.is_complex() else full_like(x, 0))
square = _unary("square", "x times x.", lambda x: x * x)
reciprocal = _unary("reciprocal", "1 / x", lambda x: 1 / x)
bitwise_invert = _unary("bitwise_invert", "All bits the other way.", logic.bitwise_not)
sign = _unary("sign", "-1, 0 or 1; NaN of NaN; x / abs(x) of complex numbers.",
              lambda x: _sign(x) if x.is_floating_point() else complex_numbers.sgn(x))
ceil = _of_floats("ceil", "The integer above.", _copied)
floor = _of_floats("floor", "The integer below.", _copied)
trunc = _of_floats("trunc", "The integer towards 0.", _copied)
round = _unary("round", "The nearest integer, the even one of two.", _round)
isfinite = _of_floats("isfinite", "Whether x is no infinity and no NaN.", lambda x: ~_false(x))
isinf = _of_floats("isinf", "Whether x is an infinity.", _false)
isnan = _of_floats("isnan", "Whether x is NaN.", _false)

add = _binary("add", "x1 + x2")
subtract = _binary("subtract", "x1 - x2")
multiply = _binary("multiply", "x1 * x2")
divide = _binary("divide", "x1 / x2")
floor_divide = _binary("floor_divide", "The integer below x1 / x2.")
remainder = _binary("remainder", "x1 - x2 * floor(x1 / x2), with the sign of x2.",
                    elementwise.remainder)
equal = _binary("equal", "Whether x1 = x2.")
not_equal = _binary("not_equal", "Whether x1 and x2 differ.")
less = _binary("less", "Whether x1 < x2.")
less_equal = _binary("less_equal", "Whether x1 <= x2.")
greater = _binary("greater", "Whether x1 > x2.")
greater_equal = _binary("greater_equal", "Whether x1 >= x2.")
logical_and = _binary("logical_and", "Whether both are true.")
logical_or = _binary("logical_or", "Whether one is true.")
logical_xor = _binary("logical_xor", "Whether exactly one is true.")
bitwise_and = _binary("bitwise_and", "The bits that both have.", logic.bitwise_and)
bitwise_or = _binary("bitwise_or", "The bits that one has.", logic.bitwise_or)
bitwise_xor = _binary("bitwise_xor", "The bits that exactly one has.", logic.bitwise_xor)
bitwise_left_shift = _binary("bitwise_left_shift", "x1 * 2**x2, as bits.", op="left_shift")
bitwise_right_shift = _binary("bitwise_right_shift", "floor(x1 / 2**x2), as bits.",
                              op="right_shift")
maximum = _binary("maximum", "The larger one; NaN if one is NaN.")
minimum = _binary("minimum", "The smaller one; NaN if one is NaN.")
atan2 = _binary("atan2", "The angle of the point (x2, x1).", elementwise.atan2)


def _pow(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype.rank > 1:
        return call("power", a, b)
    found = full_like(a, 1)  # the product of the squares whose bits the exponent has
    for bit in range(a.dtype.ir.bits - a.dtype.is_signed):
        found = call("where", (b >> bit) % 2 == 1, found * a, found)
        a = a * a
    return found


signbit = _unary("signbit", "Whether x has a minus sign, -0 and -NaN included.", special.signbit)
copysign = _binary("copysign", "The magnitude of x1 with the sign of x2.", special.copysign)
hypot = _binary("hypot", "sqrt(x1**2 + x2**2), without overflow between.", elementwise.hypot)
logaddexp = _binary("logaddexp", "log(exp(x1) + exp(x2)), without overflow between.",
                    elementwise.logaddexp)
nextafter = _binary("nextafter", "The next number from x1 towards x2.", special.nextafter)
pow = _binary("pow", "x1 to the power of x2, which is not negative for integers.", _pow)


def clip(x: Tensor, /, min: Any = None, max: Any = None) -> Tensor:
    """The elements within bounds, in the dtype of ``x``."""
    for op, bound in (("maximum", min), ("minimum", max)):
        if bound is not None:
            limit = bound.to(x.dtype) if isinstance(bound, Tensor) else tensor(bound, x.dtype)
            x = call(op, x, limit)
    return x.clone() if min is None and max is None else x
