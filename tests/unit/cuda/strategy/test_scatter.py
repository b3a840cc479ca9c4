"""Scatters on CUDA: updates of one element apply in their order, whatever the algorithm."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.cuda.strategy.nests import H100, run_emulated
from tests.unit.strategy.kernels import primitive
from weft import op
from weft.ir.expr import var
from weft.strategy import schedule_function
from weft.strategy.cuda.scatter import strategy as scatter
from weft.strategy.cuda.scatter.strategy import ScatterAlgorithm
from weft.strategy.decision import Candidate, Decision

REDUCTIONS = ("update", "add", "mul", "min", "max")
COMBINE = {"update": lambda _, new: new, "add": np.add, "mul": np.multiply, "min": np.minimum,
           "max": np.maximum}


def force(monkeypatch, algorithm):
    monkeypatch.setattr(scatter, "decide_scatter",
                        lambda *_: Decision(Candidate(algorithm, 0.0, None)))


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("algorithm", [ScatterAlgorithm.LINES, ScatterAlgorithm.SORTED])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_elements_in_order(monkeypatch, algorithm, reduction):
    force(monkeypatch, algorithm)
    rng = np.random.default_rng(3)
    x = rng.standard_normal((5, 7)).astype(np.float32)
    index = rng.integers(-2, 9, (4, 20))  # some are out of range, many are equal
    values = rng.standard_normal((4, 20)).astype(np.float32)
    want = x.copy()
    for i, k in np.ndindex(index.shape):
        if 0 <= index[i, k] < 7:
            want[i, index[i, k]] = COMBINE[reduction](want[i, index[i, k]], values[i, k])
    params = [var("x", (5, 7)), var("i", (4, 20), "int64"), var("u", (4, 20))]
    call = op.scatter_elements(*params, axis=1, reduction=reduction)
    got = np.full_like(x, np.nan)
    run_emulated(primitive(params, call), [x, index, values], [got])
    # Equal bits: the same additions in the same order.
    np.testing.assert_array_equal(got, want)


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("algorithm", [ScatterAlgorithm.SERIAL, ScatterAlgorithm.SORTED])
@pytest.mark.parametrize("mode", REDUCTIONS)
def test_slices_in_order(monkeypatch, algorithm, mode):
    force(monkeypatch, algorithm)
    rng = np.random.default_rng(4)
    x = rng.standard_normal((3, 4, 6)).astype(np.float32)
    index = np.stack([rng.integers(-1, 4, (2, 15)), rng.integers(0, 5, (2, 15))])
    values = rng.standard_normal((2, 15, 6)).astype(np.float32)
    want = x.copy()
    for at in np.ndindex(2, 15):
        a, b = index[0][at], index[1][at]
        if 0 <= a < 3 and 0 <= b < 4:
            want[a, b] = COMBINE[mode](want[a, b], values[at])
    params = [var("x", (3, 4, 6)), var("i", (2, 2, 15), "int64"), var("u", (2, 15, 6))]
    got = np.full_like(x, np.nan)
    run_emulated(primitive(params, op.scatter_nd(*params, mode=mode)), [x, index, values], [got])
    np.testing.assert_array_equal(got, want)


def test_the_decision_follows_the_shape():
    def chosen(shape, updates, axis):
        params = [var("x", shape), var("i", updates, "int64"), var("u", updates)]
        call = op.scatter_elements(*params, axis=axis)
        return schedule_function(primitive(params, call), H100).implementation

    assert chosen((512, 4096), (16, 4096), 0) == "scatter_elements.cuda.lines"
    assert chosen((1 << 20,), (1 << 16,), 0) == "scatter_elements.cuda.sorted"


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_nonzero_positions(share):
    x = (np.random.default_rng(5).random((7, 90)) < share).astype(np.float32)
    rows, count = np.full((630, 2), -1, np.int64), np.zeros(1, np.int64)
    param = var("x", x.shape)
    run_emulated(primitive([param], op.argwhere(param)), [x], [rows, count])
    want = np.argwhere(x)
    assert count[0] == len(want)
    np.testing.assert_array_equal(rows[:len(want)], want)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_unique_values(is_sorted):
    x = np.random.default_rng(6).integers(-9, 9, 300).astype(np.float32)
    x[[3, 77]] = np.nan
    outputs = [np.zeros(300, np.float32), *(np.zeros(300, np.int64) for _ in range(3)),
               np.zeros(1, np.int64)]
    param = var("x", x.shape)
    run_emulated(primitive([param], op.unique(param, is_sorted=is_sorted)), [x], outputs)
    values, first, inverse, counts, number = outputs
    n = number[0]
    np.testing.assert_array_equal(values[:n][inverse], x)
    np.testing.assert_array_equal(np.bincount(inverse, minlength=n), counts[:n])
    np.testing.assert_array_equal([np.flatnonzero(inverse == g)[0] for g in range(n)], first[:n])
    assert np.all(np.diff(first[:n] if not is_sorted else values[:n - 1]) > 0)
