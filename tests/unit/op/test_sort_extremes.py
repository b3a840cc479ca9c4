"""Sorting at the ends of every type: infinities, NaN, both zeros, ties, the largest integers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import weft
from weft.op.transform.order import _argsort_reference, _sort_reference

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
ROWS = 6


def _hostile(dtype: str, size: int, rng: np.random.Generator) -> np.ndarray:
    """Rows of few different values: many ties, all of them at the ends of the type."""
    if dtype == "bool":
        return rng.integers(0, 2, (ROWS, size)).astype(bool)
    if dtype in INTEGERS:
        info = np.iinfo(dtype)
        ends = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 7], dtype)
        return rng.choice(ends, (ROWS, size))
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    info = ml_dtypes.finfo(kind)
    ends = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, float(info.max), float(info.min),
                     float(info.smallest_subnormal), -float(info.smallest_subnormal)])
    return rng.choice(ends, (ROWS, size)).astype(kind)


def _order(x: np.ndarray, *, is_ascend: bool) -> np.ndarray:
    """The stable order along rows, NaN above every number, by NumPy."""
    if x.dtype == ml_dtypes.bfloat16:
        x = x.astype(np.float32)
    if is_ascend:
        return np.argsort(x, 1, kind="stable")
    size = x.shape[1]
    return size - 1 - np.argsort(x[:, ::-1], 1, kind="stable")[:, ::-1]


@pytest.mark.sample(0.2)
@pytest.mark.parametrize(("dtype", "size"), [
    *((dtype, 31) for dtype in ("bool", *INTEGERS, *FLOATS)),  # by counting
    *((dtype, 150) for dtype in ("bool", "int8", "int64", "uint64", *FLOATS)),  # by digits
])
def test_order_is_that_of_numpy_at_the_ends_of_a_type(dtype, size):
    x = _hostile(dtype, size, np.random.default_rng(size))
    count = min(size, 5)
    module = weft.compile(weft.parse(
        f"def @main(%x: Tensor[({ROWS}, {size}), {dtype}]) {{ (argsort(%x, axis=1), "
        f"argsort(%x, axis=1, is_ascend=False), sort(%x, axis=1), topk(%x, k={count}, axis=1)) }}"))
    up, down, ordered, best, places = module(x)
    np.testing.assert_array_equal(up, _order(x, is_ascend=True))
    np.testing.assert_array_equal(down, _order(x, is_ascend=False))
    np.testing.assert_array_equal(places, down[:, :count])
    for values, positions in ((ordered, up), (best, places)):
        taken = np.take_along_axis(x, np.asarray(positions), 1)
        assert np.asarray(values).tobytes() == taken.tobytes()  # the zeros in their places too


def test_positions_of_a_narrow_type_do_not_lead_outside():
    x = np.random.default_rng(0).standard_normal((2, 300)).astype(np.float32)
    module = weft.compile(weft.parse(
        'def @main(%x: Tensor[(2, 300), float32]) { topk(%x, k=300, axis=1, dtype="int8") }'))
    values, places = module(x)
    np.testing.assert_array_equal(values, -np.sort(-x, 1))
    np.testing.assert_array_equal(places, np.argsort(-x, 1, kind="stable").astype(np.int8))


@pytest.mark.parametrize("dtype", [*FLOATS, "float8_e4m3fn"])
def test_references_order_nan_above_numbers_of_every_type(dtype):
    x = np.array([[2, np.nan, -1, 0.5]]).astype(getattr(ml_dtypes, dtype, dtype))
    positions = {True: [2, 3, 0, 1], False: [1, 0, 3, 2]}
    for is_ascend, expected in positions.items():
        assert _argsort_reference(x, 1, is_ascend).tolist() == [expected]
        assert _sort_reference(x, 1, is_ascend).tobytes() == x[:, expected].tobytes()
