"""Blocks of threads in the evaluator: barriers, shared memory, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.ir.dtype import DType
from weft.support.errors import LoweringError, WellFormedError
from weft.te.lower import lower
from weft.tir.buffer import buffer
from weft.tir.eval import evaluate
from weft.tir.expr import PrimExpr, Var, const
from weft.tir.func import PrimFunc
from weft.tir.intrinsics import intrinsic
from weft.tir.parser import parse_func
from weft.tir.stmt import Allocate, BufferStore, Evaluate, For, ForKind, IfThenElse, Stmt, seq
from weft.tir.transform.pipeline import lower_prim_func

N = 16


def index(name: str) -> Var:
    return Var(name, DType.of("int64"))


def bound(var: Var, extent: int | PrimExpr, tag: str, body: Stmt) -> For:
    extent = const(extent) if isinstance(extent, int) else extent
    return For(var, const(0), extent, ForKind.THREAD_BINDING, body, thread_tag=tag)


def serial(var: Var, extent: int, body: Stmt) -> For:
    return For(var, const(0), const(extent), ForKind.SERIAL, body)


def barrier() -> Stmt:
    return Evaluate(intrinsic("barrier"))


def reversing(*between: Stmt) -> PrimFunc:
    """Each thread writes its element to shared memory and reads its mirror image's."""
    x, y = buffer("x", (N,)), buffer("y", (N,))
    tile = buffer("tile", (N,), scope="shared")
    t = index("t")
    body = seq([BufferStore(tile, x.load(t), (t,)), *between,
                BufferStore(y, tile.load(const(N - 1) - t), (t,))])
    return PrimFunc("reverse", (x, y), Allocate(tile, bound(t, N, "threadIdx.x", body)))


def run(func: PrimFunc, x: np.ndarray) -> np.ndarray:
    y = np.zeros(N, np.float32)
    evaluate(func, x, y)
    return y


X = np.arange(N, dtype=np.float32)


def test_threads_meet_at_a_barrier_before_and_after_the_passes():
    func = reversing(barrier())
    np.testing.assert_array_equal(run(func, X), X[::-1])
    np.testing.assert_array_equal(run(lower_prim_func(func), X), X[::-1])


def test_a_missing_barrier_is_found():
    with pytest.raises(WellFormedError, match="data race on shared buffer tile"):
        run(reversing(), X)


def test_threads_end_before_what_follows():
    x, y = buffer("x", (N,)), buffer("y", (N,))
    tile = buffer("tile", (N,), scope="shared")
    t, u = index("t"), index("u")
    first = bound(t, N, "threadIdx.x", BufferStore(tile, x.load(t), (t,)))
    second = bound(u, N, "threadIdx.x", BufferStore(y, tile.load(const(N - 1) - u), (u,)))
    func = PrimFunc("two", (x, y), Allocate(tile, seq([first, second])))
    np.testing.assert_array_equal(run(func, X), X[::-1])


