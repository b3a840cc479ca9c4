"""Tensors of blocks: dtypes whose elements are several quantised numbers, from text to code."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import ir, op
from weft.ir import Constant, DType, Expr, Function, IRModule, Tuple, as_text, parse, var
from weft.ir.block_dtype import CODES, GGUF_BLOCKS, GROUPS, block_array_dtype, block_size
from weft.ir.json.format import load_json, save_json
from weft.op.nn.block_quantized import random_blocks
from weft.support.errors import OptionError, TypeInferenceError, UnsupportedModelError
from weft.topi.nn.block_formats import block_format
from weft.topi.nn.block_quantized import dequantized
from weft.transform import evaluate

FORMATS = ("q4_0", "iq4_nl", "q6_k", "int4_g64_f32_z", "nf4_g16", "fp8_e4m3_g32")
DEPTH = 256


def _blocks(name: str, rows: int, seed: int = 0) -> np.ndarray:
    form = block_format(name)
    data = random_blocks(form, rows, DEPTH // form.elements, seed=seed)
    return data.view(block_array_dtype(name))


def test_dtypes_have_the_sizes_of_the_formats() -> None:
    names = [*GGUF_BLOCKS, *(f"{codes}_g{size}{wide}{zero}" for codes in CODES for size in GROUPS
                             for wide in ("", "_f32") for zero in ("", "_z"))]
    known = [name for name in names if block_size(name) is not None]
    assert len(known) == 11 + 70
    for name in known:
        form, dtype = block_format(name), DType.of(name)
        assert block_size(name) == (form.elements, form.nbytes)
        assert (dtype.name, dtype.itemsize, dtype.is_block) == (name, form.nbytes, True)
        assert DType.of(dtype.numpy) is dtype
        assert not any((dtype.is_int, dtype.is_float, dtype.is_small_float))
    assert DType.of("q4_0") is not DType.of("iq4_nl")  # of as many bytes
    assert not DType.of("int8").is_block
    with pytest.raises(OptionError, match="unknown dtype"):
        DType.of("nf4_g16_z")


@st.composite
def programs(draw: st.DrawFn) -> IRModule:
    """Matrices of one format, joined and indexed, then multiplied or dequantised."""
    name = draw(st.sampled_from(FORMATS))
    blocks = DEPTH // block_format(name).elements
    parameters: list[ir.Var] = []

    def matrix(depth: int) -> Expr:
        kind = draw(st.sampled_from(("var", "constant", "take", "concatenate") if depth else
                                    ("var", "constant")))
        if kind == "var":
            parameters.append(var(f"w{len(parameters)}", (draw(st.sampled_from([2, 5])), blocks),
                                  name))
            return parameters[-1]
        if kind == "constant":
            return Constant(_blocks(name, draw(st.integers(1, 4)), seed=len(parameters)))
        if kind == "take":
            return op.take(matrix(depth - 1), Constant(np.array([1, 0, 1], np.int32)), axis=0)
        return op.concatenate(Tuple((matrix(depth - 1), matrix(depth - 1))), axis=0)

    x = var("x", (3, DEPTH), "float32")
    parameters.append(x)
    last = op.nn.block_quantized_dense if draw(st.booleans()) else None
    weight = matrix(draw(st.integers(0, 2)))
    body = op.nn.block_dequantize(weight) if last is None else last(x, weight)
    return ir.infer_type(IRModule.from_expr(Function(tuple(parameters), body)))


@settings(max_examples=25, deadline=None)
@given(programs())
def test_programs_are_read_back_as_they_are(module: IRModule) -> None:
    text = as_text(module)
    again = ir.infer_type(parse(text))
    ir.assert_structural_equal(again, module)
    assert as_text(again) == text
    ir.assert_structural_equal(load_json(save_json(module)), module)


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", FORMATS)
def test_products_and_rows_are_those_of_the_bytes(name: str) -> None:
    first, second = _blocks(name, 4), _blocks(name, 3, seed=1)
    x, w = var("x", (2, DEPTH), "float32"), var("w", second.shape, name)
    ids = Constant(np.array([2, 0], np.int32))
    joined = op.concatenate(Tuple((Constant(first), w)), axis=0)
    body = Tuple((op.nn.block_quantized_dense(x, joined),
                  op.nn.block_dequantize(op.take(joined, ids, axis=0), dtype="float16")))
    module = ir.infer_type(IRModule.from_expr(Function((x, w), body)))
    data = np.random.default_rng(0).normal(size=(2, DEPTH)).astype(np.float32)
    numbers = dequantized(np.concatenate([first, second]).view(np.uint8), block_format(name))
    wanted = data.astype(np.float64) @ numbers.T.astype(np.float64), numbers[[2, 0]]
    compiled = weft.compile(module)
    assert [(one.dtype, one.shape) for one in compiled.inputs][1] == (
        "uint8", second.view(np.uint8).shape)
    for found in (evaluate(module, [data, second]), compiled(data, second.view(np.uint8))):
        np.testing.assert_allclose(found[0], wanted[0], atol=1e-3)
        np.testing.assert_allclose(found[1], wanted[1].astype(np.float16), rtol=1e-3, atol=1e-6)


def test_other_operators_refuse_blocks() -> None:
    w, x = var("w", (4, 8), "q4_0"), var("x", (2, DEPTH), "float32")
    for make, message in (
            (lambda: op.add(w, w), "add.*not defined for blocks"),
            (lambda: op.nn.dense(x, w), "nn.dense.*not defined for blocks"),
            (lambda: op.stack(Tuple((w, w)), axis=0), "stack.*not defined for blocks"),
            (lambda: op.cast(x, dtype="q4_0"), "cast.*not defined for blocks.*result"),
            (lambda: op.nn.block_dequantize(w, dtype="q4_0"), "elements of blocks are floats"),
            (lambda: op.nn.block_quantized_dense(var("y", (2, 64), "float32"), w),
             "inner sizes do not match")):
        body = make()
        with pytest.raises(TypeInferenceError, match=message):
            ir.infer_type(IRModule.from_expr(body))
    module = IRModule.from_expr(Function((w,), op.take(
        w, Constant(np.array([0], np.int32)), axis=1)))
    with pytest.raises(UnsupportedModelError, match="one by one"):
        weft.compile(module)
