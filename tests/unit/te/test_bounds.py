"""Regions of stages computed inside loops: the bounding box of what is read, and no more."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import te
from weft.te.span import SpanOf, counted
from weft.tir import stmt as s
from weft.tir.eval import evaluate, evaluate_expr
from weft.tir.expr import PrimExpr, Var
from weft.tir.simplify import Analyzer
from weft.tir.visitor import post_order_stmts


def shape_of(func, name: str) -> tuple[int, ...] | None:
    """The static shape that the stage ``name`` got memory for."""
    for node in post_order_stmts(func.body):
        if isinstance(node, s.Allocate) and node.buffer.name == name:
            return node.buffer.static_shape
    raise AssertionError(f"no allocation of {name}")


def region(shape, read, at, factor=None, out_shape=(8, 12)):
    """What is allocated for a stage of ``shape`` that ``read(a, i, j)`` reads at a loop."""
    x = te.placeholder(shape, name="x")
    a = te.compute(shape, lambda *i: x[i] + 1.0, name="a")
    y = te.compute(out_shape, lambda i, j: read(a, i, j), name="y")
    sch = te.create_schedule(y)
    axis = y.op.axis[at]
    if factor:
        axis, _ = sch[y].split(axis, factor)
    sch[a].compute_at(sch[y], axis)
    func = te.lower(sch, [x, y])
    data = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    got, want = (np.zeros(out_shape, np.float32) for _ in range(2))
    evaluate(func, data, got)
    evaluate(te.lower(te.create_schedule(y), [x, y]), data, want)
    np.testing.assert_array_equal(got, want)
    return shape_of(func, "a")


@pytest.mark.parametrize(
    ("read", "at", "factor", "want"),
    [
        (lambda a, i, j: a[i, j], 0, None, (1, 12)),
        (lambda a, i, j: a[i, j], 1, None, (1, 1)),
        (lambda a, i, j: a[i, j] + a[i + 2, j], 0, None, (3, 12)),
        (lambda a, i, j: a[i, j] + a[i + 2, j], 0, 4, (6, 12)),
        (lambda a, i, j: a[i, j] + a[i + 2, j], 0, 5, (7, 12)),
        (lambda a, i, j: a[j // 4, i], 1, 4, (1, 1)),
        (lambda a, i, j: a[j // 4, i], 1, 2, (1, 1)),
        (lambda a, i, j: a[j // 4, i], 1, 3, (2, 1)),
        (lambda a, i, j: a[i, j % 4], 1, 4, (1, 4)),
        (lambda a, i, j: a[i, j % 4], 0, None, (1, 4)),
        (lambda a, i, j: a[i, j % 4], 1, 2, (1, 2)),
        (lambda a, i, j: a[i, 11 - j], 1, 4, (1, 4)),
        (lambda a, i, j: a[9 - i, j], 0, 2, (2, 12)),
        (lambda a, i, j: a[te.minimum(i + 1, 9), j], 0, 4, (4, 12)),
        (lambda a, i, j: te.if_then_else(i >= 3, a[te.maximum(i - 3, 0), j], 0.0), 0, 4,
         (4, 12)),
        (lambda a, i, j: a[i, j] + a[7 - i, j], 0, None, (8, 12)),
        (lambda a, i, j: a[(i * 12 + j) // 12, (i * 12 + j) % 12], 1, None, (1, 1)),
    ],
)
def test_region_is_the_box_of_the_reads(read, at, factor, want):
    assert region((10, 12), read, at, factor) == want


@pytest.mark.parametrize("factor", [4, 5, 14, 16])
def test_axes_that_an_index_joins_again_are_one(factor, run, random):
    """A tile of fused rows and columns needs as many rows of the flat operand, and no more."""
    x = te.placeholder((42, 3), name="x")
    a = te.compute((42, 3), lambda r, c: x[r, c] + 1.0, name="a")
    y = te.compute((1, 3, 14, 3), lambda b, i, j, c: a[b * 42 + i * 14 + j, c] * 2.0, name="y")
    sch = te.create_schedule(y)
    fused = sch[y].fuse(sch[y].fuse(*y.op.axis[:2]), y.op.axis[2])
    outer, _ = sch[y].split(fused, factor)
    sch[a].compute_at(sch[y], outer)
    func = te.lower(sch, [x, y])
    assert shape_of(func, "a") == (factor, 3)
    data = random(42, 3)
    (got,) = run(sch, [x, y], [data])
    np.testing.assert_array_equal(got, ((data + 1) * 2).reshape(1, 3, 14, 3))


def test_a_stage_whose_reads_are_simplified_away_is_one_element(run):
    x = te.placeholder((8, 12), "int64", name="x")
    a = te.compute((8, 12), lambda i, j: x[i, j] + 1, name="a")
    zero = te.compute((12,), lambda j: te.const(0, "int64"), name="zero")
    y = te.compute((8, 12), lambda i, j: a[i, j] * zero[j] + x[i, j], name="y")
    sch = te.create_schedule(y)
    sch[zero].compute_inline()
    sch[a].compute_at(sch[y], y.op.axis[0])
    assert shape_of(te.lower(sch, [x, y]), "a") == (1, 1)
    data = np.arange(96).reshape(8, 12)
    np.testing.assert_array_equal(run(sch, [x, y], [data])[0], data)


def test_reads_through_two_consumers_are_joined(run, random):
    x = te.placeholder((10, 6), name="x")
    a = te.compute((10, 6), lambda i, j: x[i, j] + 1.0, name="a")
    b = te.compute((9, 6), lambda i, j: a[i, j] * a[i + 1, j], name="b")
    y = te.compute((8, 6), lambda i, j: b[i, j] + b[i + 1, j] + a[i, j], name="y")
    sch = te.create_schedule(y)
    i, _ = sch[y].split(y.op.axis[0], 4)
    sch[a].compute_at(sch[y], i)
    sch[b].compute_at(sch[y], i)
    func = te.lower(sch, [x, y])
    assert (shape_of(func, "a"), shape_of(func, "b")) == ((6, 6), (5, 6))
    v = random(10, 6)
    w = v + 1
    p = w[:-1] * w[1:]
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], p[:-1] + p[1:] + w[:-2], rtol=1e-5)


def test_a_stage_inside_a_stage_inside_a_loop(run, random):
    x = te.placeholder((8, 8), name="x")
    a = te.compute((8, 8), lambda i, j: x[i, j] + 1.0, name="a")
    b = te.compute((8, 8), lambda i, j: a[i, j] * 2.0, name="b")
    y = te.compute((8, 8), lambda i, j: b[i, j] - 1.0, name="y")
    sch = te.create_schedule(y)
    _, j, *_ = sch[y].tile(*y.op.axis, 4, 4)
    sch[b].compute_at(sch[y], j)
    sch[a].compute_at(sch[b], b.op.axis[0])
    func = te.lower(sch, [x, y])
    assert (shape_of(func, "a"), shape_of(func, "b")) == ((1, 4), (4, 4))
    v = random(8, 8)
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], (v + 1) * 2 - 1, rtol=1e-5)


def test_reduction_axes_run_where_they_are_inside():
    x = te.placeholder((8, 16), name="x")
    a = te.compute((8, 16), lambda i, j: x[i, j] + 1.0, name="a")
    k = te.reduce_axis(16, "k")
    y = te.compute((8,), lambda i: te.sum(a[i, k], axis=k), name="y")
    for depth, want in ((0, (1, 16)), (1, (1, 4)), (2, (1, 1))):
        sch = te.create_schedule(y)
        sch[y].split(k, 4)
        sch[a].compute_at(sch[y], sch[y].leaf_iter_vars[depth])
        assert shape_of(te.lower(sch, [x, y]), "a") == want


def test_symbolic_width_keeps_constant_tiles():
    n = te.var("n")
    x = te.placeholder((n + 2,), name="x")
    a = te.compute((n + 2,), lambda i: x[i] + 1.0, name="a")
    y = te.compute((n,), lambda i: a[i] + a[i + 2], name="y")
    sch = te.create_schedule(y)
    outer, _ = sch[y].split(y.op.axis[0], 8)
    sch[a].compute_at(sch[y], outer)
    assert shape_of(te.lower(sch, [x, y]), "a") == (10,)


STANDING, FIRST, SECOND = Var("p"), Var("i"), Var("j")
LEAVES = st.one_of(st.sampled_from([STANDING, FIRST, SECOND]), st.integers(-5, 20).map(te.const))


def _grow(inner: st.SearchStrategy[PrimExpr]) -> st.SearchStrategy[PrimExpr]:
    divisor = st.integers(1, 6).map(te.const)
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda t: t[0] + t[1]),
        pairs.map(lambda t: t[0] - t[1]),
        pairs.map(lambda t: te.minimum(*t)),
        pairs.map(lambda t: te.maximum(*t)),
        pairs.map(lambda t: te.select(FIRST < 2, *t)),
        st.tuples(inner, st.integers(-3, 3)).map(lambda t: t[0] * t[1]),
        st.tuples(inner, divisor).map(lambda t: t[0] // t[1]),
        st.tuples(inner, divisor).map(lambda t: t[0] % t[1]),
    )


@settings(max_examples=150, deadline=None)
@given(e=st.recursive(LEAVES, _grow, max_leaves=8), i=st.integers(1, 5), j=st.integers(1, 5))
def test_a_span_holds_every_value(e, i, j):
    analyzer = Analyzer()
    for var, extent in ((STANDING, 7), (FIRST, i), (SECOND, j)):
        analyzer.bind(var, 0, extent)
    span = SpanOf(analyzer, {FIRST: counted(te.const(i)), SECOND: counted(te.const(j))})(e)
    if span is None:
        return
    for p in range(7):
        ends = [int(evaluate_expr(x, {STANDING: p})) for x in (span.lowest, span.highest)]
        values = [
            int(evaluate_expr(e, {STANDING: p, FIRST: a, SECOND: b}))
            for a in range(i) for b in range(j)
        ]
        assert ends[0] <= min(values) <= max(values) <= ends[1]


@pytest.mark.parametrize("narrow", ["uint8", "int8", "int16", "int32"])
def test_indices_through_narrow_integers_wrap(narrow: str) -> None:
    x = te.placeholder((400,), name="x")
    a = te.compute((400,), lambda i: x[i] + 1.0, name="a")
    y = te.compute((300,), lambda i: a[i.astype(narrow).astype("int64") % 256], name="y")
    sch = te.create_schedule(y)
    outer, _ = sch[y].split(y.op.axis[0], 100)
    sch[a].compute_at(sch[y], outer)
    data, got = np.arange(400, dtype=np.float32), np.zeros(300, np.float32)
    evaluate(te.lower(sch, [x, y]), data, got)
    positions = np.arange(300).astype(narrow).astype(np.int64) % 256
    np.testing.assert_array_equal(got, data[positions] + 1)


@pytest.mark.parametrize("split", [{"factor": 16}, {"nparts": 9}, {"factor": 3}, {"nparts": 2}])
def test_a_bounded_size_that_fits_in_one_tile_is_guarded(split: dict[str, int]):
    n = te.var("n{1..9}")
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i] + 1.0, name="y")
    s = te.create_schedule(y)
    s[y].split(y.op.axis[0], **split)
    func = te.lower(s, [x, y])
    for size in (1, 2, 5, 9):
        values, found = np.arange(size, dtype=np.float32), np.zeros(size, np.float32)
        evaluate(func, values, found, size)
        np.testing.assert_array_equal(found, values + 1)


@pytest.mark.parametrize("split", [{"factor": 16}, {"factor": 3}, {"nparts": 1}, {"nparts": 2}],
                         ids=str)
@pytest.mark.parametrize("axes", [1, 2])
def test_fused_axes_that_fit_in_one_tile_are_guarded(axes: int, split: dict[str, int]):
    n = te.var("n{1..3}")
    shape = (n, 4, 1, 2)[:axes + 1]
    x = te.placeholder(shape, name="x")
    y = te.compute(shape, lambda *i: x[i] + 1.0, name="y")
    s = te.create_schedule(y)
    fused = y.op.axis[0]
    for axis in y.op.axis[1:]:
        fused = s[y].fuse(fused, axis)
    s[y].split(fused, **split)
    func = te.lower(s, [x, y])
    for size in (1, 2, 3):
        values = np.arange(size * 4, dtype=np.float32).reshape(size, *shape[1:])
        found = np.zeros_like(values)
        evaluate(func, values, found, size)
        np.testing.assert_array_equal(found, values + 1)
