"""Recurrent layers of TensorFlow Lite, and the states that they keep."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.frontend.tflite.builder import Graph, Op, T, tflite_file
from weft.frontend.tflite import from_tflite
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.reference import evaluate

RNG = np.random.default_rng(0)
UNITS, INPUTS = 3, 2
TANH = 4


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


W, R = normal(4, UNITS, INPUTS), normal(4, UNITS, UNITS)
B = normal(4, UNITS)


def lstm_file(steps: int, *, has_input_gate: bool, peephole: bool = False) -> bytes:
    state = [T((1, UNITS), name=name, is_variable=True) for name in ("h", "c")]
    weights = [T(a.shape, data=a) for group in (W, R, B) for a in group]
    tensors = [T((1, steps, INPUTS)), *weights, *state, T((1, steps, UNITS))]
    gates = [1 if has_input_gate else -1, 2, 3, 4]
    recurrent = [5 if has_input_gate else -1, 6, 7, 8]
    biases = [9 if has_input_gate else -1, 10, 11, 12]
    inputs = [0, *gates, *recurrent, -1, 10 if peephole else -1, -1, *biases, -1, -1, 13, 14]
    return tflite_file(Graph(tensors, [0], [15], [
        Op("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [15], "UnidirectionalSequenceLSTMOptions",
           {"FusedActivationFunction": TANH, "CellClip": 1.5})]))


def lstm(x: np.ndarray, h: np.ndarray, c: np.ndarray, *, has_input_gate: bool
         ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rows = []
    for row in x[0]:
        i, f, g, o = (row @ W[k].T + h @ R[k].T + B[k] for k in range(4))
        admit = sigmoid(i) if has_input_gate else 1 - sigmoid(f)
        c = np.clip(sigmoid(f) * c + admit * np.tanh(g), -1.5, 1.5)
        h = sigmoid(o) * np.tanh(c)
        rows.append(h)
    return np.stack(rows)[None], h, c


@pytest.mark.parametrize("has_input_gate", [True, False])
@pytest.mark.parametrize("steps", [2, 20])
def test_an_lstm_keeps_its_states_between_runs(steps: int, has_input_gate: bool) -> None:
    module = from_tflite(lstm_file(steps, has_input_gate=has_input_gate))
    assert module.attrs["state"] == {"c_14/next": "c_14", "h_13/next": "h_13"}
    names, h, c = module.attrs["input_names"], np.zeros(UNITS), np.zeros(UNITS)
    values = {"t0": None, "h_13": np.zeros((1, UNITS), np.float32),
              "c_14": np.zeros((1, UNITS), np.float32)}
    for _ in range(2):
        values["t0"] = normal(1, steps, INPUTS)
        results = evaluate(module, [values[name] for name in names])
        found = dict(zip(module.attrs["output_names"], results, strict=True))
        expected, h, c = lstm(values["t0"], h, c, has_input_gate=has_input_gate)
        np.testing.assert_allclose(found["t15"], expected, rtol=1e-4, atol=1e-5)
        values |= {name: found[f"{name}/next"] for name in ("h_13", "c_14")}


def test_an_lstm_with_peepholes_is_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="peepholes"):
        from_tflite(lstm_file(2, has_input_gate=True, peephole=True))


@pytest.mark.parametrize("name", ["RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"])
def test_an_rnn(name: str) -> None:
    is_sequence = name != "RNN"
    x = normal(1, 4, INPUTS) if is_sequence else normal(1, INPUTS)
    tensors = [T(x.shape), T((UNITS, INPUTS), data=W[0]), T((UNITS, UNITS), data=R[0]),
               T((UNITS,), data=B[0]), T((1, UNITS), is_variable=True),
               T((1, 4, UNITS) if is_sequence else (1, UNITS))]
    table = "SequenceRNNOptions" if is_sequence else "RNNOptions"
    compiled = weft.compile(tflite_file(Graph(tensors, [0], [5], [
        Op(name, range(5), [5], table, {"FusedActivationFunction": TANH})])))
    h, rows = np.zeros(UNITS), []
    for row in x[0] if is_sequence else x:
        h = np.tanh(row @ W[0].T + h @ R[0].T + B[0])
        rows.append(h)
    np.testing.assert_allclose(compiled(x), [rows] if is_sequence else rows, rtol=1e-4, atol=1e-6)


def test_a_filter_of_rank_one_remembers_activations() -> None:
    features, time, bias = normal(4, INPUTS), normal(4, 3), normal(2)
    tensors = [T((1, INPUTS)), T((4, INPUTS), data=features), T((4, 3), data=time),
               T((2,), data=bias), T((1, 12), is_variable=True), T((1, 2))]
    compiled = weft.compile(tflite_file(Graph(tensors, [0], [5], [
        Op("SVDF", range(5), [5], "SVDFOptions", {"Rank": 2})])))
    state = np.zeros((4, 3))
    for _ in range(4):
        x = normal(1, INPUTS)
        state = np.concatenate([state[:, 1:], features @ x.T], 1)
        expected = (state * time).sum(1).reshape(2, 2).sum(1) + bias
        np.testing.assert_allclose(compiled(x), [expected], rtol=1e-4, atol=1e-5)
