"""A kernel over the memory of one of its inputs gives what it gave before, or stays as it was."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.ir.dtype import float32
from weft.tir.buffer import buffer
from weft.tir.eval import evaluate
from weft.tir.expr import BufferLoad, Ramp, StringImm, Var, call, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import BufferStore, Evaluate, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.tir.transform.pipeline import lower_prim_func
from weft.tir.transform.reuse_input import reuse_input
from weft.tir.visitor import post_order_stmts

SIZE = 24


def loop(body: Stmt, i: Var, extent: int = SIZE) -> Stmt:
    return For(i, const(0), const(extent), ForKind.SERIAL, body)


def run(func: PrimFunc, *inputs: np.ndarray, over: int | None = None) -> np.ndarray:
    """The result; with ``over``, in the memory that holds input ``over`` at the start."""
    out = inputs[over].copy() if over is not None else np.full_like(inputs[0], np.nan)
    poisoned = [np.full_like(a, np.nan) if n == over else a for n, a in enumerate(inputs)]
    evaluate(func, *poisoned, out)
    return out


def data(count: int, size: int = SIZE) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.standard_normal(size).astype(np.float32) for _ in range(count)]


def test_sums_of_all_kinds() -> None:
    """Vectors, a main loop with a tail, and two reads of the same element."""
    x, y = (te.placeholder((5, 67), "float32", name) for name in "xy")
    z = te.compute((5, 67), lambda i, j: x[i, j] * x[i, j] + y[i, j], name="z")
    s = te.create_schedule(z)
    _, inner = s[z].split(z.op.axis[1], factor=16)
    s[z].vectorize(inner)
    func = lower_prim_func(te.lower(s, [x, y, z]))
    for number in (0, 1):
        inputs = data(2, 5 * 67)
        reused = reuse_input(func, func.params[number], func.params[2])
        if reused is None:  # masks decide about stores
            assert any(n.predicate is not None for n in _stores(func.body))
            continue
        np.testing.assert_array_equal(run(reused, *inputs, over=number), run(func, *inputs))


def test_rows_of_whole_vectors() -> None:
    x, y = (te.placeholder((5, 64), "float32", name) for name in "xy")
    z = te.compute((5, 64), lambda i, j: x[i, j] * x[i, j] + y[j % 5, i], name="z")
    s = te.create_schedule(z)
    _, inner = s[z].split(z.op.axis[1], factor=16)
    s[z].vectorize(inner)
    func = lower_prim_func(te.lower(s, [x, y, z]))
    inputs = data(2, 5 * 64)
    reused = reuse_input(func, func.params[0], func.params[2])
    assert reused is not None
    np.testing.assert_array_equal(run(reused, *inputs, over=0), run(func, *inputs))
    assert reuse_input(func, func.params[1], func.params[2]) is None  # read at another index


def _stores(body: Stmt) -> list[BufferStore]:
    return [node for node in post_order_stmts(body) if isinstance(node, BufferStore)]


X, Y, I = buffer("x", [SIZE]), buffer("y", [SIZE]), Var("i")  # noqa: E741
HERE = BufferStore(Y, X.load(I) + 1.0, (I,))
HOLDER = Var("held", float32)
REFUSED: dict[str, Stmt] = {
    "a neighbour is read": loop(
        BufferStore(Y, X.load(I) + X.load((I + 1) % SIZE), (I,)), I),
    "it is read before the store": loop(
        LetStmt(HOLDER, X.load(I), BufferStore(Y, HOLDER + 1.0, (I,))), I),
    "elements are written twice": seq([loop(HERE, I), loop(HERE, I)]),
    "some elements are written twice": seq([loop(HERE, I), loop(HERE, I, 3)]),
    "a condition decides": loop(IfThenElse(I < SIZE - 1, HERE, HERE), I),
    "a mask decides": BufferStore(
        Y, BufferLoad(X, (Ramp(const(0), const(1), SIZE),)), (Ramp(const(0), const(1), SIZE),),
        Ramp(const(0), const(1), SIZE) < SIZE),
    "the result is read": seq([
        loop(HERE, I, SIZE - 1), BufferStore(Y, Y.load(0) + X.load(SIZE - 1), (const(SIZE - 1),))]),
    "its address is taken": seq([
        loop(HERE, I), Evaluate(call("int32", "call_extern", StringImm("f"),
                                       call("handle", "address_of", X.load(0))))]),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_could_change_results_is_left(why: str) -> None:
    assert reuse_input(PrimFunc("f", (X, Y), REFUSED[why]), X, Y) is None


def test_the_form_that_is_taken() -> None:
    func = PrimFunc("f", (X, Y), loop(HERE, I))
    reused = reuse_input(func, X, Y)
    assert reused is not None
    assert "x[" not in str(reused.body)
    np.testing.assert_array_equal(run(reused, *data(1), over=0), run(func, *data(1)))


@pytest.mark.parametrize("other", [buffer("o", [SIZE], "int32"), buffer("o", [4, SIZE // 4])])
def test_memory_of_another_form_is_left(other: object) -> None:
    func = PrimFunc("f", (X, other, Y), loop(HERE, I))
    assert reuse_input(func, other, Y) is None


def test_a_kernel_of_no_elements_does_nothing() -> None:
    x = te.placeholder((0,), "float32", "x")
    y = te.compute((0,), lambda i: x[i] * x[i], name="y")
    func = lower_prim_func(te.lower(te.create_schedule(y), [x, y]))
    assert reuse_input(func, func.params[0], func.params[1]) == func
