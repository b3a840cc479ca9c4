"""float16 and bfloat16 values, packed pairs of them, and their exact arithmetic.

bfloat16 is held as uint16. Both formats are computed in float64 rounded to odd, so that the one
rounding to the format is correct.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import ml_dtypes
import numpy as np

from weft.testing.cuda.values import floats

Array: TypeAlias = np.ndarray

_HALF_NAN = np.uint16(0x7FFF)


def bf16_to_f32(value: Array) -> Array:
    """Exact."""
    return (value.astype(np.uint32) << np.uint32(16)).view(np.float32)


def f32_to_bf16(value: Array, mode: str = "rn") -> Array:
    """``cvt.{rn,rz}.bf16.f32``; NaN becomes the canonical 0x7FFF."""
    bits = value.view(np.uint32)
    if mode == "rn":
        bits = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    result = (bits >> np.uint32(16)).astype(np.uint16)
    nan = np.isnan(value)
    return np.where(nan, _HALF_NAN, result) if nan.any() else result


def f64_to_bf16(value: Array) -> Array:
    """Round to nearest even in one step: to odd in float32 first."""
    single = value.astype(np.float32)
    back = single.astype(np.float64)
    bits = single.view(np.int32)
    inexact = (back != value) & np.isfinite(single) & ((bits & 1) == 0)
    away = np.abs(back) < np.abs(value)
    bits = np.where(inexact, np.where(away, bits + 1, bits - 1), bits)
    return f32_to_bf16(bits.view(np.float32))


def read(value: Array, kind: str) -> Array:
    """float16 or bfloat16 as float64."""
    if kind == "bf16":
        return bf16_to_f32(value).astype(np.float64)
    return value.astype(np.float64)


def write(value: Array, kind: str) -> Array:
    """float64 as float16 or bfloat16."""
    return f64_to_bf16(value) if kind == "bf16" else value.astype(np.float16)


def halves(value: Array, kind: str) -> tuple[Array, Array]:
    """The low and the high number of a packed pair, in the type that holds ``kind``."""
    low, high = value.astype(np.uint16), (value >> np.uint32(16)).astype(np.uint16)
    return (low, high) if kind == "bf16" else (low.view(np.float16), high.view(np.float16))


def pack(low: Array, high: Array) -> Array:
    """A packed pair."""
    low, high = low.view(np.uint16), high.view(np.uint16)
    return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))


def packed(function: Callable[..., Array], kind: str, *operands: Array) -> Array:
    """``function`` of the low and of the high halves of packed operands."""
    pairs = [halves(operand, kind) for operand in operands]
    return pack(function(*(pair[0] for pair in pairs)), function(*(pair[1] for pair in pairs)))


def binary(name: str, kind: str, a: Array, b: Array) -> Array:
    """``add sub mul`` of float16 or bfloat16, rounded once."""
    if kind == "f16":
        return _OPERATIONS[name](a, b)
    x, y = read(a, kind), read(b, kind)
    if name == "mul":
        return write(x * y, kind)
    return write(floats.to_odd(*floats.two_sum(x, y if name == "add" else -y)), kind)


_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply,
}


def fma(kind: str, a: Array, b: Array, c: Array) -> Array:
    """``fma.rn`` of float16 or bfloat16, rounded once."""
    product = read(a, kind) * read(b, kind)
    product, addend = np.broadcast_arrays(product, read(c, kind))
    total, error = floats.two_sum(product, addend)
    return write(floats.to_odd(total, error), kind)


def extreme(name: str, kind: str, a: Array, b: Array) -> Array:
    """``min max min_nan max_nan`` of float16 or bfloat16."""
    function = getattr(floats, name)
    if kind == "bf16":
        return f32_to_bf16(function(bf16_to_f32(a), bf16_to_f32(b)))
    return function(a, b)


def approx(name: str, kind: str, value: Array) -> Array:
    """An approximate function of float16 or bfloat16."""
    return write(floats.approx(name, read(value, kind)), kind)


def relu(value: Array, kind: str) -> Array:
    """``.relu``: negative values become 0, NaN the canonical NaN."""
    wide = read(value, kind)
    zero = value.dtype.type(0)
    nan = _HALF_NAN if kind == "bf16" else _HALF_NAN.view(np.float16)
    return np.where(np.isnan(wide), nan, np.where(wide > 0, value, zero))


def f32_to_f8(value: Array, kind: str, relu_first: bool = False) -> Array:
    """``cvt.rn.satfinite.{e4m3,e5m2}``: a uint8; values out of range become the largest."""
    dtype, largest = (
        (ml_dtypes.float8_e4m3fn, 448.0) if kind == "e4m3" else (ml_dtypes.float8_e5m2, 57344.0)
    )
    if relu_first:
        value = np.where(value > 0, value, np.float32(0))
    clipped = np.where(np.isnan(value), value, np.clip(value, -largest, largest))
    bits = clipped.astype(np.float32).astype(dtype).view(np.uint8)
    return np.where(np.isnan(value), np.uint8(0x7F), bits)


def f8_to_f16(value: Array, kind: str) -> Array:
    """A uint8 as float16, exact."""
    dtype = ml_dtypes.float8_e4m3fn if kind == "e4m3" else ml_dtypes.float8_e5m2
    return value.view(dtype).astype(np.float32).astype(np.float16)


def to_tf32(value: Array, mode: str = "rna") -> Array:
    """float32 with 10 bits of mantissa: ties away from zero (``rna``), to even, or truncated."""
    bits = value.view(np.uint32)
    if mode == "rna":
        rounded = bits + np.uint32(0x1000)
    elif mode == "rn":
        rounded = bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    else:
        rounded = bits
    rounded = rounded & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(value), rounded, bits).view(np.float32)
