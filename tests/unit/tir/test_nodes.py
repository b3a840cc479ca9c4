"""Interned nodes, visitors, text, and the verifier."""

from __future__ import annotations

import gc

import pytest

from weft.ir.dtype import DType, float32
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError, WellFormedError
from weft.tir import Buffer, buffer, node
from weft.tir import expr as x
from weft.tir.expr import BufferLoad, IntImm, PrimExpr, Var, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.tir.verify import verify_func
from weft.tir.visitor import (
    depth_checkpoints,
    free_vars,
    height,
    post_order,
    post_order_stmts,
    substitute,
    substitute_each,
    transform_expr,
    transform_stmt,
)

N, J = Var("i"), Var("j")
ZERO = const(0)


def test_equal_structure_is_identity() -> None:
    assert N * 2 + J is N * 2 + J
    assert IntImm(5) is IntImm(5, x.int64)
    assert Var("i") is not N
    assert x.FloatImm(0.0) is not x.FloatImm(-0.0)
    assert x.FloatImm(float("nan")) is x.FloatImm(float("nan"))


def test_dropped_nodes_are_forgotten() -> None:
    gc.collect()  # what other tests left behind must not go in between
    before = len(node._nodes)
    made = [N + k for k in range(1000, 1100)]
    assert len(node._nodes) >= before + 100
    del made
    gc.collect()
    assert len(node._nodes) < before + 100


