"""Weights in groups: what blocks hold by plain formulas, how they are made, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from weft.support.errors import InvalidInputError, OptionError
from weft.topi.nn.block_encode import encodes, pack_blocks, quantize_blocks
from weft.topi.nn.block_family import CODES, GROUPS, NF4_LEVELS
from weft.topi.nn.block_formats import FORMATS, block_format
from weft.topi.nn.block_quantized import dequantized

NAMES = [f"{codes}_g{group}{wide}{offset}" for codes, group, wide, offset
         in itertools.product(CODES, GROUPS, ("", "_f32"), ("", "_z"))
         if codes.startswith("int") or not offset]
GGUF = [name for name in FORMATS if encodes(name)]


def _matrix(rows: int = 3, columns: int = 512) -> np.ndarray:
    return np.random.default_rng(1).normal(0.1, 1, (rows, columns)).astype(np.float32)


def _error(matrix: np.ndarray, blocks: np.ndarray, name: str) -> float:
    return float(np.linalg.norm(dequantized(blocks, block_format(name)) - matrix)
                 / np.linalg.norm(matrix))


@pytest.mark.parametrize(("codes", "group", "rest"), [
    ("int4", 16, ""), ("int4", 64, "_f32_z"), ("int8", 32, ""), ("int8", 128, "_f32_z"),
    ("nf4", 64, ""), ("fp8_e4m3", 32, ""), ("fp8_e5m2", 256, "_f32")])
def test_elements_are_scale_times_code_plus_offset(codes: str, group: int, rest: str) -> None:
    name = f"{codes}_g{group}{rest}"
    dtype = np.float32 if "_f32" in name else np.float16
    random = np.random.default_rng(2)
    count = 2 * 256 // group
    scale = random.uniform(0.5, 2, (count, 1)).astype(dtype)
    offset = random.uniform(-2, 2, (count, 1)).astype(dtype) if name.endswith("_z") else None
    stored = random.integers(0, 256, (count, group if "8" in codes else group // 2), np.uint8)
    if codes.startswith("fp8"):
        stored %= 120  # without infinities and NaN
    heads = [head.view(np.uint8) for head in (scale, offset) if head is not None]
    blocks = np.concatenate([*heads, stored], -1).reshape(2, -1)
    if codes in ("int4", "nf4"):
        half = min(16, group // 2)
        by_half = stored.reshape(count, -1, half)
        quant = np.stack([by_half % 16, by_half // 16], -2).reshape(count, group)
        values = (np.array(NF4_LEVELS)[quant] if codes == "nf4" else
                  quant.astype(float) - (8 if offset is None else 0))
    elif codes == "int8":
        values = stored.astype(float) if offset is not None else stored.view(np.int8).astype(float)
    else:
        exponent, mantissa = (4, 3) if codes == "fp8_e4m3" else (5, 2)
        values = _float8(stored, exponent, mantissa)
    wanted = values * scale.astype(float) + (0 if offset is None else offset.astype(float))
    got = dequantized(blocks, block_format(name)).reshape(count, group)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)


def _float8(stored: np.ndarray, exponent: int, mantissa: int) -> np.ndarray:
    field = stored >> mantissa & (1 << exponent) - 1
    fraction = (stored & (1 << mantissa) - 1) / 2 ** mantissa
    power = np.maximum(field, 1).astype(int) - (2 ** (exponent - 1) - 1)
    sign = np.where(stored >> 7, -1.0, 1.0)
    return sign * (fraction + (field > 0)) * 2.0 ** power


@pytest.mark.parametrize("name", [*NAMES, *GGUF])
def test_blocks_are_made_with_the_error_of_their_bits_and_kept_when_made_again(name: str) -> None:
    matrix = _matrix()
    form = block_format(name)
    blocks = quantize_blocks(matrix, name)
    assert blocks.shape == (3, form.row_bytes(512))
    assert _error(matrix, blocks, name) < (0.02 if name.startswith(("int8", "q8")) else 0.15)
    fitted = _error(matrix, quantize_blocks(matrix, name, fit="least_squares"), name)
    assert fitted <= _error(matrix, blocks, name) * (1 + 1e-6)
    again = quantize_blocks(dequantized(blocks, form), name)
    assert _error(dequantized(blocks, form), again, name) < 0.01


def test_formats_in_groups_of_32_are_those_of_gguf() -> None:
    matrix = _matrix()
    for name, same in (("int4_g32", "q4_0"), ("int4_g32_z", "q4_1"), ("int8_g32", "q8_0")):
        np.testing.assert_array_equal(quantize_blocks(matrix, name), quantize_blocks(matrix, same))


def test_given_scales_offsets_and_codes_are_exact() -> None:
    random = np.random.default_rng(3)
    codes = random.integers(0, 16, (4, 128), np.uint8)
    scales = random.uniform(0.01, 0.02, (4, 2)).astype(np.float32)
    zeros = random.uniform(0, 15, (4, 2)).astype(np.float32)
    packed = pack_blocks(codes, "int4_g64_f32_z", scales, zeros=zeros)
    wanted = ((codes.reshape(4, 2, 64) * scales[..., None]) - (zeros * scales)[..., None])
    got = dequantized(packed, block_format("int4_g64_f32_z"))
    np.testing.assert_allclose(got, wanted.reshape(4, 128), rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(
        quantize_blocks(got, "int4_g64_f32_z", scales, -zeros * scales), packed)


def test_a_group_of_zeros_is_zero() -> None:
    for name in ("q4_0", "int8_g64", "nf4_g16", "int4_g128_z", "fp8_e4m3_g32"):
        blocks = quantize_blocks(np.zeros((2, 256), np.float32), name)
        np.testing.assert_array_equal(dequantized(blocks, block_format(name)), 0)


def test_what_cannot_be_encoded_is_refused() -> None:
    matrix, ones = _matrix(2, 64), np.ones((2, 2), np.float32)
    nan = np.array([[1, np.nan], [1, 1]], np.float32)
    for message, make in (
            ("do not divide axis 1", lambda: quantize_blocks(_matrix(2, 48), "int4_g32")),
            ("a matrix", lambda: quantize_blocks(matrix[0], "int4_g32")),
            ("read, not made", lambda: quantize_blocks(_matrix(2, 256), "q4_k")),
            ("not finite", lambda: quantize_blocks(matrix * np.nan, "int4_g32")),
            ("scale of blocks of int4_g32 is zero",
             lambda: quantize_blocks(matrix, "int4_g32", ones * 0)),
            ("is zero", lambda: quantize_blocks(matrix, "int4_g32", ones * 1e-12)),
            ("row 0, group 1", lambda: quantize_blocks(matrix, "int4_g32", nan)),
            ("_f32 keep float32", lambda: quantize_blocks(matrix * 1e7, "int8_g32")),
            ("do not fit", lambda: quantize_blocks(matrix, "int4_g16", ones)),
            ("end in _z", lambda: quantize_blocks(matrix, "int4_g32", ones, ones)),
            ("have offsets", lambda: quantize_blocks(matrix, "int4_g32_z", ones)),
            ("need their scales", lambda: quantize_blocks(matrix, "int4_g32_z", None, ones)),
            ("a code of int4_g32", lambda: pack_blocks(np.full((2, 64), 16), "int4_g32", ones)),
            ("zero point of int4_g32_z is out of range",
             lambda: pack_blocks(np.ones((2, 64), int), "int4_g32_z", ones, zeros=-ones)),
            ("zero point of int4_g32_z is out of range",
             lambda: pack_blocks(np.ones((2, 64), int), "int4_g32_z", ones, zeros=nan))):
        with pytest.raises(InvalidInputError, match=message):
            make()
    for unknown in ("int4_g33", "nf4_g64_z", "int3_g32", "q9_9"):
        with pytest.raises(OptionError, match="unknown block format"):
            block_format(unknown)
