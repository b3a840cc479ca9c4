"""Every operator under malformed calls: rejected with a specific error, or computed.

From the first cases of each operator come calls with empty and symbolic axes, other ranks, other
dtypes and other attributes. Inference either raises an error of weft's that names the operator, or
gives a type that holds.
"""

from __future__ import annotations

import dataclasses
import typing
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.unit.op.harness import (
    assert_close,
    cut_results,
    flatten,
    make_call,
    make_compute,
    make_inputs,
    make_results,
    output_types,
    reference_outputs,
)
from weft import op as catalogue
from weft import te
from weft.ir.dynamic import needs_values
from weft.ir.expr import Call, Tuple, Var
from weft.ir.op import OPS, Case, Op
from weft.ir.shape import SymDim, dims_equal, substitute_dim
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.typing.infer import infer_expr
from weft.support.errors import AttrsError, TypeInferenceError
from weft.te.lower import lower
from weft.tir.eval import evaluate

assert catalogue.__all__, "the import registers the operators"
NAMES = list(OPS)


def some_cases(op: Op) -> list[Case]:
    return [one for one in op.cases if one.inputs][:2]


def typed(op: Op, one: Case, arrays: list[Any]) -> Call | None:
    """The typed call; ``None`` where it is refused, by an error that names the operator."""
    try:
        return make_call(op, one, arrays)
    except (TypeInferenceError, AttrsError) as error:
        check_message(op, error)
        return None


def check_message(op: Op, error: Exception) -> None:
    """The solver names the operator; an attribute that is refused names its record."""
    assert op.name in str(error) or isinstance(error, AttrsError)


def resized(value: Any, old: int, new: int) -> Any:
    """Shapes (and given arrays) in which axes of one size get another."""
    if isinstance(value, list):
        return [resized(v, old, new) for v in value]
    if isinstance(value, tuple):
        return tuple(new if size == old else size for size in value)
    array = np.asarray(value)
    shape = tuple(new if size == old else size for size in array.shape)
    return np.resize(array, shape).astype(array.dtype)


def first_size(one: Case) -> int | None:
    """The first size above 1 in the inputs of a case."""
    pending = list(one.inputs)
    while pending:
        value = pending.pop(0)
        if isinstance(value, list):
            pending = [*value, *pending]
            continue
        shape = value if isinstance(value, tuple) else np.asarray(value).shape
        found = next((size for size in shape if size > 1), None)
        if found is not None:
            return found
    return None


@pytest.mark.parametrize("name", NAMES)
def test_empty_axes(name: str) -> None:
    """An axis of size 0 is refused, or the compute agrees with the reference."""
    op = OPS.get(name)
    for one in some_cases(op):
        size = first_size(one)
        if size is None:
            continue
        empty = dataclasses.replace(one, inputs=tuple(resized(list(one.inputs), size, 0)))
        arrays = make_inputs(op, empty)
        call = typed(op, empty, arrays)
        if call is None or needs_values(op):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing is NaN
            expected = reference_outputs(call, arrays)
        placeholders, tensors = make_compute(call, arrays)
        kernel = lower(te.create_schedule(tensors), [*placeholders, *tensors],
                       name="kernel")
        results = make_results(call, expected)
        evaluate(kernel, *flatten(arrays), *results)
        for got, want in zip(cut_results(call, results), expected, strict=True):
            assert got.shape == want.shape
            assert_close(got, want, one)


def symbolic_args(call: Call, size: int) -> list[Any]:
    """Variables as those of the call, in which ``n`` stands for axes of ``size``."""
    def of(arg: Any) -> Any:
        if isinstance(arg, Tuple):
            return Tuple(tuple(map(of, arg.fields)))
        type_ = arg.checked_type
        shape = tuple(SymDim.symbol("n") if d == size else d for d in type_.shape)
        return Var(arg.name, TensorType(shape, type_.dtype))

    return list(map(of, call.args))


def tensors_in(type_: Type) -> tuple[TensorType, ...]:
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    return tuple(f for f in fields if isinstance(f, TensorType))


@pytest.mark.parametrize("name", NAMES)
def test_symbolic_axes(name: str) -> None:
    """A type inferred for a size ``n`` is that of every size, once it is put in."""
    op = OPS.get(name)
    for one in some_cases(op):
        size = first_size(one)
        if size is None:
            continue
        fixed = make_call(op, one, make_inputs(op, one))
        try:
            open_ = infer_expr(op(*symbolic_args(fixed, size), **one.attrs))
        except TypeInferenceError as error:
            check_message(op, error)
            continue
        for got, want in zip(tensors_in(open_.checked_type), tensors_in(fixed.checked_type),
                             strict=True):
            assert got.dtype == want.dtype
            assert got.ndim == want.ndim
            for dim, expected in zip(got.shape, want.shape, strict=True):
                assert dims_equal(substitute_dim(dim, {"n": size}), expected) is not False


@pytest.mark.parametrize("name", NAMES)
def test_other_ranks_and_dtypes(name: str) -> None:
    """Each argument in another rank or dtype: refused, or the compute gives the inferred types."""
    op = OPS.get(name)
    for one in some_cases(op)[:1]:
        arrays = make_inputs(op, one)
        for number, array in enumerate(arrays):
            for changed in variants(array):
                given = [*arrays[:number], changed, *arrays[number + 1:]]
                call = typed(op, one, given)
                if call is None or needs_values(op):
                    continue
                _, tensors = make_compute(call, given)
                types = output_types(call.checked_type)
                assert [t.dtype for t in tensors[:len(types)]] == [t.dtype for t in types]
                assert [t.ndim for t in tensors[:len(types)]] == [t.ndim for t in types]


def variants(array: Any) -> Iterator[Any]:
    if isinstance(array, tuple):
        yield ()
        yield array[:1]
        for changed in variants(array[-1]):
            yield (*array[:-1], changed)
        return
    yield array[None]
    yield np.zeros((), array.dtype)
    yield np.zeros((0,), array.dtype)
    for dtype in (np.bool_, np.int8, np.uint32, np.int64, np.float16, np.float64):
        yield np.zeros(array.shape, dtype)


@pytest.mark.parametrize("name", NAMES)
def test_other_attributes(name: str) -> None:
    """Unknown names and types of attributes are refused, numbers out of range as well or used."""
    op = OPS.get(name)
    one = op.cases[0]
    arrays = make_inputs(op, one)
    with pytest.raises(AttrsError):
        op.attrs_type.make({**one.attrs, "no_such_attribute": 1})
    hints = typing.get_type_hints(op.attrs_type)
    for field in dataclasses.fields(op.attrs_type):
        assert field.metadata["doc"], f"{name}: the attribute {field.name} is not documented"
        with pytest.raises(AttrsError):
            op.attrs_type.make({**one.attrs, field.name: object()})
        for value in odd_values(hints[field.name]):
            attrs = {**one.attrs, field.name: value}
            typed(op, dataclasses.replace(one, attrs=attrs), arrays)


def odd_values(hint: Any) -> list[Any]:
    if hint is int:
        return [-100, -1, 0, 99]
    if hint is str:
        return ["", "NCHW", "?"]
    options = typing.get_args(hint)
    if int in options or any("int" in str(o) for o in options):
        return [(), (0,), (-100,), (99, 1), (1, 1), (0,) * 9, ((1, 1),), ((1, 2, 3),)]
    return [None]
