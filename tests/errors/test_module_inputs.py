"""Arguments that do not fit the compiled module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft
from tests.errors.bad_models import error_of, good_model
from weft.support.errors import InvalidInputError

X = np.zeros((2, 3), np.float32)


@pytest.fixture(scope="module")
def module() -> Any:
    """relu(x) + w for x of shape (2, 3)."""
    return weft.compile(good_model())


def test_the_right_input_is_accepted(module: Any) -> None:
    np.testing.assert_array_equal(module(X), [[1, 2, 3], [1, 2, 3]])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m: m(X[:, :2]), ["x", "(2, 3)", "(2, 2)"]),
        (lambda m: m(X[0]), ["x", "(2, 3)", "(3,)"]),
        (lambda m: m(X.reshape(2, 3, 1)), ["x", "(2, 3)", "(2, 3, 1)"]),
        (lambda m: m(X.astype(np.float64)), ["x", "float32", "float64"]),
        (lambda m: m(X.astype(np.int32)), ["x", "float32", "int32"]),
        (lambda m: m(np.array([["a", "b", "c"]] * 2)), ["x", "float32"]),
        (lambda m: m(np.array([[None] * 3] * 2)), ["x", "float32"]),
        (lambda m: m(), ["1", "0"]),
        (lambda m: m(X, X), ["1", "2"]),
        (lambda m: m(y=X), ["x", "y"]),
        (lambda m: m.run(None, {"data": X}), ["x", "data"]),
        (lambda m: m.run(None, {}), ["x"]),
        (lambda m: m.run(["z"], {"x": X}), ["y", "z"]),
    ],
)
def test_wrong_arguments(module: Any, call: Callable[[Any], object], words: list[str]) -> None:
    error = error_of(lambda: call(module), InvalidInputError)
    for word in words:
        assert word in str(error), str(error)


def test_a_refused_call_leaves_the_module_usable(module: Any) -> None:
    error_of(lambda: module(X[0]), InvalidInputError)
    np.testing.assert_array_equal(module(X - 1), [[1, 2, 3], [1, 2, 3]])


def test_nan_and_infinity_are_values_like_others(module: Any) -> None:
    x = np.float32([[np.nan, np.inf, -np.inf], [0, 1, -1]])
    np.testing.assert_array_equal(module(x), [[np.nan, np.inf, 3], [1, 3, 3]])
