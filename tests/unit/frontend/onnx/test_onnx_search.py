"""Results whose size the data decides: NonZero, Compress, Unique."""

from __future__ import annotations

import numpy as np
import onnx.parser
import pytest

import weft
from tests.onnxruntime_peer import run_onnxruntime


def check(text: str, *inputs: np.ndarray) -> None:
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')
    names = [value.name for value in model.graph.input]
    expected = run_onnxruntime(model, dict(zip(names, inputs, strict=True)))
    found = weft.compile(model, opt_level=1)(*inputs)
    results = found if isinstance(found, tuple) else (found,)
    for a, b in zip(results, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 3, shape).astype(np.float32)


@pytest.mark.parametrize("fill", [None, 0])
def test_places_of_what_is_not_zero_select_rows(fill: int | None) -> None:
    x = numbers(4, 3) if fill is None else np.zeros((4, 3), np.float32)
    check("""agraph (float[4, 3] x) => (int64[2, n] places, float[m, 3] rows) {
      places = NonZero(x)
      zero = Constant<value = float {0}>()
      total = ReduceMax<keepdims = 0>(x, last)
      kept = Greater(total, zero)
      rows = Compress<axis = 0>(x, kept)
    }""".replace("zero =", "last = Constant<value = int64[1] {1}>()\n zero ="), x)


@pytest.mark.parametrize(("axis", "order"), [(0, 1), (-1, 0)])
def test_unique_slices(axis: int, order: int) -> None:
    check(f"""agraph (float[5, 2, 2] x) => (float[a, b, c] y, int64[n] i, int64[m] j, int64[k] n) {{
      y, i, j, n = Unique<axis = {axis}, sorted = {order}>(x)
    }}""", np.concatenate([numbers(3, 2, 2), numbers(2, 2, 2)]))


def test_what_is_found_at_import_has_a_size() -> None:
    text = """agraph (float[3] x) => (float[2] y) {
      c = Constant<value = bool[3] {1, 0, 1}>()
      y = Compress<axis = 0>(x, c)
    }"""
    check(text, numbers(3))
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]>\n{text}')
    assert weft.compile(model).outputs[0].shape == (2,)
