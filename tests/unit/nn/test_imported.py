"""ONNX files as modules: weights are parameters, and results are those of the compiled model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from weft import nn
from weft.support.errors import InvalidInputError

onnx = pytest.importorskip("onnx")


def _model() -> Any:
    from onnx import TensorProto, helper, numpy_helper

    rng = np.random.default_rng(0)
    weights = {"conv.weight": (3, 1, 3, 3), "conv.bias": (3,), "norm.weight": (3,),
               "norm.bias": (3,), "norm.mean": (3,), "norm.var": (3,), "fc.weight": (2, 12)}
    nodes = [helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["a"]),
             helper.make_node("BatchNormalization",
                              ["a", "norm.weight", "norm.bias", "norm.mean", "norm.var"], ["b"]),
             helper.make_node("Flatten", ["b"], ["c"]),
             helper.make_node("Gemm", ["c", "fc.weight"], ["y"], transB=1)]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(rng.uniform(0.5, 1, s).astype(np.float32), n)
         for n, s in weights.items()])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_a_file_becomes_a_module_that_trains():
    proto = _model()
    module = nn.from_onnx(proto)
    assert sorted(n for n, _ in module.named_parameters()) == [
        "conv.bias", "conv.weight", "fc.weight", "norm.bias", "norm.weight"]
    assert sorted(n for n, _ in module.named_buffers()) == ["norm.mean", "norm.var"]
    x = np.random.default_rng(1).normal(size=(3, 1, 4, 4)).astype(np.float32)
    y = module(weft.tensor(x))
    np.testing.assert_allclose(y.detach().numpy(), weft.compile(proto)(x), rtol=1e-4, atol=1e-5)
    y.sum().backward()
    assert all(p.grad is not None for p in module.parameters())
    assert tuple(module(x=weft.tensor(x[:1])).shape) == (1, 2)
    with pytest.raises(InvalidInputError, match="wrong inputs"):
        module(z=weft.tensor(x))
