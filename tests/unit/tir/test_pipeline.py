"""Every pass keeps the meaning: random scheduled nests, evaluated before and after each."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sampling import share_of
from weft.support.errors import LoweringError
from weft.tir import expr as x
from weft.tir.buffer import Buffer, buffer
from weft.tir.eval import evaluate
from weft.tir.expr import Call, PrimExpr, Var, call, const
from weft.tir.func import PrimFunc
from weft.tir.intrinsics import intrinsic
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.tir.transform.pipeline import lower_prim_func
from weft.tir.visitor import all_exprs, post_order_stmts

SERIAL, PARALLEL, VECTOR, UNROLL = (
    ForKind.SERIAL, ForKind.PARALLEL, ForKind.VECTORIZED, ForKind.UNROLLED,
)  # fmt: skip
ZERO = const(0)


def loop(var: Var, extent: int | PrimExpr, body: Stmt, kind: ForKind = SERIAL) -> For:
    return For(var, ZERO, x.as_prim(extent), kind, body)


def likely(condition: PrimExpr) -> PrimExpr:
    return call("bool", "likely", condition)


@dataclass
class SameValue:
    """Evaluates after each pass and compares."""

    arrays: list[np.ndarray]
    expected: np.ndarray | None = None
    seen: list[str] = field(default_factory=list)

    def check(self, func: PrimFunc, name: str) -> None:
        output = np.full_like(self.arrays[-1], -77)
        evaluate(func, *self.arrays[:-1], output)
        if self.expected is None:
            self.expected = output
        np.testing.assert_allclose(
            output, self.expected, rtol=1e-5, atol=1e-5, err_msg=f"{name}\n{func}"
        )

    def after_pass(self, name: str, before: PrimFunc, after: PrimFunc) -> None:
        self.seen.append(name)
        if after is not before:
            self.check(after, name)


def lowered(func: PrimFunc, *arrays: np.ndarray) -> PrimFunc:
    witness = SameValue(list(arrays))
    witness.check(func, "before")
    return lower_prim_func(func, instruments=[witness], verify=True)


def random(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


A2, B2, C2 = (Buffer(n, (const(37), const(29)), x.float32) for n in "ABC")
KINDS = st.sampled_from([SERIAL, UNROLL, VECTOR])
OUTER = st.sampled_from([SERIAL, PARALLEL])


@dataclass
class Axis:
    """An axis of ``size`` split by ``factor``, guarded where that does not divide."""

    size: int
    factor: int
    kinds: tuple[ForKind, ForKind]
    outer: Var = field(default_factory=lambda: Var("o"))
    inner: Var = field(default_factory=lambda: Var("i"))

    @property
    def index(self) -> PrimExpr:
        return self.outer * self.factor + self.inner

    @property
    def guard(self) -> PrimExpr:
        return x.TRUE if self.size % self.factor == 0 else likely(self.index < self.size)

    def loops(self) -> list[tuple[Var, int, ForKind]]:
        parts = -(-self.size // self.factor)
        return [(self.outer, parts, self.kinds[0]), (self.inner, self.factor, self.kinds[1])]


def axes(size: int) -> st.SearchStrategy[Axis]:
    return st.builds(Axis, st.just(size), st.integers(1, 9), st.tuples(OUTER, KINDS))


def guarded(body: Stmt, *conditions: PrimExpr) -> Stmt:
    for condition in conditions:
        if condition is not x.TRUE:
            body = IfThenElse(condition, body)
    return body


def nest(loops: list[tuple[Var, int, ForKind]], body: Stmt) -> Stmt:
    for var, extent, kind in reversed(loops):
        body = loop(var, extent, body, kind)
    return body


def values(i: PrimExpr, j: PrimExpr) -> st.SearchStrategy[PrimExpr]:
    """Elementwise, stencils behind conditions, broadcasts, gathers of another row."""
    a, b = A2.load(i, j), B2.load(i, j)
    inside = x.all_of(i >= 1, j < 28)
    shifted = A2.load(i - 1, j + 1)
    return st.sampled_from([
        a + b * 2.0,
        x.maximum(a, 0.0),
        x.if_then_else(inside, shifted, 0.0),
        x.if_then_else(i >= 1, A2.load(i - 1, j), b),
        x.if_then_else(j >= 1, x.if_then_else(j < 20, A2.load(i, j - 1), a), b),
        x.select(a < b, a, b * a),
        A2.load(i, j // 2) + B2.load(j % 7, ZERO),
        B2.load((i + j) % 37, j),
        Call(a.dtype, "tanh", (a,)),
        call("float32", "fma", a, b, a),
        x.cast(x.cast(j, "int32"), "float32") * a,
    ])  # fmt: skip


@pytest.mark.slow
@given(st.data())
@settings(max_examples=round(60 * share_of(0.4)), deadline=None)
def test_elementwise_nests(data: st.DataObject) -> None:
    rows, columns = data.draw(axes(37)), data.draw(axes(29))
    value = data.draw(values(rows.index, columns.index))
    order = data.draw(st.permutations([*rows.loops(), *columns.loops()]))
    guards = data.draw(st.permutations([rows.guard, columns.guard]))
    store = BufferStore(C2, value, (rows.index, columns.index))
    func = PrimFunc("f", (A2, B2, C2), nest(order, guarded(store, *guards)))
    lowered(func, random(37, 29), random(37, 29), random(37, 29))


@pytest.mark.slow
@given(st.data())
@settings(max_examples=round(40 * share_of(0.5)), deadline=None)
def test_register_tiles(data: st.DataObject) -> None:
    """C = A @ B with a local tile: tails in rows, columns and the reduction."""
    m, n, k = (data.draw(st.integers(1, 23)) for _ in range(3))
    a, b, c = buffer("A", (m, k)), buffer("B", (k, n)), buffer("C", (m, n))
    tm, tn, tk = (data.draw(st.integers(1, 6)) for _ in range(3))
    tile = Buffer("tile", (const(tm), const(tn)), x.float32, "local")
    io, jo, ko, i, j, kk = (Var(s) for s in ("io", "jo", "ko", "i", "j", "kk"))
    row, column, depth = io * tm + i, jo * tn + j, ko * tk + kk
    kinds = [data.draw(st.sampled_from([UNROLL, VECTOR, SERIAL])) for _ in range(2)]
    inner = [(i, tm, kinds[0]), (j, tn, kinds[1])]
    inside = likely(x.all_of(row < m, column < n))
    product = tile.load(i, j) + a.load(row, depth) * b.load(depth, column)
    update = guarded(BufferStore(tile, product, (i, j)), likely(depth < k), inside)
    result = x.maximum(tile.load(i, j), 0.0)
    depth_kind = data.draw(st.sampled_from([UNROLL, SERIAL]))
    body = seq([
        nest(inner, BufferStore(tile, const(0.0, "float32"), (i, j))),
        loop(ko, -(-k // tk), loop(kk, tk, nest(inner, update), depth_kind)),
        nest(inner, guarded(BufferStore(c, result, (row, column)), inside)),
    ])  # fmt: skip
    outer = [(io, -(-m // tm), data.draw(OUTER)), (jo, -(-n // tn), data.draw(OUTER))]
    func = PrimFunc("gemm", (a, b, c), nest(outer, Allocate(tile, body)))
    left, right, out = random(m, k), random(k, n), np.zeros((m, n), np.float32)
    done = lowered(func, left, right, out)
    evaluate(done, left, right, out)
    np.testing.assert_allclose(out, np.maximum(left @ right, 0), rtol=1e-4, atol=1e-4)


def hot_guards(func: PrimFunc) -> int:
    """Guards that are left, and masks."""
    conditions = [n for n in post_order_stmts(func.body) if isinstance(n, IfThenElse)]
    masks = [n for n in post_order_stmts(func.body)
             if isinstance(n, BufferStore) and n.predicate is not None]  # fmt: skip
    hints = [e for e in all_exprs(func.body) if type(e) is Call and e.name == "likely"]
    return len(conditions) + len(masks) + len(hints)


def test_tails_leave_no_guard() -> None:
    m, n = 37, 70
    c = buffer("C", (m, n))
    io, jo, i, j = (Var(s) for s in ("io", "jo", "i", "j"))
    row, column = io * 14 + i, jo * 32 + j
    store = guarded(
        BufferStore(c, const(1.0, "float32"), (row, column)),
        likely(x.all_of(row < m, column < n)),
    )
    body = nest([(io, 3, SERIAL), (jo, 3, SERIAL), (i, 14, UNROLL), (j, 32, VECTOR)], store)
    done = lowered(PrimFunc("f", (c,), body), np.zeros((m, n), np.float32))
    assert hot_guards(done) == 0


def test_parallel_loops_stay_whole() -> None:
    c = buffer("C", (70,))
    o, i = Var("o"), Var("i")
    store = guarded(BufferStore(c, const(1.0, "float32"), (o * 16 + i,)), likely(o * 16 + i < 70))
    func = PrimFunc("f", (c,), nest([(o, 5, PARALLEL), (i, 16, VECTOR)], store))
    done = lowered(func, np.zeros(70, np.float32))
    assert isinstance(done.body, For)
    assert done.body.kind is PARALLEL
    assert hot_guards(done) == 1  # one test an iteration chooses between main and tail
    assert isinstance(done.body.body, IfThenElse)


def test_statements_beside_a_guard_stay_one() -> None:
    a, b, c = buffer("A", (5, 16)), buffer("B", (5, 16)), buffer("C", (70,))
    scratch_row = Buffer("row", (const(16),), x.float32)
    o, i, j, k = Var("o"), Var("i"), Var("j"), Var("k")
    before = BufferStore(scratch_row, a.load(o, i) * 2.0, (i,))
    held = BufferStore(c, scratch_row.load(j), (o * 16 + j,))
    after = BufferStore(b, scratch_row.load(k) + 1.0, (o, k))
    body = Allocate(scratch_row, seq([
        loop(i, 16, before, VECTOR),
        loop(j, 16, guarded(held, likely(o * 16 + j < 70)), VECTOR),
        loop(k, 16, after, VECTOR),
    ]))  # fmt: skip
    func = PrimFunc("f", (a, b, c), loop(o, 5, body, PARALLEL))
    done = lowered(func, random(5, 16), random(5, 16), random(70))
    stores = [n.buffer.name for n in post_order_stmts(done.body) if isinstance(n, BufferStore)]
    assert [stores.count(name) for name in ("row", "B")] == [1, 1]
    assert hot_guards(done) == 1


def test_main_and_tail_have_their_own_registers() -> None:
    a, b = buffer("A", (70,)), buffer("B", (70,))
    tile = Buffer("tile", (const(16),), x.float32, "local")
    o, i, j = Var("o"), Var("i"), Var("j")
    fill = BufferStore(tile, a.load(o * 16 + i), (i,))
    drain = BufferStore(b, tile.load(j), (o * 16 + j,))
    body = Allocate(tile, seq([
        loop(i, 16, guarded(fill, likely(o * 16 + i < 70)), VECTOR),
        loop(j, 16, guarded(drain, likely(o * 16 + j < 70)), VECTOR),
    ]))  # fmt: skip
    done = lowered(PrimFunc("f", (a, b), loop(o, 5, body)), random(70), random(70))
    tiles = [n.buffer for n in post_order_stmts(done.body) if isinstance(n, Allocate)]
    assert len(tiles) == len(set(tiles)) == 2


def test_padding_is_masked_where_it_depends_on_the_lane() -> None:
    a, b = buffer("A", (10,)), buffer("B", (12,))
    i = Var("i")
    padded = x.if_then_else(x.all_of(i >= 1, i < 11), a.load(i - 1), 0.0)
    func = PrimFunc("pad", (a, b), loop(i, 12, BufferStore(b, padded, (i,)), VECTOR))
    data, out = random(10), np.zeros(12, np.float32)
    evaluate(lowered(func, data, out), data, out)
    np.testing.assert_array_equal(out, np.pad(data, 1))


def test_reduction_over_a_vector_falls_back_with_a_reason() -> None:
    a, b = buffer("A", (64,)), buffer("B", (1,))
    i = Var("i")
    add = BufferStore(b, b.load(0) + a.load(i), (ZERO,))
    body = seq([BufferStore(b, const(0.0, "float32"), (ZERO,)), loop(i, 64, add, VECTOR)])
    done = lowered(PrimFunc("sum", (a, b), body), random(64), np.zeros(1, np.float32))
    loops = [n for n in post_order_stmts(done.body) if isinstance(n, For)]
    (left,) = (n for n in loops if "not_vectorized" in n.annotations)
    assert left.kind is SERIAL
    assert "every lane" in left.annotations["not_vectorized"]


def test_indexed_registers_become_memory() -> None:
    a, b = buffer("A", (64,)), buffer("B", (64,))
    tile = Buffer("tile", (const(64),), x.float32, "local")
    i, j = Var("i"), Var("j")
    body = seq([loop(i, 64, BufferStore(tile, a.load(i), (i,))),
                loop(j, 64, BufferStore(b, tile.load(63 - j), (j,)))])  # fmt: skip
    done = lowered(PrimFunc("f", (a, b), Allocate(tile, body)), random(64), random(64))
    (allocation,) = (n for n in post_order_stmts(done.body) if isinstance(n, Allocate))
    assert allocation.buffer.scope == "global"
    assert done.attrs["workspace_bytes"] == 256
    assert done.attrs["workspace_offsets"] == {allocation.buffer: 0}


def scratch(size: int, kind: ForKind) -> PrimFunc:
    a = buffer("A", (4, size))
    temporary = buffer("T", (size,))
    p, i, j = Var("p"), Var("i"), Var("j")
    body = Allocate(temporary, seq([
        loop(i, size, BufferStore(temporary, x.cast(i + p, "float32"), (i,))),
        loop(j, size, BufferStore(a, temporary.load(size - 1 - j), (p, j))),
    ]))  # fmt: skip
    return PrimFunc("f", (a,), loop(p, 4, body, kind))


@pytest.mark.parametrize(
    ("size", "kind", "workspace"),
    [(100, SERIAL, 448), (100, PARALLEL, None), (140_000, PARALLEL, 4 * 140_000 * 4)],
)
def test_workspace_or_stack_of_scratch(size: int, kind: ForKind, workspace: int | None) -> None:
    func = scratch(size, kind)
    done = lower_prim_func(func, verify=True)
    assert done.attrs.get("workspace_bytes") == workspace
    if size == 100:
        out = [np.zeros((4, size), np.float32) for _ in range(2)]
        evaluate(func, out[0])
        evaluate(done, out[1])
        np.testing.assert_array_equal(*out)


def test_scratch_whose_size_changes_inside_the_kernel_is_refused() -> None:
    n, row, i = Var("n"), Var("row"), Var("i")
    a, temporary = buffer("A", (n, n)), buffer("T", (row + 1,))
    body = seq([loop(i, row + 1, BufferStore(temporary, a.load(row, i), (i,))),
                loop(i, row + 1, BufferStore(a, temporary.load(row - i), (row, i)))])  # fmt: skip
    func = PrimFunc("f", (a, n), loop(row, n, Allocate(temporary, body)))
    with pytest.raises(LoweringError, match="scratch buffer T changes inside the kernel"):
        lower_prim_func(func)


def test_symbolic_sizes() -> None:
    n, m = Var("n"), Var("m")
    a, b = buffer("A", (n, m)), buffer("B", (n, m))
    i, jo, ji = Var("i"), Var("jo"), Var("ji")
    j = jo * 8 + ji
    store = guarded(BufferStore(b, a.load(i, j) * 2.0, (i, j)), likely(j < m))
    blocks = (m + 7) // 8
    loops: list[tuple[Var, Any, ForKind]] = [(i, n, PARALLEL), (jo, blocks, SERIAL)]
    loops.append((ji, 8, VECTOR))
    func = PrimFunc("f", (a, b, n, m), nest(loops, store))
    done = lower_prim_func(func, verify=True)
    for rows, columns in [(3, 8), (2, 21), (1, 5)]:
        data, out = random(rows, columns), np.zeros((rows, columns), np.float32)
        evaluate(done, data, out, rows, columns)
        np.testing.assert_array_equal(out, data * 2)


def test_let_and_nested_vectors() -> None:
    a, b = buffer("A", (4, 8)), buffer("B", (4, 8))
    i, j, t = Var("i"), Var("j"), Var("t", x.float32)
    body = LetStmt(t, a.load(i, j) + 1.0, BufferStore(b, t * t, (i, j)))
    func = PrimFunc("f", (a, b), nest([(i, 4, VECTOR), (j, 8, VECTOR)], body))
    done = lowered(func, random(4, 8), random(4, 8))
    assert not any(isinstance(n, For) for n in post_order_stmts(done.body))


def test_passes_run_in_the_declared_order() -> None:
    witness = SameValue([np.zeros((4, 100), np.float32)])
    lower_prim_func(scratch(100, SERIAL), instruments=[witness])
    assert witness.seen[0] == "simplify"
    assert witness.seen[-1] == "remove_no_op"
    assert witness.seen.index("vectorize_loop") < witness.seen.index("unroll_loop")


def test_deep_fused_chains() -> None:
    """Deeper than Python's recursion limit once the polynomials are in place."""
    a, b = buffer("A", (8,)), buffer("B", (8,))
    i = Var("i")
    value: PrimExpr = a.load(i)
    for _ in range(60):
        value = intrinsic("tanh", x.maximum(value * 2.0, 0.5)) + 1.0
    func = PrimFunc("f", (a, b), loop(i, 8, BufferStore(b, value, (i,)), VECTOR))
    done = lowered(func, random(8), random(8))
    assert "tanh" not in str(done)


def test_a_deep_expression_passes_through():
    """A chain of fused operators nests deeper than Python's limit of frames."""
    n = 300
    source, result, i = buffer("x", (n + 4,)), buffer("y", (4,)), Var("i")
    value: PrimExpr = source.load(i)
    for step in range(n):
        value = x.if_then_else(i.equal(step % 4), source.load(i + step), value * 0.5 + 1.0)
    func = PrimFunc("deep", (source, result), For(
        i, const(0), const(4), ForKind.SERIAL, BufferStore(result, value, (i,))))
    loads = {e for e in all_exprs(lower_prim_func(func, verify=True).body)
             if isinstance(e, x.BufferLoad)}
    assert len(loads) > n // 2  # what lies under contradicting conditions is gone
