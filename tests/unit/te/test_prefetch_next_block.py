"""The runs of a loop that read one block prefetch the next one, an equal share each."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from weft import te
from weft.codegen.llvm.build import emit_assembly
from weft.support.errors import ScheduleError
from weft.target import CpuTarget
from weft.tir.eval import evaluate_expr
from weft.tir.expr import BufferLoad, Call
from weft.tir.stmt import Evaluate
from weft.tir.transform.pipeline import lower_prim_func
from weft.tir.visitor import post_order_stmts, vars_of

ROWS, DEPTH, WIDTH, PANELS = 6, 8, 16, 3
LINE = 16  # elements


def gemm(height: int, count: int | None = None, distance: int | None = None):
    """Panels of 16 columns outside tiles of ``height`` rows, which prefetch the next panel."""
    a, b = te.placeholder((ROWS, DEPTH), name="a"), te.placeholder((PANELS, DEPTH, WIDTH), name="b")
    k = te.reduce_axis(DEPTH, "k")
    c = te.compute((ROWS, PANELS * WIDTH),
                   lambda i, j: te.sum(a[i, k] * b[j // WIDTH, k, j % WIDTH], axis=k), name="c")
    sch = te.create_schedule(c)
    i, j = c.op.axis
    row, i_in = sch[c].split(i, factor=height)
    panel, j_in = sch[c].split(j, factor=WIDTH)
    sch[c].reorder(panel, row, k, i_in, j_in)
    sch[c].prefetch_next_block(b, k, [(i, height, count)], distance=distance)
    return sch, [a, b, c]


def hinted_lines(func, panel: int, tiles: int) -> list[int]:
    """The positions in ``b`` that the hints of one panel name, in the order of execution."""
    hints = [n.value.args[0] for n in post_order_stmts(func.body)
             if isinstance(n, Evaluate) and isinstance(n.value, Call)]
    assert all(isinstance(hint, BufferLoad) for hint in hints)
    assert hints
    found = []
    for tile, step, hint in itertools.product(range(tiles), range(DEPTH), hints):
        at = {"j.outer": panel, "i.outer": tile, "k": step}
        index = [int(evaluate_expr(e, {v: at[v.name] for v in vars_of(e)})) for e in hint.indices]
        found.append((index[0] * DEPTH + index[1]) * WIDTH + index[2])
    return found


@pytest.mark.parametrize(("height", "count"), [(1, None), (2, None), (3, None), (4, None), (2, 3),
                                               (6, None), (6, 1)])
def test_the_hints_of_a_panel_cover_the_next_one(run, height, count):
    sch, tensors = gemm(height, count)
    func, tiles = te.lower(sch, tensors), -(-ROWS // height)
    block = DEPTH * WIDTH
    found = hinted_lines(func, 1, tiles)
    # Hints advance by at most a line, from the first line of the next panel to its last.
    assert found[0] == 2 * block
    assert all(0 < b - a <= LINE for a, b in itertools.pairwise(found))
    assert found[-1] >= 3 * block - LINE
    assert len(found) <= tiles * DEPTH * -(-WIDTH // LINE)
    rng = np.random.default_rng(height)
    data = [rng.integers(-3, 4, t.static_shape).astype(np.float32) for t in tensors[:2]]
    want = np.einsum("ik,pkj->ipj", *data).reshape(ROWS, -1)
    np.testing.assert_array_equal(run(sch, tensors, data)[0], want)


def test_the_next_block_may_be_elsewhere():
    near, far = (hinted_lines(te.lower(*gemm(2, None, distance)), 0, 3) for distance in (None, 256))
    assert np.subtract(far, near).tolist() == [256 - DEPTH * WIDTH] * len(near)


def test_runs_of_several_loops_and_along_two_axes_share_a_block(run):
    """A pointwise convolution: rows and tiles of columns use one slice of the weights."""
    x, w = te.placeholder((4, 6, 10), name="x"), te.placeholder((2, 2, 5, 16), name="w")
    i, j = te.reduce_axis(2, "i"), te.reduce_axis(5, "j")
    y = te.compute((4, 6, 32), lambda r, c, o: te.sum(
        x[r, c, i * 5 + j] * w[o // 16, i, j, o % 16], axis=[i, j]), name="y")
    sch = te.create_schedule(y)
    r, c, o = y.op.axis
    tile, c_in = sch[y].split(c, factor=4)
    slices, o_in = sch[y].split(o, factor=16)
    sch[y].reorder(slices, r, tile, i, j, c_in, o_in)
    sch[y].prefetch_next_block(w, j, [(r, 1, None), (c, 4, None)], within=i)
    func = te.lower(sch, [x, w, y])
    (hint,) = [n.value.args[0] for n in post_order_stmts(func.body)
               if isinstance(n, Evaluate) and isinstance(n.value, Call)]
    share = -(-160 // (4 * 2 * 10))
    at = [dict(zip(("r", "c.outer", "i", "j"), each, strict=True))
          for each in itertools.product(range(4), range(2), range(2), range(5))]
    found = []
    for values in at:
        index = [int(evaluate_expr(e, {v: {"o.outer": 0, **values}[v.name] for v in vars_of(e)}))
                 for e in hint.indices]
        found.append(((index[0] * 2 + index[1]) * 5 + index[2]) * 16 + index[3])
    assert found == [160 + share * number for number in range(len(at))]
    rng = np.random.default_rng(0)
    data = [rng.integers(-3, 4, t.static_shape).astype(np.float32) for t in (x, w)]
    want = np.einsum("rck,pko->rcpo", data[0], data[1].reshape(2, 10, 16)).reshape(4, 6, 32)
    np.testing.assert_array_equal(run(sch, [x, w, y], data)[0], want)


@pytest.mark.parametrize(("target", "instruction"), [
    ("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell", "prefetcht1"),
    ("llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=generic", "prfm\tpldl2keep"),
])
def test_the_block_is_loaded_into_l2(target, instruction):
    func = lower_prim_func(te.lower(*gemm(2)), verify=True)
    assert instruction in emit_assembly(func, CpuTarget.parse(target))


def test_illegal_blocks():
    sch, (a, b, c) = gemm(2)
    (i, j), (k,) = c.op.axis, c.op.reduce_axis
    for call, message in (
        (lambda: sch[c].prefetch_next_block(c, k, [(i, 1, None)]), "c, which it does not read"),
        (lambda: sch[c].prefetch_next_block(b, k, [(k, 1, None)]), "not a data axis"),
        (lambda: sch[c].prefetch_next_block(b, k, [(j, 0, None)]), "step 0: it must be a positive"),
        (lambda: sch[c].prefetch_next_block(b, k, [(i, 1, 0)]), "count 0: it must be a positive"),
        (lambda: sch[c].prefetch_next_block(b, k, [(i, 1, None)], distance=0), "distance 0: it mu"),
    ):
        with pytest.raises(ScheduleError, match=message):
            call()
    k = te.reduce_axis(DEPTH // 2, "k")
    rows = te.compute((PANELS, 4), lambda i, j: te.sum(a[i * 2, k] + a[i * 2 + 1, k], k), name="r")
    sch = te.create_schedule(rows)
    sch[rows].prefetch_next_block(a, k, [(rows.op.axis[1], 1, None)])
    with pytest.raises(ScheduleError, match="within k, which is inside"):
        sch[rows].prefetch_next_block(a, rows.op.axis[1], [], within=k)
    with pytest.raises(ScheduleError, match="whose block is not contiguous"):
        te.lower(sch, [a, rows])
