"""Elementwise chains, data movement, several outputs and extern bodies."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.tir import stmt as s
from weft.tir.expr import Var
from weft.tir.transform.pipeline import lower_prim_func


@pytest.mark.parametrize("shape", [(2, 3, 8), (2, 3, 7), (1, 1, 5)])
def test_inlined_chain_over_fused_vectors(run, random, shape):
    x = te.placeholder(shape, name="x")
    a = te.compute(shape, lambda *i: x[i] * 2.0, name="a")
    b = te.compute(shape, lambda *i: a[i] + 1.0, name="b")
    y = te.compute(shape, lambda *i: te.maximum(b[i], a[i]), name="y")
    sch = te.create_schedule(y)
    sch[a].compute_inline()
    sch[b].compute_inline()
    outer, inner = sch[y].split(sch[y].fuse(*y.op.axis), 8)
    sch[y].parallel(outer)
    sch[y].vectorize(inner)
    v = random(*shape)
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], np.maximum(v * 2 + 1, v * 2), rtol=1e-6)


def test_transpose(run, random):
    x = te.placeholder((5, 7), name="x")
    y = te.compute((7, 5), lambda i, j: x[j, i], name="y")
    sch = te.create_schedule(y)
    *_, inner = sch[y].tile(*y.op.axis, 4, 4)
    sch[y].vectorize(inner)
    v = random(5, 7)
    np.testing.assert_array_equal(run(sch, [x, y], [v])[0], v.T)


def test_concatenation_reads_each_part_only_inside_it(run, random):
    x, z = te.placeholder((3, 4), name="x"), te.placeholder((3, 5), name="z")
    y = te.compute(
        (3, 9), lambda i, j: te.if_then_else(j < 4, x[i, j], z[i, j - 4]), name="y")
    sch = te.create_schedule(y)
    _, inner = sch[y].split(y.op.axis[1], 4)
    sch[y].unroll(inner)
    v, w = random(3, 4), random(3, 5)
    np.testing.assert_array_equal(run(sch, [x, z, y], [v, w])[0], np.concatenate([v, w], 1))


def test_gather_needs_the_whole_of_a_computed_table(run, random):
    table = te.placeholder((6, 3), name="table")
    rows = te.placeholder((4,), "int32", name="rows")
    scaled = te.compute((6, 3), lambda i, j: table[i, j] * 2.0, name="scaled")
    y = te.compute((4, 3), lambda i, j: scaled[rows[i], j], name="y")
    sch = te.create_schedule(y)
    sch[scaled].compute_at(sch[y], y.op.axis[0])
    v, r = random(6, 3), np.array([5, 0, 2, 2], np.int32)
    assert "scaled = allocate(float32[6, 3])" in str(te.lower(sch, [table, rows, y]))
    np.testing.assert_array_equal(run(sch, [table, rows, y], [v, r])[0], v[r] * 2)


def test_several_outputs_of_one_computation(run, random):
    x = te.placeholder((5,), name="x")
    a, b = te.compute((5,), lambda i: (x[i] + 1.0, x[i] * x[i]), name="pair")
    y = te.compute((5,), lambda i: a[i] - b[i], name="y")
    sch = te.create_schedule(y)
    sch[a].compute_at(sch[y], y.op.axis[0])
    v = random(5)
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], v + 1 - v * v, rtol=1e-5)


def test_an_output_that_another_output_reads(run, random):
    x = te.placeholder((5,), name="x")
    a = te.compute((5,), lambda i: x[i] + 1.0, name="a")
    y = te.compute((5,), lambda i: a[i] * 2.0, name="y")
    v = random(5)
    got = run(te.create_schedule([a, y]), [x, a, y], [v])
    np.testing.assert_allclose(got, [v + 1, (v + 1) * 2], rtol=1e-6)


def running_sum(inputs, outputs):
    (x,), (y,) = inputs, outputs
    i = Var("i")
    step = s.BufferStore(y, x.load(i) + te.if_then_else(i > 0, y.load(i - 1), 0.0), (i,))
    return s.For(i, te.const(0), x.shape[0], s.ForKind.SERIAL, step)


def test_extern_body_between_computations(run, random):
    x = te.placeholder((3, 6), name="x")
    line = te.compute((18,), lambda i: x[i // 6, i % 6] * 2.0, name="line")
    (total,) = te.extern([(18,)], [line], running_sum, ["float32"], name="total")
    y = te.compute((18,), lambda i: total[i] + 1.0, name="y")
    sch = te.create_schedule(y)
    v = random(3, 6)
    got = run(sch, [x, y], [v])[0]
    np.testing.assert_allclose(got, np.cumsum(v * 2) + 1, rtol=1e-4, atol=1e-5)


def test_scalar_tensors(run):
    x = te.placeholder((), name="x")
    y = te.compute((), lambda: x[()] + 1.0, name="y")
    two = np.array(2, np.float32)
    np.testing.assert_array_equal(run(te.create_schedule(y), [x, y], [two])[0], 3)


def test_outputs_that_nobody_asked_for_get_memory_of_their_own(run, random):
    x = te.placeholder((5,), name="x")
    a, _ = te.compute((5,), lambda i: (x[i] + 1.0, x[i] * x[i]), name="pair")
    v = random(5)
    np.testing.assert_allclose(run(te.create_schedule(a), [x, a], [v])[0], v + 1, rtol=1e-6)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_empty_tensors_keep_their_schedule(run, shape):
    x = te.placeholder(shape, name="x")
    y = te.compute(shape, lambda i, j: x[i, j] + 1.0, name="y")
    for options in ({"factor": 8}, {"nparts": 2}):
        sch = te.create_schedule(y)
        outer, inner = sch[y].split(sch[y].fuse(*y.op.axis), **options)
        sch[y].parallel(outer)
        sch[y].vectorize(inner)
        (got,) = run(sch, [x, y], [np.zeros(shape, np.float32)])
        assert got.size == 0
        lower_prim_func(te.lower(sch, [x, y]), verify=True)
