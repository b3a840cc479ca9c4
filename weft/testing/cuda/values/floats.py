"""float32 and float64 instructions of PTX on NumPy arrays, exactly rounded.

Approximate instructions (``ex2.approx``, ``rcp.approx`` and so on) are computed in float64 and
rounded once, which is within the error that the PTX ISA documents for each of them.
"""

from __future__ import annotations

from fractions import Fraction
from typing import TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray

_TIE = np.uint64(1 << 28)
_LOW = np.uint64((1 << 29) - 1)
_SMALL = np.float32(2.0**-126)


def flush(value: Array) -> Array:
    """Subnormal float32 values become zeros of their sign (``.ftz``)."""
    return np.where(np.abs(value) < _SMALL, np.copysign(np.float32(0), value), value)


def saturate(value: Array) -> Array:
    """``.sat``: to [0, 1], NaN to 0."""
    one, zero = value.dtype.type(1), value.dtype.type(0)
    return np.where(value > zero, np.minimum(value, one), zero)


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """``a + b`` rounded, and its exact error (Knuth)."""
    s = a + b
    bb = s - a
    return s, (a - (s - bb)) + (b - bb)


def to_odd(rounded: Array, error: Array) -> Array:
    """The float64 sum ``rounded + error`` rounded to odd: rounding again is then exact.

    Source: Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms
    using rounding to odd", 2008.
    """
    bits = rounded.view(np.int64)
    even = ((bits & 1) == 0) & (error != 0) & np.isfinite(rounded)
    away = (error > 0) == (rounded > 0)
    moved = np.where(away, bits + 1, bits - 1)
    return np.where(even, moved, bits).view(np.float64)


def fma32(a: Array, b: Array, c: Array) -> Array:
    """``fma.rn.f32``: one rounding. The product is exact in float64, the sum there nearly so."""
    product = a.astype(np.float64) * b
    total = product + c
    bits = total.view(np.uint64)
    # Rounding to float64 first only matters if it lands halfway between two float32 numbers,
    # which for subnormal results are further apart.
    doubt = (bits & _LOW) == _TIE
    doubt |= (np.abs(total) < _SMALL) & (total != 0)
    if doubt.any():
        s, e = two_sum(product, np.broadcast_to(c.astype(np.float64), product.shape))
        total = np.where(doubt, to_odd(s, e), total)
    return total.astype(np.float32)


def fma64(a: Array, b: Array, c: Array) -> Array:
    """``fma.rn.f64`` by Boldo and Melquiond's algorithm; exact rationals for extreme exponents."""
    a, b, c = np.broadcast_arrays(a, b, c)
    product = a * b
    plain = product + c
    high, low = _two_product(a, b, product)
    th, tl = two_sum(c, low)
    vh, vl = two_sum(high, th)
    result = vh + to_odd(*two_sum(tl, vl))
    special = ~np.isfinite(plain) | (product == 0)
    result = np.where(special, plain, result)
    scale = np.maximum(np.maximum(np.abs(a), np.abs(b)), np.abs(c))
    extreme = (scale > 2.0**500) | ((np.abs(product) < 2.0**-900) & ~(product == 0))
    extreme |= (product == 0) & (a != 0) & (b != 0)
    extreme &= np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    if extreme.any():
        result = result.copy()
        for index in np.flatnonzero(extreme):
            result[index] = _exact_fma(float(a[index]), float(b[index]), float(c[index]))
    return result


def _two_product(a: Array, b: Array, product: Array) -> tuple[Array, Array]:
    """The error of a product by Dekker's and Veltkamp's splitting."""
    factor = np.float64(134217729.0)
    ta, tb = a * factor, b * factor
    ah, bh = ta - (ta - a), tb - (tb - b)
    al, bl = a - ah, b - bh
    return product, ((ah * bh - product) + ah * bl + al * bh) + al * bl


def _exact_fma(a: float, b: float, c: float) -> float:
    value = Fraction(a) * Fraction(b) + Fraction(c)
    if value == 0:
        return a * b + c
    try:
        return value.numerator / value.denominator
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def directed(rounded: Array, error: Array, mode: str) -> Array:
    """``rounded`` (float64, to nearest) with its exact error, rounded to float64 by ``mode``."""
    toward_zero = ((rounded > 0) & (error < 0)) | ((rounded < 0) & (error > 0))
    match mode:
        case "rz":
            return np.where(toward_zero, np.nextafter(rounded, 0.0), rounded)
        case "rm":
            return np.where(error < 0, np.nextafter(rounded, -np.inf), rounded)
        case "rp":
            return np.where(error > 0, np.nextafter(rounded, np.inf), rounded)
        case _:
            return rounded


