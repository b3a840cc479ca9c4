"""Every operator against its own cases: types, values, and what the record promises."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.ops.harness import (
    assert_close,
    flatten,
    make_call,
    make_compute,
    make_inputs,
    output_types,
    reference_outputs,
)
from weft import op as catalogue
from weft import te
from weft.ir.op import OPS, Case
from weft.te.lower import lower
from weft.tir.eval import evaluate


def test_the_package_names_its_operators() -> None:
    assert catalogue.add is OPS.get("add")
    assert catalogue.nn.conv2d is OPS.get("nn.conv2d")
    assert set(catalogue.__all__) <= set(dir(catalogue))


ALL_CASES = [
    pytest.param(name, one, id=f"{name}-{i}")
    for name in OPS
    for i, one in enumerate(OPS.get(name).cases)
]


@pytest.mark.parametrize("name", list(OPS))
def test_operator_is_complete(name: str) -> None:
    op = OPS.get(name)
    assert op.reference is not None
    assert op.cases
    assert op.relation is not None
    assert op.compute is not None
    assert op.doc


@pytest.mark.parametrize(("name", "one"), ALL_CASES)
def test_inferred_type_is_that_of_the_reference(name: str, one: Case) -> None:
    op = OPS.get(name)
    arrays = make_inputs(op, one)
    call = make_call(op, one, arrays)
    outputs = reference_outputs(call, arrays)
    types = output_types(call.checked_type)
    assert [t.concrete_shape for t in types] == [o.shape for o in outputs]
    assert [t.dtype.numpy for t in types] == [o.dtype for o in outputs]
    assert all(o.flags.c_contiguous for o in outputs)


@pytest.mark.parametrize(("name", "one"), ALL_CASES)
def test_compute_agrees_with_the_reference(name: str, one: Case) -> None:
    op = OPS.get(name)
    arrays = make_inputs(op, one)
    call = make_call(op, one, arrays)
    expected = reference_outputs(call, arrays)
    placeholders, tensors = make_compute(call, arrays)
    for tensor, one_type in zip(tensors, output_types(call.checked_type), strict=True):
        assert tensor.static_shape == one_type.concrete_shape
        assert tensor.dtype == one_type.dtype
    function = lower(te.create_schedule([t.op for t in tensors]), [*placeholders, *tensors],
                     name="kernel")
    results = [np.zeros(e.shape, e.dtype) for e in expected]
    evaluate(function, *flatten(arrays), *results)
    for got, want in zip(results, expected, strict=True):
        assert_close(got, want, one)
