"""Types, dimensions, attribute records, dtypes: values that compare by value."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft import op
from weft.ir import ANY, DType, SymDim, TensorType, TupleType, Var, const
from weft.ir.attrs import Attrs, attr, one_of
from weft.ir.shape import (
    as_dim,
    dim_floordiv,
    dims_equal,
    substitute_dim,
)
from weft.ir.types import IncompleteType, is_complete, is_static
from weft.ir.typing.relations import broadcast_dims
from weft.ir.typing.solver import TypeSolver, UnifyError, join_types, unify_dims
from weft.support.errors import AttrsError, OptionError, TypeInferenceError

N, M = SymDim.symbol("n"), SymDim.symbol("m")


@dataclass(frozen=True, kw_only=True)
class PoolAttrs(Attrs):
    """Attributes for these tests."""

    size: tuple[int, ...] = attr(doc="window per axis")
    mode: str = attr("max", "which pooling", check=one_of("max", "avg"), expected="max or avg")
    scale: float = attr(1.0, "factor")
    dtype: DType | None = attr(None, "of the result")
    pads: tuple[tuple[int, int], ...] | None = attr(None, "per axis")


def test_attributes_are_converted_and_compare_by_value():
    made = PoolAttrs(size=[2, np.int64(3)], scale=2, dtype="int8", pads=[[0, 1]])
    assert made.size == (2, 3)
    assert type(made.size[1]) is int
    assert type(made.scale) is float
    assert made.dtype is DType.of("int8")
    assert made == PoolAttrs(size=(2, 3), scale=2.0, dtype=DType.of("int8"), pads=((0, 1),))
    assert hash(made) == hash(made.replace(scale=2))


def test_only_what_differs_from_the_default_is_shown():
    assert PoolAttrs(size=(1,), mode="max").non_default_items() == [("size", (1,))]
    assert PoolAttrs(size=(1,), mode="avg").non_default_items()[1] == ("mode", "avg")


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ({}, "needs 'size'"),
        ({"size": (1,), "sizes": 2}, "no attribute 'sizes'"),
        ({"size": 3}, "'size' .* wrong type"),
        ({"size": "33"}, "'size' .* wrong type"),
        ({"size": (1.5,)}, "'size' .* wrong type"),
        ({"size": (True,)}, "'size' .* wrong type"),
        ({"size": (1,), "mode": "min"}, "'mode' .* out of range"),
        ({"size": (1,), "pads": ((1, 2, 3),)}, "'pads' .* wrong type"),
        ({"size": (1,), "scale": "big"}, "'scale' .* wrong type"),
    ],
)
def test_bad_attributes(values, match):
    with pytest.raises(AttrsError, match=match):
        PoolAttrs.make(values)


def test_dtypes_by_name_and_numpy():
    for name in ("bool", "int4", "uint8", "int64", "float16", "bfloat16", "float8_e5m2"):
        dtype = DType.of(name)
        assert dtype.name == name
        assert DType.of(dtype.numpy) == dtype
    assert DType.of("float32x8").lanes == 8
    for bad in ("float31", "int", "complex64", ""):
        with pytest.raises(OptionError, match="unknown dtype"):
            DType.of(bad)


def test_dimensions_are_kept_in_normal_form():
    assert N + N + 1 == 1 + 2 * N
    assert N * M == M * N
    assert N - N == 0
    assert str(2 * N * M - 3) == "2*m*n - 3"
    assert (4 * N + 6) // 2 == 2 * N + 3
    assert (4 * N + 3) // 2 == 2 * N + 1
    assert N // N == 1
    assert N + ANY == ANY


@given(st.integers(0, 50), st.integers(1, 7), st.integers(-5, 20), st.integers(1, 9))
def test_division_agrees_with_numbers(n, scale, offset, divisor):
    dim = dim_floordiv(scale * N + offset, divisor)
    assert substitute_dim(dim, {"n": n}) == (scale * n + offset) // divisor


def test_equality_of_dimensions_may_be_unknown():
    assert dims_equal(N, N) is True
    assert dims_equal(N, N + 1) is False
    assert dims_equal(N, M) is None
    assert dims_equal(ANY, ANY) is None


@pytest.mark.parametrize("bad", [-1, 1.5, "2n", True, object()])
def test_invalid_dimensions(bad):
    with pytest.raises(TypeInferenceError, match="not a dimension"):
        as_dim(bad)


def test_predicates_on_types():
    fixed, symbolic = TensorType.of((2,)), TensorType.of(("n",))
    assert is_static(TupleType((fixed,)))
    assert not is_static(TupleType((fixed, symbolic)))
    assert not is_complete(TupleType((fixed, IncompleteType())))
    assert is_complete(symbolic)
    with pytest.raises(TypeInferenceError, match="not static"):
        symbolic.concrete_shape


@pytest.mark.parametrize(
    ("a", "b", "unified", "broadcast"),
    [
        (3, 3, 3, 3),
        (3, 1, None, 3),
        (3, 4, None, None),
        (N, N, N, N),
        (N, M, None, None),
        (N, 1, None, N),
        (N, 3, None, None),
        (ANY, 3, 3, 3),
        (ANY, 1, 1, ANY),
        (ANY, N, N, ANY),
        (ANY, ANY, ANY, ANY),
        (0, 1, None, 0),
    ],
)
def test_dimensions_meet(a, b, unified, broadcast):
    for x, y in ((a, b), (b, a)):
        assert unify_dims(x, y) == unified
        assert broadcast_dims(x, y) == broadcast


def test_holes_are_shared_and_filled():
    solver = TypeSolver()
    a, b, c = IncompleteType(), IncompleteType(), IncompleteType()
    solver.unify(a, b)
    solver.unify(TupleType((b, c)), TupleType((TensorType.of((3,)), a)))
    assert solver.resolve(TupleType((a, c))) == TupleType((TensorType.of((3,)),) * 2)


def test_a_hole_learns_what_was_unknown():
    solver = TypeSolver()
    hole = IncompleteType()
    solver.unify(hole, TensorType.of((None, 3)))
    solver.unify(TensorType.of((2, 3)), hole)
    assert solver.resolve(hole) == TensorType.of((2, 3))


@pytest.mark.parametrize(
    ("a", "b", "detail"),
    [
        (TensorType.of((2,)), TensorType.of((2,), "int8"), "dtype float32 against int8"),
        (TensorType.of((2,)), TensorType.of((2, 1)), "rank 1 against 2"),
        (TensorType.of((2, 3)), TensorType.of((2, 4)), "axis 1: 3 against 4"),
        (TensorType.of((2,)), TupleType(()), "different kinds"),
        (TupleType(()), TupleType((TupleType(()),)), "0 fields against 1"),
    ],
)
def test_types_that_do_not_unify(a, b, detail):
    with pytest.raises(UnifyError, match=detail):
        TypeSolver().unify(a, b)


def test_joins_know_what_both_sides_know():
    known, unknown = TensorType.of((2, 3)), TensorType.of((None, 3))
    assert join_types(known, unknown) == unknown
    assert join_types(TupleType((known,)), TupleType((unknown,))) == TupleType((unknown,))
    assert join_types(known, TensorType.of((2, 4))) is None


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int4", "uint16", "int32", "int64", "uint64"])
def test_numbers_that_integers_cannot_hold(dtype):
    kind = DType.of(dtype)
    low = -(2 ** (kind.bits - 1)) if dtype.startswith("int") else 0
    high = low + 2**kind.bits - 1
    for number in (low, high, float(low), [low, high], True):
        assert const(number, dtype).data.tolist() == number
    for number in (low - 1, high + 1, [0, high + 1], 0.5, float("nan"), float("inf"), 2**70):
        with pytest.raises(OptionError, match=f"number out of range of {dtype}"):
            const(number, dtype)


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, [1, 2**40], 2**64])
def test_numbers_that_the_default_cannot_hold(number):
    """They wrapped around without a word."""
    with pytest.raises(OptionError, match="number out of range of int32"):
        const(number)
    with pytest.raises(OptionError, match="number out of range of int32"):
        op.add(Var("x"), number)


def test_numbers_of_floats_and_arrays_are_converted():
    assert const(2**40, "float32").data == np.float32(2**40)
    assert const(0.1).data == np.float32(0.1)
    assert const(np.int64(300), "uint8").data == 300 - 256
    assert const(np.array([300]), "uint8").data == 300 - 256
