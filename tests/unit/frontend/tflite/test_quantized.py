"""Quantized operators are within one unit of exact arithmetic on the numbers they stand for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.frontend.tflite.builder import Graph, Op, T, tflite_file
from weft.frontend.tflite import from_tflite
from weft.support.errors import InvalidModelError
from weft.transform.analysis.reference import evaluate

RNG = np.random.default_rng(0)
RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767)}


def integers(dtype: str, *shape: int) -> np.ndarray:
    low, high = RANGES[dtype]
    return RNG.integers(low, high + 1, shape).astype(dtype)


def stored(real: np.ndarray, scale: float, zero: int, dtype: str) -> np.ndarray:
    return np.clip(np.round(real / scale) + zero, *RANGES[dtype])


def of_unary(name: str, dtype: str, x: np.ndarray, out: tuple[float, int], **options: Any
             ) -> np.ndarray:
    table = options.pop("table", "")
    graph = Graph([T(x.shape, dtype, scale=[0.05 if dtype != "int16" else 2e-4],
                     zero=3 if dtype != "int16" else 0),
                   T(x.shape, dtype, scale=[out[0]], zero=out[1])], [0], [1],
                  [Op(name, [0], [1], table, options)])
    return evaluate(from_tflite(tflite_file(graph)), [x])


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
@pytest.mark.parametrize(("name", "function"), [
    ("TANH", np.tanh), ("LOGISTIC", lambda x: 1 / (1 + np.exp(-x))), ("EXP", np.exp),
    ("RELU", lambda x: np.maximum(x, 0)), ("RELU6", lambda x: np.clip(x, 0, 6)), ("ABS", np.abs),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_function_of_elements(name: str, function: Any, dtype: str) -> None:
    x = integers(dtype, 2, 30)
    scale, zero = (0.05, 3) if dtype != "int16" else (2e-4, 0)
    out = (0.03, 5) if dtype != "int16" else (3e-4, 0)
    found = of_unary(name, dtype, x, out)
    expected = stored(function((x.astype(np.float64) - zero) * scale), *out, dtype)
    assert found.dtype == np.dtype(dtype)
    assert np.abs(found.astype(int) - expected).max() <= 1


def dense_file(activation: int, weight: T, bias: T) -> bytes:
    tensors = [T((1, 6), "int8", scale=[0.1], zero=-4), weight, bias,
               T((1, 4), "int8", scale=[0.2], zero=7)]
    return tflite_file(Graph(tensors, [0], [3], [
        Op("FULLY_CONNECTED", [0, 1, 2], [3], "FullyConnectedOptions",
           {"FusedActivationFunction": activation})]))


@pytest.mark.parametrize("activation", [0, 1, 3])
def test_a_dense_layer_with_one_scale_for_each_row_is_computed_in_integers(activation: int
                                                                           ) -> None:
    x, w = integers("int8", 1, 6), integers("int8", 4, 6)
    scales = np.array([0.01, 0.02, 0.005, 0.03])
    bias = np.array([900, -500, 0, 77], np.int32)
    data = dense_file(activation, T((4, 6), "int8", w, scale=scales),
                      T((4,), "int32", bias, scale=scales * 0.1))
    real = ((x.astype(int) + 4) @ w.T.astype(int) + bias) * scales * 0.1
    real = {0: real, 1: np.maximum(real, 0), 3: np.clip(real, 0, 6)}[activation]
    compiled = weft.compile(data)
    assert np.abs(compiled(x).astype(int) - stored(real, 0.2, 7, "int8")).max() <= 1


def test_weights_of_four_bits_and_wide_biases_are_unpacked() -> None:
    packed = np.array([0x9, 0x1F], np.uint8)  # -7, 0, -1, 1
    tensors = [T((1, 4), "int16", scale=[1e-3]), T((1, 4), "int4", packed, scale=[0.5]),
               T((1,), "int64", [2000], scale=[5e-4]), T((1, 1), "int16", scale=[1e-3])]
    data = tflite_file(Graph(tensors, [0], [3], [Op("FULLY_CONNECTED", [0, 1, 2], [3])]))
    x = np.array([[1000, 5, 2000, 3000]], np.int16)
    assert evaluate(from_tflite(data), [x]) == (-7000 - 2000 + 3000) / 2 + 1000


def test_numbers_are_quantized_away_from_zero_and_back() -> None:
    data = tflite_file(Graph([T((4,)), T((4,), "int8", scale=[0.5]), T((4,))], [0], [1, 2],
                             [Op("QUANTIZE", [0], [1]), Op("DEQUANTIZE", [1], [2])]))
    x = np.array([0.25, -0.25, 0.75, 99], np.float32)
    first, second = evaluate(from_tflite(data), [x])
    np.testing.assert_array_equal(first, [1, -1, 2, 127])
    np.testing.assert_array_equal(second, [0.5, -0.5, 1, 63.5])


def test_a_border_of_quantized_numbers_is_a_real_zero() -> None:
    data = tflite_file(Graph([T((1, 2), "int8", scale=[0.5], zero=9),
                              T((2, 2), "int32", [[0, 0], [1, 0]]),
                              T((1, 3), "int8", scale=[0.5], zero=9)], [0], [2],
                             [Op("PAD", [0, 1], [2])]))
    np.testing.assert_array_equal(evaluate(from_tflite(data), [np.array([[1, 2]], np.int8)]),
                                  [[9, 1, 2]])


def test_scales_that_do_not_fit_the_axis_are_refused() -> None:
    with pytest.raises(InvalidModelError, match="2 scales along axis 0"):
        from_tflite(tflite_file(Graph([T((3,), "int8", scale=[1.0, 2.0])], [0], [0], [])))
