"""onnx's C++ code on damaged models: the caller goes on."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import weft
from weft.frontend.onnx.contained import contained
from weft.frontend.onnx.loader import load_model
from weft.frontend.onnx.upgrade import upgrade_opset
from weft.support.errors import WeftError


def model(*nodes: onnx.NodeProto, opset: int = 17, shape: tuple[int, ...] = (2, 3),
          weights: tuple[np.ndarray, ...] = ()) -> ModelProto:
    graph = helper.make_graph(
        list(nodes), "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(w, f"w{i}") for i, w in enumerate(weights)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


WEIGHTS = (np.arange(3, dtype=np.float32), np.ones((3, 5000), np.float32))


def test_the_result_is_that_of_the_call() -> None:
    proto = model(helper.make_node("MatMul", ["x", "w1"], ["y"]), weights=WEIGHTS)
    expected = onnx.shape_inference.infer_shapes(proto)
    assert contained(onnx.shape_inference.infer_shapes, proto) == expected


def test_changed_weights_come_back_changed() -> None:
    def doubled(proto: ModelProto) -> ModelProto:
        result = ModelProto()
        result.CopyFrom(proto)
        for tensor in result.graph.initializer:
            tensor.CopyFrom(numpy_helper.from_array(2 * numpy_helper.to_array(tensor), tensor.name))
        return result

    proto = model(helper.make_node("Relu", ["x"], ["y"]), weights=WEIGHTS)
    assert contained(doubled, proto) == doubled(proto)


def end_by_signal(_: ModelProto) -> ModelProto:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def fail(_: ModelProto) -> ModelProto:
    raise RuntimeError("no")


def end_early(_: ModelProto) -> ModelProto:
    os._exit(0)


@pytest.mark.parametrize("call", [end_by_signal, fail, end_early])
def test_a_call_that_ends_badly_is_none(call) -> None:
    assert contained(call, model()) is None


def test_a_call_without_end_is_ended() -> None:
    assert contained(lambda p: time.sleep(600) or p, model(), patience=0.2) is None


def test_a_model_that_ended_the_process_is_refused() -> None:
    """A slice of a size below zero, over which onnx's inference stumbles; Celu has it run."""
    bounds = (np.array([0]), np.array([1]))
    proto = model(helper.make_node("Slice", ["x", "w0", "w1"], ["t"]),
                  helper.make_node("Celu", ["t"], ["y"]), opset=18, shape=(-5, 3), weights=bounds)
    assert contained(onnx.shape_inference.infer_shapes, proto) is None
    with pytest.raises(WeftError):
        weft.compile(proto)


def test_old_opsets_are_converted() -> None:
    proto = model(helper.make_node("Dropout", ["x"], ["y"], ratio=0.5), opset=6, weights=WEIGHTS)
    found = upgrade_opset(load_model(proto))
    assert found.proto.opset_import[0].version == 7
    assert list(found.proto.graph.initializer) == list(proto.graph.initializer)
