"""Where elements are kept and when they are fetched: alignment, double buffers, prefetches."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.codegen.conftest import Compiler
from weft import te
from weft.codegen.llvm.build import emit_assembly
from weft.support.errors import ScheduleError
from weft.tir.buffer import Buffer
from weft.tir.stmt import Allocate
from weft.tir.transform.pipeline import lower_prim_func
from weft.tir.visitor import post_order_stmts


def sums(rows=7, columns=20):
    """``c[i, j]``, the sum of row ``i`` of ``b``, times ``j + 1``; ``b`` is ``x + 1``."""
    x = te.placeholder((rows, columns), name="x")
    b = te.compute((rows, columns), lambda i, j: x[i, j] + 1.0, name="b")
    k = te.reduce_axis(columns, "k")
    c = te.compute((rows, 6), lambda i, j: te.sum(b[i, k] * (j + 1).astype("float32"), axis=k),
                   name="c")
    return x, b, c


def check(run, sch, x, c):
    data = np.arange(np.prod(x.static_shape), dtype=np.float32).reshape(x.static_shape) % 5
    want = (data + 1).sum(1)[:, None] * np.arange(1, 7)
    (got,) = run(sch, [x, c], [data])
    np.testing.assert_array_equal(got, want)
    func = lower_prim_func(te.lower(sch, [x, c]), verify=True)
    out = np.zeros_like(want, np.float32)
    Compiler().compile(func)(data, out)
    np.testing.assert_array_equal(out, want)
    return func


def allocated(func, name: str) -> Buffer:
    return next(n.buffer for n in post_order_stmts(func.body)
                if isinstance(n, Allocate) and n.buffer.name == name)


@pytest.mark.parametrize(("factor", "offset", "row"), [(16, 4, 20), (16, 0, 32), (32, 7, 39),
                                                       (1, 0, 20), (20, 19, 39)])
def test_rows_are_as_far_apart_as_asked(run, factor, offset, row):
    x, b, c = sums()
    sch = te.create_schedule(c)
    sch[b].storage_align(b.op.axis[0], factor, offset)
    func = te.lower(sch, [x, c])
    assert [int(str(n)) for n in allocated(func, "b").shape] == [7, row]
    check(run, sch, x, c)


def test_outer_axes_are_aligned_over_padded_inner_ones():
    x = te.placeholder((3, 4, 5), name="x")
    b = te.compute((3, 4, 5), lambda i, j, k: x[i, j, k] + 1.0, name="b")
    c = te.compute((3, 4, 5), lambda i, j, k: b[i, j, k], name="c")
    sch = te.create_schedule(c)
    sch[b].storage_align(b.op.axis[1], 4, 2)
    sch[b].storage_align(b.op.axis[0], 9, 3)
    assert str(allocated(te.lower(sch, [x, c]), "b").shape) == "(3, 5, 6)"
    sch[b].storage_align(b.op.axis[0], 4, 1)
    with pytest.raises(ScheduleError, match=r"no multiple of 6 elements is 4 \* n \+ 1"):
        te.lower(sch, [x, c])


def test_illegal_alignments():
    x, b, c = sums()
    sch = te.create_schedule(c)
    i, j = b.op.axis
    for call, message in (
        (lambda: sch[b].storage_align(j, 16), "the last axis j"),
        (lambda: sch[c].storage_align(c.op.axis[0], 16), "of an output"),
        (lambda: sch[b].storage_align(i, 0), "a positive integer"),
        (lambda: sch[b].storage_align(i, 4, 4), "an offset below it"),
        (lambda: sch[b].storage_align(c.op.axis[0], 4), "not a data axis of the stage"),
        (lambda: sch[x].storage_align(i, 4), "does not apply to a placeholder"),
    ):
        with pytest.raises(ScheduleError, match=message):
            call()
    n = te.var("n")
    y = te.placeholder((4, n), name="y")
    d = te.compute((4, n), lambda i, j: y[i, j] + 1.0, name="d")
    e = te.compute((4, n), lambda i, j: d[i, j], name="e")
    sch = te.create_schedule(e)
    sch[d].storage_align(d.op.axis[0], 16)
    with pytest.raises(ScheduleError, match="are not constant"):
        te.lower(sch, [y, e])


@pytest.mark.parametrize("rows", [1, 6, 7])
@pytest.mark.parametrize("parts", [None, 3])
def test_double_buffers(run, rows, parts):
    x, b, c = sums(rows)
    sch = te.create_schedule(c)
    at = c.op.axis[0]
    if parts is not None:
        _, at = sch[c].split(at, parts)
    sch[b].compute_at(sch[c], at)
    sch[b].double_buffer()
    func = check(run, sch, x, c)
    halves = 1 if rows == 1 else 2
    assert allocated(func, "b").static_bytes == halves * 20 * 4


def test_double_buffers_inside_each_other(run):
    x, b, c = sums()
    sch = te.create_schedule(c)
    copy = sch.cache_read(x, "global", [b])
    i, j = sch[c].axis
    sch[b].compute_at(sch[c], j)
    sch[b].double_buffer()
    sch[copy].compute_at(sch[c], i)
    sch[copy].double_buffer()
    func = check(run, sch, x, c)
    assert allocated(func, "x.global").static_bytes == allocated(func, "b").static_bytes == 160


def test_illegal_double_buffers():
    x, b, c = sums()
    sch = te.create_schedule(c)
    with pytest.raises(ScheduleError, match="computed once"):
        sch[b].double_buffer()
    i = c.op.axis[0]
    sch[b].compute_at(sch[c], i)
    sch[b].set_scope("local")
    with pytest.raises(ScheduleError, match="double_buffer of registers"):
        sch[b].double_buffer()
    sch[b].set_scope("global")
    copy = sch.cache_read(x, "global", [b])
    sch[copy].compute_at(sch[c], i)
    with pytest.raises(ScheduleError, match="computed in the same iteration"):
        sch[b].double_buffer()
    sch[copy].compute_root()
    sch[c].parallel(i)
    with pytest.raises(ScheduleError, match="which is parallel: only a serial loop"):
        sch[b].double_buffer()


def test_prefetches_name_each_line_of_the_next_rows(run):
    x, b, c = sums(7, 40)
    sch = te.create_schedule(c)
    sch[c].prefetch(b, c.op.axis[0], 2)
    sch[b].prefetch(x, b.op.axis[1], 16)
    func = check(run, sch, x, c)
    text = str(func)
    assert "for b.ahead in range(3):" in text
    assert "prefetch(b[i_1 * 40 + b.ahead * 16 + 80])" in text
    assert "prefetch(x[i * 40 + j + 16])" in text
    assembly = emit_assembly(func, Compiler().target)
    assert "prefetch" in assembly or "prfm" in assembly


def test_illegal_prefetches():
    x, b, c = sums()
    sch = te.create_schedule(c)
    i, j = b.op.axis
    for call, message in (
        (lambda: sch[c].prefetch(x, c.op.axis[0]), "x, which it does not read"),
        (lambda: sch[b].prefetch(x, i, 0), "a positive integer"),
        (lambda: sch[b].prefetch(x, c.op.axis[0]), "does not belong to this stage"),
    ):
        with pytest.raises(ScheduleError, match=message):
            call()
    sch[b].prefetch(x, i)
    with pytest.raises(ScheduleError, match="split of axis i, in which x is prefetched"):
        sch[b].split(i, 2)
    with pytest.raises(ScheduleError, match="vectorize of axis i, inside which x is prefetched"):
        sch[b].vectorize(i)
    sch[c].prefetch(b, c.op.axis[0])
    sch[b].compute_at(sch[c], c.op.axis[1])
    with pytest.raises(ScheduleError, match="computed in the iteration that reads it"):
        te.lower(sch, [x, c])
    sch[c].prefetches.clear()
    sch[b].vectorize(j)
    sch[b].compute_at(sch[c], c.op.axis[0])
    with pytest.raises(ScheduleError, match="computed in the iteration that reads it"):
        sch[c].prefetch(b, c.op.axis[0])


def softmaxes(rows=5, columns=21):
    """``c = b / sum of its row``, where ``b = x * x + 1``."""
    x = te.placeholder((rows, columns), name="x")
    b = te.compute((rows, columns), lambda i, j: x[i, j] * x[i, j] + 1.0, name="b")
    k = te.reduce_axis(columns, "k")
    total = te.compute((rows,), lambda i: te.sum(b[i, k], axis=k), name="total")
    c = te.compute((rows, columns), lambda i, j: b[i, j] / total[i], name="c")
    return x, b, total, c


@pytest.mark.parametrize("height", [1, 2, 3])
def test_a_stage_in_the_memory_of_its_consumer(run, height):
    x, b, total, c = softmaxes()
    sch = te.create_schedule(c)
    block, row = sch[c].split(c.op.axis[0], factor=height)
    columns, lane = sch[c].split(c.op.axis[1], factor=8)
    sch[c].reorder(block, columns, row, lane)
    sch[c].vectorize(lane)
    for tensor in (b, total):
        sch[tensor].compute_at(sch[c], block)
    sch[b].store_in(sch[c])
    func = lower_prim_func(te.lower(sch, [x, c]), verify=True)
    assert all(n.buffer.name != "b" for n in post_order_stmts(func.body) if isinstance(n, Allocate))
    data = np.arange(105, dtype=np.float32).reshape(5, 21) % 7
    made = data * data + 1
    want = made / made.sum(1, keepdims=True)
    (got,) = run(sch, [x, c], [data])
    np.testing.assert_allclose(got, want, rtol=1e-6)
    out = np.full_like(want, np.nan)
    Compiler().compile(func)(data, out)
    np.testing.assert_allclose(out, want, rtol=1e-6)


def test_illegal_attach_points_in_a_consumer():
    x, b, total, c = softmaxes()
    sch = te.create_schedule(c)
    for stage, owner, message in (
        (sch[b], sch[c], "not computed at one of its loops"),
        (sch[total], sch[c], "another shape"),
        (sch[b], sch[total], "not an elementwise output"),
        (sch[c], sch[c], "store_in of an output"),
    ):
        with pytest.raises(ScheduleError, match=message):
            stage.store_in(owner)
    sch[b].compute_at(sch[c], c.op.axis[0])
    sch[b].store_in(sch[c])
    with pytest.raises(ScheduleError, match="set_scope 'local' of a stage that is stored in c"):
        sch[b].set_scope("local")
    sch[total].compute_at(sch[c], c.op.axis[1])  # where some elements are overwritten already
    with pytest.raises(ScheduleError, match="its reader total is not computed"):
        te.lower(sch, [x, c])
    sch[b].compute_root()
    with pytest.raises(ScheduleError, match="but not computed at one of its loops"):
        te.lower(sch, [x, c])


def test_an_iteration_writes_all_that_it_keeps_in_its_consumer():
    """Steps of 4 apart leave elements out that earlier iterations have made final."""
    x = te.placeholder((20,), name="x")
    b = te.compute((20,), lambda i: x[i] + 1.0, name="b")
    c = te.compute((20,), lambda i: b[i] * 2.0, name="c")
    sch = te.create_schedule(c)
    outer, inner = sch[c].split(c.op.axis[0], factor=4)
    sch[c].reorder(inner, outer)
    sch[b].compute_at(sch[c], inner)
    sch[b].store_in(sch[c])
    with pytest.raises(ScheduleError, match="does not write all that it reads"):
        te.lower(sch, [x, c])


def test_a_consumer_that_reads_elsewhere_keeps_nothing():
    x = te.placeholder((4, 6), name="x")
    b = te.compute((4, 6), lambda i, j: x[i, j] + 1.0, name="b")
    c = te.compute((4, 6), lambda i, j: b[i, 5 - j] * 2.0, name="c")
    sch = te.create_schedule(c)
    sch[b].compute_at(sch[c], c.op.axis[0])
    sch[b].store_in(sch[c])
    with pytest.raises(ScheduleError, match="reads it at another index"):
        te.lower(sch, [x, c])
