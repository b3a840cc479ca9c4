"""Dimensions of graph inputs: names, names that users give or fix, and bounds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.unit.frontend.onnx.onnx_cases import make_model
from weft.frontend.onnx import from_onnx
from weft.ir.module import IRModule
from weft.ir.substitution import substitute_symbols
from weft.ir.types import TensorType
from weft.support.errors import InvalidInputError
from weft.transform.analysis.reference import evaluate

F32 = TensorProto.FLOAT


def imported(shapes: dict[str, tuple[Any, ...]], inputs: Any = None) -> IRModule:
    nodes = [helper.make_node("Identity", [name], [f"{name}_out"]) for name in shapes]
    model = make_model(nodes, {n: (s, F32) for n, s in shapes.items()},
                       [f"{n}_out" for n in shapes])
    return from_onnx(model, inputs=inputs)


def shapes_of(module: IRModule) -> list[tuple[str, ...]]:
    types = [p.checked_type for p in module["main"].params]
    return [tuple(map(str, t.shape)) for t in types if isinstance(t, TensorType)]


def test_expressions_of_declared_names() -> None:
    module = imported({"past": ("b", "p"), "ids": ("b", "s"), "mask": ("b", "p + s")})
    assert shapes_of(module) == [("b", "p"), ("b", "s"), ("b", "p + s")]


def test_expressions_of_other_names_are_names() -> None:
    assert shapes_of(imported({"mask": ("b", "p + s"), "x": ("h/8",)})) == [
        ("b", "p___s"), ("h_8",)]


def test_unnamed_sizes_differ() -> None:
    assert shapes_of(imported({"x": (None, 3), "y": (None, None)})) == [
        ("x_dim0", "3"), ("y_dim0", "y_dim1")]


def test_what_is_given_for_a_name_holds_in_all_inputs() -> None:
    declared = {"x": ("b", "s"), "y": ("s", "b")}
    assert shapes_of(imported(declared, {"x": (2, "1 <= s <= 64")})) == [
        ("2", "s{1..64}"), ("s{1..64}", "2")]
    assert shapes_of(imported(declared, {"x": ("batch", "n <= 8")})) == [
        ("batch", "n{0..8}"), ("n{0..8}", "batch")]
    assert shapes_of(imported(declared, {"x": ("b", "s >= 1"), "y": ("s <= 9", "b")})) == [
        ("b", "s{1..9}"), ("s{1..9}", "b")]


@pytest.mark.parametrize(("given", "message"), [
    ({"x": (2, "s"), "y": ("s", 3)}, "the sizes given for 'b' contradict each other"),
    ({"x": ("b", "s <= 4"), "y": ("s >= 5", "b")}, "the bounds of s contradict each other"),
    ({"x": ("b", "s <=")}, "not a dimension"),
])
def test_contradictions_are_refused(given: Any, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        imported({"x": ("b", "s"), "y": ("s", "b")}, given)


def test_tables_of_the_model_bound_sizes() -> None:
    """Positions 0 to n of a table with 8 rows: the model runs for n <= 8 alone."""
    nodes = [helper.make_node("Shape", ["x"], ["n"]),
             helper.make_node("Slice", ["table", "zero", "n"], ["rows"]),
             helper.make_node("Add", ["x", "rows"], ["y"])]
    table = np.arange(8, dtype=np.float32)
    model = make_model(nodes, {"x": (("n",), F32)}, ["y"],
                       constants={"table": table, "zero": np.zeros(1, np.int64)})
    module = from_onnx(model)
    assert shapes_of(module) == [("n{0..8}",)]
    fixed = substitute_symbols(module, {"n": 5})
    np.testing.assert_array_equal(evaluate(fixed, [np.ones(5, np.float32)]), 1 + table[:5])
    assert shapes_of(from_onnx(model, inputs={"x": ("1 <= n <= 4",)})) == [("n{1..4}",)]
