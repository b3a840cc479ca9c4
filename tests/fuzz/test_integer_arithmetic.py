"""Integer arithmetic wraps around as in NumPy, at the ends of every type, optimised or not.

``WEFT_FUZZ_EXAMPLES=500`` runs that many programs of each width instead of a few.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import weft
from tests.fuzz.integer_programs import WIDTHS, extreme_array, program
from weft.ir import parse

EXAMPLES = int(os.environ.get("WEFT_FUZZ_EXAMPLES", "0"))
LOW, HIGH = -(2**63), 2**63 - 1


def _check(text: str, inputs: list[np.ndarray], expected: list[np.ndarray], level: int) -> None:
    found = weft.compile(parse(text), opt_level=level, threads=1)(*inputs)
    for k, (one, other) in enumerate(zip(found, expected, strict=True)):
        np.testing.assert_array_equal(
            np.asarray(one), np.broadcast_to(other, np.shape(one)), err_msg=f"result {k}, {text}")


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("dtype", WIDTHS)
def test_random_expressions(dtype: str) -> None:
    for seed in range(EXAMPLES or 1):
        text, inputs, expected = program(np.random.default_rng(seed), dtype, results=8, depth=3)
        _check(text, inputs, expected, 3)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint64"])
def test_random_expressions_as_written(dtype: str) -> None:
    for seed in range(EXAMPLES or 1):
        text, inputs, expected = program(np.random.default_rng(seed), dtype, results=3, depth=2)
        _check(text, inputs, expected, 0)


@pytest.mark.parametrize("level", [0, 3])
def test_comparisons_of_sums_that_overflow(level: int) -> None:
    rng = np.random.default_rng(level)
    x, y = (extreme_array("int64", rng) for _ in range(2))
    texts = {
        "greater(add(%x, 1i64), %x)": x + 1 > x,
        "less(subtract(%x, %y), 0i64)": x - y < 0,
        "equal(multiply(2i64, %x), multiply(2i64, %y))": x * 2 == y * 2,
        "minimum(add(%x, 1i64), %x)": np.minimum(x + 1, x),
        "less_equal(%x, %y)": x <= y,
        "greater_equal(maximum(%x, 0i64), minimum(%y, 0i64))": np.maximum(x, 0) >= np.minimum(y, 0),
        "floor_divide(add(multiply(%x, 16i64), 5i64), 16i64)": (x * 16 + 5) // 16,
        "less(add(maximum(%x, 0i64), maximum(%y, 0i64)), 0i64)":
            np.maximum(x, 0) + np.maximum(y, 0) < 0,
    }
    params = f"%x: Tensor[({len(x)},), int64], %y: Tensor[({len(x)},), int64]"
    text = f"def @main({params}) {{ ({', '.join(texts)}) }}"
    _check(text, [x, y], list(texts.values()), level)


def test_indices_that_start_near_the_end() -> None:
    """Index arithmetic with constants of data: the numbers of ``arange`` are no indices."""
    text = (f"def @main() {{ let %a = arange(start={HIGH - 5}, stop={HIGH}, step=1, "
            'dtype="int64"); (greater(add(%a, 3i64), %a), floor_mod(add(%a, 9i64), 16i64)) }')
    a = np.arange(HIGH - 5, HIGH)
    _check(text, [], [a + 3 > a, (a + 9) % 16], 3)


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint64"])
def test_reductions(dtype: str) -> None:
    rng = np.random.default_rng(1)
    x, y = (np.stack([extreme_array(dtype, rng) for _ in range(5)]) for _ in range(2))
    calls = {
        "sum(%x, axis=(1,))": x.sum(1, dtype=x.dtype),
        "prod(%x, axis=(0,))": x.prod(0, dtype=x.dtype),
        "max(subtract(%x, %y), axis=(1,))": (x - y).max(1),
        "min(%x, axis=(0,))": x.min(0),
        "argmax(subtract(%x, %y), axis=1)": (x - y).argmax(1),
        "argmin(%x, axis=0)": x.argmin(0),
        "cumsum(%x, axis=1)": np.cumsum(x, 1, dtype=x.dtype),
        'sum(cast(less(add(%x, %y), %x), dtype="int32"), axis=(1,))':
            (x + y < x).sum(1, dtype=np.int32),
    }
    shape = ", ".join(map(str, x.shape))
    params = f"%x: Tensor[({shape}), {dtype}], %y: Tensor[({shape}), {dtype}]"
    _check(f"def @main({params}) {{ ({', '.join(calls)}) }}", [x, y], list(calls.values()), 3)


def test_computed_positions_that_overflow() -> None:
    table = np.arange(30, dtype=np.float32).reshape(10, 3)
    i = np.array([0, 9, -1, -10, HIGH, LOW, 5, 10])
    j = np.array([1, 1, HIGH, 3, 1, -1, HIGH, -1])
    calls = {
        "add(%i, %j)": i + j, "multiply(%i, %j)": i * j,
        "floor_mod(add(%i, %j), 10i64)": (i + j) % 10,
        "floor_divide(add(multiply(%i, 4i64), 3i64), 4i64)": (i * 4 + 3) // 4,
    }
    params = "%x: Tensor[(10, 3), float32], %i: Tensor[(8,), int64], %j: Tensor[(8,), int64]"
    takes = ", ".join(f"take(%x, {call}, axis=0)" for call in calls)
    expected = [table[np.clip(place, 0, 9)] for place in calls.values()]
    _check(f"def @main({params}) {{ ({takes}) }}", [table, i, j], expected, 3)
