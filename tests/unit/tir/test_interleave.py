"""Gathers of alternating rows become loads and shuffles, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.tir.eval import evaluate
from weft.tir.expr import BufferLoad, Ramp
from weft.tir.transform.pipeline import lower_prim_func
from weft.tir.visitor import all_exprs


def packed(group: int, width: int, element, *, rows=8, columns=32):
    """Groups of ``group`` rows side by side, ``width`` lanes at once."""
    x = te.placeholder((rows, columns), "int8", "x")
    y = te.compute((rows // group, columns, group), lambda g, j, k: element(x, g * group + k, j),
                   name="y")
    sch = te.create_schedule(y)
    g, j, k = y.op.axis
    _, lane = sch[y].split(sch[y].fuse(j, k), width)
    sch[y].vectorize(lane)
    func = te.lower(sch, [x, y])
    data = np.arange(rows * columns).reshape(rows, columns).astype(np.int8)
    results = []
    for form in (func, lower_prim_func(func, verify=True)):
        out = np.zeros(y.static_shape, np.int8)
        evaluate(form, data, out)
        results.append(out)
    np.testing.assert_array_equal(*results)
    assert g.name == "g"
    return form


def gathers(func) -> int:
    return sum(isinstance(e, BufferLoad) and e.dtype.lanes > 1
               and not any(isinstance(i, Ramp) for i in e.indices) for e in all_exprs(func.body))


@pytest.mark.parametrize(("group", "width"), [(2, 8), (2, 32), (4, 16), (4, 64)])
def test_rows_are_read_as_vectors(group, width):
    func = packed(group, width, lambda x, i, j: x[i, j])
    assert gathers(func) == 0
    text = str(func)
    assert f"ramp({'0' if width // group == 32 else ''}" in text
    assert text.count("shuffle(") >= group // 2
    assert f", 1, {width // group})]" in text


@pytest.mark.parametrize("element", [
    lambda x, i, j: x[i, (j * 3) % 32],
    lambda x, i, j: x[i, 31 - j],
    lambda x, i, j: te.if_then_else(j < 29, x[i, j], te.const(0, "int8")),
])
def test_other_gathers_stay(element):
    func = packed(4, 16, element)
    assert gathers(func) > 0


def test_three_rows_stay():
    func = packed(3, 12, lambda x, i, j: x[i, j], rows=9)
    assert gathers(func) > 0
