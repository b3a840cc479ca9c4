"""The trait ``linearity``: ``f(a x + b y) = a f(x) + b f(y)`` for every case that declares it."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from tests.unit.op.harness import make_call, make_inputs, output_types, reference_outputs
from weft.ir.op import OPS, Case
from weft.ir.traits import Linearity
from weft.op import add

assert add is OPS.get("add"), "the import registers the operators"

A, B = 1.7, -0.6


def floats(value: Any) -> bool:
    return any(map(floats, value)) if isinstance(value, tuple) else value.dtype.kind == "f"


def in_float64(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(in_float64, value))
    return value.astype(np.float64) if value.dtype.kind == "f" else value


def another(rng: np.random.Generator, value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(another(rng, v) for v in value)
    return np.asarray(rng.uniform(-2, 2, value.shape)) if floats(value) else value


def combined(x: Any, y: Any) -> Any:
    if isinstance(x, tuple):
        return tuple(map(combined, x, y))
    return np.asarray(A * x + B * y) if floats(x) else x


def replaced(args: list[Any], at: tuple[int, ...], value: Any) -> list[Any]:
    """``args`` with the argument, or the field of a tuple, at ``at`` replaced."""
    first, *rest = at
    if rest:
        value = (*args[first][:rest[0]], value, *args[first][rest[0] + 1:])
    return [value if i == first else a for i, a in enumerate(args)]


def check_linear(call: Any, x: list[Any], y: list[Any], both: list[Any]) -> None:
    outputs = (reference_outputs(call, args) for args in (x, y, both))
    for left, right, total in zip(*outputs, strict=True):
        if total.dtype.kind == "f":
            np.testing.assert_allclose(total, A * left + B * right, rtol=1e-9, atol=1e-9)


CASES = [
    pytest.param(name, one, id=f"{name}-{i}")
    for name in OPS
    if OPS.get(name).traits.linearity is not Linearity.NONE
    for i, one in enumerate(OPS.get(name).cases)
    if "float32" in one.dtypes
]


@pytest.mark.parametrize(("name", "one"), CASES)
def test_linear(name: str, one: Case) -> None:
    operator = OPS.get(name)
    wide = dataclasses.replace(
        one, dtypes=tuple("float64" if d == "float32" else d for d in one.dtypes))
    x = [in_float64(a) for a in make_inputs(operator, wide, seed=3)]
    call = make_call(operator, wide, x)
    if not any(t.dtype.is_float for t in output_types(call.checked_type)):
        return  # a case of integers
    rng = np.random.default_rng(4)
    y = [another(rng, a) for a in x]
    if operator.traits.linearity is Linearity.JOINT:
        check_linear(call, x, y, [combined(a, b) for a, b in zip(x, y, strict=True)])
        return
    single = len(x) == 1 and isinstance(x[0], tuple)
    places = [(0, i) for i in range(len(x[0]))] if single else [(i,) for i in range(len(x))]
    for at in places:
        ours, theirs = (v[at[0]][at[1]] if single else v[at[0]] for v in (x, y))
        if floats(ours):
            check_linear(call, x, replaced(x, at, theirs), replaced(x, at, combined(ours, theirs)))


def test_families_declare_it():
    """Forward mode relies on the trait where a derived rule would be wasteful."""
    for name in ("add", "concatenate", "reshape", "sum", "mean", "take", "cumsum", "nn.pad",
                 "nn.avg_pool2d", "where", "split", "transpose", "cast", "negative"):
        assert OPS.get(name).traits.linearity is Linearity.JOINT, name
    for name in ("multiply", "nn.matmul", "nn.dense", "nn.batch_matmul", "einsum", "nn.conv2d",
                 "nn.conv1d_transpose"):
        assert OPS.get(name).traits.linearity is Linearity.EACH, name
