"""``cvt`` between integers and floats (PTX ISA, "cvt")."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from weft.testing.cuda.values import floats, narrow_floats

Array: TypeAlias = np.ndarray


def rounded_to_integer(value: Array, mode: str) -> Array:
    """A float of any type rounded to an integral value by rni, rzi, rmi or rpi."""
    match mode:
        case "rni":
            return np.rint(value)
        case "rzi":
            return np.trunc(value)
        case "rmi":
            return np.floor(value)
        case _:
            return np.ceil(value)


def float_to_integer(value: Array, dtype: str, mode: str) -> Array:
    """Round, then clamp to the range of ``dtype``; NaN becomes 0 (64-bit results: the top bit)."""
    target = np.dtype(dtype)
    wide = rounded_to_integer(value.astype(np.float64), mode)
    info = np.iinfo(target)
    inside = (wide >= float(info.min)) & (wide < float(info.max) + (target.itemsize < 8))
    low = np.where(wide < 0, info.min, info.max).astype(target)
    result = np.where(inside, wide, 0.0).astype(target)
    result = np.where(inside, result, low)
    not_a_number = np.array(1 << 63, dtype=np.uint64).astype(target) if target.itemsize == 8 else 0
    return np.where(np.isnan(wide), not_a_number, result).astype(target)


def integer_to_float(value: Array, kind: str, mode: str) -> Array:
    """Integers to f16, bf16, f32 or f64 with one rounding (rn, rz, rm, rp)."""
    if kind == "f64":
        return _directed(value, np.dtype(np.float64), mode)
    if kind == "f32":
        return _directed(value, np.dtype(np.float32), mode)
    if value.dtype.itemsize == 8:
        odd = _integer_to_odd(value)
        return narrow_floats.write(odd, kind)
    return narrow_floats.write(value.astype(np.float64), kind)


def _integer_to_odd(value: Array) -> Array:
    """A 64-bit integer as float64 rounded to odd."""
    nearest = value.astype(np.float64)
    top = nearest >= 2.0**63
    back = np.where(top & (value.dtype.kind == "i"), 0.0, nearest)
    error = np.where(top, 0, value - back.astype(value.dtype)).astype(np.int64)
    return floats.to_odd(nearest, error.astype(np.float64))


def _directed(value: Array, dtype: np.dtype, mode: str) -> Array:
    nearest = value.astype(dtype)
    if mode == "rn":
        return nearest
    exact = np.array([int(item) for item in np.atleast_1d(value)], dtype=object)
    back = np.array([int(item) for item in nearest], dtype=object)
    above = np.array([b > e for b, e in zip(back, exact, strict=True)], dtype=bool)
    below = np.array([b < e for b, e in zip(back, exact, strict=True)], dtype=bool)
    down = np.nextafter(nearest, dtype.type(-np.inf))
    up = np.nextafter(nearest, dtype.type(np.inf))
    if mode == "rz":
        above, below = above & (value > 0), below & (value < 0)
    if mode != "rp":
        nearest = np.where(above, down, nearest)
    if mode != "rm":
        nearest = np.where(below, up, nearest)
    return nearest


def integer_to_integer(value: Array, dtype: str, saturate: bool) -> Array:
    """Truncate, or clamp to the range of ``dtype`` (``.sat``)."""
    target = np.dtype(dtype)
    if not saturate:
        return value.astype(target)
    info, source = np.iinfo(target), np.iinfo(value.dtype)
    low, high = max(info.min, source.min), min(info.max, source.max)
    return np.clip(value, value.dtype.type(low), value.dtype.type(high)).astype(target)


def widen(value: Array, kind: str) -> Array:
    """f16, bf16 or f32 as f64 or f32: exact."""
    return narrow_floats.bf16_to_f32(value) if kind == "bf16" else value


def float_to_float(value: Array, source: str, target: str, mode: str) -> Array:
    """Between f16, bf16, f32 and f64 with one rounding."""
    exact = widen(value, source)
    match target:
        case "f64":
            return exact.astype(np.float64)
        case "f32":
            if exact.dtype == np.float64:
                return floats.narrow(exact, mode)
            return exact.astype(np.float32)
        case "f16":
            return _to_half(exact, mode)
        case _:
            if exact.dtype == np.float64:
                return narrow_floats.f64_to_bf16(exact)
            return narrow_floats.f32_to_bf16(exact.astype(np.float32), mode)


def _to_half(exact: Array, mode: str) -> Array:
    half = exact.astype(np.float16)
    if mode != "rz":
        return half
    too_far = np.isfinite(exact) & (np.abs(half.astype(np.float64)) > np.abs(exact))
    return np.where(too_far, np.nextafter(half, np.float16(0)), half)
