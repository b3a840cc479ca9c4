"""Operators whose naive formulas cancel, or multiply by zeros that stand for nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft

onnx = pytest.importorskip("onnx")


def onnx_module(node: str, arrays: list[np.ndarray], opset: int = 21, **attrs: Any) -> Any:
    from onnx import TensorProto, helper

    names = "abc"[:len(arrays)]
    graph = helper.make_graph(
        [helper.make_node(node, list(names), ["y"], **attrs)], "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape)
         for n, a in zip(names, arrays, strict=True)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return weft.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)],
                                          ir_version=9))


def standard(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + 1e-5)


@pytest.mark.parametrize(("node", "opset", "attrs", "weights", "axes"), [
    ("GroupNormalization", 21, {"num_groups": 2}, 8, (2, 3, 4)),
    ("InstanceNormalization", 21, {}, 8, (3, 4)),
    ("MeanVarianceNormalization", 13, {}, 0, (0, 3, 4)),
])
def test_variance_of_data_with_an_offset(
    node: str, opset: int, attrs: dict[str, Any], weights: int, axes: tuple[int, ...]
) -> None:
    """E[x²] - E[x]² of numbers around 1000 has no digit left in float32."""
    x = (1000 + np.random.default_rng(0).normal(size=(2, 8, 20, 20))).astype(np.float32)
    operands = [x, np.ones(weights, np.float32), np.zeros(weights, np.float32)]
    found = onnx_module(node, operands if weights else [x], opset, **attrs)(
        *(operands if weights else [x]))
    groups = x.astype(np.float64).reshape(2, 2, 4, 20, 20)
    expected = standard(groups, axes).reshape(x.shape)
    assert np.abs(found - expected).max() < 2e-4


@pytest.mark.parametrize("axis", [0, 1])
def test_running_sums_of_data_with_an_offset(axis: int) -> None:
    shape = (20_000, 3) if axis == 0 else (3, 20_000)
    x = (1000 + np.random.default_rng(0).normal(size=shape)).astype(np.float32)
    program = weft.compile(weft.parse(
        f"def @main(%x: Tensor[{shape}, float32]) {{ cumsum(%x, axis={axis}) }}"))
    exact = np.cumsum(x.astype(np.float64), axis=axis)
    np.testing.assert_allclose(program(x), exact, rtol=6e-8)


def test_infinite_taps_beyond_the_data_have_no_part_in_a_transposed_convolution() -> None:
    x, w = np.ones((1, 1, 1, 4), np.float32), np.ones((1, 1, 3, 3), np.float32)
    w[0, 0, 1, 1] = np.inf
    found = onnx_module("ConvTranspose", [x, w], strides=[1, 3])(x, w)
    expected = np.ones((3, 12))
    expected[1, 1::3] = np.inf
    np.testing.assert_array_equal(found[0, 0], expected)
