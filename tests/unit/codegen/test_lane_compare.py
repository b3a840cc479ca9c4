"""Masks of tails whose length is a parameter: one 32-bit comparison with the lane numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.codegen.conftest import Compiled, Compiler
from weft.codegen.llvm.build import emit_llvm
from weft.tir import expr as x
from weft.tir.buffer import buffer
from weft.tir.expr import Broadcast, Ramp, Var, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import BufferStore, seq

LANES, STRIDES = 16, (1, 3)
OPERATORS: dict[type, Callable[[int, int], bool]] = {
    x.LT: operator.lt, x.LE: operator.le, x.GT: operator.gt, x.GE: operator.ge}
BASE, N = Var("base"), Var("n")


def program() -> PrimFunc:
    """Row after row, the comparisons of a ramp from ``base`` with ``n``, on either side."""
    out = buffer("out", [len(OPERATORS) * len(STRIDES) * 2 * LANES], "int64")
    one, zero = (Broadcast(const(value), LANES) for value in (1, 0))
    stores, bound = [], Broadcast(N, LANES)
    for op in OPERATORS:
        for stride in STRIDES:
            ramp = Ramp(BASE, const(stride), LANES)
            for pair in ((ramp, bound), (bound, ramp)):
                at = Ramp(const(len(stores) * LANES), const(1), LANES)
                stores.append(BufferStore(out, x.Select(op(*pair), one, zero), (at,)))
    return PrimFunc("f", (out, BASE, N), seq(stores))


@pytest.fixture(scope="module")
def compiled(compiler: Compiler) -> Compiled:
    return compiler.compile(program())


@settings(max_examples=60, deadline=None)
@given(base=st.one_of(st.integers(0, 60), st.integers(0, 2**40)),
       n=st.one_of(st.integers(0, 60), st.integers(0, 2**40)))
def test_every_lane_compares_as_integers_do(compiled: Compiled, base: int, n: int) -> None:
    got = np.full(len(OPERATORS) * len(STRIDES) * 2 * LANES, -1, np.int64)
    compiled(got, base, n)
    want = [compare(*pair) for compare in OPERATORS.values() for stride in STRIDES
            for swapped in (False, True) for lane in range(LANES)
            for pair in [(base + lane * stride, n)[::-1 if swapped else 1]]]
    np.testing.assert_array_equal(got, want)


def test_no_vector_of_64_bit_indices(compiler: Compiler) -> None:
    text = emit_llvm(program(), compiler.target)
    assert "icmp slt <16 x i32>" in text
    assert "icmp slt <16 x i64>" not in text
