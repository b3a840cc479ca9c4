"""Matmuls: packed panels, register tiles with tails, caches."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.tir.eval import evaluate


def matmul(m: int, n: int, k: int):
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    rk = te.reduce_axis(k, "k")
    return a, b, te.compute((m, n), lambda i, j: te.sum(a[i, rk] * b[rk, j], axis=rk), name="C")


def packed_matmul(m: int, n: int, k: int, panel: int, rows: int = 0):
    """C from B in panels of ``panel`` columns, and A in panels of ``rows`` where that is not 0."""
    a = te.placeholder((m, k), name="A")
    b = te.placeholder((k, n), name="B")
    blocks = (n + panel - 1) // panel
    bp = te.compute(
        (blocks, k, panel),
        lambda j, p, ji: te.if_then_else(j * panel + ji < n, b[p, j * panel + ji], 0.0),
        name="Bp")
    rk = te.reduce_axis(k, "k")
    ap = None
    if rows:
        ap = te.compute(
            ((m + rows - 1) // rows, k, rows),
            lambda i, p, ii: te.if_then_else(i * rows + ii < m, a[i * rows + ii, p], 0.0),
            name="Ap")
    c = te.compute(
        (m, n),
        lambda i, j: te.sum(
            (a[i, rk] if ap is None else ap[i // rows, rk, i % rows])
            * bp[j // panel, rk, j % panel], axis=rk),
        name="C")
    return a, b, ap, bp, c


@pytest.mark.parametrize("pack_at", ["root", "block"])
@pytest.mark.parametrize("rows", [0, 5])
@pytest.mark.parametrize(("m", "n"), [(10, 16), (11, 19)])
def test_tiles_of_a_packed_product(run, random, m, n, rows, pack_at):
    tile_m, tile_n, k = 5, 8, 6
    a, b, ap, bp, c = packed_matmul(m, n, k, tile_n, rows)
    sch = te.create_schedule(c)
    local = sch.cache_write(c, "local")
    io, jo, ii, ji = sch[c].tile(*c.op.axis, tile_m, tile_n)
    sch[c].reorder(jo, io, ii, ji)
    sch[c].parallel(jo)
    sch[c].unroll(ii)
    sch[c].vectorize(ji)
    sch[local].compute_at(sch[c], io)
    i, j = local.op.axis
    sch[local].reorder(*local.op.reduce_axis, i, j)
    sch[local].unroll(i)
    sch[local].vectorize(j)
    sch[bp].vectorize(bp.op.axis[2])
    if pack_at == "block":
        sch[bp].compute_at(sch[c], jo)
        if ap is not None:
            sch[ap].compute_at(sch[c], io)
    x, y = random(m, k), random(k, n)
    (got,) = run(sch, [a, b, c], [x, y])
    np.testing.assert_allclose(got, x @ y, rtol=1e-4, atol=1e-5)


def test_packing_at_the_block_computes_one_panel():
    a, b, _, bp, c = packed_matmul(10, 24, 6, 8)
    sch = te.create_schedule(c)
    io, jo, _, _ = sch[c].tile(*c.op.axis, 5, 8)
    sch[c].reorder(jo, io)
    sch[bp].compute_at(sch[c], jo)
    assert "Bp = allocate(float32[1, 6, 8])" in str(te.lower(sch, [a, b, c]))


def test_blocked_reduction_with_a_tail(run, random):
    a, b, c = matmul(5, 7, 11)
    sch = te.create_schedule(c)
    ko, ki = sch[c].split(*c.op.reduce_axis, 4)
    sch[c].reorder(ko, *c.op.axis, ki)
    x, y = random(5, 11), random(11, 7)
    np.testing.assert_allclose(run(sch, [a, b, c], [x, y])[0], x @ y, rtol=1e-4, atol=1e-5)


def test_copies_of_the_inputs(run, random):
    a, b, c = matmul(6, 9, 5)
    sch = te.create_schedule(c)
    shared = sch.cache_read(b, "global", [c])
    _, jo, _, ji = sch[c].tile(*c.op.axis, 4, 4)
    sch[shared].compute_at(sch[c], jo)
    sch[c].vectorize(ji)
    x, y = random(6, 5), random(5, 9)
    assert "B.global = allocate(float32[5, 4])" in str(te.lower(sch, [a, b, c]))
    np.testing.assert_allclose(run(sch, [a, b, c], [x, y])[0], x @ y, rtol=1e-4, atol=1e-5)


def test_symbolic_rows(random):
    m = te.var("m")
    a = te.placeholder((m, 6), name="A")
    b = te.placeholder((6, 8), name="B")
    k = te.reduce_axis(6, "k")
    c = te.compute((m, 8), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    out = te.compute((m, 8), lambda i, j: te.maximum(c[i, j], 0.0), name="out")
    sch = te.create_schedule(out)
    io, ii = sch[out].split(out.op.axis[0], 4)
    sch[out].parallel(io)
    sch[out].unroll(ii)
    sch[c].compute_at(sch[out], io)
    sch[c].set_scope("local")
    sch[c].reorder(k, *c.op.axis)
    sch[c].vectorize(c.op.axis[1])
    func = te.lower(sch, [a, b, out])
    assert "C = allocate(float32[4, 8] local)" in str(func)
    for rows in (1, 4, 7):
        x, y, z = random(rows, 6), random(6, 8), np.zeros((rows, 8), np.float32)
        evaluate(func, x, y, z, *([rows] if len(func.params) > 3 else []))
        np.testing.assert_allclose(z, np.maximum(x @ y, 0), rtol=1e-4, atol=1e-5)
