"""Loops over fused axes of symbolic extents divide once, not once per iteration."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.codegen.conftest import Compiled, Compiler
from weft.codegen.llvm.build import emit_llvm, emit_optimized_llvm
from weft.tir import expr as x
from weft.tir.buffer import buffer
from weft.tir.expr import PrimExpr, Var, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import BufferStore, For, ForKind, Stmt, seq

F, N, M, B = Var("f"), Var("n"), Var("m"), Var("b")


def floor(a: PrimExpr, b: PrimExpr | int) -> PrimExpr:
    return x.FloorDiv(a, x.as_prim(b))


def rest(a: PrimExpr, b: PrimExpr | int) -> PrimExpr:
    return x.FloorMod(a, x.as_prim(b))


# The indices of fused axes: chains of quotients by sizes and numbers.
INDICES = {
    "two": [floor(F, N), rest(F, N)],
    "three": [floor(floor(F, M), N), rest(floor(F, M), N), rest(F, M)],
    "after a number": [floor(floor(F, 4), N), rest(floor(F, 4), N), rest(F, 4)],
    "before a number": [floor(floor(F, N), 3), rest(floor(F, N), 3), rest(F, N)],
    "between numbers": [floor(floor(floor(F, 2), N), 3), floor(floor(floor(F, N), 4), M)],
    "product": [floor(F, N * M), rest(F, N * M)],
}


def program(indices: list[PrimExpr], kind: ForKind, start: int = 0) -> PrimFunc:
    """Row ``f`` of ``out`` has the values of the indices at ``f``."""
    out = buffer("out", [B * len(indices)], "int64")
    body: Stmt = seq([BufferStore(out, e, ((F - start) * len(indices) + at,))
                      for at, e in enumerate(indices)])
    loop = For(F, const(start), B, kind, body)
    return PrimFunc("f", (out, B, M, N), loop)


@pytest.fixture(scope="module", params=list(INDICES))
def indices(request: pytest.FixtureRequest) -> list[PrimExpr]:
    return INDICES[request.param]


@pytest.fixture(scope="module")
def compiled(compiler: Compiler, indices: list[PrimExpr]) -> list[Compiled]:
    return [compiler.compile(program(indices, kind, start))
            for kind, start in ((ForKind.SERIAL, 0), (ForKind.PARALLEL, 5))]


@settings(max_examples=30, deadline=None)
@given(b=st.integers(0, 70), m=st.integers(0, 5), n=st.integers(0, 9))
def test_counters_are_quotients(compiled: list[Compiled], indices: list[PrimExpr], b: int, m: int,
                                n: int) -> None:
    for one, start in zip(compiled, (0, 5), strict=True):
        got = np.full((b, len(indices)), -1, np.int64)
        one(got.reshape(-1), b, m, n)
        want = [[value(e, {F: f, M: m, N: n}) for e in indices] for f in range(start, start + b)]
        np.testing.assert_array_equal(got, np.array(want, np.int64).reshape(got.shape))


def value(e: PrimExpr, at: dict[Var, int]) -> int:
    """Division by zero gives 0, as in compiled code."""
    if isinstance(e, Var):
        return at[e]
    if isinstance(e, x.IntImm):
        return e.value
    assert isinstance(e, x.Binary)
    a, b = value(e.a, at), value(e.b, at)
    if isinstance(e, x.Mul):
        return a * b
    if b == 0:
        return 0
    return a // b if isinstance(e, x.FloorDiv) else a % b


def test_no_division_in_the_loop(compiler: Compiler) -> None:
    func = program(INDICES["three"], ForKind.PARALLEL)
    text = emit_optimized_llvm(func, compiler.target)
    before, _, loop = text.partition("loop1:")
    assert "udiv" in before
    assert not re.search(r"\b[us](div|rem)\b", loop)


def test_fixed_divisors_stay_multiplications(compiler: Compiler) -> None:
    func = program([floor(F, 7), rest(F, 7)], ForKind.SERIAL)
    assert ".q0" not in emit_llvm(func, compiler.target)
