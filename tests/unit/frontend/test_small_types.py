"""Elements of 8 bits and fewer in ONNX models: stored, at the boundary, and converted."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from weft.frontend.onnx.tensors import tensor_to_numpy
from weft.ir.dtype import DType

TYPES = ["FLOAT8E4M3FN", "FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ", "FLOAT8E8M0",
         "FLOAT4E2M1", "INT4", "UINT4", "INT2", "UINT2"]  # fmt: skip


def codes(name: str, count: int) -> np.ndarray:
    dtype = helper.tensor_dtype_to_np_dtype(getattr(TensorProto, name))
    bits = DType.of(dtype).bits
    return np.random.default_rng(3).integers(0, 1 << bits, count, dtype=np.uint8).view(dtype)


@pytest.mark.parametrize("count", [1, 7, 8])
@pytest.mark.parametrize("name", TYPES)
def test_stored_tensors(name: str, count: int) -> None:
    expected = codes(name, count)
    raw = numpy_helper.from_array(expected, "w")
    typed = TensorProto(name="w", dims=[count], data_type=raw.data_type,
                        int32_data=list(raw.raw_data))  # fmt: skip
    for proto in (raw, typed):
        found = tensor_to_numpy(proto, None, "m.onnx")
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


def run_cast(values: np.ndarray, to: int, **attributes: Any) -> np.ndarray:
    node = helper.make_node("Cast", ["x"], ["y"], to=to, **attributes)
    info = [helper.make_tensor_value_info(name, code, values.shape)
            for name, code in (("x", helper.np_dtype_to_tensor_dtype(values.dtype)), ("y", to))]
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=11)
    return weft.compile(model, opt_level=0)(values)


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_rounding_to_powers_of_two(mode: str, saturate: int) -> None:
    values = np.array([0, 0.124, 0.25, 1.1, 1.5, 1.75, 3, 2.0**127, 1.8 * 2.0**127,
                       -5, np.inf, np.nan, 2.0**-126, 1.5 * 2.0**-126], np.float32)  # fmt: skip
    expected = numpy_helper.to_float8e8m0(values, bool(saturate), mode)
    found = run_cast(values, TensorProto.FLOAT8E8M0, saturate=saturate, round_mode=mode)
    assert found.dtype == ml_dtypes.float8_e8m0fnu
    np.testing.assert_array_equal(found.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("name", ["FLOAT8E4M3FN", "FLOAT8E5M2FNUZ"])
@pytest.mark.parametrize("source", [np.float64, np.float16, ml_dtypes.bfloat16, np.int32])
def test_saturation(name: str, source: type) -> None:
    values = np.array([-60000, -449, 0, 1, 7, 250, 40000], source)
    to = getattr(TensorProto, name)
    dtype = helper.tensor_dtype_to_np_dtype(to)
    expected = numpy_helper.saturate_cast(values.astype(np.float32), dtype)
    np.testing.assert_array_equal(run_cast(values, to).view(np.uint8), expected.view(np.uint8))
    with np.errstate(over="ignore"):
        wrapped = values.astype(dtype)
    found = run_cast(values, to, saturate=0)
    np.testing.assert_array_equal(found.view(np.uint8), wrapped.view(np.uint8))


def test_weights_of_four_bits_inside_a_model() -> None:
    """Block-quantised weights, dequantised by the compiled model."""
    weight = np.arange(-8, 8).astype(ml_dtypes.int4).reshape(4, 4)
    scale = np.array([[0.5, 1, 2, 4], [0.25, 3, 1, 1]], np.float32)
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s"], ["r"], axis=0, block_size=2),
        helper.make_node("MatMul", ["x", "r"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        [numpy_helper.from_array(weight, "w"), numpy_helper.from_array(scale, "s")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    x = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    real = weight.astype(np.float32) * np.repeat(scale, 2, axis=0)
    np.testing.assert_allclose(weft.compile(model)(x), x @ real, rtol=1e-5)
