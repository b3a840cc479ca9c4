"""Functions of elements: special cases of the standard, dtypes, promotion."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pytest

import weft
from tests.unit.array_api.reference import FLOATS, INTEGERS, SPECIAL, check
from weft import array_api as xp

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

TABLE = """
OF_FLOATS: acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 sin sinh sqrt
tan tanh reciprocal signbit
OF_NUMBERS: abs negative positive conj real square sign ceil floor trunc round isfinite isinf isnan
OF_TWO: add subtract multiply floor_divide remainder equal not_equal less less_equal greater
greater_equal maximum minimum pow
OF_TWO_FLOATS: divide atan2 copysign hypot logaddexp nextafter
OF_BITS: bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift
OF_TRUTHS: logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor equal
"""
OF_FLOATS, OF_NUMBERS, OF_TWO, OF_TWO_FLOATS, OF_BITS, OF_TRUTHS = (
    [word for word in part.split() if not word.isupper()]
    for part in re.split(r"[A-Z_]{5,}:", TABLE)[1:])


@pytest.mark.parametrize("kind", FLOATS)
def test_special_cases_of_one_array(kind: str):
    values = SPECIAL.astype(kind)
    _check_all({*OF_FLOATS, *OF_NUMBERS} - {"sign"}, values)
    _check_all(["sign"], values[values != 0])  # that of -0 is a zero of either sign


@pytest.mark.sample(0.3, 2)
@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("names", [OF_TWO, OF_TWO_FLOATS], ids=["numbers", "floats"])
def test_special_cases_of_two_arrays(names: list[str], kind: str):
    x, y = (grid.ravel().astype(kind) for grid in np.meshgrid(SPECIAL, SPECIAL))
    _check_all(names, x, y)


@pytest.mark.sample(0.5, 1)
@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_complex_numbers(kind: str):
    x = np.array([1 + 2j, -3, 0.5j, -0.25 - 1.5j, 2.5 - 3.5j]).astype(kind)
    _check_all(sorted({*OF_FLOATS, *OF_NUMBERS, "imag"} - {
        "signbit", "ceil", "floor", "trunc"}), x)
    _check_all(("add", "subtract", "multiply", "divide", "pow", "equal", "not_equal"), x, x[::-1])
    for name in ("sum", "prod", "mean", "cumulative_sum"):
        check(getattr(xp, name)(weft.tensor(x)), getattr(np, name)(x), name)
    check(xp.vecdot(weft.tensor(x), weft.tensor(x[::-1].copy())), np.vecdot(x, x[::-1]))
    check(xp.add(weft.tensor(np.ones(2, np.float32)), 2j), np.ones(2, np.float32) + 2j)


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("kind", INTEGERS)
def test_integers(kind: str):
    values = np.array([0, 1, 2, 100] if kind[0] == "u" else [0, 1, -2, 100]).astype(kind)
    _check_all((*OF_NUMBERS, "bitwise_invert"), values)


@pytest.mark.sample(0.1)
@pytest.mark.parametrize("second", INTEGERS)
@pytest.mark.parametrize("first", INTEGERS)
def test_two_integers_are_promoted(first: str, second: str):
    if np.result_type(first, second).kind == "f":  # no integer holds uint64 and a signed one
        with pytest.raises(weft.WeftError, match="no integer dtype holds both"):
            xp.result_type(getattr(xp, first), getattr(xp, second))
        return
    x, y = np.array([0, 1, 2, 7, 100, 3]).astype(first), np.array([1, 3, 2, 5, 7, 4]).astype(second)
    _check_all((*OF_TWO, *OF_BITS), x, y)


def _check_all(names: Iterable[str], *values: np.ndarray) -> None:
    """All functions recorded first, so that they run as one program."""
    found = {name: getattr(xp, name)(*map(weft.tensor, values)) for name in names}
    for name, result in found.items():
        check(result, getattr(np, name)(*values), name)


def test_truths():
    x, y = np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)
    _check_all(OF_TRUTHS, x, y)
    _check_all(("logical_not", "bitwise_invert"), x)


def test_numbers_take_the_dtype_of_arrays_and_arrays_without_axes_count():
    small = weft.tensor(np.ones(3, np.float32))
    for found, kind in ((xp.add(small, 1), "float32"), (xp.multiply(2.5, small), "float32"),
                        (xp.add(small, weft.tensor(np.float64(1))), "float64"),
                        (xp.subtract(weft.tensor(np.ones(2, np.int8)), 1), "int8"),
                        (xp.maximum(weft.tensor(np.ones(2, np.int8)),
                                    weft.tensor(np.int32(4))), "int32")):
        assert found.dtype == kind


def test_clip_keeps_the_dtype():
    values = np.array([-3, 0, 5, 9], np.int16)
    x = weft.tensor(values)
    check(xp.clip(x, 0, 7), np.clip(values, 0, 7))
    check(xp.clip(x, max=4), np.minimum(values, 4).astype(np.int16))
    least = np.array([0, 1, 2, 3], np.int16)
    check(xp.clip(x, weft.tensor(least)), np.maximum(values, least))
    check(xp.clip(x), values)
