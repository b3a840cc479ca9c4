"""Elements of 8 bits and fewer convert as ``ml_dtypes`` converts them, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.codegen.conftest import Compiler
from tests.unit.codegen.programs import elementwise, output_like
from weft.ir.dtype import DType
from weft.tir import expr as x

FLOATS = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
          "float4_e2m1fn"]  # fmt: skip
INTS = ["int2", "uint2", "int4", "uint4"]


def all_codes(dtype: str) -> np.ndarray:
    return np.arange(1 << DType.of(dtype).bits, dtype=np.uint8).view(DType.of(dtype).numpy)


def convert(compiler: Compiler, values: np.ndarray, target: str, lanes: int) -> np.ndarray:
    source = str(DType.of(values.dtype))
    func = elementwise(lambda v: x.cast(v, target), [source], target, values.size // lanes, lanes)
    result = output_like(target, values.size)
    compiler.compile(func)(values, result)
    return result


def float32_patterns() -> np.ndarray:
    """Every sign, exponent and upper half of the mantissa, with low bits around the ties."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    low = np.array([0, 1, 0x8000, 0xFFFF], np.uint32)
    return (upper[:, None] | low[None, :]).reshape(-1).view(np.float32)


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize("dtype", FLOATS)
def test_every_code_widens_exactly(compiler: Compiler, dtype: str, lanes: int) -> None:
    codes = all_codes(dtype)
    found, expected = convert(compiler, codes, "float32", lanes), codes.astype(np.float32)
    np.testing.assert_array_equal(found, expected)
    real = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(found[real]), np.signbit(expected[real]))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float32_narrows_as_in_ml_dtypes(compiler: Compiler, dtype: str) -> None:
    values = float32_patterns()
    with np.errstate(all="ignore"):
        expected = values.astype(DType.of(dtype).numpy)
    found = convert(compiler, values, dtype, 16)
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))
    few = values[::4099].copy()
    np.testing.assert_array_equal(
        convert(compiler, few, dtype, 1).view(np.uint8), expected[::4099].copy().view(np.uint8)
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_float64_goes_through_float32(compiler: Compiler, dtype: str) -> None:
    """As in ml_dtypes: a hair beside the middle of two neighbours becomes a tie."""
    codes = all_codes(dtype).astype(np.float64)
    codes = np.unique(codes[np.isfinite(codes) & (codes > 0)])
    middle = (codes[1:] + codes[:-1]) / 2
    values = np.concatenate([middle * (1 + sign * 2.0**-40) for sign in (-1, 1)])
    expected = values.astype(DType.of(dtype).numpy)
    np.testing.assert_array_equal(
        convert(compiler, values, dtype, 1).view(np.uint8), expected.view(np.uint8)
    )


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("dtype", INTS)
def test_small_integers_wrap_and_extend(compiler: Compiler, dtype: str, lanes: int) -> None:
    for wide in ("int32", "float32", "int8"):
        codes = np.arange(-20, 20).astype(wide)
        expected = codes.astype(DType.of(dtype).numpy)
        found = convert(compiler, codes, dtype, lanes)
        np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))
        back = convert(compiler, expected, wide, lanes)
        np.testing.assert_array_equal(back, expected.astype(wide))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4"])
def test_arithmetic_rounds_each_result(compiler: Compiler, dtype: str) -> None:
    values = np.array([0.5, 1, 1.5, 2, 3, -4, 6, -0.5]).astype(DType.of(dtype).numpy)
    func = elementwise(lambda a, b: a * b + a, [dtype, dtype], dtype, 2, 4)
    compiler.check(func, [values, np.roll(values, 3)], [output_like(dtype, 8)])
