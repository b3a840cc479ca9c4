"""Integer instructions of PTX on NumPy arrays (PTX ISA, "Integer Arithmetic Instructions")."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray


def _bits(value: Array) -> int:
    return value.dtype.itemsize * 8


def shift_left(value: Array, amount: Array) -> Array:
    """``shl``: amounts of the width or more give 0."""
    width = _bits(value)
    small = (amount & np.uint32(width - 1)).astype(value.dtype)
    shifted = value << small
    if (amount < width).all():
        return shifted
    return np.where(amount < width, shifted, value.dtype.type(0))


def shift_right(value: Array, amount: Array) -> Array:
    """``shr``: amounts of the width or more give 0, or the sign if ``value`` is signed."""
    width = _bits(value)
    clamped = np.minimum(amount, width - 1).astype(value.dtype)
    shifted = value >> clamped
    if value.dtype.kind == "i" or (amount < width).all():
        return shifted
    return np.where(amount < width, shifted, value.dtype.type(0))


def divide(a: Array, b: Array) -> Array:
    """``div``: rounds towards zero; a zero divisor gives all ones, as the hardware does."""
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b) if zero.any() else b
    if a.dtype.kind == "i":
        quotient = np.floor_divide(a, safe)
        remainder = a - quotient * safe
        quotient = quotient + ((remainder != 0) & ((a < 0) != (safe < 0))).astype(a.dtype)
    else:
        quotient = a // safe
    if zero.any():
        quotient = np.where(zero, np.array(-1).astype(a.dtype), quotient)
    return quotient


def remainder(a: Array, b: Array) -> Array:
    """``rem``: has the sign of ``a``."""
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a, a - divide(a, safe) * safe)


def multiply_high(a: Array, b: Array) -> Array:
    """``mul.hi``: the upper half of the product."""
    width = _bits(a)
    if width < 64:
        wide = np.dtype(f"{a.dtype.kind}{width // 4}")
        return ((a.astype(wide) * b.astype(wide)) >> wide.type(width)).astype(a.dtype)
    ua, ub = a.view(np.uint64), b.view(np.uint64)
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a0, a1, b0, b1 = ua & low, ua >> half, ub & low, ub >> half
    middle = a1 * b0 + ((a0 * b0) >> half)
    other = a0 * b1 + (middle & low)
    high = a1 * b1 + (middle >> half) + (other >> half)
    if a.dtype.kind == "i":
        high = high - np.where(a < 0, ub, np.uint64(0)) - np.where(b < 0, ua, np.uint64(0))
        return high.view(np.int64)
    return high


def multiply_wide(a: Array, b: Array) -> Array:
    """``mul.wide``: the product in twice the width."""
    wide = f"{a.dtype.kind}{a.dtype.itemsize * 2}"
    return a.astype(wide) * b.astype(wide)


def multiply_24(a: Array, b: Array, high: bool) -> Array:
    """``mul24``: of the low 24 bits; bits 16 to 47 (``high``) or 0 to 31 of the product."""
    if a.dtype.kind == "i":
        wide = lambda v: ((v << np.int32(8)) >> np.int32(8)).astype(np.int64)  # noqa: E731
    else:
        wide = lambda v: (v & np.uint32(0xFFFFFF)).astype(np.uint64)  # noqa: E731
    product = wide(a) * wide(b)
    return (product >> product.dtype.type(16 if high else 0)).astype(a.dtype)


def add_saturated(a: Array, b: Array) -> Array:
    """``add.sat.s32``."""
    return np.clip(a.astype(np.int64) + b, -(1 << 31), (1 << 31) - 1).astype(np.int32)


def subtract_saturated(a: Array, b: Array) -> Array:
    """``sub.sat.s32``."""
    return np.clip(a.astype(np.int64) - b, -(1 << 31), (1 << 31) - 1).astype(np.int32)


def absolute_difference(a: Array, b: Array, c: Array) -> Array:
    """``sad``: ``c + |a - b|``."""
    return c + np.where(a < b, b - a, a - b)


def count_ones(value: Array) -> Array:
    """``popc``: a uint32."""
    count = np.zeros(value.shape, dtype=np.uint32)
    words = value.astype(np.uint64)
    for shift in range(0, _bits(value), 32):
        w = ((words >> np.uint64(shift)) & np.uint64(0xFFFFFFFF)).astype(np.uint32)
        w = w - ((w >> np.uint32(1)) & np.uint32(0x55555555))
        w = (w & np.uint32(0x33333333)) + ((w >> np.uint32(2)) & np.uint32(0x33333333))
        w = (w + (w >> np.uint32(4))) & np.uint32(0x0F0F0F0F)
        count = count + ((w * np.uint32(0x01010101)) >> np.uint32(24))
    return count


def _smeared(value: Array) -> Array:
    shift = 1
    while shift < _bits(value):
        value = value | (value >> value.dtype.type(shift))
        shift *= 2
    return value


def count_leading_zeros(value: Array) -> Array:
    """``clz``: a uint32; the width for 0."""
    return np.uint32(_bits(value)) - count_ones(_smeared(value))


def reverse_bits(value: Array) -> Array:
    """``brev``."""
    width = _bits(value)
    result = np.zeros_like(value)
    one = value.dtype.type(1)
    for index in range(width):
        bit = (value >> value.dtype.type(index)) & one
        result = result | (bit << value.dtype.type(width - 1 - index))
    return result


def find_leading(value: Array, shift_amount: bool) -> Array:
    """``bfind``: the position of the highest bit that is not the sign, or all ones."""
    if value.dtype.kind == "i":
        value = np.where(value < 0, ~value, value).view(f"u{value.dtype.itemsize}")
    width = np.uint32(_bits(value))
    position = width - np.uint32(1) - count_leading_zeros(value)
    if shift_amount:
        position = width - np.uint32(1) - position
    return np.where(value == 0, np.uint32(0xFFFFFFFF), position)


def extract_field(value: Array, start: Array, length: Array) -> Array:
    """``bfe``: ``length`` bits from ``start``; signed values extend the sign bit."""
    width = _bits(value)
    unsigned = value.view(f"u{value.dtype.itemsize}")
    start = start & np.uint32(255)
    length = length & np.uint32(255)
    field = shift_right(unsigned, start)
    inside = np.minimum(length, np.uint32(width) - np.minimum(start, np.uint32(width)))
    mask = shift_left(np.ones_like(unsigned), inside) - unsigned.dtype.type(1)
    mask = np.where(inside >= width, ~unsigned.dtype.type(0), mask)
    field = field & mask
    if value.dtype.kind != "i":
        return field
    top = np.minimum(start + length - np.uint32(1), np.uint32(width - 1))
    sign = np.where(length == 0, 0, shift_right(unsigned, top) & unsigned.dtype.type(1))
    return np.where(sign != 0, field | ~mask, field).view(value.dtype)


def insert_field(field: Array, base: Array, start: Array, length: Array) -> Array:
    """``bfi``: ``field`` in ``length`` bits of ``base`` from ``start``."""
    width = _bits(base)
    start = start & np.uint32(255)
    length = length & np.uint32(255)
    mask = shift_left(np.ones_like(base), length) - base.dtype.type(1)
    mask = np.where(length >= width, ~base.dtype.type(0), mask)
    mask = shift_left(mask, start)
    return (base & ~mask) | (shift_left(field, start) & mask)


def funnel_shift(low: Array, high: Array, amount: Array, left: bool, wrap: bool) -> Array:
    """``shf``: 32 bits of ``high:low`` shifted left or right, by an amount clamped or wrapped."""
    amount = amount & np.uint32(31) if wrap else np.minimum(amount, np.uint32(32))
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    wide = amount.astype(np.uint64)
    if left:
        return ((both << wide) >> np.uint64(32)).astype(np.uint32)
    return (both >> wide).astype(np.uint32)


def permute_bytes(a: Array, b: Array, selector: Array, mode: str) -> Array:
    """``prmt``: four bytes of ``b:a`` chosen by nibbles, or by f4e b4e rc8 ecl ecr rc16."""
    both = (b.astype(np.uint64) << np.uint64(32)) | a
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, selector.shape), dtype=np.uint32)
    for byte in range(4):
        chosen = _byte_number(selector, byte, mode)
        value = (both >> ((chosen & np.uint32(7)).astype(np.uint64) * np.uint64(8)))
        value = (value & np.uint64(255)).astype(np.uint32)
        if not mode:
            replicate = (chosen & np.uint32(8)) != 0
            value = np.where(replicate, np.where(value & np.uint32(128), 255, 0), value)
        result = result | (value.astype(np.uint32) << np.uint32(8 * byte))
    return result


def _byte_number(selector: Array, byte: int, mode: str) -> Array:
    if not mode:
        return (selector >> np.uint32(4 * byte)) & np.uint32(15)
    s = selector & np.uint32(3)
    i = np.uint32(byte)
    match mode:
        case "f4e":
            return s + i
        case "b4e":
            return (s - i) & np.uint32(7)
        case "rc8":
            return s
        case "ecl":
            return np.maximum(s, i)
        case "ecr":
            return np.minimum(s, i)
        case _:  # rc16
            return ((s & np.uint32(1)) << np.uint32(1)) + (i & np.uint32(1))


def dot_product(a: Array, b: Array, c: Array, a_signed: bool, b_signed: bool) -> Array:
    """``dp4a``: ``c`` plus the sum of the four products of bytes."""
    total = c.view(np.int32)
    for byte in range(4):
        total = total + _byte(a, byte, a_signed) * _byte(b, byte, b_signed)
    return total.view(c.dtype)


def dot_product_2(
    a: Array, b: Array, c: Array, a_signed: bool, b_signed: bool, high: bool
) -> Array:
    """``dp2a``: ``c`` plus two products of a 16-bit half of ``a`` and a byte of ``b``."""
    total = c.view(np.int32)
    for part in range(2):
        half = (a >> np.uint32(16 * part)).astype(np.uint16)
        wide = half.view(np.int16).astype(np.int32) if a_signed else half.astype(np.int32)
        total = total + wide * _byte(b, part + 2 * high, b_signed)
    return total.view(c.dtype)


def _byte(value: Array, byte: int, signed: bool) -> Array:
    low = (value >> np.uint32(8 * byte)).astype(np.uint8)
    return low.view(np.int8).astype(np.int32) if signed else low.astype(np.int32)


def logic_3(a: Array, b: Array, c: Array, table: int) -> Array:
    """``lop3``: bit i of ``table`` is the result for the bits a, b, c of i."""
    result = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), dtype=a.dtype)
    for row in range(8):
        if table >> row & 1:
            term = (a if row & 4 else ~a) & (b if row & 2 else ~b) & (c if row & 1 else ~c)
            result = result | term
    return result


def find_nth_set(mask: Array, base: Array, offset: Array) -> Array:
    """``fns``: the position of the n-th set bit from ``base``; all ones if there is none."""
    shape = np.broadcast_shapes(mask.shape, base.shape, offset.shape)
    out = np.empty(shape, dtype=np.uint32)
    rows = (np.broadcast_to(v, shape) for v in (mask, base, offset.view(np.int32)))
    for index, (m, b, n) in enumerate(zip(*rows, strict=True)):
        out[index] = _nth_set(int(m), int(b), int(n))
    return out


def _nth_set(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    positions = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [position for position in positions if mask >> position & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF
