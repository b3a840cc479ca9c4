"""ONNX models whose sizes data determines are one program; ONNX Runtime agrees."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

import weft
from tests.onnxruntime_peer import session_of

HEAD = '<ir_version: 8, opset_import: ["": 17]>\n'
# The head of a detector: boxes, scores and classes of what non-maximum suppression chooses.
DETECTOR = """
detector (float[batch, n, 4] boxes, float[batch, classes, n] scores)
    => (float[k, 4] kept, float[k] values, int64[k] class) {
  most = Constant <value = int64[1] {5}> ()
  overlap = Constant <value = float[1] {0.5}> ()
  low = Constant <value = float[1] {0.3}> ()
  chosen = NonMaxSuppression (boxes, scores, most, overlap, low)
  class = Gather <axis = 1> (chosen, one)
  of_box = Gather <axis = 1> (chosen, columns)
  kept = GatherND (boxes, of_box)
  values = GatherND (scores, chosen)
}"""
# Rows by a condition on them, a matmul of these, and a reshape by arithmetic on their number.
ROWS = """
rows (float[n, 6] x, float[6, 3] w) => (float[k, 3] y, int64[k] chosen, float[k, 2, 3] z) {
  zero = Constant <value = float {0.0}> ()
  total = ReduceSum <keepdims = 0> (x, axis_one)
  yes = Greater (total, zero)
  at = NonZero (yes)
  chosen = Squeeze (at, axis_zero)
  some = Gather <axis = 0> (x, chosen)
  y = MatMul (some, w)
  shape = Shape (some)
  count = Slice (shape, axis_zero, axis_one)
  parts = Concat <axis = 0> (count, tail)
  z = Reshape (some, parts)
}"""
UNIQUE = """
distinct (int64[n] x) => (int64[k] y, int64[n] inverse, float[k] share) {
  y, at, inverse, counts = Unique <sorted = 1> (x)
  numbers = Cast <to = 1> (counts)
  share = Softmax <axis = 0> (numbers)
}"""
MASK = """
mask (float[n, 4] x, bool[n] m) => (float[k, 4] y) {
  some = Compress <axis = 0> (x, m)
  y = Exp (some)
}"""
# Each row goes to one expert; an expert computes its rows alone.
EXPERTS = """
experts (float[n, 8] x, float[8, 2] router, float[8, 8] first, float[8, 8] second)
    => (float[n, 8] y) {
  scores = MatMul (x, router)
  expert = ArgMax <axis = 1, keepdims = 0> (scores)
  is_first = Equal (expert, none)
  at_first = NonZero (is_first)
  rows_first = Transpose (at_first)
  x_first = GatherND (x, rows_first)
  y_first = MatMul (x_first, first)
  is_second = Equal (expert, one)
  at_second = NonZero (is_second)
  rows_second = Transpose (at_second)
  x_second = GatherND (x, rows_second)
  y_second = MatMul (x_second, second)
  zero = Sub (x, x)
  half = ScatterND (zero, rows_first, y_first)
  y = ScatterND (half, rows_second, y_second)
}"""
CONSTANTS = {"axis_zero": [0], "axis_one": [1], "tail": [2, 3], "one": 1, "none": 0,
             "columns": [0, 2]}
RNG = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def boxes(batch: int, count: int, classes: int) -> dict[str, np.ndarray]:
    corner = RNG.random((batch, count, 2)) * 10
    both = np.concatenate([corner, corner + RNG.random(corner.shape) * 4], -1)
    return {"boxes": both.astype(np.float32),
            "scores": RNG.random((batch, classes, count)).astype(np.float32)}


CASES = {
    "detector": (DETECTOR, [boxes(1, 20, 3), boxes(2, 7, 1), boxes(1, 300, 4)]),
    "rows": (ROWS, [{"x": normal(n, 6), "w": normal(6, 3)} for n in (5, 50, 1)]),
    "unique": (UNIQUE, [{"x": RNG.integers(0, 9, n)} for n in (5, 50, 1)]),
    "mask": (MASK, [{"x": normal(n, 4), "m": RNG.random(n) > 0.5} for n in (5, 50, 1)]),
    "experts": (EXPERTS, [{"x": normal(n, 8), "router": normal(8, 2), "first": normal(8, 8),
                           "second": normal(8, 8)} for n in (6, 100, 1)]),
}


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", CASES)
def test_one_program(name: str) -> None:
    text, feeds = CASES[name]
    graph = onnx.parser.parse_model(HEAD + text)
    for constant, value in CONSTANTS.items():
        if any(constant in node.input for node in graph.graph.node):
            graph.graph.initializer.append(numpy_helper.from_array(np.array(value), constant))
    model = weft.compile(graph)
    assert model.is_dynamic
    assert model.reason is None
    reference = session_of(graph)
    for given in feeds:
        for got, wanted in zip(model.run(None, given), reference.run(None, given), strict=True):
            assert (got.shape, got.dtype) == (wanted.shape, wanted.dtype)
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
    assert model.sizes == ()
