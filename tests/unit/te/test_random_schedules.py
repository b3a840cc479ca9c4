"""No sequence of primitives changes a value, whatever the sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from weft import te
from weft.ir.symbol import name_of, range_of
from weft.support.errors import LoweringError, ScheduleError
from weft.te.schedule import Schedule, Stage
from weft.te.state import AttachAt
from weft.te.tensor import REDUCE
from weft.te.walk import input_tensors
from weft.tir.eval import evaluate, evaluate_expr
from weft.tir.expr import Var
from weft.tir.func import PrimFunc
from weft.tir.instruction import Instruction
from weft.tir.parser import parse_func
from weft.tir.transform.pipeline import lower_prim_func

Program = tuple[list[te.Tensor], int]  # arguments, and how many of them are inputs
Size = int | Var


def chain(n: Size, m: Size) -> Program:
    x = te.placeholder((n, m), name="x")
    a = te.compute((n, m), lambda i, j: x[i, j] * 2.0, name="a")
    b = te.compute((m, n), lambda i, j: a[j, i] + 1.0, name="b")
    y = te.compute((n, m), lambda i, j: b[j, i] - a[i, j], name="y")
    return [x, y], 1


def stencil(n: Size, m: Size) -> Program:
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


def product(n: Size, m: Size) -> Program:
    a, b = te.placeholder((n, 7), name="a"), te.placeholder((7, m), name="b")
    k = te.reduce_axis(7, "k")
    packed = te.compute(
        ((m + 3) // 4, 7, 4),
        lambda j, p, ji: te.if_then_else(j * 4 + ji < m, b[p, j * 4 + ji], 0.0), name="packed")
    c = te.compute(
        (n, m), lambda i, j: te.sum(a[i, k] * packed[j // 4, k, j % 4], axis=k), name="c")
    y = te.compute((n, m), lambda i, j: te.maximum(c[i, j], 0.0), name="y")
    return [a, b, y], 2


def rows(n: Size, m: Size) -> Program:
    x = te.placeholder((n, m), name="x")
    k1, k2 = te.reduce_axis(m, "k1"), te.reduce_axis(m, "k2")
    top = te.compute((n,), lambda i: te.max(x[i, k1], axis=k1), name="top")
    total = te.compute((n,), lambda i: te.sum(x[i, k2] - top[i], axis=k2), name="total")
    y = te.compute((n, m), lambda i, j: x[i, j] - top[i] + total[i], name="y")
    return [x, y], 1


def shares(n: Size, m: Size) -> Program:
    x = te.placeholder((n, m), name="x")
    k = te.reduce_axis(m, "k")
    part = te.compute((n, m), lambda i, j: x[i, j] * x[i, j], name="part")
    total = te.compute((n,), lambda i: te.sum(part[i, k], axis=k), name="total")
    y = te.compute((n, m), lambda i, j: part[i, j] - total[i], name="y")
    return [x, y], 1


def strided(n: Size, m: Size) -> Program:
    x = te.placeholder((2 * n + 1, m), name="x")
    a = te.compute((2 * n + 1, m), lambda i, j: x[i, j] + 1.0, name="a")
    k = te.reduce_axis((1, 3), "k")
    b = te.compute((n, m), lambda i, j: te.sum(a[i * 2 + k, j // 2], axis=k), name="b")
    y = te.compute((n * m,), lambda i: b[i // m, i % m] * 2.0, name="y")
    return [x, y], 1


def flipped(n: Size, m: Size) -> Program:
    x = te.placeholder((n, m), name="x")
    a = te.compute((n, m), lambda i, j: x[n - 1 - i, j] + 1.0, name="a")
    y = te.compute(
        (n, m), lambda i, j: a[te.minimum(i + 1, n - 1), te.maximum(j - 2, 0)] * 2.0, name="y")
    return [x, y], 1


def dots(n: Size, m: Size) -> Program:
    """Groups of two along the depth, as dot product instructions take them."""
    a = te.placeholder((n, 6), name="a")
    b = te.placeholder(((m + 3) // 4, 3, 4, 2), name="b")
    g, k = te.reduce_axis(3, "g"), te.reduce_axis(2, "k")
    c = te.compute(
        (n, (m + 3) // 4 * 4),
        lambda i, j: te.sum(a[i, g * 2 + k] * b[j // 4, g, j % 4, k], axis=[g, k]), name="c")
    y = te.compute((n, m), lambda i, j: c[i, j] + 1.0, name="y")
    return [a, b, y], 2


def running(n: Size, m: Size) -> Program:
    x = te.placeholder((n + 1, m), name="x")
    state = te.placeholder((n + 1, m), name="state")
    first = te.compute((1, m), lambda _, i: x[0, i], name="first")
    top = te.compute((n + 1, m), lambda t, i: te.maximum(state[t - 1, i], 0.0), name="top")
    following = te.compute((n + 1, m), lambda t, i: top[t, i] - x[t, i], name="following")
    total = te.scan(first, following, state, name="total")
    y = te.compute((n + 1, m), lambda t, i: total[t, i] * 2.0, name="y")
    return [x, y], 1


PROGRAMS = [chain, stencil, product, rows, shares, strided, flipped, dots, running]


def define_instructions() -> list[Instruction]:
    """Four lanes of a multiple, a multiply-add, and a dot product of pairs."""
    a, b = te.placeholder((4,), name="a"), te.placeholder((1,), name="b")
    pair, pairs = te.placeholder((2,), name="pair"), te.placeholder((4, 2), name="pairs")
    one, two = te.reduce_axis(1, "one"), te.reduce_axis(2, "two")
    double = te.compute((4,), lambda i: a[i] * 2.0, name="double")
    fma = te.compute((4,), lambda i: te.sum(b[one] * a[i], axis=one), name="fma")
    dot = te.compute((4,), lambda i: te.sum(pair[two] * pairs[i, two], axis=two), name="dot")
    return [te.instruction(f"random_{out.name}", inputs, out, lambda *_: "")
            for inputs, out in (([a], double), ([b, a], fma), ([pair, pairs], dot))]


INSTRUCTIONS = define_instructions()


def split(data, sch, stage):
    factor = data.draw(st.integers(1, 6))
    axis = draw_axis(data, stage)
    if data.draw(st.booleans()):
        stage.split(axis, factor=factor)
    else:
        stage.split(axis, nparts=factor)


def fuse(data, sch, stage):
    position = data.draw(st.integers(0, max(0, len(stage.leaf_iter_vars) - 2)))
    stage.fuse(*stage.leaf_iter_vars[position : position + 2])


def reorder(data, sch, stage):
    order = data.draw(st.permutations(range(len(stage.leaf_iter_vars))))
    stage.reorder(*[stage.leaf_iter_vars[i] for i in order])


def annotate(data, sch, stage):
    kind = pick(data, [Stage.parallel, Stage.vectorize, Stage.unroll])
    kind(stage, draw_axis(data, stage))


def attach(data, sch, stage):
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


def tile(data, sch, stage):
    position = data.draw(st.integers(0, max(0, len(stage.leaf_iter_vars) - 2)))
    pair = stage.leaf_iter_vars[position : position + 2]
    if len(pair) == 2:
        stage.tile(*pair, data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4)))


def remark(data, sch, stage):
    stage.pragma(draw_axis(data, stage), "note", data.draw(st.integers(0, 3)))


def store(data, sch, stage):
    kind = data.draw(st.integers(0, 3))
    if kind == 0:
        factor, offset = data.draw(st.integers(1, 8)), data.draw(st.integers(0, 3))
        stage.storage_align(stage.axis[0], factor, offset)
    elif kind == 1:
        stage.double_buffer()
    elif kind == 2 and isinstance(stage.attach, AttachAt):
        stage.store_in(stage.attach.stage)
    else:
        stage.compute_root()


def fetch(data, sch, stage):
    tensor = pick(data, input_tensors(stage.op))
    stage.prefetch(tensor, draw_axis(data, stage), data.draw(st.integers(1, 3)))


def tensorize(data, sch, stage):
    """The loops of an instruction inside, if they are there; most of the time they are not."""
    lanes = stage.axis[-1]
    inner = stage.split(lanes, 4)[1] if data.draw(st.booleans()) else lanes
    last = [a for a in stage.reduce_axis[1:] if a in stage.leaf_iter_vars]
    first = [a for a in stage.leaf_iter_vars if a not in (*last, inner)]
    stage.reorder(*first, inner, *last)
    stage.tensorize(inner, pick(data, INSTRUCTIONS))


STEPS = [split, split, fuse, tile, reorder, annotate, attach, attach, cache, factor_reduction,
         remark, store, store, fetch, tensorize, tensorize]


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


def shape_of(tensor: te.Tensor, sizes: dict[Var, int]) -> tuple[int, ...]:
    return tuple(int(evaluate_expr(n, sizes)) for n in tensor.shape)


def outputs_of(func: PrimFunc, args, values, sizes: dict[Var, int]) -> list[np.ndarray]:
    outputs = [np.zeros(shape_of(t, sizes), t.dtype.numpy) for t in args[len(values) :]]
    named = {name_of(var.name): size for var, size in sizes.items()}
    scalars = [named[name_of(p.name)] for p in func.params if isinstance(p, Var)]
    evaluate(func, *values, *outputs, *scalars)
    return outputs


def rebuilt(sch: Schedule) -> Schedule:
    scope: dict[str, Any] = {"te": te}
    exec(sch.as_python(), scope)
    return scope["schedule"](list(sch.outputs))


def check_random_schedule(data, program, n: int, m: int, *, symbols=None) -> bool:
    """Whether a schedule came out that is legal; its values are those of plain loops.

    ``symbols`` are two for the sizes; the loops are then run at other sizes too.
    """
    names = tuple(map(Var, symbols)) if symbols else (n, m)
    args, inputs = program(*names)
    sch = te.create_schedule(args[inputs:])
    scramble(data, sch)
    try:
        func = te.lower(sch, args)
    except ScheduleError:  # computed at a loop that does not hold all readers: refused
        return False
    again = rebuilt(sch)
    assert str(again) == str(sch), sch.as_python()
    assert str(te.lower(again, args)) == str(func)
    forms = [func, parse_func(str(func))]
    try:
        lowered = lower_prim_func(func, verify=True)
    except LoweringError as error:
        assert symbols
        assert "changes inside the kernel" in str(error)  # noqa: PT017 - what else it says is drawn
    else:
        forms.append(lowered)
    assert str(forms[1]) == str(func)
    plain = te.lower(te.create_schedule(args[inputs:]), args)
    others = [tuple(data.draw(sizes_of(s)) for s in symbols)] if symbols else []
    for point in [(n, m), *others]:
        sizes = {v: k for v, k in zip(names, point, strict=True) if isinstance(v, Var)}
        values = [small_integers(shape_of(t, sizes), i) for i, t in enumerate(args[:inputs])]
        want = outputs_of(plain, args, values, sizes)
        for form in forms:
            np.testing.assert_array_equal(outputs_of(form, args, values, sizes), want)
    return True


def sizes_of(symbol: str) -> st.SearchStrategy[int]:
    """Values of the variable of a symbol."""
    sizes = range_of(symbol)
    return st.integers(sizes.low, 11 if sizes.high is None else sizes.high)


@settings(max_examples=200, deadline=None,
          suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(data=st.data(), program=st.sampled_from(PROGRAMS),
       n=st.integers(1, 7), m=st.integers(1, 9), symbolic=st.booleans())
def test_schedules_keep_values(data, program, n, m, symbolic):
    symbols = [data.draw(st.sampled_from([name, f"{name}{{1..}}", f"{name}{{1..9}}"]))
               for name in ("n", "m")] if symbolic else None
    check_random_schedule(data, program, n, m, symbols=symbols)
