"""Elementwise chains: how many vectors at a time, and their values on sizes that divide nothing."""

from __future__ import annotations

import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op
from weft.ir.dtype import DType
from weft.ir.expr import Expr, var
from weft.strategy.cpu.elementwise.schedule import vectors_per_iteration
from weft.target import Target
from weft.tir.expr import const
from weft.tir.func import PrimFunc
from weft.tir.stmt import BufferStore
from weft.tir.visitor import post_order_stmts

TARGETS = pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])


def widths(func: PrimFunc) -> list[int]:
    """Lanes of each store, in the order of the code."""
    return [s.value.dtype.lanes for s in post_order_stmts(func.body) if isinstance(s, BufferStore)]


def swish(x: Expr) -> Expr:
    return op.multiply(x, op.sigmoid(op.tanh(x)))


@TARGETS
@pytest.mark.parametrize("size", [1, 17, 64, 195])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_values(target: Target, size: int, dtype: str) -> None:
    x = var("x", (size,), dtype)
    check(primitive([x], swish(x)), target, rtol=2e-3 if dtype == "float16" else 1e-5)


@pytest.mark.parametrize(("count", "extent", "dtype", "expected"), [
    (0, 1024, "float32", 1),  # waits for memory
    (1, 1024, "float32", 4),
    (4, 1024, "float32", 4),
    (5, 1024, "float32", 1),
    (1, 96, "float32", 2),
    (1, 515, "float32", 2),  # a masked end in 17 steps
    (1, 1003, "float32", 2),
    (1, 1030, "float32", 4),
    (1, 195, "float32", 1),
    (1, 1024, "float16", 2),  # each is two vectors of float32
    (1, 1024, "float64", 4),
    (1, 1024, "bool", 1),
])  # fmt: skip
def test_vectors_at_a_time(count: int, extent: int, dtype: str, expected: int) -> None:
    assert vectors_per_iteration(count, const(extent), DType.of(dtype), WIDE_CPU) == expected


def test_few_registers_take_one_vector() -> None:
    assert vectors_per_iteration(1, const(1024), DType.of("float32"), SMALL_CPU) == 1


@pytest.mark.parametrize(("size", "expected"), [
    (1024, [64]), (1030, [64, 64]), (195, [16, 16]), (96, [32]),
])  # fmt: skip
def test_code_holds_a_polynomial_once_or_twice(size: int, expected: list[int]) -> None:
    x = var("x", (size,))
    kernel = check(primitive([x], op.tanh(x)), WIDE_CPU)
    assert widths(kernel.func) == expected
