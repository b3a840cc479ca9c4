"""Reductions, shapes, sorting, sets and indexing on random arrays, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import weft
from tests.unit.array_api.reference import check
from weft import array_api as xp
from weft.support.errors import WeftError

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# Few dtypes and shapes: each pair is a program of its own.
SHAPES = st.sampled_from([(4,), (0,), (2, 3), (3, 1)])
EXAMPLES = settings(max_examples=8)


@st.composite
def numbers(draw: Any, kinds: tuple[str, ...] = ("uint8", "int64", "float32")) -> np.ndarray:
    """A small array of numbers."""
    dtype = np.dtype(draw(st.sampled_from(kinds)))
    values = st.integers(0, 9) if dtype.kind in "iu" else st.floats(-4, 4, width=16)
    return draw(arrays.arrays(dtype, draw(SHAPES), elements=values))


def axes_of(data: Any, value: np.ndarray) -> Any:
    """None, an axis, or several."""
    return data.draw(st.sampled_from([None, 0, -1, tuple(range(value.ndim))]))


@EXAMPLES
@given(value=numbers(), data=st.data(), keepdims=st.booleans(), name=st.sampled_from([
    "sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "count_nonzero"]))
def test_reductions(value: np.ndarray, data: Any, keepdims: bool, name: str):
    axis = axes_of(data, value)
    if name in ("mean", "std", "var") and value.dtype.kind != "f":
        value = value.astype(np.float32)
    if name in ("max", "min") and value.size == 0:
        with pytest.raises(WeftError):
            getattr(xp, name)(weft.tensor(value))
        return
    check(getattr(xp, name)(weft.tensor(value), axis=axis, keepdims=keepdims),
          np.asarray(getattr(np, name)(value, axis=axis, keepdims=keepdims)), (name, axis))


@EXAMPLES
@given(value=numbers(), axis=st.sampled_from([0, -1]), initial=st.booleans())
def test_cumulative_functions(value: np.ndarray, axis: int, initial: bool):
    x = weft.tensor(value)
    for name in ("cumulative_sum", "cumulative_prod"):
        options = {"axis": axis, "include_initial": initial}
        check(getattr(xp, name)(x, **options), getattr(np, name)(value, **options), name)
    check(xp.diff(x, axis=axis, n=2), np.diff(value, axis=axis, n=2))


@EXAMPLES
@given(value=numbers(), axis=st.sampled_from([0, -1]), descending=st.booleans())
def test_sorting_is_stable(value: np.ndarray, axis: int, descending: bool):
    x = weft.tensor(value)
    order = np.argsort(-value.astype(float) if descending else value, axis=axis, kind="stable")
    check(xp.argsort(x, axis=axis, descending=descending), order)
    check(xp.sort(x, axis=axis, descending=descending), np.take_along_axis(value, order, axis))
    check(xp.take_along_axis(x, weft.tensor(order), axis=axis),
          np.take_along_axis(value, order, axis))
    if value.size:
        check(xp.argmax(x, axis=axis, keepdims=True), np.argmax(value, axis=axis, keepdims=True))
        check(xp.argmin(x), np.argmin(value))


@settings(max_examples=4)  # each number of results is a program of its own
@given(value=numbers())
def test_sets_and_searching(value: np.ndarray):
    x = weft.tensor(value)
    for name in ("unique_all", "unique_counts", "unique_inverse"):
        found, wanted = getattr(xp, name)(x), getattr(np, name)(value)
        for field in wanted._fields:
            check(getattr(found, field), getattr(wanted, field), (name, field))
    check(xp.unique_values(x), np.unique(value))
    for found, wanted in zip(xp.nonzero(x), np.nonzero(value), strict=True):
        check(found, wanted)
    ordered = np.sort(value.ravel())
    for side in ("left", "right"):
        check(xp.searchsorted(weft.tensor(ordered), x, side=side),
              np.searchsorted(ordered, value, side=side))
    check(x[x > 2], value[value > 2])
    check(xp.where(x > 2, x, 0), np.where(value > 2, value, value.dtype.type(0)))


def test_every_nan_is_an_element_of_its_own():
    found = xp.unique_counts(weft.tensor([float("nan"), 1.0, float("nan"), 1.0]))
    np.testing.assert_array_equal(found.values.numpy(), [1.0, np.nan, np.nan])
    np.testing.assert_array_equal(found.counts.numpy(), [2, 1, 1])


@EXAMPLES
@given(value=numbers(), axis=st.sampled_from([0, -1]))
def test_shapes(value: np.ndarray, axis: int):
    x, flat = weft.tensor(value), (-1,) if value.size else (0,)
    pairs = [
        (xp.concat([x, x], axis=axis), np.concat([value, value], axis=axis)),
        (xp.concat([x, x], axis=None), np.concat([value, value], axis=None)),
        (xp.stack([x, x], axis=axis), np.stack([value, value], axis=axis)),
        (xp.expand_dims(x, axis=axis), np.expand_dims(value, axis=axis)),
        (xp.squeeze(xp.expand_dims(x, axis=axis), axis=axis), value),
        (xp.flip(x, axis=axis), np.flip(value, axis=axis)), (xp.flip(x), np.flip(value)),
        (xp.roll(x, 2, axis=axis), np.roll(value, 2, axis=axis)),
        (xp.roll(x, 1), np.roll(value, 1)),
        (xp.repeat(x, 2, axis=axis), np.repeat(value, 2, axis=axis)),
        (xp.tile(x, (2, 1, 2)), np.tile(value, (2, 1, 2))), (xp.tile(x, (2,)), np.tile(value, 2)),
        (xp.reshape(x, flat), value.reshape(flat)),
        (xp.moveaxis(x, 0, -1), np.moveaxis(value, 0, -1)),
        (xp.permute_dims(x, tuple(range(value.ndim))[::-1]), value.T),
        (xp.broadcast_to(x, (2, *value.shape)), np.broadcast_to(value, (2, *value.shape))),
    ]
    for number, (found, wanted) in enumerate(pairs):
        check(found, wanted, number)
    for found, wanted in zip(xp.unstack(x, axis=axis), np.unstack(value, axis=axis), strict=True):
        check(found, wanted)


def test_repeats_of_each():
    check(xp.repeat(weft.tensor([5, 6, 7]), weft.tensor([2, 0, 1])), np.array([5, 5, 7]))


@EXAMPLES
@given(value=numbers(("int32", "float64")), axis=st.sampled_from([-1, -2]))
def test_products(value: np.ndarray, axis: int):
    x = weft.tensor(value)
    check(xp.tensordot(x, x, axes=value.ndim), np.tensordot(value, value, axes=value.ndim))
    check(xp.tensordot(x, x, axes=0), np.tensordot(value, value, axes=0))
    if value.ndim == 2:
        check(xp.matmul(xp.matrix_transpose(x), x), value.T @ value)
        check(xp.vecdot(x, x, axis=axis), np.vecdot(value, value, axis=axis))
        check(xp.tril(x, k=-1), np.tril(value, k=-1))
        check(xp.triu(x, k=1), np.triu(value, k=1))


def test_ranges_against_their_step_are_empty():
    assert xp.arange(1, 5, -2).shape == (0,)
    assert xp.arange(3, 1).shape == (0,)


def test_zeros_have_the_sign_0():
    assert not xp.signbit(xp.sign(xp.asarray([-0.0]))).item()
    with pytest.raises(ValueError, match="not 1"):
        xp.squeeze(xp.ones((2, 1)), 0)
