"""Matmuls over blocks in registers: any numbers of rows and columns, the same bits for each row."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import ir, op
from weft.ir import Constant, Function, IRModule, var
from weft.op.nn.block_quantized import random_blocks
from weft.support.errors import TypeInferenceError
from weft.topi.nn.block_formats import block_format
from weft.topi.nn.block_quantized import dequantized

COLUMNS, DEPTH = 37, 512


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("kind", ["q8_0", "q5_0", "q4_k", "int4_g16", "int4_g64_f32_z", "nf4_g128",
                                  "fp8_e4m3_g32"])
def test_rows_have_the_same_bits_in_every_batch(kind: str) -> None:
    form = block_format(kind)
    blocks = random_blocks(form, COLUMNS, DEPTH // form.elements)
    x = var("x", ("rows", DEPTH), "float32")
    y = op.nn.block_quantized_dense(x, Constant(blocks), format=kind)
    module = weft.compile(ir.infer_type(IRModule.from_expr(Function((x,), y))))
    data = np.random.default_rng(0).normal(size=(14, DEPTH)).astype(np.float32)
    assert "block_quantized_dense.cpu.registers" in module.profile(data).table()
    whole = module(data)
    wanted = data.astype(np.float64) @ dequantized(blocks, form).astype(np.float64).T
    np.testing.assert_allclose(whole, wanted, atol=1e-6 * abs(wanted).max())
    for rows in (1, 2, 7, 13):
        np.testing.assert_array_equal(module(data[:rows]), whole[:rows])
    np.testing.assert_array_equal(module(data[9:10]), whole[9:10])


def test_the_sizes_and_the_format_are_checked() -> None:
    x = var("x", (2, 64), "float32")
    for weight, kind, message in (
            (np.zeros((3, 35), np.uint8), "q8_0", "whole blocks"),
            (np.zeros((3, 34), np.uint8), "q8_0", "inner sizes do not match"),
            (np.zeros((3, 68), np.int8), "q8_0", "blocks are bytes"),
            (np.zeros((3, 68), np.uint8), "q9_9", "unknown block format")):
        with pytest.raises(TypeInferenceError, match=message):
            ir.infer_type(IRModule.from_expr(Function((x,), op.nn.block_quantized_dense(
                x, Constant(weight), format=kind))))
