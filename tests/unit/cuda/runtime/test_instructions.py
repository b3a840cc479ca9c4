"""Single PTX instructions against NumPy and exact rationals."""

from __future__ import annotations

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.cuda.runtime.ptx_snippets import run_instruction

_U32 = st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=4)
_U64 = st.lists(st.integers(0, 2**64 - 1), min_size=4, max_size=4)
_QUICK = settings(max_examples=25, deadline=None)


def _u32(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint32)


def _signed(value: int, bits: int = 32) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


_INTEGER = {
    "add.s32": lambda a, b: a + b,
    "sub.s32": lambda a, b: a - b,
    "mul.lo.s32": lambda a, b: a * b,
    "mul.hi.u32": lambda a, b: a * b >> 32,
    "mul.hi.s32": lambda a, b: _signed(a) * _signed(b) >> 32,
    "min.s32": lambda a, b: min(_signed(a), _signed(b)),
    "max.u32": max,
    "and.b32": lambda a, b: a & b,
    "xor.b32": lambda a, b: a ^ b,
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
    "shr.s32": lambda a, b: _signed(a) >> min(b, 31),
    "div.u32": lambda a, b: a // b if b else -1,
    "rem.u32": lambda a, b: a % b if b else a,
    "add.sat.s32": lambda a, b: max(-(2**31), min(2**31 - 1, _signed(a) + _signed(b))),
}


@pytest.mark.parametrize("name", _INTEGER)
@_QUICK
@given(a=_U32, b=st.lists(st.one_of(st.integers(0, 40), st.integers(0, 2**32 - 1)), min_size=4,
                          max_size=4))
def test_integer_instructions(name: str, a: list[int], b: list[int]) -> None:
    found = run_instruction(name, ("u32", "u32"), (_u32(a), _u32(b)), "u32")
    wanted = [_INTEGER[name](x, y) & 0xFFFFFFFF for x, y in zip(a, b, strict=True)]
    assert found.tolist() == wanted


@_QUICK
@given(a=_U64, b=_U64)
def test_64_bit_multiplication(a: list[int], b: list[int]) -> None:
    arrays = (np.array(a, dtype=np.uint64), np.array(b, dtype=np.uint64))
    pairs = list(zip(a, b, strict=True))
    high = run_instruction("mul.hi.u64", ("u64", "u64"), arrays, "u64")
    assert high.tolist() == [x * y >> 64 for x, y in pairs]
    signed = run_instruction("mul.hi.s64", ("s64", "s64"), arrays, "s64")
    assert signed.tolist() == [
        (_signed(x, 64) * _signed(y, 64) >> 64) & (2**64 - 1) for x, y in pairs]


_UNARY = {
    "popc.b32": lambda a: a.bit_count(),
    "clz.b32": lambda a: 32 - a.bit_length(),
    "brev.b32": lambda a: int(f"{a:032b}"[::-1], 2),
    "not.b32": lambda a: ~a & 0xFFFFFFFF,
    "bfind.u32": lambda a: a.bit_length() - 1 if a else 0xFFFFFFFF,
    "abs.s32": lambda a: abs(_signed(a)) & 0xFFFFFFFF,
    "neg.s32": lambda a: -_signed(a) & 0xFFFFFFFF,
}


@pytest.mark.parametrize("name", _UNARY)
@_QUICK
@given(a=_U32)
def test_unary_bits(name: str, a: list[int]) -> None:
    found = run_instruction(name, ("u32",), (_u32(a),), "u32")
    assert found.tolist() == [_UNARY[name](x) for x in a]


@_QUICK
@given(a=_U32, start=st.lists(st.integers(0, 255), min_size=4, max_size=4),
       length=st.lists(st.integers(0, 255), min_size=4, max_size=4))
def test_bit_fields(a: list[int], start: list[int], length: list[int]) -> None:
    found = run_instruction("bfe.u32", ("u32", "u32", "u32"),
                            (_u32(a), _u32(start), _u32(length)), "u32")
    assert found.tolist() == [
        (x >> s) & ((1 << n) - 1) & 0xFFFFFFFF for x, s, n in zip(a, start, length, strict=True)]
    found = run_instruction("bfe.s32", ("s32", "u32", "u32"),
                            (_u32(a), _u32(start), _u32(length)), "s32")
    for x, s, n, value in zip(a, start, length, found.tolist(), strict=True):
        sign = x >> min(s + n - 1, 31) & 1 if n else 0
        bits = [(x >> (s + i) & 1 if s + i < 32 else sign) if i < n else sign for i in range(32)]
        assert value == sum(bit << i for i, bit in enumerate(bits))


