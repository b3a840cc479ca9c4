"""Recurrences: values, schedules of what is inside them, and what is refused."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from tests.unit.codegen.conftest import Compiler
from weft import te
from weft.support.errors import LoweringError, ScheduleError
from weft.te import recurrence
from weft.tir.eval import evaluate
from weft.tir.transform.pipeline import lower_prim_func


def cumulative(steps=6, width=5):
    x = te.placeholder((steps, width), name="x")
    state = te.placeholder((steps, width), name="state")
    first = te.compute((1, width), lambda _, i: x[0, i], name="first")
    following = te.compute((steps, width), lambda t, i: state[t - 1, i] + x[t, i], name="next")
    return x, first, following, te.scan(first, following, state, name="total")


def recurrent(steps=5, width=6):
    """``h[t] = tanh(W h[t - 1] + x[t])``, with the product a stage of its own."""
    x = te.placeholder((steps, width), name="x")
    w = te.placeholder((width, width), name="w")
    state = te.placeholder((steps, width), name="state")
    k = te.reduce_axis(width, "k")
    first = te.compute((1, width), lambda _, i: te.tanh(x[0, i]), name="first")
    product = te.compute((steps, width),
                         lambda t, i: te.sum(w[i, k] * state[t - 1, k], axis=k), name="product")
    following = te.compute((steps, width), lambda t, i: te.tanh(product[t, i] + x[t, i]),
                           name="next")
    h = te.scan(first, following, state, name="h")
    return x, w, product, following, h


def recurrent_reference(x, w):
    h = [np.tanh(x[0])]
    for row in x[1:]:
        h.append(np.tanh(w @ h[-1] + row))
    return np.stack(h)


def check(run, sch, args, inputs, want):
    got = run(sch, args, inputs)
    func = lower_prim_func(te.lower(sch, args), verify=True)
    compiled = [np.zeros_like(g) for g in got]
    Compiler().compile(func)(*inputs, *compiled)
    wants = want if isinstance(want, list) else [want]
    for a, b, c in zip(got, compiled, wants, strict=True):
        np.testing.assert_allclose(a, c, rtol=1e-5)
        np.testing.assert_allclose(b, c, rtol=1e-5)
    return func


def test_docstring():
    assert not doctest.testmod(recurrence, extraglobs={"te": te}).failed


@pytest.mark.parametrize("steps", [1, 2, 6])
def test_cumulative_sum(run, random, steps):
    x, _, _, total = cumulative(steps)
    data = random(steps, 5)
    check(run, te.create_schedule(total), [x, total], [data], np.cumsum(data, 0))


def test_the_starts_and_updates_have_no_memory_of_their_own(random):
    x, first, following, total = cumulative()
    sch = te.create_schedule(total)
    sch[following].vectorize(following.op.axis[1])
    sch[first].vectorize(first.op.axis[1])
    func = lower_prim_func(te.lower(sch, [x, total]))
    assert [p.name for p in func.params] == ["x", "total"]
    assert "allocate" not in str(func)
    assert "total(6, 5): root" in str(sch)
    assert "next(6, 5): at total.t" in str(sch)


def test_a_recurrent_layer_under_schedules(run, random):
    x, w, product, following, h = recurrent()
    values = random(5, 6), random(6, 6)
    want = recurrent_reference(*values)
    check(run, te.create_schedule(h), [x, w, h], list(values), want)
    sch = te.create_schedule(h)
    outer, _ = sch[following].split(following.op.axis[1], 4)
    sch[product].compute_at(sch[following], outer)
    sch[product].set_scope("local")
    local = sch.cache_write(product, "local")
    sch[local].compute_at(sch[product], product.op.axis[0])
    part = sch.rfactor(local, sch[local].split(sch[local].reduce_axis[0], 2)[1])
    sch[part].compute_at(sch[local], sch[local].axis[0])
    func = check(run, sch, [x, w, h], list(values), want)
    assert func.attrs["num_outputs"] == 1


def test_a_scan_between_other_stages(run, random):
    x = te.placeholder((4, 7), name="x")
    doubled = te.compute((4, 7), lambda t, i: x[t, i] * 2.0, name="doubled")
    state = te.placeholder((4, 7), name="state")
    first = te.compute((1, 7), lambda _, i: doubled[0, i], name="first")
    following = te.compute((4, 7), lambda t, i: te.maximum(state[t - 1, i], doubled[t, i]),
                           name="next")
    best = te.scan(first, following, state, name="best")
    y = te.compute((4, 7), lambda t, i: best[t, i] - doubled[t, i], name="y")
    data = random(4, 7)
    want = np.maximum.accumulate(data * 2, 0) - data * 2
    for inline in (False, True):
        sch = te.create_schedule(y)
        if inline:
            sch[doubled].compute_inline()
        check(run, sch, [x, y], [data], want)


def test_two_states_and_a_longer_start(run):
    n = 9
    x = te.placeholder((n, 1), name="x")
    a, b = te.placeholder((n, 1), name="a"), te.placeholder((n, 1), name="b")
    starts = [te.compute((2, 1), lambda t, i: x[t, i], name=f"start{j}") for j in range(2)]
    fib = te.compute((n, 1), lambda t, i: a[t - 1, i] + a[t - 2, i], name="fib")
    mixed = te.compute((n, 1), lambda t, i: b[t - 1, i] * 2.0 - a[t - 2, i] + x[t, i], name="mixed")
    outs = te.scan(starts, [fib, mixed], [a, b], name="pair")
    data = np.ones((n, 1), np.float32)
    p, q = [1.0, 1.0], [1.0, 1.0]
    for t in range(2, n):
        q.append(q[t - 1] * 2 - p[t - 2] + 1)
        p.append(p[t - 1] + p[t - 2])
    want = [np.array(v, np.float32)[:, None] for v in (p, q)]
    check(run, te.create_schedule(outs), [x, *outs], [data], want)


def test_symbolic_lengths():
    n = te.var("n")
    x, state = te.placeholder((n, 3), name="x"), te.placeholder((n, 3), name="state")
    first = te.compute((1, 3), lambda _, i: x[0, i])
    following = te.compute((n, 3), lambda t, i: state[t - 1, i] * x[t, i])
    out = te.scan(first, following, state)
    func = lower_prim_func(te.lower(te.create_schedule(out), [x, out]), verify=True)
    data = np.arange(1, 13, dtype=np.float32).reshape(4, 3)
    result = np.zeros_like(data)
    evaluate(func, data, result, 4)
    np.testing.assert_array_equal(result, np.cumprod(data, 0))


def test_illegal_attach_points():
    x, first, following, total = cumulative()
    y = te.compute((6, 5), lambda t, i: total[t, i], name="y")
    sch = te.create_schedule(y)
    with pytest.raises(ScheduleError, match="compute_at of an init or update of total"):
        sch[following].compute_at(sch[y], y.op.axis[0])
    with pytest.raises(ScheduleError, match="compute_inline of an init"):
        sch[first].compute_inline()
    with pytest.raises(ScheduleError, match="compute_at of a scan"):
        sch[total].compute_at(sch[y], y.op.axis[0])
    with pytest.raises(ScheduleError, match="set_scope 'local' of an init"):
        sch[following].set_scope("local")
    with pytest.raises(ScheduleError, match="split does not apply to a scan"):
        sch[total].split(total.op.axis, 2)
    assert isinstance(x.op, te.PlaceholderOp)


def test_the_state_belongs_to_the_update():
    x, state = te.placeholder((4, 3), name="x"), te.placeholder((4, 3), name="state")
    first = te.compute((1, 3), lambda _, i: x[0, i], name="first")
    following = te.compute((4, 3), lambda t, i: state[t - 1, i] + x[t, i], name="next")
    out = te.scan(first, following, state, name="out")
    other = te.compute((4, 3), lambda t, i: state[t, i] + out[t, i], name="other")
    with pytest.raises(ScheduleError, match="reads the state of out, but no update reads it"):
        te.create_schedule(other)


@pytest.mark.parametrize(("part", "message"), [
    ("init", "the init does not match the state"), ("update", "the update does not match"),
    ("length", "differ in length"), ("state", "is not a placeholder"),
    ("count", "as many inits and updates as states"), ("input", "is not a te.compute"),
])
def test_tensors_that_do_not_fit(part, message):
    x, state = te.placeholder((4, 3), name="x"), te.placeholder((4, 3), name="state")
    first = te.compute((1, 2 if part == "init" else 3), lambda _, i: x[0, i])
    shape = (4, 4) if part == "update" else (5 if part == "length" else 4, 3)
    following = te.compute(shape, lambda t, i: state[t - 1, i])
    with pytest.raises(LoweringError, match=message):
        te.scan(x if part == "input" else first,
                following, following if part == "state" else
                [state, state] if part == "count" else state)
