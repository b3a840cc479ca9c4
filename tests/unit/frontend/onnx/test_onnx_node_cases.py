"""The node tests of the ONNX standard, for the operators that weft converts."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

from weft.frontend.onnx import converters, from_onnx  # noqa: F401 - fills the table
from weft.frontend.onnx.registry import CONVERTERS
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.reference import evaluate

OPERATORS = CONVERTERS.names()
ROUNDING = {"bfloat16": 2e-2, "float16": 5e-3}
# ONNX leaves the generator of random numbers open.
DRAWN = ("test_bernoulli", "test_training_dropout")
# Cases that pass; the others train, want other dtypes, or more than two spatial axes.
MIN_PASSING = 685


@functools.cache
def cases_by_operator() -> dict[str, list[Any]]:
    """Cases in which every node is supported, by the operator of the last node."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the generators overflow on purpose
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    grouped: dict[str, list[Any]] = {}
    for case in cases:
        graph = case.model.graph
        nodes = graph.node
        are_tensors = all(
            v.type.WhichOneof("value") == "tensor_type" for v in (*graph.input, *graph.output)
        )
        if are_tensors and all(n.op_type in OPERATORS and not n.domain for n in nodes):
            grouped.setdefault(nodes[-1].op_type, []).append(case)
    return grouped


def as_array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else np.asarray(value)


def with_integers_fixed(model: ModelProto, inputs: Sequence[np.ndarray]) -> ModelProto:
    """Shapes, axes and bounds that the cases feed, as constants, which is how models have them."""
    fixed = ModelProto()
    fixed.CopyFrom(model)
    for position, (value, array) in enumerate(zip(model.graph.input, inputs, strict=True)):
        if array.dtype == np.int64 and (position or len(inputs) == 1):
            fixed.graph.initializer.append(numpy_helper.from_array(array, value.name))
    return fixed


def passes(case: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> bool:
    """False for what weft refuses or draws by a key; raises for wrong results."""
    arrays = [as_array(i) for i in inputs]
    if case.name.startswith(DRAWN):
        return False
    try:
        module = from_onnx(with_integers_fixed(case.model, arrays))
    except UnsupportedModelError:
        return False
    feeds = {v.name: a for v, a in zip(case.model.graph.input, arrays, strict=True)}
    result = evaluate(module, [feeds[n] for n in module.attrs["input_names"]])
    actual = result if isinstance(result, tuple) else (result,)
    for a, e in zip(actual, map(as_array, outputs), strict=True):
        assert (a.shape, a.dtype) == (e.shape, e.dtype), case.name
        wide = np.float64 if a.dtype.kind != "b" else bool
        # The cases were computed with sums and intermediate values rounded in places of their own.
        rtol = max(ROUNDING.get(a.dtype.name, 1e-3), case.rtol)
        np.testing.assert_allclose(
            a.astype(wide), e.astype(wide), rtol=rtol, atol=1e-5, err_msg=case.name
        )
    return True


@pytest.mark.sample(0.6)
@pytest.mark.parametrize("op", OPERATORS)
def test_cases_of_operator(op: str) -> None:
    for case in cases_by_operator().get(op, ()):
        for inputs, outputs in case.data_sets:
            passes(case, inputs, outputs)


def test_most_cases_are_supported() -> None:
    count = sum(
        passes(case, inputs, outputs)
        for cases in cases_by_operator().values()
        for case in cases
        for inputs, outputs in case.data_sets
    )
    assert count >= MIN_PASSING
