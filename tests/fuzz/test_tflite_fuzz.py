"""Damaged files of TensorFlow Lite: an error of weft's family that says something, or a module."""

from __future__ import annotations

import random

import numpy as np
import pytest

from tests.fuzz.mutate import mutate_bytes
from tests.fuzz.test_other_formats_fuzz import is_refused
from tests.unit.frontend.tflite.builder import Graph, Op, T, tflite_file
from weft.frontend.tflite import from_tflite

SEEDS_PER_ROUND = 40
RNG = np.random.default_rng(0)


def net() -> bytes:
    """A quantized convolution, a dense layer, shape arithmetic, a branch and a loop."""
    tensors = [T((1, 4, 4, 3), "int8", name="x", scale=[0.1], signature=(-1, 4, 4, 3)),
               T((2, 3, 3, 3), "int8", RNG.integers(-9, 9, (2, 3, 3, 3)), scale=[0.1, 0.2]),
               T((2,), "int32", [3, -4], scale=[0.01, 0.02]), T((1, 2, 2, 2), "int8", scale=[0.5]),
               T((2,), "int32", [-1, 8]), T((1, 8), "int8", scale=[0.5]), T((1, 8)),
               T((4, 8), data=RNG.normal(size=(4, 8))), T((1, 4)), T((), "bool"),
               T((1,), "int32", [0]), T((4,)), T((), "float32", 1.0), T(()), T((1, 4)), T((1, 4))]
    main = Graph(tensors, [0], [15], [
        Op("CONV_2D", [0, 1, 2], [3], "Conv2DOptions",
           {"StrideH": 2, "StrideW": 2, "FusedActivationFunction": 1}),
        Op("RESHAPE", [3, 4], [5]), Op("DEQUANTIZE", [5], [6]),
        Op("FULLY_CONNECTED", [6, 7, -1], [8], "FullyConnectedOptions", {}),
        Op("SUM", [8, 10], [11], "ReducerOptions", {}),
        Op("REDUCE_MAX", [11, 10], [13], "ReducerOptions", {}),
        Op("GREATER", [13, 12], [9]),
        Op("IF", [9, 8], [14], "IfOptions", {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2}),
        Op("WHILE", [14], [15], "WhileOptions",
           {"CondSubgraphIndex": 3, "BodySubgraphIndex": 1})])
    sides = [Graph([T((1, 4)), T((1, 4))], [0], [1], [Op(name, [0], [1])])
             for name in ("ABS", "TANH")]
    test = Graph([T((1, 4)), T((2,), "int32", [0, 1]), T(()), T((), data=9.0), T((), "bool")],
                 [0], [4], [Op("SUM", [0, 1], [2], "ReducerOptions", {}),
                            Op("LESS", [2, 3], [4])])
    return tflite_file(main, *sides, test, signatures={"serving_default": 0})


def test_the_undamaged_file_is_read() -> None:
    assert from_tflite(net()).attrs["input_names"] == ("a",)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("number", range(10))
def test_damaged_tflite(number: int) -> None:
    data, refused = net(), 0
    for seed in range(number * SEEDS_PER_ROUND, (number + 1) * SEEDS_PER_ROUND):
        damaged = mutate_bytes(data, random.Random(f"tflite/{seed}"))
        try:
            refused += is_refused(from_tflite, damaged)
        except Exception as error:
            error.add_note(f"seed: tflite/{seed}")
            raise
    assert refused
