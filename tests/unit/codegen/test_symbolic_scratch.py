"""Scratch buffers whose sizes are parameters of the kernel: workspace, or stacks of tasks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.codegen.conftest import Compiled, Compiler
from weft.codegen.llvm.build import emit_llvm
from weft.ir.dtype import DType, int64
from weft.runtime.sizes import evaluate as size_at
from weft.tir import expr as x
from weft.tir.buffer import buffer
from weft.tir.expr import PrimExpr, Var, as_prim, const
from weft.tir.func import PrimFunc
from weft.tir.parser import parse_func
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, Stmt, seq
from weft.tir.task_scratch import MAX_STACK_BYTES, MAX_TOTAL_STACK_BYTES
from weft.tir.transform.pipeline import lower_prim_func

PARALLEL, SERIAL = ForKind.PARALLEL, ForKind.SERIAL


def loop(var: Var, extent: PrimExpr | int, body: Stmt, kind: ForKind = SERIAL) -> For:
    return For(var, const(0), as_prim(extent), kind, body)


def reversed_twice(n: Var) -> PrimFunc:
    """``out[i] = a[n - 1 - i] + i`` through two buffers of ``n`` elements."""
    i, a, out = Var("i"), buffer("a", [n]), buffer("out", [n])
    t, u, fixed = buffer("t", [n]), buffer("u", [n + 1], "float64"), buffer("c", [3])
    body = seq([
        BufferStore(fixed, x.FloatImm(0.0, DType.of("float32")), (const(2),)),
        loop(i, n, BufferStore(t, a.load(n - 1 - i), (i,)), PARALLEL),
        loop(i, n, BufferStore(u, t.load(i).astype("float64"), (n - i,))),
        loop(i, n, BufferStore(out, u.load(n - i).astype("float32") + fixed.load(2)
                               + i.astype("float32"), (i,)), PARALLEL),
    ])  # fmt: skip
    allocated = Allocate(t, Allocate(u, Allocate(fixed, body)))
    return lower_prim_func(PrimFunc("f", (a, out, n), allocated), verify=True)


def row_reversal(n: Var, rows: Var | int) -> PrimFunc:
    """Each row of ``out`` is that of ``a`` backwards, through a buffer of its task."""
    r, i, a = Var("r"), Var("i"), buffer("a", [rows, n])
    out, t = buffer("out", [rows, n]), buffer("t", [n])
    body = Allocate(t, seq([
        loop(i, n, BufferStore(t, a.load(r, i), (i,))),
        loop(i, n, BufferStore(out, t.load(n - 1 - i), (r, i))),
    ]))  # fmt: skip
    params = (a, out, n) if isinstance(rows, int) else (a, out, n, rows)
    return lower_prim_func(PrimFunc("f", params, loop(r, rows, body, PARALLEL)), verify=True)


@pytest.fixture(scope="module")
def through_workspace(compiler: Compiler) -> Compiled:
    return compiler.compile(reversed_twice(Var("n")))


@settings(max_examples=20, deadline=None)
@given(n=st.integers(0, 300))
def test_offsets_in_the_workspace_follow_the_sizes(through_workspace: Compiled, n: int) -> None:
    a, out = np.arange(n, dtype=np.float32) + 1, np.full(n, -1, np.float32)
    through_workspace(a, out, n)
    np.testing.assert_array_equal(out, a[::-1] + np.arange(n, dtype=np.float32))
    # Each buffer starts at a cache line.
    rounded = [-(-size // 64) * 64 for size in (12, 4 * n, 8 * (n + 1))]
    needed = size_at(through_workspace.func.attrs["workspace_bytes"], {"n": n})
    assert needed == sum(rounded)


@pytest.fixture(scope="module")
def by_task(compiler: Compiler) -> Compiled:
    return compiler.compile(row_reversal(Var("n"), Var("rows")))


@pytest.mark.parametrize("n", [0, 1, 5, 1000, MAX_STACK_BYTES // 4, MAX_STACK_BYTES // 4 + 1])
def test_tasks_use_the_stack_and_then_the_workspace(by_task: Compiled, n: int) -> None:
    rows = 5
    a, out = np.random.default_rng(0).random((rows, n), np.float32), np.zeros((rows, n), np.float32)
    needed = size_at(by_task.func.attrs["workspace_bytes"], {"n": n, "rows": rows})
    assert needed == (0 if 4 * n <= MAX_STACK_BYTES else rows * (-(-4 * n // 64) * 64))
    by_task(a, out, n, rows)
    np.testing.assert_array_equal(out, a[:, ::-1])


def test_bounded_scratch_is_on_the_stack(compiler: Compiler) -> None:
    func = row_reversal(Var("n{1..100}"), 3)
    assert "workspace_bytes" not in func.attrs
    assert "alloca [448 x i8]" in emit_llvm(func, compiler.target)
    a, out = np.arange(42, dtype=np.float32).reshape(3, 14), np.zeros((3, 14), np.float32)
    compiler.compile(func)(a, out, 14)
    np.testing.assert_array_equal(out, a[:, ::-1])


def test_scratch_that_a_stack_may_not_have_is_in_the_workspace() -> None:
    """Of buffers that are small alone, a task has as many on its stack as fit together."""
    n, rows, r, i = MAX_STACK_BYTES // 4, 3, Var("r"), Var("i")
    out = buffer("out", [rows, n])
    parts = [buffer("t", [n]) for _ in range(MAX_TOTAL_STACK_BYTES // MAX_STACK_BYTES + 2)]
    body: Stmt = seq([loop(i, n, BufferStore(t, r.astype("float32"), (i,))) for t in parts]
                     + [loop(i, n, BufferStore(out, parts[0].load(i), (r, i)))])
    for t in parts:
        body = Allocate(t, body)
    func = lower_prim_func(PrimFunc("f", (out,), loop(r, rows, body, PARALLEL)), verify=True)
    assert func.attrs["workspace_bytes"] == 2 * rows * MAX_STACK_BYTES


def test_a_variable_of_multiples_counts_them(compiler: Compiler) -> None:
    """Offsets use the variable of the kernel, the size of the workspace the program's symbol."""
    n, i = Var("n{8..%8}", int64), Var("i")
    a, t = buffer("a", [n * 8]), buffer("t", [n * 8])
    body = Allocate(t, seq([loop(i, n * 8, BufferStore(t, a.load(n * 8 - 1 - i), (i,))),
                            loop(i, n * 8, BufferStore(a, t.load(i), (i,)))]))
    func = lower_prim_func(PrimFunc("f", (a, n), body))
    assert size_at(func.attrs["workspace_bytes"], {"n": 24}) == 128
    assert parse_func(str(func)).params[1].name == "n"


@pytest.mark.parametrize("func", [reversed_twice(Var("n")), row_reversal(Var("n"), Var("m")),
                                  row_reversal(Var("n"), 3), row_reversal(Var("n{1..9}"), 3)])
def test_symbolic_memory_prints_and_parses(func: PrimFunc) -> None:
    again = parse_func(str(func))
    assert str(again) == str(func)
    for key in ("workspace_bytes", "workspace_offsets", "task_scratch"):
        assert bool(again.attrs.get(key)) == bool(func.attrs.get(key))