@_QUICK
@given(a=_U32, b=_U32, c=_U32, table=st.integers(0, 255))
def test_lop3_and_prmt(a: list[int], b: list[int], c: list[int], table: int) -> None:
    arrays = (_u32(a), _u32(b), _u32(c))
    found = run_instruction("lop3.b32", ("u32",) * 3, arrays, "u32", f", {table}")
    for x, y, z, value in zip(a, b, c, found.tolist(), strict=True):
        assert value == sum(
            (table >> ((x >> i & 1) << 2 | (y >> i & 1) << 1 | (z >> i & 1)) & 1) << i
            for i in range(32))
    found = run_instruction("prmt.b32", ("u32",) * 3, arrays, "u32")
    for x, y, z, value in zip(a, b, c, found.tolist(), strict=True):
        data = [*x.to_bytes(4, "little"), *y.to_bytes(4, "little")]
        parts = []
        for i in range(4):
            nibble = z >> 4 * i & 15
            byte = data[nibble & 7]
            parts.append((255 if byte & 128 else 0) if nibble & 8 else byte)
        assert value == int.from_bytes(bytes(parts), "little")


@_QUICK
@given(low=_U32, high=_U32, amount=st.lists(st.integers(0, 80), min_size=4, max_size=4))
def test_funnel_shift(low: list[int], high: list[int], amount: list[int]) -> None:
    arrays = (_u32(low), _u32(high), _u32(amount))
    left = run_instruction("shf.l.wrap.b32", ("u32",) * 3, arrays, "u32")
    right = run_instruction("shf.r.clamp.b32", ("u32",) * 3, arrays, "u32")
    for x, y, n, found_left, found_right in zip(
        low, high, amount, left.tolist(), right.tolist(), strict=True
    ):
        both = y << 32 | x
        assert found_left == (both << (n & 31)) >> 32 & 0xFFFFFFFF
        assert found_right == both >> min(n, 32) & 0xFFFFFFFF


def _round_f32(value: Fraction) -> np.float32:
    """The float32 nearest to a rational, by comparing neighbours."""
    guess = np.float32(float(value))
    if not np.isfinite(guess):
        return guess
    around = [np.nextafter(guess, np.float32(-np.inf)), guess,
              np.nextafter(guess, np.float32(np.inf))]
    finite = [item for item in around if np.isfinite(item)]
    return min(finite, key=lambda v: (abs(Fraction(float(v)) - value), int(v.view(np.uint32)) & 1))


_F32 = st.floats(width=32, allow_nan=False, allow_infinity=False, min_value=-2.0**60,
                 max_value=2.0**60)


@settings(max_examples=60, deadline=None)
@given(a=st.lists(_F32, min_size=4, max_size=4), b=st.lists(_F32, min_size=4, max_size=4),
       c=st.lists(_F32, min_size=4, max_size=4))
