"""No sequence of primitives changes a value, whatever the sizes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft import te
from weft.support.errors import ScheduleError
from weft.te.schedule import Schedule, Stage
from weft.te.tensor import REDUCE
from weft.tir.eval import evaluate
from weft.tir.func import PrimFunc
from weft.tir.transform.pipeline import lower_prim_func

Program = tuple[list[te.Tensor], int]  # arguments, and how many of them are inputs


def chain(n: int, m: int) -> Program:
    x = te.placeholder((n, m), name="x")
    a = te.compute((n, m), lambda i, j: x[i, j] * 2.0, name="a")
    b = te.compute((m, n), lambda i, j: a[j, i] + 1.0, name="b")
    y = te.compute((n, m), lambda i, j: b[j, i] - a[i, j], name="y")
    return [x, y], 1


def stencil(n: int, m: int) -> Program:
    x = te.placeholder((n, m), name="x")
    pad = te.compute(
        (n + 2, m + 2),
        lambda i, j: te.if_then_else(
            te.all_of(i >= 1, i <= n, j >= 1, j <= m), x[i - 1, j - 1], 0.0),
        name="pad")
    k = te.reduce_axis(3, "k")
    down = te.compute((n, m + 2), lambda i, j: te.sum(pad[i + k, j], axis=k), name="down")
    y = te.compute((n, m), lambda i, j: down[i, j] + down[i, j + 1] + down[i, j + 2], name="y")
    return [x, y], 1


def product(n: int, m: int) -> Program:
    a, b = te.placeholder((n, 7), name="a"), te.placeholder((7, m), name="b")
    k = te.reduce_axis(7, "k")
    packed = te.compute(
        ((m + 3) // 4, 7, 4),
        lambda j, p, ji: te.if_then_else(j * 4 + ji < m, b[p, j * 4 + ji], 0.0), name="packed")
    c = te.compute(
        (n, m), lambda i, j: te.sum(a[i, k] * packed[j // 4, k, j % 4], axis=k), name="c")
    y = te.compute((n, m), lambda i, j: te.maximum(c[i, j], 0.0), name="y")
    return [a, b, y], 2


def rows(n: int, m: int) -> Program:
    x = te.placeholder((n, m), name="x")
    k1, k2 = te.reduce_axis(m, "k1"), te.reduce_axis(m, "k2")
    top = te.compute((n,), lambda i: te.max(x[i, k1], axis=k1), name="top")
    total = te.compute((n,), lambda i: te.sum(x[i, k2] - top[i], axis=k2), name="total")
    y = te.compute((n, m), lambda i, j: x[i, j] - top[i] + total[i], name="y")
    return [x, y], 1


def strided(n: int, m: int) -> Program:
    x = te.placeholder((2 * n + 1, m), name="x")
    a = te.compute((2 * n + 1, m), lambda i, j: x[i, j] + 1.0, name="a")
    k = te.reduce_axis((1, 3), "k")
    b = te.compute((n, m), lambda i, j: te.sum(a[i * 2 + k, j // 2], axis=k), name="b")
    y = te.compute((n * m,), lambda i: b[i // m, i % m] * 2.0, name="y")
    return [x, y], 1


def flipped(n: int, m: int) -> Program:
    x = te.placeholder((n, m), name="x")
    a = te.compute((n, m), lambda i, j: x[n - 1 - i, j] + 1.0, name="a")
    y = te.compute(
        (n, m), lambda i, j: a[te.minimum(i + 1, n - 1), te.maximum(j - 2, 0)] * 2.0, name="y")
    return [x, y], 1


PROGRAMS = [chain, stencil, product, rows, strided, flipped]


def split(data, sch, stage):
    factor = data.draw(st.integers(1, 6))
    axis = draw_axis(data, stage)
    if data.draw(st.booleans()):
        stage.split(axis, factor=factor)
    else:
        stage.split(axis, nparts=factor)


def fuse(data, sch, stage):
    place = data.draw(st.integers(0, max(0, len(stage.leaf_iter_vars) - 2)))
    stage.fuse(*stage.leaf_iter_vars[place : place + 2])


def reorder(data, sch, stage):
    order = data.draw(st.permutations(range(len(stage.leaf_iter_vars))))
    stage.reorder(*[stage.leaf_iter_vars[i] for i in order])


def annotate(data, sch, stage):
    kind = pick(data, [Stage.parallel, Stage.vectorize, Stage.unroll])
    kind(stage, draw_axis(data, stage))


def place(data, sch, stage):
    consumers = [s for s in sch.stages if sch.reads_through(stage, s)]
    if not consumers or data.draw(st.integers(0, 4)) == 0:
        stage.compute_inline()
        return
    consumer = pick(data, consumers)
    stage.compute_at(consumer, draw_axis(data, consumer))
    stage.set_scope(pick(data, ["global", "local"]))


def cache(data, sch, stage):
    if data.draw(st.booleans()):
        sch.cache_write(stage.tensors[0], "local")
    else:
        reader = pick(data, sch.consumers(stage) or [stage])
        sch.cache_read(stage.tensors[0], "global", [reader.tensors[0]])


def factor_reduction(data, sch, stage):
    leaves = [a for a in stage.leaf_iter_vars if a.kind == REDUCE]
    if leaves:
        sch.rfactor(stage.tensors[0], pick(data, leaves), data.draw(st.integers(0, 1)))


STEPS = [split, split, fuse, reorder, annotate, place, place, cache, factor_reduction]


def pick(data, items):
    """One of ``items``, drawn by number: a failure then prints short."""
    return items[data.draw(st.integers(0, len(items) - 1))]


def draw_axis(data, stage):
    return pick(data, stage.leaf_iter_vars)


def scramble(data, sch: Schedule) -> None:
    """Apply random primitives; those that refuse change nothing."""
    for _ in range(data.draw(st.integers(1, 12))):
        stages = [s for s in sch.stages if s.leaf_iter_vars]
        step: Callable[..., None] = pick(data, STEPS)
        try:
            step(data, sch, pick(data, stages))
        except ScheduleError:
            continue


def small_integers(shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Sums of these are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


def outputs_of(func: PrimFunc, args, values) -> list[np.ndarray]:
    outputs = [np.zeros(t.static_shape, t.dtype.numpy) for t in args[len(values) :]]
    evaluate(func, *values, *outputs)
    return outputs


@settings(max_examples=100, deadline=None,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data(), program=st.sampled_from(PROGRAMS),
       n=st.integers(1, 7), m=st.integers(1, 9))
def test_schedules_keep_values(run, data, program, n, m):
    args, inputs = program(n, m)
    values = [small_integers(t.static_shape, i) for i, t in enumerate(args[:inputs])]
    want = run(te.create_schedule(args[inputs:]), args, values)
    sch = te.create_schedule(args[inputs:])
    scramble(data, sch)
    try:
        func = te.lower(sch, args)
    except ScheduleError:  # computed at a loop that does not hold all readers: refused
        return
    for form in (func, lower_prim_func(func, verify=True)):
        np.testing.assert_array_equal(outputs_of(form, args, values), want)
