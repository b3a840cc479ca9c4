"""Thread nests, barriers and shared memory of GPU programs, in the evaluator."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.tir.gpu.gpu_programs import barriers, tiled_matmul
from weft import te
from weft.support.errors import LoweringError, WellFormedError
from weft.te.lower import lower
from weft.tir.eval import evaluate
from weft.tir.func import PrimFunc
from weft.tir.parser import parse_func
from weft.tir.stmt import Evaluate, For, ForKind, SeqStmt, Stmt
from weft.tir.transform.gpu.bind_unbound import bind_unbound
from weft.tir.transform.gpu.plan_shared import plan_shared
from weft.tir.transform.gpu.split_host_device import launches_of
from weft.tir.transform.gpu.thread_sync import thread_sync
from weft.tir.transform.gpu.unify_threads import unify_threads
from weft.tir.verify import verify_func
from weft.tir.visitor import map_body, map_stmts, post_order_stmts

RNG = np.random.default_rng(0)


def prepared(func: PrimFunc) -> PrimFunc:
    func = thread_sync(plan_shared(unify_threads(bind_unbound(func))))
    verify_func(func)
    return func


def run(func: PrimFunc, shape: tuple[int, ...], *inputs: np.ndarray) -> np.ndarray:
    out = np.full(shape, np.nan, np.float32)
    evaluate(func, *inputs, out)
    return out


def without(func: PrimFunc, number: int) -> PrimFunc:
    """``func`` without its barrier of that number."""
    seen = iter(range(100))

    def drop(node: Stmt) -> Stmt:
        if isinstance(node, Evaluate) and getattr(node.value, "name", "") == "barrier":
            return SeqStmt(()) if next(seen) == number else node
        return map_stmts(node, drop)

    return map_body(func, drop)


def test_a_tiled_matmul_has_two_barriers_and_needs_both():
    func = prepared(tiled_matmul())
    a, b = (RNG.standard_normal(s).astype(np.float32) for s in ((24, 12), (12, 20)))
    assert barriers(func) == 2
    np.testing.assert_allclose(run(func, (24, 20), a, b), a @ b, rtol=1e-5, atol=1e-5)
    for number in range(2):
        with pytest.raises(WellFormedError, match="data race"):
            run(without(func, number), (24, 20), a, b)


def test_accesses_of_one_thread_need_no_barrier():
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((64,), lambda i: b[i] * 2.0, name="C")
    s = te.create_schedule(c)
    block, thread = s[c].split(s[c].axis[0], factor=32)
    s[c].bind(block, "blockIdx.x")
    s[c].bind(thread, "threadIdx.x")
    s[b].set_scope("shared")
    s[b].compute_at(s[c], block)
    s[b].bind(s[b].axis[0], "threadIdx.x")
    func = prepared(lower(s, [a, c], "f"))
    assert barriers(func) == 0
    data = RNG.standard_normal(64).astype(np.float32)
    np.testing.assert_allclose(run(func, (64,), data), (data + 1) * 2)


def test_a_guard_that_differs_between_threads_moves_away_from_barriers():
    a = te.placeholder((50,), name="A")
    b = te.compute((50,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((50,), lambda i: b[49 - i], name="C")
    s = te.create_schedule(c)
    outer, thread = s[c].split(s[c].axis[0], factor=16)
    s[c].bind(thread, "threadIdx.x")
    s[c].reorder(thread, outer)
    s[b].set_scope("shared")
    s[b].compute_at(s[c], outer)
    _, lane = s[b].split(s[b].axis[0], factor=16)
    s[b].bind(lane, "threadIdx.x")
    func = prepared(lower(s, [a, c], "f"))
    data = RNG.standard_normal(50).astype(np.float32)
    np.testing.assert_allclose(run(func, (50,), data), (data + 1)[::-1])


def test_unbound_nests_become_launches_with_the_same_result():
    a = te.placeholder((30, 17), name="A")
    k = te.reduce_axis(17, "k")
    total = te.compute((30,), lambda i: te.sum(a[i, k], axis=k), name="total")
    c = te.compute((30, 17), lambda i, j: a[i, j] - total[i], name="C")
    func = prepared(lower(te.create_schedule(c), [a, c], "f"))
    launches = launches_of(func)
    assert [(launch.threads, str(launch.grid[0])) for launch in launches] == [(32, "1"), (256, "2")]
    data = RNG.standard_normal((30, 17)).astype(np.float32)
    np.testing.assert_allclose(run(func, (30, 17), data), data - data.sum(1, keepdims=True),
                               rtol=1e-5, atol=1e-5)


def test_a_recurrence_runs_in_one_block_whose_threads_share_the_inner_loop():
    n, steps = 40, 6
    x = te.placeholder((steps, n), name="x")
    state = te.placeholder((steps, n), name="state")
    init = te.compute((1, n), lambda _, i: x[0, i], name="init")
    update = te.compute((steps, n), lambda t, i: state[t - 1, n - 1 - i] + x[t, i], name="update")
    result = te.scan(init, update, state)
    func = prepared(lower(te.create_schedule(result), [x, result], "f"))
    assert barriers(func) > 0
    data = RNG.standard_normal((steps, n)).astype(np.float32)
    expected = [data[0]]
    for row in data[1:]:
        expected.append(expected[-1][::-1] + row)
    np.testing.assert_allclose(run(func, (steps, n), data), np.stack(expected), rtol=1e-5)


def test_buffers_that_are_not_alive_together_share_bytes():
    a = te.placeholder((256,), name="A")
    stages = [a]
    for number in range(4):
        last = stages[-1]
        stages.append(te.compute((256,), lambda i, last=last: last[255 - i] + 1.0,
                                 name=f"S{number}"))
    c = stages[-1]
    s = te.create_schedule(c)
    outer, thread = s[c].split(s[c].axis[0], factor=64)
    block, outer = s[c].split(outer, factor=4)
    s[c].reorder(block, thread, outer)
    s[c].bind(block, "blockIdx.x")
    s[c].bind(thread, "threadIdx.x")
    for stage in stages[1:-1]:
        s[stage].set_scope("shared")
        s[stage].compute_at(s[c], block)
        _, lane = s[stage].split(s[stage].axis[0], factor=64)
        s[stage].bind(lane, "threadIdx.x")
    func = prepared(lower(s, [a, c], "f"))
    assert sorted(func.attrs["shared_offsets"].values()) == [0, 0, 1024]
    data = RNG.standard_normal(256).astype(np.float32)
    np.testing.assert_allclose(run(func, (256,), data), data + 4, rtol=1e-6)


def test_a_dependent_loop_is_not_shared_among_threads():
    a = te.placeholder((100,), name="A")
    k = te.reduce_axis(100, "k")
    b = te.compute((1,), lambda _: te.sum(a[k], axis=k), name="B")
    func = prepared(lower(te.create_schedule(b), [a, b], "f"))
    kinds = [n.kind for n in post_order_stmts(func.body)
             if isinstance(n, For) and n.loop_var.name.startswith("k")]
    assert kinds == [ForKind.SERIAL]


def test_loops_of_different_extents_on_one_block_index_are_refused():
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="B")
    c = te.compute((64,), lambda i: b[i], name="C")
    s = te.create_schedule(c)
    outer, inner = s[c].split(s[c].axis[0], factor=16)
    s[c].bind(outer, "blockIdx.x")
    s[b].compute_at(s[c], outer)
    s[b].bind(s[b].axis[0], "blockIdx.x")
    del inner
    with pytest.raises(LoweringError, match="loops of different extents"):
        prepared(lower(s, [a, c], "f"))


@pytest.mark.parametrize(("condition", "threads"), [("N[0] < 2", 1), ("k < 2", 64)])
def test_one_thread_runs_branches_on_data(condition, threads):
    func = parse_func(f"""
def f(N: int64[1], A: float32[64]):
    for k in range(4):
        if {condition}:
            for i in range(64):
                A[i] = A[i] + 1.0
            N[0] = N[0] + 1
""")
    bound = bind_unbound(func)
    assert f"in thread_binding({threads}, 'threadIdx.x')" in str(bound)
    count, array = np.zeros(1, np.int64), np.zeros(64, np.float32)
    evaluate(prepared(func), count, array)
    assert (array == 2.0).all()
    assert count[0] == 2
