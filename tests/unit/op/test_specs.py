"""Every operator against its own cases: types, values, and what the record promises.

A run draws one case of each operator for the values.
"""

from __future__ import annotations

import pytest

from tests.sampling import one_of_each
from tests.unit.op.harness import (
    all_cases,
    assert_close,
    cut_results,
    each_named,
    flatten,
    make_call,
    make_compute,
    make_inputs,
    make_results,
    name_of,
    output_types,
    reference_outputs,
    table_of,
)
from weft import op as catalogue
from weft import te
from weft.ir.dynamic import needs_values
from weft.ir.op import OPS, Case, Op
from weft.ir.shape import dims_equal
from weft.te.lower import lower
from weft.tir.eval import evaluate


def test_the_package_names_its_operators() -> None:
    assert catalogue.add is OPS.get("add")
    assert catalogue.nn.conv2d is OPS.get("nn.conv2d")
    assert set(catalogue.__all__) <= set(dir(catalogue))


# Operators with operands for attributes have the computes of others.
WITH_COMPUTE = [id_ for id_ in all_cases() if not needs_values(OPS.get(name_of(id_)))]


@pytest.mark.parametrize("name", list(OPS))
def test_operator_is_complete(name: str) -> None:
    op = OPS.get(name)
    assert op.reference is not None
    assert op.cases
    assert op.relation is not None
    assert op.compute is not None
    assert op.doc


@pytest.mark.parametrize("name", list(OPS))
def test_inferred_type_is_that_of_the_reference(name: str) -> None:
    for number, one in enumerate(OPS.get(name).cases):
        with each_named(name, number):
            check_types(OPS.get(name), one)


def check_types(op: Op, one: Case) -> None:
    arrays = make_inputs(op, one)
    call = make_call(op, one, arrays)
    outputs = reference_outputs(call, arrays)
    types = output_types(call.checked_type)
    for one_type, output in zip(types, outputs, strict=True):
        assert one_type.ndim == output.ndim
        assert all(dims_equal(*d) is not False
                   for d in zip(one_type.shape, output.shape, strict=True))
    assert [t.dtype.numpy for t in types] == [o.dtype for o in outputs]
    assert all(o.flags.c_contiguous for o in outputs)


@pytest.mark.parametrize(("name", "one"), table_of(one_of_each("specs", WITH_COMPUTE, name_of)))
def test_compute_agrees_with_the_reference(name: str, one: Case) -> None:
    op = OPS.get(name)
    arrays = make_inputs(op, one)
    call = make_call(op, one, arrays)
    expected = reference_outputs(call, arrays)
    placeholders, tensors = make_compute(call, arrays)
    results = make_results(call, expected)
    assert [t.static_shape for t in tensors] == [r.shape for r in results]
    assert [t.dtype.numpy for t in tensors] == [r.dtype for r in results]
    function = lower(te.create_schedule(tensors), [*placeholders, *tensors],
                     name="kernel")
    evaluate(function, *flatten(arrays), *results)
    for got, want in zip(cut_results(call, results), expected, strict=True):
        assert_close(got, want, one)
