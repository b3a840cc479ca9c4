"""Compile time is linear in a group's operations, not in the paths through them."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import te
from weft.strategy.analysis import computes_below, inlined_body
from weft.tir.expr import ProducerLoad, Var
from weft.tir.simplify import Analyzer
from weft.tir.visitor import post_order

LEVELS = 60


def _diamonds(x: te.Tensor, levels: int) -> te.Tensor:
    """Each level reads the one before twice, at two stages: ``2**levels`` paths to ``x``."""
    for level in range(levels):
        below = x
        left = te.compute(x.shape, lambda i: te.sqrt(below[i]), name=f"left{level}")  # noqa: B023
        right = te.compute(x.shape, lambda i: te.abs(below[i]), name=f"right{level}")  # noqa: B023
        x = te.compute(x.shape, lambda i: left[i] + right[i], name=f"both{level}")  # noqa: B023
    return x


def test_shared_stages_are_inlined_once():
    source = te.placeholder((8,), "float32", name="x")
    result = _diamonds(source, LEVELS)
    assert len(computes_below([result])) == 3 * LEVELS
    (body,) = inlined_body(result.op, lambda _: True)
    nodes = list(post_order(body))
    assert len(nodes) == 3 * LEVELS + 2  # two functions and a sum a level, one read, one index
    assert [e.producer for e in nodes if isinstance(e, ProducerLoad)] == [source]


def test_reads_inside_indices_are_inlined():
    table = te.placeholder((8,), "float32", name="table")
    index = te.placeholder((8,), "int64", name="index")
    moved = te.compute((8,), lambda i: index[i] + 1, name="moved")
    doubled = te.compute((8,), lambda i: table[i] * 2.0, name="doubled")
    taken = te.compute((8,), lambda i: doubled[moved[i]] + doubled[moved[moved[i]]], name="taken")
    (body,) = inlined_body(taken.op, lambda op: op.name in ("moved", "doubled"))
    loads = [e for e in post_order(body) if isinstance(e, ProducerLoad)]
    assert {e.producer for e in loads} == {table, index}
    assert sum(e.producer is table for e in loads) == 2


@pytest.mark.parametrize("step", [
    "multiply(0.5f, add(sigmoid(Y), sqrt(Y)))",
    "where(less(Y, 0.5f), add(Y, multiply(Y, Y)), subtract(Y, sin(Y)))",
])
@pytest.mark.parametrize("result", ["Y", "sum(Y, axis=(1,))"])
def test_deep_diamonds_compile(step, result):
    value, lines = "%x", []
    for level in range(LEVELS):
        lines.append(f"let %y{level} = {step.replace('Y', value)};")
        value = f"%y{level}"
    text = (f"def @main(%x: Tensor[(4, 8), float32]) {{ {' '.join(lines)} "
            f"{result.replace('Y', value)} }}")
    x = np.linspace(0.1, 0.9, 32, dtype=np.float32).reshape(4, 8)
    got = weft.compile(weft.parse(text), threads=1)(x)
    assert np.isfinite(got).all()


@pytest.mark.parametrize("step", [
    lambda y, z: (y + 1) * (y + z), lambda y, z: y * y, lambda y, z: y * y % 7 + z,
    lambda y, z: (y * z + y) * y // 3,
])
def test_products_of_sums_do_not_grow(step):
    y, z = Var("y"), Var("z")
    e = y
    for _ in range(LEVELS):
        e = step(e, z)
    assert len(list(post_order(Analyzer().simplify(e)))) < 12 * LEVELS
