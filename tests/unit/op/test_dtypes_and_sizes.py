"""Operators keep to the dtype of their arguments, and to sizes that are known only later.

A run draws one case and type of each operator.
"""

from __future__ import annotations

import dataclasses
import operator as operators
from typing import Any

import numpy as np
import pytest

from tests.sampling import one_of_each
from tests.unit.op.harness import (
    all_cases,
    case_of,
    cut_results,
    flatten,
    make_call,
    make_compute,
    make_inputs,
    make_results,
    output_types,
    reference_outputs,
)
from weft import op, te
from weft.ir.attrs import Attrs
from weft.ir.dtype import DType
from weft.ir.dynamic import needs_values
from weft.ir.expr import Call, const
from weft.ir.op import OPS
from weft.te.lower import lower
from weft.tir.eval import evaluate

FLOAT_CASES = [
    (name, number, dtype)
    for name, number in all_cases()
    for one in [case_of((name, number))]
    for dtype in ("float64", "float16")
    if one.dtypes == ("float32",) and number < 2 and one.inputs
    and not any(isinstance(x, (np.ndarray, np.generic)) and x.dtype.kind == "f"
                for x in one.inputs)
    and not needs_values(OPS.get(name))
]


@pytest.mark.parametrize(("name", "number", "dtype"),
                         one_of_each("float types", FLOAT_CASES, operators.itemgetter(0)))
def test_other_float_types(name: str, number: int, dtype: str) -> None:
    """Types are inferred alike; in float64 the compute agrees to float64's precision."""
    operator = OPS.get(name)
    other = dataclasses.replace(case_of((name, number)), dtypes=(dtype,))
    arrays = make_inputs(operator, other)
    call = make_call(operator, other, arrays)
    expected = reference_outputs(call, arrays)
    types = output_types(call.checked_type)
    assert [t.dtype.numpy for t in types] == [e.dtype for e in expected]
    placeholders, tensors = make_compute(call, arrays)
    assert [t.dtype for t in tensors[:len(types)]] == [t.dtype for t in types]
    if dtype == "float16":
        return
    function = lower(te.create_schedule(tensors), [*placeholders, *tensors],
                     name="kernel")
    results = make_results(call, expected)
    evaluate(function, *flatten(arrays), *results)
    for got, want in zip(cut_results(call, results), expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)


def _attrs(operator: Any, **values: Any) -> Attrs:
    return operator.attrs_type.make(values)


# operator, attributes, shapes with None for the size that comes later
LATER: list[Any] = [
    (op.nn.relu, {}, [(None, 5)]),
    (op.add, {}, [(None, 5), (5,)]),
    (op.add, {}, [(None, 5), (1, 5)]),
    (op.sum, {"axis": 0}, [(None, 5)]),
    (op.mean, {"axis": (0, 1)}, [(None, 5)]),
    (op.argmax, {"axis": 0}, [(None, 5)]),
    (op.reshape, {"newshape": (0, -1)}, [(None, 2, 3)]),
    (op.reshape, {"newshape": (-1, 2)}, [(None, 6)]),
    (op.transpose, {"axes": (1, 0)}, [(None, 5)]),
    (op.strided_slice, {"begin": (-2,), "end": (2**31 - 1,)}, [(None, 5)]),
    (op.split, {"indices_or_sections": 2, "axis": 1}, [(None, 4)]),
    (op.nn.conv2d, {"padding": (1, 1), "strides": (2, 2)}, [(None, 3, 6, 5), (2, 3, 3, 3)]),
    (op.nn.dense, {}, [(None, 5), (3, 5)]),
    (op.nn.batch_matmul, {}, [(None, 2, 5), (None, 3, 5)]),
    (op.nn.softmax, {}, [(None, 5)]),
    (op.nn.softmax, {"axis": 0}, [(None, 5)]),
    (op.nn.max_pool2d, {"pool_size": (2, 2), "padding": (1, 1)}, [(None, 2, 4, 4)]),
    (op.nn.avg_pool2d, {"pool_size": (3, 3), "ceil_mode": True, "strides": (2, 2)},
     [(1, 2, None, 6)]),
    (op.nn.layer_norm, {}, [(None, 5), (5,), (5,)]),
    (op.shape_of, {}, [(None, 5)]),
    (op.trunc_divide, {}, [(None, 5), (5,)]),
    (op.variance, {"axis": 1}, [(None, 5), (None, 1)]),
    (op.zeros_like, {}, [(None, 5)]),
    (op.reshape_like, {}, [(None, 6), (None, 2, 3)]),
    (op.slice_like, {"axes": (0,)}, [(9, 5), (None, 2)]),
    (op.broadcast_to_like, {}, [(1, 5), (None, 5)]),
    (op.repeat, {"repeats": 2, "axis": 0}, [(None, 5)]),
    (op.sliding_window, {"axis": 1, "window_shape": (2,), "strides": (1,)}, [(None, 5)]),
    (op.ndarray_size, {}, [(None, 5)]),
    (op.reverse_reshape, {"newshape": (-1, 0)}, [(None, 5)]),
    (op.cumsum, {"axis": 1}, [(None, 5)]),
    (op.annotation.stop_fusion, {}, [(None, 5)]),
]


