"""Weights of 2, 4 and 8 bits of ONNX Runtime's operators, which stay in their bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from tests.onnxruntime_peer import run_onnxruntime
from tests.unit.frontend.onnx.contrib_cases import assert_agrees, contrib_model, run_weft
from weft.frontend.onnx import from_onnx
from weft.support.errors import InvalidModelError, UnsupportedModelError

ZEROS = [(2, "none"), (2, "packed"), (4, "none"), (4, "packed"), (4, "float"), (8, "none"),
         (8, "packed")]


def some(*shape: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(len(shape)).normal(size=shape).astype(dtype)


def weight(n: int, k: int, bits: int, block: int, zeros: str, dtype: str = "float32"
           ) -> list[np.ndarray | None]:
    """B, scales and zero points."""
    blocks, rng = -(-k // block), np.random.default_rng(bits)
    b = rng.integers(0, 256, (n, blocks, block * bits // 8), np.uint8)
    points = {"none": None,
              "packed": rng.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8),
              "float": rng.integers(0, 1 << bits, (n, blocks)).astype(dtype)}[zeros]
    return [b, (some(n, blocks) * 0.1).astype(dtype), points]


@pytest.mark.parametrize(("bits", "zeros"), ZEROS)
@pytest.mark.parametrize("k", [32, 40])
def test_matmul_n_bits(bits: int, zeros: str, k: int) -> None:
    n, block = 6, 16
    arrays = [some(2, 3, k), *weight(n, k, bits, block, zeros), None, some(n)]
    assert_agrees("MatMulNBits", arrays, constant=[1, 2, 3, 5], K=k, N=n, bits=bits,
                  block_size=block, tolerance=1e-3)
    assert "nn.block_quantized_dense" in _program(arrays, [1, 2, 3, 5], k, n, bits, block)


def _program(arrays: list[Any], constant: list[int], k: int, n: int, bits: int, block: int,
             **attrs: Any) -> str:
    model, _ = contrib_model("MatMulNBits", arrays, constant=constant, K=k, N=n, bits=bits,
                             block_size=block, **attrs)
    return str(from_onnx(model))


@pytest.mark.parametrize(("dtype", "zeros", "block", "format"), [
    ("float16", "none", 32, "int4_g32"), ("float16", "packed", 32, "int4_g32_z"),
    ("float32", "none", 32, "int4_g32_f32"), ("float32", "packed", 128, "int4_g128_f32_z"),
    ("float16", "none", 512, "int4_g256")])
def test_the_format_keeps_scales_and_zero_points(dtype: str, zeros: str, block: int, format: str
                                                 ) -> None:
    n, k = 8, 512
    arrays = [some(1, k, dtype=dtype), *weight(n, k, 4, block, zeros, dtype)]
    assert f'format="{format}"' in _program(arrays, [1, 2, 3], k, n, 4, block)


def test_accuracy_level_4_reads_int8_data() -> None:
    n, k, block = 16, 64, 32
    arrays = [some(4, k), *weight(n, k, 4, block, "packed")]
    attrs = {"K": k, "N": n, "bits": 4, "block_size": block, "accuracy_level": 4}
    assert 'activations="int8"' in _program(arrays, [1, 2, 3], k, n, 4, block, accuracy_level=4)
    model, feeds = contrib_model("MatMulNBits", arrays, constant=[1, 2, 3], **attrs)
    actual, expected = run_weft(model, feeds, compiled=True)[0], run_onnxruntime(model, feeds)[0]
    assert np.abs(actual - expected).max() < 0.02 * np.abs(expected).max()


def test_weights_at_run_time_and_blocks_without_a_format_are_expanded() -> None:
    n, k = 6, 32
    for block, constant in ((16, [2]), (8, [1, 2, 3])):
        arrays = [some(3, k), *weight(n, k, 8, block, "none")]
        assert "block_quantized" not in _program(arrays, constant, k, n, 8, block)
    assert_agrees("MatMulNBits", [some(3, k), *weight(n, k, 4, 16, "packed")], constant=[2], K=k,
                  N=n, bits=4, block_size=16, tolerance=1e-3)


@pytest.mark.parametrize(("wrong", "what"), [
    ({1: np.zeros((6, 1, 8), np.uint8)}, "the weight and its scales do not fit"),
    ({2: np.full((6, 2), np.nan, np.float32)}, "a scale of a quantised weight is not finite"),
    ({3: np.full((6, 2), np.inf, np.float32)}, "the offsets of blocks .* are not finite"),
])
def test_bad_weights_are_refused(wrong: dict[int, np.ndarray], what: str) -> None:
    arrays = [some(3, 32), *weight(6, 32, 4, 16, "float")]
    for index, array in wrong.items():
        arrays[index] = array
    if 1 in wrong:
        arrays[2] = some(6, 1)
    with pytest.raises(InvalidModelError, match=what):
        _program(arrays, [1, 2, 3], 32, 6, 4, 16)


def test_a_scale_of_zero_makes_zeros() -> None:
    arrays = [some(3, 32), *weight(6, 32, 4, 16, "packed")]
    arrays[2][:, 0] = 0  # type: ignore[index]
    assert_agrees("MatMulNBits", arrays, constant=[1, 2, 3], K=32, N=6, bits=4, block_size=16,
                  tolerance=1e-3)


@pytest.mark.parametrize(("kind", "bits", "zeros"), [
    ("uint8", 4, False), ("uint8", 4, True), ("uint8", 8, True), ("uint8", 8, False),
    ("int4", 4, False), ("int4", 4, True), ("uint4", 4, False)])
@pytest.mark.parametrize("width", [32, 48])
def test_rows_of_a_quantised_table(kind: str, bits: int, zeros: bool, width: int) -> None:
    rng, rows, groups = np.random.default_rng(bits), 9, -(-width // 32)
    ids = np.array([[0, 8, -1], [3, -9, 2]], np.int64)
    if kind == "uint8":
        data = rng.integers(0, 256, (rows, width * bits // 8), np.uint8)
        points = rng.integers(0, 256, (rows, -(-groups * bits // 8)), np.uint8)
    else:
        low = -8 if kind == "int4" else 0
        dtype = getattr(ml_dtypes, kind)
        data, points = (rng.integers(low, low + 16, (rows, size)).astype(dtype)
                        for size in (width, groups))
    arrays = [data, ids, np.abs(some(rows, groups)) * 0.1, points if zeros else None]
    model, feeds = contrib_model("GatherBlockQuantized", arrays, constant=[0, 2, 3], bits=bits,
                                 block_size=32, model_opset=21)
    actual, expected = run_weft(model, feeds)[0], run_onnxruntime(model, feeds)[0]
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    program = str(from_onnx(model))
    assert "nn.block_dequantize(%" in program, "rows are read before they are expanded"


def test_a_gather_along_the_blocks_is_refused() -> None:
    arrays = [np.zeros((4, 16), np.uint8), np.zeros(1, np.int64), np.ones((4, 1), np.float32)]
    model, _ = contrib_model("GatherBlockQuantized", arrays, constant=[0, 2], quantize_axis=0,
                             block_size=32)
    with pytest.raises(UnsupportedModelError, match="a gather of other than rows of integers"):
        from_onnx(model)


@pytest.mark.parametrize(("kind", "zeros"), [("int4", False), ("uint4", True)])
def test_qdq_weights_in_blocks_stay_in_their_bits(kind: str, zeros: bool) -> None:
    """DequantizeLinear with ``block_size`` along K ahead of a MatMul."""
    k, n, block, rng = 128, 48, 32, np.random.default_rng(2)
    low, dtype = -8 if kind == "int4" else 0, getattr(ml_dtypes, kind)
    arrays = {"w": rng.integers(low, low + 16, (k, n)).astype(dtype),
              "s": np.abs(some(k // block, n)) * 0.1,
              "z": rng.integers(low, low + 16, (k // block, n)).astype(dtype)}
    given = ["w", "s", "z"] if zeros else ["w", "s"]
    graph = helper.make_graph(
        [helper.make_node("DequantizeLinear", given, ["f"], axis=0, block_size=block),
         helper.make_node("MatMul", ["x", "f"], ["y"])], "qdq",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [5, k])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, n])],
        [numpy_helper.from_array(arrays[name], name) for name in given])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds, module = {"x": some(5, k)}, weft.compile(model)
    assert "nn.block_quantized_dense" in module.as_text("lowered")
    exact = run_onnxruntime(model, feeds, optimized=False)[0]  # not with int8 data
    np.testing.assert_allclose(module.run(None, feeds)[0], exact, rtol=1e-4, atol=1e-4)
