"""Operators of old opsets that newer ones define by others, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import weft
from tests.onnxruntime_peer import run_onnxruntime
from tests.unit.frontend.onnx.onnx_cases import make_model


def agree(operator: str, opset: int, x: np.ndarray, **attributes) -> None:
    node = helper.make_node(operator, ["x"], ["y"], **attributes)
    model = make_model([node], {"x": (x.shape, TensorProto.FLOAT)}, ["y"], opset=opset)
    (want,) = run_onnxruntime(model, {"x": x})
    got = weft.compile(model)(x)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
                                  "ReduceSumSquare"])
@pytest.mark.parametrize("attributes", [{"axes": [1], "keepdims": 0}, {"axes": [-1, 0]}, {}])
def test_reductions_before_their_bodies(name, attributes) -> None:
    x = np.random.default_rng(1).uniform(0.1, 2, (2, 3, 4)).astype(np.float32)
    agree(name, 13, x, **attributes)


def test_log_sum_exp_overflows_nowhere() -> None:
    x = np.array([[1000.0, 1000.0], [-1000.0, -1001.0]], np.float32)
    node = helper.make_node("ReduceLogSumExp", ["x"], ["y"], axes=[1], keepdims=0)
    model = make_model([node], {"x": (x.shape, TensorProto.FLOAT)}, ["y"], opset=13)
    np.testing.assert_allclose(weft.compile(model)(x), np.logaddexp.reduce(x, 1), rtol=1e-6)


@pytest.mark.parametrize("opset", [11, 13, 20])
def test_blocks_of_space(opset) -> None:
    rng = np.random.default_rng(2)
    deep = rng.standard_normal((1, 8, 2, 3)).astype(np.float32)
    for mode in ("DCR", "CRD"):
        agree("DepthToSpace", opset, deep, blocksize=2, mode=mode)
    agree("SpaceToDepth", opset, rng.standard_normal((2, 3, 4, 6)).astype(np.float32), blocksize=2)


@pytest.mark.parametrize("order", [1, 2, 3])
def test_norms_of_channels(order) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, 4, 5)).astype(np.float32)
    agree("GlobalLpPool", 13, x, p=order)