@pytest.mark.parametrize(("operator", "values", "shapes"), LATER,
                         ids=lambda v: getattr(v, "name", ""))
@pytest.mark.parametrize("size", [2, 7])
def test_sizes_known_at_run_time(operator: Any, values: Any, shapes: Any, size: int) -> None:
    n = te.var("n")
    rng = np.random.default_rng(size)
    arrays = [rng.uniform(-1, 1, [size if d is None else d for d in s]).astype(np.float32)
              for s in shapes]
    inputs = [te.placeholder([n if d is None else d for d in s], name=f"x{i}")
              for i, s in enumerate(shapes)]
    attrs = _attrs(operator, **values)
    found = operator.compute(*inputs, attrs)
    outputs = found if isinstance(found, tuple) else (found,)
    call = Call(operator, tuple(const(a) for a in arrays), attrs)
    expected = reference_outputs(call, arrays)
    function = lower(te.create_schedule(outputs), [*inputs, *outputs], "kernel")
    results = [np.zeros(e.shape, e.dtype) for e in expected]
    evaluate(function, *arrays, *results, *[size] * (len(function.params) - len(inputs)
                                                     - len(outputs)))
    for got, want in zip(results, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)


SPECIAL = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1.5, -2.5], np.float32)


@pytest.mark.parametrize(
    ("operator", "values"),
    [(op.nn.relu, {}), (op.clip, {"a_min": -1.0, "a_max": 1.0}), (op.sign, {}), (op.abs, {}),
     (op.negative, {}), (op.round, {}), (op.floor, {}), (op.nn.leaky_relu, {}), (op.copy, {}),
     (op.cast, {"dtype": "bool"})],
    ids=lambda v: getattr(v, "name", ""),
)
def test_special_values(operator: Any, values: Any) -> None:
    x = te.placeholder(SPECIAL.shape, name="x")
    attrs = _attrs(operator, **values)
    out = operator.compute(x, attrs)
    expected = operator.reference(SPECIAL, **dict(attrs.items()))
    result = np.zeros(SPECIAL.shape, expected.dtype)
    evaluate(lower(te.create_schedule(out.op), [x, out], "kernel"), SPECIAL, result)
    np.testing.assert_array_equal(result, expected)
    if operator in (op.copy, op.negative):
        np.testing.assert_array_equal(np.signbit(result[1:]), np.signbit(expected[1:]))


def test_clip_at_the_ends_of_an_integer_type() -> None:
    x = te.placeholder((3,), "int8", name="x")
    out = op.clip.compute(x, _attrs(op.clip, a_min=-1000.0, a_max=float("inf")))
    data = np.array([-128, 0, 127], np.int8)
    result = np.zeros(3, np.int8)
    evaluate(lower(te.create_schedule(out.op), [x, out], "kernel"), data, result)
    np.testing.assert_array_equal(result, data)
    assert out.dtype == DType.of("int8")
