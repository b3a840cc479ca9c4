"""Damaged files, operators that weft lacks, converters of users, and ways to give a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from flatbuffers import flexbuffers

import weft
from tests.unit.frontend.tflite.builder import Graph, Op, T, tflite_file
from weft import op
from weft.frontend.tflite import from_tflite
from weft.frontend.tflite.registry import CONVERTERS
from weft.support.errors import (
    InvalidInputError,
    InvalidModelError,
    RegistryError,
    UnsupportedModelError,
)
from weft.transform.analysis.reference import evaluate

X = np.array([[-1, 2], [3, -4]], np.float32)
NEG = tflite_file(Graph([T((2, 2), name="x"), T((2, 2), name="y")], [0], [1],
                        [Op("NEG", [0], [1])]))
MISSING = Graph([T((2,), name="x"), T((2,), name="a"), T((2,), name="b"), T((2,), "string"),
                 T((2,), name="c")], [0], [2, 4],
                [Op("Mine", [0], [1]), Op("Mine", [1], [2]), Op("HASHTABLE_SIZE", [0], [4]),
                 Op("RESHAPE", [3], [4])])


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    assert weft.tflite_converter  # loads the converters of weft
    before = dict(CONVERTERS.entries)
    yield
    CONVERTERS.entries = before


def test_a_file_and_its_bytes_compile(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(NEG)
    for model in (path, NEG, bytearray(NEG)):
        compiled = weft.compile(model)
        assert [port.name for port in (*compiled.inputs, *compiled.outputs)] == ["x", "y"]
        np.testing.assert_array_equal(compiled(X), -X)


def test_all_that_is_missing_is_listed_with_places() -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        from_tflite(tflite_file(MISSING))
    shown = str(caught.value)
    assert "2 operators" in shown
    assert "custom operator Mine: 2 nodes (a, b)" in shown
    assert "operator HASHTABLE_SIZE: tables with keys are not tensors: 1 node (c)" in shown
    assert "RESHAPE of string: 1 node (c)" in shown
    assert '@weft.tflite_converter("HASHTABLE_SIZE")' in shown


def test_a_converter_of_the_user_gets_inputs_and_options() -> None:
    builder = flexbuffers.Builder()
    with builder.Map():
        builder.Float("factor", 3.0)
    graph = Graph([T((2, 2), "int8", scale=[0.5], zero=1), T((2, 2))], [0], [1],
                  [Op("Scale", [0, -1], [1], custom=bytes(builder.Finish()))])

    @weft.tflite_converter("Scale")
    def _scale(node, x, absent, *, factor, bias=1.0):
        assert absent is None
        return op.add(op.multiply(x, node.constant(factor, "float32")),
                      node.constant(bias, "float32"))

    found = evaluate(from_tflite(tflite_file(graph)), [np.array([[1, 3], [5, 7]], np.int8)])
    np.testing.assert_array_equal(found, [[1, 4], [7, 10]])
    with pytest.raises(InvalidModelError, match="lacks options"):
        from_tflite(tflite_file(Graph(graph.tensors, [0], [1], [Op("Scale", [0, -1], [1])])))
    with pytest.raises(RegistryError, match="not the name"):
        weft.tflite_converter("")


@pytest.mark.parametrize(("data", "text"), [
    (b"\x00" * 64, "not a TensorFlow Lite file"),
    (NEG[:60], "damaged"),
    (NEG[:8] + b"\xff" * (len(NEG) - 8), "damaged"),
    (tflite_file(version=3), "damaged"),
    (tflite_file(Graph([T((2,))], [0], [0], []), version=4), "another version of the schema"),
    (tflite_file(Graph([T((2,)), T((2,))], [0], [1], [])), "read before it is computed"),
    (tflite_file(Graph([T((3,)), T((2,), data=[1.0]), T((2,))], [0], [2],
                       [Op("ADD", [0, 1], [2])])), "the constant 't1' is damaged"),
    (tflite_file(Graph([T((3,), "int8", scale=[0.0]), T((3,))], [0], [1],
                       [Op("ABS", [0], [1])])), "a scale of quantized numbers"),
    (tflite_file(Graph([T((3,)), T((3,), "int32")], [0], [1], [Op("ABS", [0], [1])])),
     "the result 't1' has another type"),
], ids=["zeros", "cut", "offsets", "no subgraph", "version", "order", "constant", "scale",
        "type"])
def test_a_damaged_file_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(InvalidModelError, match=text):
        from_tflite(data)


def test_other_inputs_and_signatures_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="unknown input 'z'"):
        from_tflite(NEG, inputs={"z": (1,)})
    with pytest.raises(InvalidInputError, match="wrong length"):
        from_tflite(NEG, inputs={"x": (1,)})
    with pytest.raises(InvalidModelError, match="no signature 'train'"):
        from_tflite(NEG, signature="train")