def test_a_tree_of_sums_in_a_loop_of_barriers():
    """Rows of blocks: each block adds its row up in log2 steps."""
    x, y = buffer("x", (3, N)), buffer("y", (3,))
    tile = buffer("tile", (N,), scope="shared")
    t, b, k = index("t"), index("b"), index("k")
    # The step halves: 8, 4, 2, 1.
    step = intrinsic("shift_right", const(N // 2), k)
    add = BufferStore(tile, tile.load(t) + tile.load(t + step), (t,))
    body = seq([
        BufferStore(tile, x.load(b, t), (t,)), barrier(),
        serial(k, 4, seq([IfThenElse(t < step, add), barrier()])),
        IfThenElse(t.equal(0), BufferStore(y, tile.load(const(0)), (b,))),
    ])
    block = Allocate(tile, bound(t, N, "threadIdx.x", body))
    func = PrimFunc("sums", (x, y), bound(b, 3, "blockIdx.x", block))
    data = np.arange(3 * N, dtype=np.float32).reshape(3, N)
    sums = np.zeros(3, np.float32)
    evaluate(func, data, sums)
    np.testing.assert_array_equal(sums, data.sum(1))


def test_a_block_of_two_dimensions_transposes():
    x, y = buffer("x", (4, 4)), buffer("y", (4, 4))
    tile = buffer("tile", (4, 4), scope="shared")
    own = buffer("own", (1,), scope="local")
    ty, tx = index("ty"), index("tx")
    body = Allocate(own, seq([
        BufferStore(tile, x.load(ty, tx), (ty, tx)),
        BufferStore(own, x.load(ty, tx) * 2.0, (const(0),)), barrier(),
        BufferStore(y, tile.load(tx, ty) + own.load(const(0)), (ty, tx)),
    ]))
    nest = bound(ty, 4, "threadIdx.y", bound(tx, 4, "threadIdx.x", body))
    func = PrimFunc("transpose", (x, y), Allocate(tile, nest))
    data, result = np.arange(16, dtype=np.float32).reshape(4, 4), np.zeros((4, 4), np.float32)
    evaluate(func, data, result)
    np.testing.assert_array_equal(result, data.T + 2 * data)


def test_a_barrier_that_some_threads_do_not_reach():
    t = index("t")
    x, y = buffer("x", (N,)), buffer("y", (N,))
    body = seq([IfThenElse(t < 3, barrier()), BufferStore(y, x.load(t), (t,))])
    with pytest.raises(WellFormedError, match="not reached by all") as caught:
        run(PrimFunc("f", (x, y), bound(t, N, "threadIdx.x", body)), X)
    assert "3 of 16" in str(caught.value)


def test_different_barriers_are_not_one():
    t = index("t")
    x, y = buffer("x", (N,)), buffer("y", (N,))
    body = seq([IfThenElse(t < 3, barrier(), barrier()), BufferStore(y, x.load(t), (t,))])
    with pytest.raises(WellFormedError, match="not reached by all"):
        run(PrimFunc("f", (x, y), bound(t, N, "threadIdx.x", body)), X)


@pytest.mark.parametrize("where", [lambda t: const(0), lambda t: t // 2])
def test_two_threads_that_write_one_element(where):
    x, y = buffer("x", (N,)), buffer("y", (N,))
    tile, t = buffer("tile", (N,), scope="shared"), index("t")
    body = BufferStore(tile, x.load(t), (where(t),))
    with pytest.raises(WellFormedError, match="writes an element that another thread wrote"):
        run(PrimFunc("f", (x, y), Allocate(tile, bound(t, N, "threadIdx.x", body))), X)


def test_a_thread_that_writes_what_another_reads():
    x, y = buffer("x", (N,)), buffer("y", (N,))
    tile, t = buffer("tile", (N,), scope="shared"), index("t")
    body = seq([BufferStore(tile, x.load(t), (t,)), barrier(),
                BufferStore(y, tile.load((t + 1) % N), (t,)),
                BufferStore(tile, x.load(t), (t,))])
    with pytest.raises(WellFormedError, match="another"):
        run(PrimFunc("f", (x, y), Allocate(tile, bound(t, N, "threadIdx.x", body))), X)


def test_barriers_below_many_loops():
    func = reversing()
    allocate = func.body
    nest = allocate.body
    loops = [index(f"l{n}") for n in range(20)]
    inner: Stmt = barrier()
    for var in loops:
        inner = serial(var, 1, inner)
    store, load = nest.body.stmts
    body = nest.replace(body=seq([store, inner, load]))
    np.testing.assert_array_equal(
        run(func.replace(body=allocate.replace(body=body)), X), X[::-1])


def test_misplaced_barriers_and_threads_are_errors():
    t, u = index("t"), index("u")
    x, y = buffer("x", (N,)), buffer("y", (N,))
    copy = BufferStore(y, x.load(t), (t,))
    cases = [
        (seq([barrier(), bound(t, N, "threadIdx.x", copy)]), "barrier outside of the threads"),
        (bound(t, N, "threadIdx.y", seq([copy, bound(u, 2, "threadIdx.x", copy)])),
         "statements between thread loops"),
        (bound(t, N, "threadIdx.y", bound(u, t + 1, "threadIdx.x", copy)), "another thread index"),
    ]
    for body, message in cases:
        with pytest.raises(LoweringError, match=message):
            run(PrimFunc("f", (x, y), body), X)


def test_programs_with_barriers_print_and_parse():
    func = reversing(barrier())
    again = parse_func(str(func))
    assert str(again) == str(func)
    np.testing.assert_array_equal(run(again, X), X[::-1])


def test_a_schedule_with_a_shared_tile_before_and_after_the_passes():
    a = te.placeholder((6, 8), name="a")
    b = te.compute((8, 6), lambda i, j: a[j, i] * 2.0, name="b")
    s = te.create_schedule(b)
    tile = s.cache_read(a, "shared", [b])
    i, j = s[b].axis
    outer, inner = s[b].split(i, factor=4)
    s[b].bind(outer, "blockIdx.x")
    s[b].reorder(outer, inner, j)
    s[b].bind(inner, "threadIdx.y")
    s[b].bind(j, "threadIdx.x")
    s[tile].compute_at(s[b], outer)
    s[tile].bind(s[tile].axis[0], "threadIdx.x")
    s[tile].bind(s[tile].axis[1], "threadIdx.y")
    func = lower(s, [a, b], "f")
    assert "shared" in str(func)
    data = np.arange(48, dtype=np.float32).reshape(6, 8)
    for program in (func, lower_prim_func(func)):
        result = np.zeros((8, 6), np.float32)
        evaluate(program, data, result)
        np.testing.assert_array_equal(result, data.T * 2)
