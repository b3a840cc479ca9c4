"""Split-K: threads share the K of a GEMM with few tiles."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import (
    SMALL_CPU,
    WIDE_CPU,
    check,
    primitive,
    random_arguments,
)
from weft import op
from weft.ir.expr import Function, var
from weft.strategy import lower_function
from weft.strategy.cpu.gemm import blocking
from weft.strategy.cpu.gemm.decide import decide_problem


@pytest.fixture
def shallow_chunks(monkeypatch):
    """Small GEMMs are split as large ones are."""
    monkeypatch.setattr(blocking, "parallel_threshold", lambda _: 10)
    monkeypatch.setattr(blocking, "MIN_SPLIT_K_DEPTH", 2)
    decide_problem.cache_clear()
    yield
    decide_problem.cache_clear()


@pytest.mark.usefixtures("shallow_chunks")
@pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])
@pytest.mark.parametrize(("rows", "columns", "depth"), [(1, 10, 37), (3, 21, 50), (9, 16, 64)])
def test_chunks_are_added_before_the_fused_operators(target, rows, columns, depth):
    a, b, c = var("a", (rows, depth)), var("b", (depth, columns)), var("c", (columns,))
    body = op.nn.relu(op.add(op.nn.matmul(a, b), c))
    kernel = check(primitive([a, b, c], body), target)
    assert "matmul.rf" in str(kernel.func)


@pytest.mark.usefixtures("shallow_chunks")
def test_split_k_over_a_packed_weight():
    x, w = var("x", (2, 1, 45)), var("w", (2, 45, 16))
    y = op.nn.dense(x, w, units=19, weight_layout="NK16n")
    kernel = check(primitive([x, w], y), WIDE_CPU)
    assert "dense.rf" in str(kernel.func)


def test_every_thread_count_gives_the_same_bits():
    a, b = var("a", (2, 12_000)), var("b", (12_000, 20))
    function = primitive([a, b], op.nn.matmul(a, b))
    assert "matmul.rf" in str(lower_function(function, WIDE_CPU).func)
    compiled = weft.compile(Function((a, b), op.nn.matmul(a, b)))
    data = random_arguments(function)
    found = []
    for threads in (1, 2, 3):
        with weft.config(threads=threads):
            found.append(compiled(*data))
    np.testing.assert_allclose(found[0], data[0] @ data[1], rtol=1e-3, atol=1e-3)
    assert all(np.array_equal(found[0], other) for other in found)
