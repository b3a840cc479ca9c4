"""Loops that read the results of other loops: each runs once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import weft
from tests.onnxruntime_peer import session_of
from tests.unit.frontend.onnx.onnx_cases import make_model

F32 = TensorProto.FLOAT
FEATURES = 5


def stacked(op: str, gates: int, layers: int, direction: str = "forward") -> ModelProto:
    """Recurrent layers of 5 features over [seq, batch, 5]; the outputs of directions are added."""
    rng = np.random.default_rng(layers)
    count = 2 if direction == "bidirectional" else 1
    nodes, constants, name = [], {"axis": np.array([1])}, "x"
    for layer in range(layers):
        for kind in "wr":
            constants[f"{kind}{layer}"] = rng.standard_normal(
                (count, gates * FEATURES, FEATURES)).astype(np.float32) / 4
        nodes += [helper.make_node(op, [name, f"w{layer}", f"r{layer}"], [f"all{layer}"],
                                   hidden_size=FEATURES, direction=direction),
                  helper.make_node("ReduceSum", [f"all{layer}", "axis"], [f"y{layer}"],
                                   keepdims=0)]
        name = f"y{layer}"
    return make_model(nodes, {"x": (("seq", "batch", FEATURES), F32)}, [name], opset=17,
                      constants=constants)


@pytest.mark.sample(0.3, 1)
@pytest.mark.parametrize(("op", "gates", "layers", "direction"), [
    ("LSTM", 4, 3, "forward"), ("GRU", 3, 2, "bidirectional"), ("RNN", 1, 4, "reverse")])
def test_each_layer_runs_once(op: str, gates: int, layers: int, direction: str) -> None:
    model = stacked(op, gates, layers, direction)
    compiled = weft.compile(model)
    assert compiled.is_dynamic
    assert compiled.reason is None
    session = session_of(model)
    for seq, batch in ((1, 1), (9, 2), (30, 3)):
        x = np.random.default_rng(seq).standard_normal((seq, batch, FEATURES)).astype(np.float32)
        np.testing.assert_allclose(compiled(x), session.run(None, {"x": x})[0], rtol=1e-4,
                                   atol=1e-5)
    loops = layers * (2 if direction == "bidirectional" else 1)
    # At most three calls of a kernel in an iteration: copies of carried values, for instance.
    assert most_calls(compiled, x) <= 3 * loops * (len(x) + 1) < len(x) ** 2


def test_a_loop_in_a_loop_reads_a_loop_outside() -> None:
    """The outer body has a loop of its own, which reads the result of the first loop."""
    value, flag = helper.make_tensor_value_info, TensorProto.BOOL

    def body(name: str, nodes: list[Any]) -> Any:
        return helper.make_graph(
            [helper.make_node("Identity", [f"{name}_go"], [f"{name}_on"]), *nodes], name,
            [value(f"{name}_i", TensorProto.INT64, []), value(f"{name}_go", flag, []),
             value(f"{name}_a", F32, ["n"])],
            [value(f"{name}_on", flag, []), value(f"{name}_b", F32, ["n"])])

    first = body("f", [helper.make_node("Add", ["f_a", "x"], ["f_b"])])
    inner = body("g", [helper.make_node("Sub", ["first", "g_a"], ["g_b"])])
    outer = body("h", [helper.make_node("Loop", ["times", "", "h_a"], ["h_b"], body=inner)])
    nodes = [helper.make_node("Loop", ["times", "", "x"], ["first"], body=first),
             helper.make_node("Loop", ["times", "", "x"], ["y"], body=outer)]
    model = make_model(nodes, {"x": (("n",), F32), "times": ((), TensorProto.INT64)}, ["y"],
                       opset=17)
    compiled = weft.compile(model)
    x = np.arange(4, dtype=np.float32)
    for times in (0, 1, 3, 6):
        total, result = x * (1 + times), x
        for _ in range(times * times):
            result = total - result
        np.testing.assert_allclose(compiled(x, np.array(times)), result)


def most_calls(model: Any, *inputs: np.ndarray) -> int:
    return max(kernel.calls for kernel in model.profile(*inputs, repeat=1).kernels)
