"""Run an operator's cases: random inputs, one typed call, its values by NumPy and te."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from weft import te
from weft.ir.dtype import DType
from weft.ir.dynamic import Bounds, bounds_of, needs_values, static_form_of
from weft.ir.expr import Call, Expr, Function, Tuple, Var, var
from weft.ir.op import OPS, Case, Op
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.typing.infer import infer_expr

# The name of an operator, and the number of one of its cases.
CaseId = tuple[str, int]

TOLERANCE = {"float16": 2e-2, "float32": 2e-5, "float64": 1e-10}


def all_cases() -> list[CaseId]:
    """Every case of every operator."""
    return [(name, number) for name in OPS for number in range(len(OPS.get(name).cases))]


def case_of(id_: CaseId) -> Case:
    name, number = id_
    return OPS.get(name).cases[number]


def table_of(ids: Sequence[CaseId]) -> list[Any]:
    """Values of ``name`` and ``one`` for a test with a parameter for each case."""
    return [pytest.param(id_[0], case_of(id_), id=f"{id_[0]}-{id_[1]}") for id_ in ids]


def name_of(id_: CaseId) -> str:
    return id_[0]


@contextmanager
def each_named(name: str, number: int) -> Iterator[None]:
    """For a test of many cases: an error says which of them it is about."""
    try:
        yield
    except Exception as error:
        error.add_note(f"in the case {name}-{number}")
        raise


def make_inputs(op: Op, one: Case, seed: int = 0) -> list[Any]:
    """One array, or a tuple of arrays, for each argument of the operator."""
    rng = np.random.default_rng(seed)
    names = one.dtypes + (one.dtypes[-1],) * len(one.inputs)
    return [_make(rng, spec, names[i], one) for i, spec in enumerate(one.inputs)]


def _make(rng: np.random.Generator, spec: Any, dtype: str, one: Case) -> Any:
    if isinstance(spec, list):
        return tuple(_make(rng, s, dtype, one) for s in spec)
    if isinstance(spec, (np.ndarray, np.generic)):
        return np.asarray(spec)
    kind = DType.of(dtype)
    if kind.is_bool:
        return rng.integers(0, 2, spec).astype(bool)
    if kind.is_int:
        return rng.integers(int(one.low), int(one.high) + 1, spec).astype(kind.numpy)
    return np.asarray(rng.uniform(one.low, one.high, spec)).astype(kind.numpy)


def make_call(op: Op, one: Case, arrays: list[Any]) -> Call:
    """The typed call over fresh variables."""
    args = [_variables(f"x{i}", a) for i, a in enumerate(arrays)]
    typed = infer_expr(op(*args, **one.attrs))
    assert isinstance(typed, Call)
    return typed


def _variables(name: str, value: Any) -> Var | Tuple:
    if isinstance(value, tuple):
        return Tuple(tuple(_variables(f"{name}_{i}", v) for i, v in enumerate(value)))
    return var(name, value.shape, DType.of(value.dtype))


def parameters_of(call: Call) -> tuple[Var, ...]:
    """The variables among the arguments, in order."""
    found: list[Var] = []
    pending: list[Expr] = list(call.args)
    while pending:
        node = pending.pop(0)
        if isinstance(node, Tuple):
            pending = [*node.fields, *pending]
        elif isinstance(node, Var):
            found.append(node)
    return tuple(found)


def reference_outputs(call: Call, arrays: list[Any]) -> tuple[np.ndarray, ...]:
    """What the NumPy reference says, as a tuple also for one output."""
    result = call.op.reference(*arrays, **dict(call.attrs.items()))
    return tuple(result) if isinstance(result, (tuple, list)) else (np.asarray(result),)


def output_types(type_: Type) -> tuple[TensorType, ...]:
    fields = type_.fields if isinstance(type_, TupleType) else (type_,)
    return tuple(fields)


def static_call(call: Call, arrays: list[Any]) -> Call:
    """The call that has a kernel: for operands that give shapes, that of the ordinary operator."""
    form = static_form_of(call.op)
    if form is None or not needs_values(call.op):
        return call
    typed = infer_expr(form.make(call, [arrays[at] for at in form.operands]))
    assert isinstance(typed, Call)
    return typed


def bounds_of_call(call: Call) -> Bounds | None:
    """The bounds of results whose sizes the data decides."""
    return bounds_of(Function(parameters_of(call), call))


def make_results(call: Call, expected: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Memory for what the compute gives: the results at their largest, and counts if any."""
    bounds = bounds_of_call(call)
    if bounds is None:
        return [np.zeros(e.shape, e.dtype) for e in expected]
    largest = [np.zeros(t.concrete_shape, t.dtype.numpy) for t in bounds.types]
    return [*largest, np.zeros(bounds.num_counts, np.int64)]


def cut_results(call: Call, results: list[np.ndarray]) -> list[np.ndarray]:
    """The results without what lies beyond the counts."""
    bounds = bounds_of_call(call)
    if bounds is None:
        return results
    *cut, counts = results
    for output, axis, which in bounds.counted:
        cut[output] = np.take(cut[output], range(counts[which]), axis)
    return cut


def make_compute(call: Call, arrays: list[Any]) -> tuple[list[te.Tensor], tuple[te.Tensor, ...]]:
    """The placeholders and the outputs of the operator's compute."""
    placeholders: list[te.Tensor] = []

    def hold(value: Any, name: str) -> Any:
        if isinstance(value, tuple):
            return tuple(hold(v, f"{name}_{i}") for i, v in enumerate(value))
        placeholders.append(te.placeholder(value.shape, DType.of(value.dtype), name=name))
        return placeholders[-1]

    args = [hold(a, f"x{i}") for i, a in enumerate(arrays)]
    result = call.op.compute(*args, call.attrs)
    return placeholders, result if isinstance(result, tuple) else (result,)


def flatten(arrays: list[Any]) -> list[np.ndarray]:
    flat: list[np.ndarray] = []
    for a in arrays:
        flat.extend(a if isinstance(a, tuple) else [a])
    return flat


def assert_close(got: np.ndarray, expected: np.ndarray, one: Case) -> None:
    assert got.dtype == expected.dtype
    tolerance = TOLERANCE.get(got.dtype.name, 0.0)
    np.testing.assert_allclose(
        got, expected,
        rtol=tolerance if one.rtol is None else one.rtol,
        atol=tolerance if one.atol is None else one.atol,
    )
