"""Every primitive does to the loops what its docstring shows, and keeps the values."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import numpy as np
import pytest

from weft import te
from weft.support.errors import ScheduleError
from weft.te import primitives

MODULES = [importlib.import_module(f"{primitives.__name__}.{m.name}")
           for m in pkgutil.iter_modules(primitives.__path__)]
PRIMITIVES = {name: value for module in MODULES for name, value in vars(module).items()
              if inspect.isfunction(value) and value.__module__ == module.__name__
              and next(iter(inspect.signature(value).parameters)) == "self"}


def run_docstring(name: str) -> dict[str, object]:
    """Execute the examples of a primitive; returns the names they define."""
    scope = {"te": te, "A": te.placeholder((100,), name="A")}
    example = doctest.DocTestParser().get_doctest(
        PRIMITIVES[name].__doc__, scope, name, None, 0)
    assert len(example.examples) >= 4, "the docstring shows the loops before and after"
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    failed = runner.run(example, out=report.append, clear_globs=False).failed
    assert not failed, "".join(report)
    return example.globs


@pytest.mark.parametrize("name", PRIMITIVES)
def test_docstring_shows_the_loops_before_and_after(name, run, random):
    scope = run_docstring(name)
    sch, a = scope["s"], scope["A"]
    out = sch.outputs[0]
    data = random(100)
    (got,) = run(sch, [a, out], [data])
    (want,) = run(te.create_schedule(out), [a, out], [data])
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_every_primitive_is_a_method():
    methods = {**vars(te.Stage), **vars(te.Schedule)}
    assert set(PRIMITIVES) <= set(methods)
    assert len(PRIMITIVES) > 20


def test_a_factor_above_the_extent_shrinks_to_it():
    x = te.placeholder((5,), name="x")
    y = te.compute((5,), lambda i: x[i] + 1.0, name="y")
    sch = te.create_schedule(y)
    outer, inner = sch[y].split(y.op.axis[0], factor=16)
    assert (outer.extent.value, inner.extent.value) == (1, 5)
    assert "likely" not in str(te.lower(sch, [x, y]))


def test_loops_of_one_iteration_disappear():
    x = te.placeholder((1, 5), name="x")
    y = te.compute((1, 5), lambda i, j: x[i, j] + 1.0, name="y")
    text = str(te.lower(te.create_schedule(y), [x, y]))
    assert text.count("for ") == 1


def test_pragmas_and_thread_tags_reach_the_loops():
    x = te.placeholder((8, 4), name="x")
    y = te.compute((8, 4), lambda i, j: x[i, j], name="y")
    sch = te.create_schedule(y)
    i, j = y.op.axis
    sch[y].pragma(i, "note", 3)
    sch[y].bind(j, "threadIdx.x")
    loop = te.lower(sch, [x, y]).body
    assert loop.annotations == {"note": 3}
    assert loop.body.thread_tag == "threadIdx.x"


def test_a_schedule_can_be_lowered_again():
    x = te.placeholder((7,), name="x")
    y = te.compute((7,), lambda i: x[i], name="y")
    sch = te.create_schedule(y)
    sch[y].split(y.op.axis[0], 3)
    assert str(te.lower(sch, [x, y])) == str(te.lower(sch, [x, y]))


@pytest.mark.parametrize(
    ("width", "inner", "checks"),
    [(12, 3, 0), (12, 2, 1), (13, 4, 1), (13, 3, 1)],
)
def test_nested_splits_check_each_axis_once(run, random, width, inner, checks):
    x = te.placeholder((width,), name="x")
    k = te.reduce_axis(width, "k")
    y = te.compute((1,), lambda i: te.sum(x[k], axis=k), name="y")
    sch = te.create_schedule(y)
    outer, _ = sch[y].split(k, 4)
    sch[y].split(outer, inner)
    assert str(te.lower(sch, [x, y])).count("likely") == checks
    v = random(width)
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], [v.sum()], rtol=1e-4)


def test_tiles_that_overlap_are_cut(run, random):
    """An inner part split without dividing must not run into the next tile."""
    x = te.placeholder((16,), name="x")
    k = te.reduce_axis(16, "k")
    y = te.compute((1,), lambda i: te.sum(x[k], axis=k), name="y")
    sch = te.create_schedule(y)
    _, inner = sch[y].split(k, 8)
    sch[y].split(inner, 3)
    v = random(16)
    np.testing.assert_allclose(run(sch, [x, y], [v])[0], [v.sum()], rtol=1e-4)


def test_a_schedule_prints_as_python_that_makes_it_again():
    x = te.placeholder((9, 12), name="x")
    k = te.reduce_axis(12, "k")
    y = te.compute((9,), lambda i: te.sum(x[i, k], axis=k), name="y")
    sch = te.create_schedule(y)
    outer, _ = sch[y].split(k, factor=4)
    with pytest.raises(ScheduleError):
        sch[y].vectorize(outer)
    partial = sch.rfactor(y, outer)
    sch[partial].compute_at(sch[y], y.op.axis[0])
    sch[y].pragma(sch[y].leaf_iter_vars[-1], "note", "in words")
    assert sch.as_python() == """\
def schedule(outputs):
    s = te.create_schedule(outputs)
    x, y = s.tensors
    k = s[y].reduce_axis[0]
    k_outer, k_inner = s[y].split(k, factor=4)
    y_rf = s.rfactor(y, k_outer)
    i = s[y].axis[0]
    s[y_rf].compute_at(s[y], i)
    k_outer_v = s[y].reduce_axis[0]
    s[y].pragma(k_outer_v, 'note', 'in words')
    return s
"""


def test_a_refused_primitive_changes_nothing():
    x = te.placeholder((8, 6), name="x")
    y = te.compute((8, 6), lambda i, j: x[i, j] + 1.0, name="y")
    sch = te.create_schedule(y)
    i, j = y.op.axis
    sch[y].parallel(j)
    before = str(sch), sch.as_python()
    for call in (lambda: sch[y].tile(i, j, 4, 2), lambda: sch[y].tile(i, i, 4, 2),
                 lambda: sch[y].fuse(i, j), lambda: sch[y].tile(i, j, 4, 0)):
        with pytest.raises(ScheduleError):
            call()
    assert (str(sch), sch.as_python()) == before


def test_cache_write_moves_the_role_with_the_body():
    x = te.placeholder((8,), name="x")
    y = te.compute((8,), lambda i: x[i] * 2.0, name="y", role=te.StageRole.PACKED_B)
    assert te.compute((8,), lambda i: x[i], name="plain").op.role is None
    sch = te.create_schedule(y)
    cached = sch.cache_write(y, "local")
    assert cached.op.role is te.StageRole.PACKED_B
    assert sch[y].op.role is None  # a copy of the cache, no packed operand itself
