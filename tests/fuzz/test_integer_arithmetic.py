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
