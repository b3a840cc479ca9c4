"""Recurrent layers, Loop and Scan of symbolic sizes are one program; ONNX Runtime agrees."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import weft
from tests.onnxruntime_peer import session_of

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
FEATURES, HIDDEN = 5, 16


def recurrent(kind: str, direction: str, *, lengths: bool = False, **attrs: Any) -> onnx.ModelProto:
    """A layer over a sequence of symbolic length in a batch of symbolic size."""
    rng = np.random.default_rng(0)
    both = 2 if direction == "bidirectional" else 1
    rows = GATES[kind] * HIDDEN
    weights = {"w": (both, rows, FEATURES), "r": (both, rows, HIDDEN), "b": (both, 2 * rows)}
    initializers = [numpy_helper.from_array(
        (rng.standard_normal(shape) / 4).astype(np.float32), name)
        for name, shape in weights.items()]
    names = ["x", "w", "r", "b", *(["lengths"] if lengths else [])]
    outputs = ["y", "h"] + (["c"] if kind == "LSTM" else [])
    node = helper.make_node(kind, names, outputs, hidden_size=HIDDEN, direction=direction, **attrs)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["seq", "batch", FEATURES])]
    if lengths:
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, ["batch"]))
    graph = helper.make_graph([node], "layer", inputs, [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


SUM_AND_PARTS = """
<ir_version: 8, opset_import: ["": 17]>
sums (float[seq, batch, 3] x) => (float[batch, 3] total, float[seq, batch, 3] parts) {
  first = Constant <value = float[1, 3] {0.5, -0.5, 1.0}> ()
  zero = ReduceSum <keepdims = 0> (x, axes)
  start = Mul (zero, first)
  total, parts = Scan <num_scan_inputs = 1, body = step (float[b, 3] s, float[b, 3] v)
      => (float[b, 3] next, float[b, 3] part) {
    sum = Add (s, v)
    next = Tanh (sum)
    part = Mul (next, v)
  }> (start, x)
}"""
POWERS = """
<ir_version: 8, opset_import: ["": 17]>
powers (float[n, 4] x, int64 count) => (float[n, 4] last, float[count, n, 4] every) {
  yes = Constant <value = bool {1}> ()
  last, every = Loop <body = step (int64 i, bool on, float[n, 4] v)
      => (bool going, float[n, 4] next, float[n, 4] seen) {
    going = Identity (on)
    next = Sin (v)
    seen = Mul (v, next)
  }> (count, yes, x)
}"""


def with_axes(text: str) -> onnx.ModelProto:
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.array([0]), "axes"))
    return model


def agree(model: onnx.ModelProto, feeds: list[dict[str, np.ndarray]], *, general: bool = True
          ) -> None:
    ours = weft.compile(model)
    assert ours.is_dynamic
    assert (ours.general is not None) == general, ours.reason
    theirs = session_of(model)
    for given in feeds:
        for got, wanted in zip(ours.run(None, given), theirs.run(None, given), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    if general:
        assert ours.sizes == ()


def sequences(*sizes: tuple[int, int]) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"x": rng.standard_normal((*size, FEATURES)).astype(np.float32)} for size in sizes]


SIZES = ((1, 1), (7, 2), (3, 9), (40, 4))


@pytest.mark.parametrize("kind", GATES)
def test_recurrent_layers(kind: str) -> None:
    agree(recurrent(kind, "forward"), sequences(*SIZES))


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.slow
def test_recurrent_layers_in_both_directions(kind: str) -> None:
    agree(recurrent(kind, "bidirectional"), sequences(*SIZES))
    agree(recurrent(kind, "reverse"), sequences(*SIZES))


def test_sequences_of_different_lengths() -> None:
    feeds = sequences((6, 3), (9, 4), (1, 1))
    for given, lengths in zip(feeds, ([6, 2, 4], [9, 1, 3, 8], [1]), strict=True):
        given["lengths"] = np.array(lengths, np.int32)
    agree(recurrent("GRU", "forward", lengths=True, linear_before_reset=1), feeds)


def test_scan() -> None:
    rng = np.random.default_rng(2)
    agree(with_axes(SUM_AND_PARTS), [{"x": rng.standard_normal((*size, 3)).astype(np.float32)}
                                     for size in ((1, 1), (5, 2), (2, 30))])


@pytest.mark.filterwarnings("ignore:(a program is|kernels are) compiled:weft.FallbackWarning")
def test_a_loop_whose_count_is_data_is_compiled_per_shape() -> None:
    rng = np.random.default_rng(3)
    agree(onnx.parser.parse_model(POWERS), [
        {"x": rng.standard_normal((n, 4)).astype(np.float32), "count": np.array(count)}
        for n, count in ((2, 3), (5, 1), (2, 6))], general=False)
