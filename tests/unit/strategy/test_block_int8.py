"""Data rounded to int8 by weights in blocks: exact sums, the same bits for each row."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import weft
from weft import ir, op
from weft.ir import Constant, Function, IRModule, var
from weft.op.nn.block_quantized import block_quantized_dense, random_blocks
from weft.topi.nn.block_formats import FORMATS, block_format
from weft.topi.nn.block_quantized import quant_range, rounded_rows

COLUMNS, DEPTH = 37, 512
HASWELL = "llvm -mcpu=haswell"
ALDERLAKE = "llvm -mcpu=haswell -mattr=+avxvnni"
QUICK = (("q8_0", "cpu"), ("q4_k", "cpu"), ("int4_g16", "cpu"), ("q8_0", HASWELL),
         ("q5_0", HASWELL))
LONG = [(kind, target) for kind in (*FORMATS, "int4_g64_z", "int8_g32_f32", "int8_g64_z")
        for target in ("cpu", HASWELL) if (kind, target) not in QUICK]


@functools.cache
def blocks_of(kind: str) -> np.ndarray:
    form = block_format(kind)
    return random_blocks(form, COLUMNS, DEPTH // form.elements)


def program(kind: str, columns: int = COLUMNS) -> IRModule:
    x = var("x", ("rows", DEPTH), "float32")
    y = op.nn.block_quantized_dense(x, Constant(blocks_of(kind)[:columns]), format=kind,
                                    activations="int8")
    return ir.infer_type(IRModule.from_expr(Function((x,), y)))


def check(kind: str, target: str) -> None:
    module = weft.compile(program(kind), target=target)
    data = np.random.default_rng(0).normal(size=(14, DEPTH)).astype(np.float32)
    whole = module(data)
    wanted = block_quantized_dense.reference(
        data.astype(np.float64), blocks_of(kind), kind, "int8")
    # Exact sums of integers: what is left are the roundings of a sum of a few floats.
    np.testing.assert_allclose(whole, wanted, atol=5e-7 * abs(wanted).max(), rtol=0)
    for rows in (1, 2, 7, 13):
        np.testing.assert_array_equal(module(data[:rows]), whole[:rows])
    np.testing.assert_array_equal(module(data[9:10]), whole[9:10])


@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("kind", "target"), QUICK)
def test_rows_have_the_same_bits_in_every_batch(kind: str, target: str) -> None:
    check(kind, target)


@pytest.mark.sample(0.1, 2)
@pytest.mark.parametrize(("kind", "target"), LONG)
def test_every_format_has_the_same_bits_in_every_batch(kind: str, target: str) -> None:
    check(kind, target)


def test_threads_have_the_same_bits() -> None:
    data = np.random.default_rng(0).normal(size=(5, DEPTH)).astype(np.float32)
    one, three = (weft.compile(program("q4_k"), threads=n) for n in (1, 3))
    for rows in (1, 5):
        np.testing.assert_array_equal(one(data[:rows]), three(data[:rows]))


@pytest.mark.parametrize(("target", "instruction"), [
    ("llvm -mcpu=znver4", "vpdpbusd"), (ALDERLAKE, "vpdpbusd"),
    (HASWELL, "vpmaddubsw"), ("llvm -mcpu=skylake-avx512", "vpmaddubsw"),
    ("llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1", "sdot"),
])
def test_bytes_are_multiplied_by_the_instructions_of_the_cpu(target: str, instruction: str
                                                             ) -> None:
    assert instruction in weft.compile(program("q4_0"), target=target).as_text("asm")


def test_few_columns_are_multiplied_by_plain_loops() -> None:
    data = np.random.default_rng(1).normal(size=(3, DEPTH)).astype(np.float32)
    wanted = block_quantized_dense.reference(data, blocks_of("q8_0")[:3], "q8_0", "int8")
    np.testing.assert_allclose(weft.compile(program("q8_0", 3))(data), wanted, atol=1e-4)


def test_zeros_and_what_is_not_finite_stay_so() -> None:
    module = weft.compile(program("q8_0"))
    data = np.ones((4, DEPTH), np.float32)
    data[0], data[1, 5], data[2, 40] = 1e-38, np.nan, np.inf
    result = module(data)
    assert (result[0] == 0).all()
    assert np.isnan(result[1:3]).all()
    assert np.isfinite(result[3]).all()
    assert (rounded_rows(data[:1]) == 0).all()


def test_the_range_of_quants_is_found_from_the_formulas() -> None:
    found = {name: quant_range(form) for name, form in FORMATS.items()}
    assert found["q8_0"] == (-128, 127)
    assert found["q6_k"] == (-32, 31)
    assert found["q3_k"] == (-4, 3)
    assert found["q5_1"] == (0, 31)
    assert found["iq4_nl"] == (-127, 113)
