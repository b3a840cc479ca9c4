"""Sorting and running sums of sizes for which threads are used, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft.runtime.devices.cpu.threads import set_num_threads

RNG = np.random.default_rng(0)
VALUES = RNG.integers(0, 50, (40, 700)).astype(np.float32)  # many are equal
VALUES[3, 5] = VALUES[3, 600] = np.nan
DESCENDING = VALUES.shape[1] - 1 - np.argsort(VALUES[:, ::-1], 1, kind="stable")[:, ::-1]


@pytest.mark.parametrize(("call", "expected"), [
    ("sort(%x, axis=1)", np.sort(VALUES, 1)),
    ("argsort(%x, axis=0)", np.argsort(VALUES, 0, kind="stable")),
    ("topk(%x, k=7).1", DESCENDING[:, :7]),
    ("cumsum(%x, axis=1)", np.cumsum(VALUES, 1)),
    ("cumsum(%x, axis=0)", np.cumsum(VALUES, 0)),
    ("searchsorted(sort(%x, axis=1), %x)",
     np.array([np.searchsorted(np.sort(row), row) for row in VALUES])),
])
def test_large_sizes_on_one_and_two_threads(call, expected):
    module = weft.compile(weft.parse(f"def @main(%x: Tensor[(40, 700), float32]) {{ {call} }}"))
    try:
        for threads in (1, 2):
            set_num_threads(threads)
            np.testing.assert_array_equal(module(VALUES), expected)
    finally:
        set_num_threads(None)
