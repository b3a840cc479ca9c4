"""Factorizations keep as many rows of a tile in registers as the CPU has, with equal bits."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.strategy.cpu.linalg.strategy import tile_rows
from weft.target import CpuTarget
from weft.tir.eval import evaluate
from weft.topi.linalg import cholesky
from weft.topi.linalg.registers import rows_in_registers


@pytest.mark.parametrize(("target", "rows"), [
    ("llvm -mcpu=znver5", 8), ("llvm -mcpu=znver3", 4), ("llvm -mcpu=x86-64", 2),
    ("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1", 4)],
    ids=["avx512", "avx2", "sse2", "neon"])
def test_rows_fit_the_registers(target: str, rows: int) -> None:
    assert tile_rows(CpuTarget.of(target)) == rows


def _factor(rows: int) -> tuple[str, np.ndarray]:
    x = te.placeholder((1, 17, 17), "float64", "x")
    with rows_in_registers(rows):
        lower, info = cholesky(x)
    func = te.lower(te.create_schedule([lower, info]), [x, lower, info])
    a = np.random.default_rng(0).normal(size=(17, 17))
    found, positive = np.empty((1, 17, 17)), np.empty(1, np.int32)
    evaluate(func, (a @ a.T + np.eye(17))[None], found, positive)
    return str(func), found


def test_the_bits_do_not_depend_on_the_rows() -> None:
    (whole, at_once), (halves, in_turn) = _factor(8), _factor(4)
    assert whole != halves
    np.testing.assert_array_equal(at_once, in_turn)