def test_constructors_fold_and_refuse() -> None:
    assert N + 0 is N
    assert N * 1 is N
    assert (const(7) // 2) is const(3)
    with pytest.raises(LoweringError, match="different dtypes"):
        N + const(1.0, "float32")
    assert N // 0 is const(0)  # as NumPy and the CPU's guarded division have it
    assert N % 0 is const(0)
    with pytest.raises(TypeError, match="truth value of a symbolic expression"):
        bool(N < 3)


def test_visitors_share_and_keep_identity() -> None:
    shared = N * 2 + J
    e = shared * shared
    assert [str(n) for n in post_order(e)].count("i * 2 + j") == 1
    assert transform_expr(e, lambda n: n) is e
    calls: list[PrimExpr] = []
    transform_expr(e, lambda n: calls.append(n) or n)  # type: ignore[func-returns-value]
    assert len(calls) == len(set(calls))
    assert str(substitute(e, {N: const(1), J: const(2)})) == "16"
    assert free_vars(e) == [N, J] or free_vars(e) == [J, N]


def test_a_select_that_is_decided_leaves_one_side() -> None:
    a = buffer("a", (4,))
    lanes = x.Broadcast(x.compare(x.EQ, N, const(1)), 8)
    taken, other = (x.Broadcast(a.load(const(k)), 8) for k in (1, 2))
    seen: list[PrimExpr] = []

    def watch(e: PrimExpr) -> PrimExpr:
        seen.append(e)
        return const(1) if e is N else e

    assert transform_expr(x.select(lanes, taken, other), watch) is taken
    assert taken in seen
    assert other not in seen
    assert substitute(x.select(lanes, taken, other), {N: const(3)}) is other


def test_landmarks_bound_the_depth_of_a_walk() -> None:
    chain: list[PrimExpr] = [N]
    for _ in range(200):
        chain.append(chain[-1] * J)
    heights: dict[PrimExpr, int] = {}
    assert height(chain[40], heights) == 40
    assert depth_checkpoints(chain[40], heights) == []
    found = depth_checkpoints(chain[200], heights)
    assert found == depth_checkpoints(chain[200]) == [chain[k] for k in (47, 95, 143, 191)]


def loop(body: Stmt, extent: int = 4) -> For:
    return For(N, ZERO, const(extent), ForKind.SERIAL, body)


def test_statement_rewriting_touches_what_changes() -> None:
    a = buffer("a", (4,))
    store = BufferStore(a, const(1.0, "float32"), (N,))
    nest = seq([loop(store), loop(store)])
    assert transform_stmt(nest, lambda s: s, lambda e: e) is nest
    assert len(list(post_order_stmts(nest))) == 5
    assert free_vars(store) == [N]
    assert free_vars(nest) == []


def test_copies_for_each_value_share_what_stays() -> None:
    a, b = buffer("a", (4, 4)), buffer("b", (4, 4))
    stay = BufferStore(b, b.load(J, J) * 2.0, (J, J))
    moving = BufferStore(a, x.select(x.compare(x.EQ, N, ZERO), b.load(N, J), 1.0), (N, J))
    values = [const(0), const(3), J + 1]
    copies = substitute_each(seq([stay, moving]), N, values)
    for copy, value in zip(copies, values, strict=True):
        assert str(copy) == str(substitute(seq([stay, moving]), {N: value}))
        assert copy.stmts[0] is stay  # type: ignore[attr-defined]
    assert N not in free_vars(seq(copies))


def test_text() -> None:
    a, b = buffer("A", (4, 8)), Buffer("T", (const(8),), float32, "local")
    other = Var("i")
    body = IfThenElse(
        x.all_of(N < 3, x.not_(N.equal(other))),
        BufferStore(a, x.maximum(b.load(N) - (N - other).astype("float32"), 0.0), (N, ZERO)),
    )
    text = str(PrimFunc("f", (a, other), Allocate(b, loop(body)), {"flops": 3}))
    assert text.splitlines() == [
        "def f(A: float32[4, 8], i: int64):",
        "    # flops = 3",
        "    T = allocate(float32[8] local)",
        "    for i_1 in range(4):",
        "        if i_1 < 3 and not i_1 == i:",
        "            A[i_1, 0] = max(T[i_1] - float32(i_1 - i), 0.0)",
    ]


def test_text_of_types_and_masks() -> None:
    a = buffer("A", (8,), "int8")
    ramp = x.Ramp(ZERO, const(1), 8)
    load = BufferLoad(a, (ramp,), ramp < x.Broadcast(const(5), 8))
    assert str(load) == "A[ramp(0, 1, 8) if ramp(0, 1, 8) < broadcast(5, 8)]"
    assert str(const(3, "int8")) == "int8(3)"
    assert str(x.FloatImm(float("inf"))) == "float32('inf')"
    assert str(N - (J - 1)) == "i - (j - 1)"


A1 = buffer("A", (4,))
ONE = const(1.0, "float32")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (BufferStore(A1, ONE, (N,)), "unbound variable: i"),
        (BufferStore(buffer("B", (4,)), ONE, (ZERO,)), "buffer B is accessed outside"),
        (BufferStore(A1, const(1), (ZERO,)), "store of int64 to elements of float32"),
        (BufferStore(A1, ONE, (ZERO, ZERO)), "buffer A of rank 1 with 2 indices"),
        (BufferStore(A1, ONE, (ONE,)), "index of buffer A has dtype float32"),
        (loop(loop(BufferStore(A1, ONE, (N,)))), "nested loops over the same variable i"),
        (LetStmt(Var("v"), ONE, BufferStore(A1, ONE, (ZERO,))), "v is bound to a value of float32"),
        (BufferStore(A1, x.Call(float32, "magic", ()), (ZERO,)), "unknown intrinsic magic"),
        (BufferStore(A1, ONE, (ZERO,), x.const(1, DType.of("boolx4"))), "predicate of an access"),
        (BufferStore(A1, x.Add(ONE, const(1)), (ZERO,)), "operands have different dtypes: float32"),
    ],
)
def test_verifier(body: Stmt, message: str) -> None:
    with pytest.raises(WellFormedError, match=message):
        verify_func(PrimFunc("f", (A1,), body))


def test_verifier_knows_phases() -> None:
    nest = For(N, ZERO, const(4), ForKind.UNROLLED, BufferStore(A1, ONE, (N,)))
    verify_func(PrimFunc("f", (A1,), nest))
    with pytest.raises(WellFormedError, match="unrolled loop after the pass"):
        verify_func(PrimFunc("f", (A1,), nest), ["no_unrolled_loops"])


def test_a_node_that_another_thread_makes_meanwhile_is_the_only_one() -> None:
    """Here the constructor does what another thread may do while it runs."""
    made = []

    @dataclass(frozen=True, slots=True, eq=False)
    class Node(PrimExpr):
        value: int

        def __post_init__(self) -> None:
            if not made:
                made.append(None)
                made.append(Node(self.value))

    assert Node(3) is made[1]
    assert Node(3) is made[1]
