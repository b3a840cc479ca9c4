"""Sorts and scans on CUDA: the total order, ties, several launches, in the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

import weft.strategy.cuda  # noqa: F401 - registers the schedules
from tests.unit.cuda.strategy.nests import H100, bound, check_nest, schedule_of
from tests.unit.strategy.kernels import primitive
from weft import op
from weft.ir.dtype import DType
from weft.ir.expr import var
from weft.strategy.cuda.scan.loops import ScanLoops
from weft.strategy.cuda.sort.loops import SortLoops
from weft.tir.buffer import Buffer
from weft.tir.eval import evaluate
from weft.tir.expr import const
from weft.tir.func import PrimFunc


def run(build, source: np.ndarray, target: np.ndarray) -> np.ndarray:
    x, y = (Buffer(name, tuple(map(const, a.shape)), DType.of(a.dtype))
            for name, a in (("x", source), ("y", target)))
    evaluate(PrimFunc("kernel", (x, y), build(x, y), {"num_outputs": 1}), source, target)
    return target


@pytest.mark.parametrize("is_ascend", [True, False])
@pytest.mark.parametrize(("rows", "size"), [(3, 1), (2, 7), (1, 64)])
def test_a_tile_is_sorted_stably_with_nan_last(rows, size, is_ascend):
    rng = np.random.default_rng(size)
    values = rng.integers(-2, 3, (rows, size)).astype(np.float32)
    values[rng.random((rows, size)) < 0.2] = np.nan
    values[rng.random((rows, size)) < 0.1] = -0.0
    got = run(lambda x, y: SortLoops(x, y, 1, size, size, is_ascend).loops(), values,
              np.zeros((rows, size), np.int64))
    # NaN is the largest value, and ties keep their order in both directions.
    key = np.nan_to_num(values, nan=99.0)
    want = np.argsort(key if is_ascend else -key, axis=1, kind="stable")
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("count", [1, 3, 70, None])
def test_rows_longer_than_a_tile(monkeypatch, count):
    monkeypatch.setattr("weft.strategy.cuda.sort.loops.LARGEST_TILE", 16)
    values = np.random.default_rng(0).integers(0, 9, (2, 70)).astype(np.float32)
    wanted = 70 if count is None else count
    got = run(lambda x, y: SortLoops(x, y, 1, 70, wanted, is_ascend=True).loops(), values,
              np.zeros((2, wanted), np.int64))
    np.testing.assert_array_equal(got, np.argsort(values, axis=1, kind="stable")[:, :wanted])


@pytest.mark.sample(0.4)
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("chunks", [1, 3])
def test_scans_along_rows(exclusive, reverse, chunks):
    values = np.random.default_rng(1).integers(-4, 5, (2, 1300))
    got = run(lambda x, y: ScanLoops(x, y, 1, lambda a, b: a + b, const(0, "int64"), exclusive,
                                     reverse, chunks).by_rows(), values, np.zeros_like(values))
    line = values[:, ::-1] if reverse else values
    want = np.cumsum(line, axis=1) - (line if exclusive else 0)
    np.testing.assert_array_equal(got, want[:, ::-1] if reverse else want)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scans_along_any_axis(axis):
    x = var("x", (3, 5, 40))
    check_nest(primitive([x], op.cumsum(x, axis=axis)), rtol=1e-4)
    check_nest(primitive([x], op.cummax(x, axis=axis, reverse=True)))


def test_the_decision_follows_the_shape():
    algorithms = {
        (4, 1 << 20): "chunks", (4096, 4096): "rows", (64, 1 << 16, 4): "columns",
    }
    for shape, algorithm in algorithms.items():
        x = var("x", shape)
        axis = 1 if len(shape) == 2 else 0
        kernel = schedule_of(primitive([x], op.cumsum(x, axis=axis)))
        assert kernel.implementation == f"cumsum.cuda.{algorithm}", shape


def test_a_long_top_k_is_a_tournament():
    x = var("x", (1, 50257))
    nest = schedule_of(primitive([x], op.topk(x, k=50)), H100).loop_nest()
    # 25 tiles, then one tile of their winners, then the values at the positions.
    blocks = [loop.extent for loop in bound(nest, "blockIdx.x")]
    assert [getattr(extent, "value", extent) for extent in blocks[:2]] == [25, 1]
