"""Row reductions, arg-extrema, custom reducers and rfactor."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te


def softmax(rows: int, columns: int):
    x = te.placeholder((rows, columns), name="x")
    k1, k2 = te.reduce_axis(columns, "k1"), te.reduce_axis(columns, "k2")
    top = te.compute((rows,), lambda i: te.max(x[i, k1], axis=k1), name="top")
    e = te.compute((rows, columns), lambda i, j: te.exp(x[i, j] - top[i]), name="e")
    total = te.compute((rows,), lambda i: te.sum(e[i, k2], axis=k2), name="total")
    y = te.compute((rows, columns), lambda i, j: e[i, j] / total[i], name="y")
    return x, top, e, total, y


@pytest.mark.parametrize("columns", [32, 29, 5])
def test_softmax_rows_with_vector_accumulators(run, random, columns):
    x, top, e, total, y = softmax(3, columns)
    sch = te.create_schedule(y)
    row, column = y.op.axis
    sch[y].parallel(row)
    _, lanes = sch[y].split(column, 8)
    sch[y].vectorize(lanes)
    for stage in (top, total):
        _, inner = sch[stage].split(*stage.op.reduce_axis, 8)
        partial = sch.rfactor(stage, inner)
        lane, i = partial.op.axis
        sch[partial].reorder(i, *partial.op.reduce_axis, lane)
        sch[partial].vectorize(lane)
        sch[partial].compute_at(sch[y], row)
        sch[partial].set_scope("local")
        sch[stage].compute_at(sch[y], row)
        sch[stage].unroll(sch[stage].op.reduce_axis[0])
    sch[e].compute_at(sch[y], row)
    _, lanes = sch[e].split(e.op.axis[1], 8)
    sch[e].vectorize(lanes)
    v = random(3, columns)
    z = np.exp(v - v.max(1, keepdims=True))
    (got,) = run(sch, [x, y], [v])
    np.testing.assert_allclose(got, z / z.sum(1, keepdims=True), rtol=1e-5)


def test_layer_norm_rows(run, random):
    rows, columns = 3, 13
    x = te.placeholder((rows, columns), name="x")
    k1, k2 = te.reduce_axis(columns, "k1"), te.reduce_axis(columns, "k2")
    mean = te.compute((rows,), lambda i: te.sum(x[i, k1], axis=k1), name="mean")
    var = te.compute(
        (rows,),
        lambda i: te.sum((x[i, k2] - mean[i] / 13.0) * (x[i, k2] - mean[i] / 13.0), axis=k2),
        name="var")
    y = te.compute(
        (rows, columns),
        lambda i, j: (x[i, j] - mean[i] / 13.0) * te.rsqrt(var[i] / 13.0 + 1e-5), name="y")
    sch = te.create_schedule(y)
    row, column = y.op.axis
    sch[y].parallel(row)
    _, lanes = sch[y].split(column, 4)
    sch[y].vectorize(lanes)
    sch[mean].compute_at(sch[y], row)
    sch[var].compute_at(sch[y], row)
    v = random(rows, columns)
    want = (v - v.mean(1, keepdims=True)) / np.sqrt(v.var(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("reducer", "numpy"), [(te.argmax, np.argmax), (te.argmin, np.argmin)])
@pytest.mark.parametrize("vectorized", [False, True])
def test_arg_extrema_take_the_first_and_prefer_nan(run, reducer, numpy, vectorized):
    values = np.array([[1, 3, 3, -2, -2], [-np.inf] * 5, [0, np.nan, 5, np.nan, -7]], np.float32)
    x = te.placeholder((3, 5), name="x")
    k = te.reduce_axis(5, "k")
    index, value = te.compute((3,), lambda i: reducer((k.var, x[i, k]), axis=k), name="best")
    sch = te.create_schedule([index, value])
    if vectorized:
        sch[index].reorder(k, index.op.axis[0])
        sch[index].vectorize(index.op.axis[0])
    got_index, got_value = run(sch, [x, index, value], [values])
    np.testing.assert_array_equal(got_index, numpy(values, axis=1))
    np.testing.assert_array_equal(got_value, values[range(3), got_index])


def test_arg_max_in_parts(run, random):
    v = random(2, 11)
    x = te.placeholder((2, 11), name="x")
    k = te.reduce_axis(11, "k")
    index, value = te.compute((2,), lambda i: te.argmax((k.var, x[i, k]), axis=k), name="best")
    sch = te.create_schedule([index, value])
    _, inner = sch[index].split(k, 4)
    parts = sch.rfactor(index, inner)
    assert [p.static_shape for p in parts] == [(4, 2), (4, 2)]
    got, _ = run(sch, [x, index, value], [v])
    np.testing.assert_array_equal(got, v.argmax(1))


@pytest.mark.parametrize(
    ("reducer", "numpy"), [(te.sum, np.sum), (te.prod, np.prod), (te.min, np.min), (te.max, np.max)]
)
def test_reducers_over_two_axes(run, random, reducer, numpy):
    v = random(3, 4, 2)
    x = te.placeholder((3, 4, 2), name="x")
    a, b = te.reduce_axis(4, "a"), te.reduce_axis(2, "b")
    y = te.compute((3,), lambda i: reducer(x[i, a, b], axis=[a, b]), name="y")
    sch = te.create_schedule(y)
    fused = sch[y].fuse(a, b)
    outer, _ = sch[y].split(fused, 3)
    sch.rfactor(y, outer, factor_axis=1)
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], numpy(v, axis=(1, 2)), rtol=1e-4)


def test_logical_reducers(run):
    v = np.array([[1, 1], [0, 1], [0, 0]], bool)
    x = te.placeholder((3, 2), "bool", name="x")
    k, r = te.reduce_axis(2, "k"), te.reduce_axis(2, "r")
    some = te.compute((3,), lambda i: te.any(x[i, k], axis=k), name="some")
    every = te.compute((3,), lambda i: te.all(x[i, r], axis=r), name="every")
    got = run(te.create_schedule([some, every]), [x, some, every], [v])
    np.testing.assert_array_equal(got, [v.any(1), v.all(1)])


def test_reduction_of_a_part(run, random):
    v = random(9)
    x = te.placeholder((9,), name="x")
    k = te.reduce_axis((2, 8), "k")
    y = te.compute((), lambda: te.sum(x[k], axis=k, where=k < 6), name="y")
    sch = te.create_schedule(y)
    outer, _ = sch[y].split(k, 4)
    sch.rfactor(y, outer)
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], v[2:6].sum(), rtol=1e-5)


def test_rows_where_nothing_is_reduced_hold_the_identity(run, random):
    v = random(5, 4)
    x = te.placeholder((5, 4), name="x")
    k = te.reduce_axis(4, "k")
    y = te.compute(
        (5,), lambda i: te.sum(x[i, k], axis=k, where=te.all_of(i < 3, k < 2)), name="y")
    sch = te.create_schedule(y)
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], [*v[:3, :2].sum(1), 0, 0], rtol=1e-4)


def test_lanes_beyond_a_short_row_hold_the_identity(run, random):
    """All of the row is in one vector, which has more lanes than the row has elements."""
    v = random(2, 6)
    x = te.placeholder((2, 6), name="x")
    k = te.reduce_axis(6, "k")
    y = te.compute((2,), lambda i: te.sum(x[i, k], axis=k), name="y")
    sch = te.create_schedule(y)
    _, inner = sch[y].split(k, 4)
    sch[y].split(inner, 1)
    sch.rfactor(y, sch[y].leaf_iter_vars[2])
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], v.sum(1), rtol=1e-4)


def test_custom_reducer_of_pairs(run, random):
    """The running mean and square of Welford and Chan, which combine in any order."""
    moments = te.comm_reducer(
        lambda x, y: (x[0] + y[0], x[1] + y[1]),
        lambda a, b: (te.const(0, a), te.const(0, b)),
        name="moments", arity=2)
    v = random(2, 7)
    x = te.placeholder((2, 7), name="x")
    k = te.reduce_axis(7, "k")
    first, second = te.compute(
        (2,), lambda i: moments((x[i, k], x[i, k] * x[i, k]), axis=k), name="m")
    got = run(te.create_schedule([first, second]), [x, first, second], [v])
    np.testing.assert_allclose(got, [v.sum(1), (v * v).sum(1)], rtol=1e-4)


def test_global_average_pool(run, random):
    x = te.placeholder((1, 2, 5, 5, 4), name="x")
    h, w = te.reduce_axis(5, "h"), te.reduce_axis(5, "w")
    total = te.compute((1, 2, 4), lambda n, c, b: te.sum(x[n, c, h, w, b], axis=[h, w]), name="t")
    y = te.compute((1, 2, 4), lambda n, c, b: total[n, c, b] / 25.0, name="y")
    sch = te.create_schedule(y)
    n, c, b = y.op.axis
    sch[y].parallel(sch[y].fuse(n, c))
    sch[y].vectorize(b)
    sch[total].compute_at(sch[y], sch[y].leaf_iter_vars[0])
    sch[total].set_scope("local")
    sch[total].reorder(h, w, total.op.axis[2])
    sch[total].vectorize(total.op.axis[2])
    v = random(1, 2, 5, 5, 4)
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], v.mean((2, 3)), rtol=1e-4, atol=1e-6)


def test_a_reduction_over_nothing_is_the_identity(run):
    x = te.placeholder((2, 0), name="x")
    k = te.reduce_axis(0, "k")
    y = te.compute((2,), lambda i: te.max(x[i, k], axis=k), name="y")
    empty = np.zeros((2, 0), np.float32)
    np.testing.assert_array_equal(run(te.create_schedule(y), [x, y], [empty])[0], [-np.inf] * 2)