def test_fma_rounds_once(a: list[float], b: list[float], c: list[float]) -> None:
    arrays = tuple(np.array(v, dtype=np.float32) for v in (a, b, c))
    found = run_instruction("fma.rn.f32", ("f32",) * 3, arrays, "f32").view(np.float32)
    for x, y, z, value in zip(*(v.tolist() for v in arrays), found, strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact:
            assert value == _round_f32(exact)


def test_fma_double_rounding_cases() -> None:
    # 1 + 2^-24 + 2^-57 rounds up; by way of float64 it would be a tie that rounds down to 1.
    scale = 2.0**-24
    a = np.array([1 + 2.0**-11, -1 - 2.0**-11, 2.0**-30], dtype=np.float32)
    b = np.array([1 - 2.0**-11 + 2.0**-22] * 2 + [2.0**-30], dtype=np.float32) * np.float32(scale)
    c = np.array([1.0, -1.0, 1 + 2.0**-23], dtype=np.float32)
    found = run_instruction("fma.rn.f32", ("f32",) * 3, (a, b, c), "f32").view(np.float32)
    wanted = [_round_f32(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
              for x, y, z in zip(a, b, c, strict=True)]
    assert found.tolist() == [float(v) for v in wanted]
    assert found[0] == 1 + 2.0**-23
    tie = np.array([2.0**-24], dtype=np.float32)
    small = run_instruction(
        "fma.rn.f32", ("f32",) * 3,
        (np.float32([2.0**-30]), np.float32([2.0**-30]), tie + np.float32(0)), "f32")
    assert small.view(np.float32)[0] == np.float32(2.0**-24)


_F64 = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e200, max_value=1e200)


@settings(max_examples=60, deadline=None)
@given(a=st.lists(_F64, min_size=4, max_size=4), b=st.lists(_F64, min_size=4, max_size=4),
       c=st.lists(_F64, min_size=4, max_size=4))
def test_fma64_is_exact(a: list[float], b: list[float], c: list[float]) -> None:
    arrays = tuple(np.array(v) for v in (a, b, c))
    found = run_instruction("fma.rn.f64", ("f64",) * 3, arrays, "f64").view(np.float64)
    for x, y, z, value in zip(a, b, c, found.tolist(), strict=True):
        exact = Fraction(x) * Fraction(y) + Fraction(z)
        if exact:
            try:
                assert value == exact.numerator / exact.denominator
            except OverflowError:
                assert np.isinf(value)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add.rn", "sub.rn", "mul.rn"])
def test_narrow_arithmetic(kind: str, name: str) -> None:
    dtype = np.float16 if kind == "f16" else ml_dtypes.bfloat16
    random = np.random.default_rng(1)
    a, b = (random.standard_normal(256).astype(dtype) for _ in range(2))
    found = run_instruction(f"{name}.{kind}", (kind, kind),
                            (a.view(np.uint16), b.view(np.uint16)), kind)
    x, y = a.astype(np.float64), b.astype(np.float64)
    exact = {"add.rn": x + y, "sub.rn": x - y, "mul.rn": x * y}[name]  # exact in float64 here
    assert (found.view(dtype) == exact.astype(np.float32).astype(dtype)).mean() > 0.99
    assert np.abs(found.view(dtype).astype(float) - exact).max() <= np.abs(exact).max() * 2.0**-8


@pytest.mark.parametrize(("mode", "reference"), [
    ("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)])
def test_float_to_integer(mode: str, reference: object) -> None:
    values = np.float32([0.5, 1.5, -0.5, -1.5, 2.5, 3e9, -3e9, np.nan, np.inf, 7.99, -7.99, 0.0])
    found = run_instruction(f"cvt.{mode}.s32.f32", ("f32",), (values,), "s32").view(np.int32)
    rounded = reference(values.astype(np.float64))  # type: ignore[operator]
    wanted = np.where(np.isnan(rounded), 0, np.clip(rounded, -(2.0**31), 2.0**31 - 1))
    assert found.tolist() == wanted.astype(np.int64).tolist()


def test_narrowing_conversions() -> None:
    random = np.random.default_rng(2)
    values = (random.standard_normal(512) * 10.0 ** random.integers(-6, 4, 512)).astype(np.float32)
    half = run_instruction("cvt.rn.f16.f32", ("f32",), (values,), "f16")
    assert (half == values.astype(np.float16).view(np.uint16)).all()
    brain = run_instruction("cvt.rn.bf16.f32", ("f32",), (values,), "bf16")
    assert (brain == values.astype(ml_dtypes.bfloat16).view(np.uint16)).all()
    pair = run_instruction("cvt.rn.bf16x2.f32", ("f32", "f32"), (values, -values), "bf16x2")
    assert ((pair >> 16).astype(np.uint16) == brain).all()


def test_minimum_and_maximum_of_nan_and_zeros() -> None:
    a = np.float32([np.nan, 1, np.nan, -0.0, 0.0])
    b = np.float32([1, np.nan, np.nan, 0.0, -0.0])
    low = run_instruction("min.f32", ("f32", "f32"), (a, b), "f32").view(np.float32)
    high = run_instruction("max.f32", ("f32", "f32"), (a, b), "f32").view(np.float32)
    assert low[:2].tolist() == [1, 1]
    assert np.isnan(low[2])
    assert np.signbit(low[3:]).all()
    assert not np.signbit(high[3:]).any()
    strict = run_instruction("min.NaN.f32", ("f32", "f32"), (a, b), "f32").view(np.float32)
    assert np.isnan(strict[:3]).all()


@pytest.mark.parametrize(("name", "wanted"), [
    ("eq", [0, 1, 0]), ("ne", [1, 0, 0]), ("lt", [1, 0, 0]), ("neu", [1, 0, 1]),
    ("equ", [0, 1, 1]), ("geu", [0, 1, 1]), ("num", [1, 1, 0]), ("nan", [0, 0, 1])])
def test_float_comparisons(name: str, wanted: list[int]) -> None:
    a, b = np.float32([1, 2, np.nan]), np.float32([2, 2, 1])
    found = run_instruction(f"setp.{name}.f32", ("f32", "f32"), (a, b), "pred")
    assert found.tolist() == wanted


def test_approximate_functions() -> None:
    x = np.linspace(0.1, 3.0, 64).astype(np.float32)
    for name, reference in (("ex2", np.exp2), ("lg2", np.log2), ("sin", np.sin), ("cos", np.cos),
                            ("rsqrt", lambda v: 1 / np.sqrt(v)), ("tanh", np.tanh)):
        found = run_instruction(f"{name}.approx.f32", ("f32",), (x,), "f32").view(np.float32)
        np.testing.assert_allclose(found, reference(x.astype(np.float64)), rtol=1e-6)


def test_rounding_modes_of_addition() -> None:
    one, tiny = np.float32([1, 1, -1, -1]), np.float32([2.0**-30, -(2.0**-30)] * 2)
    up = np.nextafter(np.float32(1), np.float32(2))
    down = np.nextafter(np.float32(1), np.float32(0))
    wanted = {"rp": [up, 1, -down, -1], "rm": [1, down, -1, -up], "rz": [1, down, -down, -1]}
    for mode, values in wanted.items():
        found = run_instruction(f"add.{mode}.f32", ("f32", "f32"), (one, tiny), "f32")
        assert found.view(np.float32).tolist() == [float(v) for v in values], mode
