"""Grouped GEMM: any numbers of rows per group, in any order of groups, against NumPy."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weft
from weft import ir, op
from weft.ir.dtype import DType
from weft.ir.expr import Constant, Function, var
from weft.ir.module import IRModule

GROUPS, UNITS, DEPTH = 5, 70, 9


def weights(dtype: str) -> np.ndarray:
    found = np.random.default_rng(0).normal(size=(GROUPS, UNITS, DEPTH))
    return found.astype(DType.of(dtype).numpy)


@functools.cache
def module_of(dtype: str) -> Any:
    """Symbolic rows; the weight is packed to panels that its columns do not fill."""
    x, sizes = var("x", ("rows", DEPTH), dtype), var("sizes", (GROUPS,), "int64")
    y = op.nn.grouped_matmul(x, Constant(weights(dtype)), sizes)
    return weft.compile(ir.infer_type(IRModule.from_expr(Function((x, sizes), y))))


def check(dtype: str, sizes: np.ndarray, rows: int) -> None:
    x = np.random.default_rng(1).normal(size=(rows, DEPTH)).astype(DType.of(dtype).numpy)
    found = module_of(dtype)(x, sizes)
    matrices, start = weights(dtype).astype(np.float64), 0
    wanted = np.zeros((rows, UNITS))
    for matrix, size in zip(matrices, sizes, strict=True):
        wanted[start:start + size] = x[start:start + size].astype(np.float64) @ matrix.T
        start += size
    error = 1e-5 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(found.astype(np.float64), wanted, atol=error * 10)


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 20), min_size=GROUPS, max_size=GROUPS),
       beyond=st.integers(0, 3))
def test_groups_of_all_sizes(sizes: list[int], beyond: int) -> None:
    check("float32", np.array(sizes), sum(sizes) + beyond)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats_are_accumulated_in_float32(dtype: str) -> None:
    check(dtype, np.array([3, 0, 8, 1, 6]), 18)


def test_sizes_beyond_the_rows_stay_inside_the_operands() -> None:
    x = np.ones((4, DEPTH), np.float32)
    found = module_of("float32")(x, np.array([2, -7, 100, 5, 2**40]))
    wanted = np.repeat(weights("float32").sum(-1)[[0, 2]], 2, axis=0)
    np.testing.assert_allclose(found, wanted, atol=1e-4)


def test_decisions_say_why() -> None:
    x, w = var("x", ("rows", DEPTH), "float32"), var("w", (GROUPS, UNITS, DEPTH), "float32")
    sizes = var("sizes", (GROUPS,), "int64")
    function = Function((x, w, sizes), op.nn.grouped_matmul(x, w, sizes))
    module = weft.compile(ir.infer_type(IRModule.from_expr(function)))
    given_sizes = np.array([1, 0, 2, 0, 1])
    values = np.random.default_rng(2).normal(size=(4, DEPTH)).astype(np.float32)
    np.testing.assert_allclose(module(values, weights("float32"), given_sizes),
                               module_of("float32")(values, given_sizes), atol=1e-4)
