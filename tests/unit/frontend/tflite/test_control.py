"""Branches, loops and variables of TensorFlow Lite files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import weft
from tests.unit.frontend.tflite.builder import Graph, Op, T, tflite_file
from weft.frontend.tflite import from_tflite
from weft.support.errors import InvalidModelError, UnsupportedModelError
from weft.transform.analysis.reference import evaluate

VECTOR = T((3,))


def unary(name: str) -> Graph:
    return Graph([VECTOR, VECTOR], [0], [1], [Op(name, [0], [1])])


def test_a_branch_is_chosen_when_the_model_runs() -> None:
    data = tflite_file(
        Graph([T((), "bool"), VECTOR, VECTOR], [0, 1], [2],
              [Op("IF", [0, 1], [2], "IfOptions",
                  {"ThenSubgraphIndex": 1, "ElseSubgraphIndex": 2})]),
        unary("NEG"), unary("ABS"))
    module, x = from_tflite(data), np.array([1, -2, 3], np.float32)
    np.testing.assert_array_equal(evaluate(module, [np.array(True), x]), -x)
    np.testing.assert_array_equal(evaluate(module, [np.array(False), x]), abs(x))


def loop(limit: T, first: T) -> bytes:
    """Doubles ``x`` while the counter is below ``limit``."""
    counter = T((), "int32")
    return tflite_file(
        Graph([first, VECTOR, T((), "int32"), VECTOR], [1] if first.data is not None else [0, 1],
              [3], [Op("WHILE", [0, 1], [2, 3], "WhileOptions",
                       {"CondSubgraphIndex": 1, "BodySubgraphIndex": 2})]),
        Graph([counter, VECTOR, limit, T((), "bool")], [0, 1], [3], [Op("LESS", [0, 2], [3])]),
        Graph([counter, VECTOR, T((), "int32", 1), counter, VECTOR], [0, 1], [3, 4],
              [Op("ADD", [0, 2], [3]), Op("ADD", [1, 1], [4])]))


@pytest.mark.parametrize("rounds", [3, 100])
def test_a_loop_with_a_known_number_of_rounds(rounds: int) -> None:
    data = loop(T((), "int32", rounds), T((), "int32", 0))
    text = str(from_tflite(data))
    assert ("let" in text) == (rounds > 64)
    x = np.full(3, 2.0**-90, np.float32)
    np.testing.assert_array_equal(evaluate(from_tflite(data), [x]), x * 2.0**rounds)


def test_a_loop_from_a_computed_start() -> None:
    module, x = from_tflite(loop(T((), "int32", 5), T((), "int32"))), np.ones(3, np.float32)
    for start in (2, 9):
        np.testing.assert_array_equal(evaluate(module, [np.int32(start), x]),
                                      x * 2.0**max(5 - start, 0))


def counting(*operators: Op, tensors: Sequence[T] = ()) -> bytes:
    """Adds the input to the variable ``total``, which starts at (1, 2, 3)."""
    handle = T((), "resource")
    options = {"SharedName": "total"}
    return tflite_file(
        Graph([VECTOR, handle, VECTOR, VECTOR, *tensors], [0], [3],
              [Op("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}),
               Op("VAR_HANDLE", [], [1], "VarHandleOptions", options),
               Op("READ_VARIABLE", [1], [2]), Op("ADD", [0, 2], [3]),
               Op("ASSIGN_VARIABLE", [1, 3], []), *operators]),
        Graph([handle, T((3,), data=[1, 2, 3])], [], [],
              [Op("VAR_HANDLE", [], [0], "VarHandleOptions", options),
               Op("ASSIGN_VARIABLE", [0, 1], [])]),
        Graph([VECTOR, handle, VECTOR], [0], [2],
              [Op("VAR_HANDLE", [], [1], "VarHandleOptions", options),
               Op("ASSIGN_VARIABLE", [1, 0], []), Op("ABS", [0], [2])]))


def test_a_variable_is_state_with_the_first_value_of_the_file() -> None:
    compiled = weft.compile(counting())
    ones = np.ones(3, np.float32)
    for expected in ([2, 3, 4], [3, 4, 5]):
        np.testing.assert_array_equal(compiled(ones), expected)
    module = from_tflite(counting())
    assert module.attrs["state"] == {"total/next": "total"}


def test_a_tensor_that_persists_starts_at_zero() -> None:
    graph = Graph([VECTOR, T((3,), name="sum", is_variable=True), VECTOR], [0], [2],
                  [Op("ADD", [0, 1], [2])])
    module = from_tflite(tflite_file(graph))
    assert module.attrs["read_only"] == ("sum_1",)
    np.testing.assert_array_equal(weft.compile(tflite_file(graph))(np.ones(3, np.float32)),
                                  np.ones(3))


def test_assignments_in_branches_and_missing_subgraphs_are_refused() -> None:
    chosen = {"ThenSubgraphIndex": 2, "ElseSubgraphIndex": 2}
    condition = [Op("REDUCE_ANY", [4, 5], [6], "ReducerOptions", {})]
    more = [T((3,), "bool"), T((1,), "int32", [0]), T((), "bool")]
    with pytest.raises(UnsupportedModelError, match="variable 'total' in a branch or a loop"):
        from_tflite(counting(Op("LESS", [0, 2], [4]), *condition,
                             Op("IF", [6, 3], [3], "IfOptions", chosen), tensors=more))
    with pytest.raises(InvalidModelError, match="no subgraph 7"):
        from_tflite(counting(Op("CALL_ONCE", [], [], "CallOnceOptions",
                                {"InitSubgraphIndex": 7})))