def narrow(value: Array, mode: str) -> Array:
    """float64 to float32 by the rounding ``mode``: rn, rz, rm or rp."""
    result = value.astype(np.float32)
    if mode == "rn":
        return result
    back = result.astype(np.float64)
    return _stepped(result, back, mode, value)


def _stepped(result: Array, back: Array, mode: str, exact: Array) -> Array:
    finite = np.isfinite(exact)
    up, down = result.dtype.type(np.inf), result.dtype.type(-np.inf)
    low, high = np.nextafter(result, down), np.nextafter(result, up)
    above, below = (back > exact) & finite, (back < exact) & finite
    match mode:
        case "rz":
            return np.where(above & (exact > 0), low, np.where(below & (exact < 0), high, result))
        case "rm":
            return np.where(above, low, result)
        case _:  # rp
            return np.where(below, high, result)


def sum32(a: Array, b: Array, mode: str) -> Array:
    """``add.{rz,rm,rp}.f32``."""
    s, e = two_sum(a.astype(np.float64), b.astype(np.float64))
    return narrow(to_odd(s, e), mode)


def product32(a: Array, b: Array, mode: str) -> Array:
    """``mul.{rz,rm,rp}.f32``: exact in float64."""
    return narrow(a.astype(np.float64) * b, mode)


def fma32_directed(a: Array, b: Array, c: Array, mode: str) -> Array:
    """``fma.{rz,rm,rp}.f32``."""
    product = a.astype(np.float64) * b
    product, wide = np.broadcast_arrays(product, c.astype(np.float64))
    s, e = two_sum(product, wide)
    return narrow(to_odd(s, e), mode)


def quotient32(a: Array, b: Array, mode: str) -> Array:
    """``div.{rz,rm,rp}.f32``: a float64 quotient of float32 numbers is exact if it seems so."""
    return narrow(a.astype(np.float64) / b, mode)


def root32(a: Array, mode: str) -> Array:
    """``sqrt.{rz,rm,rp}.f32``."""
    return narrow(np.sqrt(a.astype(np.float64)), mode)


def directed64(operation: str, a: Array, b: Array, mode: str) -> Array:
    """``add``, ``mul`` of float64 with a rounding other than to nearest."""
    if operation == "add":
        s, e = two_sum(a, b)
    else:
        a, b = np.broadcast_arrays(a, b)
        s, e = _two_product(a, b, a * b)
    return np.where(np.isfinite(s), directed(s, e, mode), s)


def minimum(a: Array, b: Array) -> Array:
    """``min``: the other operand of a NaN; -0 is less than +0."""
    result = np.fmin(a, b)
    zeros = (a == 0) & (b == 0)
    if zeros.any():
        result = np.where(zeros, np.where(np.signbit(a), a, b), result)
    return result


def maximum(a: Array, b: Array) -> Array:
    """``max``: the other operand of a NaN; +0 is greater than -0."""
    result = np.fmax(a, b)
    zeros = (a == 0) & (b == 0)
    if zeros.any():
        result = np.where(zeros, np.where(np.signbit(a), b, a), result)
    return result


def minimum_nan(a: Array, b: Array) -> Array:
    """``min.NaN``: NaN if an operand is."""
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), minimum(a, b))


def maximum_nan(a: Array, b: Array) -> Array:
    """``max.NaN``: NaN if an operand is."""
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), maximum(a, b))


def approx(name: str, value: Array) -> Array:
    """``rcp rsqrt sqrt ex2 lg2 sin cos tanh`` of float16, float32 or float64, rounded once."""
    wide = value.astype(np.float64)
    return _APPROX[name](wide).astype(value.dtype)


_APPROX = {
    "rcp": lambda v: 1.0 / v,
    "rsqrt": lambda v: 1.0 / np.sqrt(v),
    "sqrt": np.sqrt,
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
}


def classify(value: Array, test: str) -> Array:
    """``testp``: finite, infinite, number, notanumber, normal, subnormal."""
    match test:
        case "finite":
            return np.isfinite(value)
        case "infinite":
            return np.isinf(value)
        case "number":
            return ~np.isnan(value)
        case "notanumber":
            return np.isnan(value)
    tiny = np.finfo(value.dtype).tiny
    size = np.abs(value)
    if test == "subnormal":
        return (size < tiny) & (size != 0)
    return np.isfinite(value) & (size >= tiny)
