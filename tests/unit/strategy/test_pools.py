"""Pooling by columns: every layout, stride and border, and what is shared between windows."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op
from weft.ir.expr import Function, var
from weft.ir.module import IRModule
from weft.strategy.decision import decision_of
from weft.strategy.selection import candidates
from weft.tir.expr import BufferLoad
from weft.tir.visitor import all_exprs
from weft.transform.analysis.reference import evaluate

TARGETS = pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])
WINDOWS = pytest.mark.parametrize(("shape", "attrs"), [
    ((1, 2, 14, 14), {"pool_size": (3, 3), "padding": (1, 1)}),
    ((1, 3, 9, 37), {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)}),
    ((2, 2, 11, 21), {"pool_size": (2, 3), "strides": (1, 2), "ceil_mode": True}),
    ((1, 2, 13, 13), {"pool_size": (5, 5), "padding": (2, 2)}),
    ((1, 1, 12, 70), {"pool_size": (3, 5), "strides": (3, 4), "padding": (0, 2, 1, 1)}),
    ((1, 2, 15, 19), {"pool_size": (3, 3), "dilation": (2, 2), "padding": (2, 2)}),
    ((1, 6, 7, 20), {"pool_size": (3, 2), "layout": "NHWC", "padding": (1, 1)}),
    ((1, 2, 6, 9, 16), {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1),
                        "layout": "NCHW16c"}),
    ((7, 6, 2, 5), {"pool_size": (3, 3), "layout": "WHCN"}),
    ((5, 7, 6, 3), {"pool_size": (3, 3), "padding": (1, 1), "layout": "CWHN"}),
])


@pytest.mark.sample(0.3)
@TARGETS
@WINDOWS
def test_maxima(target, shape, attrs):
    x = var("x", shape)
    check(primitive([x], op.nn.max_pool2d(x, **attrs)), target)


@pytest.mark.sample(0.3)
@TARGETS
@WINDOWS
@pytest.mark.parametrize("count_include_pad", [False, True])
def test_means_with_an_elementwise_tail(target, shape, attrs, count_include_pad):
    x = var("x", shape)
    y = op.nn.avg_pool2d(x, count_include_pad=count_include_pad, **attrs)
    check(primitive([x], op.nn.relu(y)), target)


@TARGETS
@pytest.mark.parametrize("name", ["max_pool3d", "avg_pool3d"])
def test_windows_of_three_axes(target, name):
    x = var("x", (1, 2, 5, 6, 19))
    y = getattr(op.nn, name)(x, pool_size=(3, 2, 3), strides=(2, 1, 2), padding=(1, 0, 1))
    check(primitive([x], y), target)


def test_windows_that_overlap_read_each_row_once_a_tap():
    """Nine taps are three readings of the data, and three of the columns."""
    x = var("x", (1, 2, 16, 128))
    func = check(primitive([x], op.nn.max_pool2d(x, pool_size=(3, 3))), WIDE_CPU).func
    read = {e.indices for e in all_exprs(func.body)
            if isinstance(e, BufferLoad) and e.buffer is func.params[0] and e.dtype.lanes == 16}
    assert len(read) == 3


def test_not_a_number_wins_every_maximum():
    x = var("x", (1, 2, 13, 21))
    module = IRModule.from_expr(Function((x,), op.nn.max_pool2d(
        x, pool_size=(3, 3), strides=(2, 2), padding=(1, 1))))
    data = np.random.default_rng(1).standard_normal((1, 2, 13, 21)).astype(np.float32)
    data[0, 1, 6, 5] = np.nan
    data[0, 0, 0, 20] = np.nan
    np.testing.assert_array_equal(weft.compile(module)(data), evaluate(module, [data]))


@TARGETS
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_implementations_have_the_estimates_of_the_decision(target, name):
    """Also where whole windows are rejected although their estimate is slightly shorter."""
    shorter_windows = 0
    for size, pool in itertools.product((14, 56, 112), (2, 3, 5, 7)):
        x = var("x", (1, 3, size, size))
        call = primitive([x], getattr(op.nn, name)(x, pool_size=(pool, pool))).body
        decision = decision_of(call, target)
        seconds = {decision.algorithm: decision.seconds,
                   **{r.algorithm: r.seconds for r in decision.rejected if r.seconds is not None}}
        found = candidates(call, target)
        assert found[0].name == f"nn.{name}.cpu.{decision.algorithm}"
        for one in found:
            assert one.seconds == seconds[one.name.rpartition(".")[2]]
        if decision.algorithm == "columns":
            windows = found[0].space().at({"algorithm": "window", "rows": 0})
            assert windows.seconds == seconds["window"]
            shorter_windows += seconds["window"] < decision.seconds
    assert shorter_windows


@pytest.mark.parametrize(("shape", "attrs", "algorithm", "reason"), [
    ((1, 64, 112, 112), {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)}, "columns",
     "times as long"),
    ((1, 64, 28, 28), {"pool_size": (2, 2), "strides": (2, 2)}, "window", "do not overlap"),
    ((1, 64, 28, 28), {"pool_size": (3, 1)}, "window", "one axis only"),
    ((28, 64, 28, 1), {"pool_size": (3, 3), "layout": "WHCN"}, "window", "outermost axis"),
])
def test_one_decision_names_the_algorithm_and_why_the_other_lost(shape, attrs, algorithm, reason):
    x = var("x", shape)
    decision = decision_of(primitive([x], op.nn.avg_pool2d(x, **attrs)).body, WIDE_CPU)
    assert decision.algorithm == algorithm
    (other,) = decision.rejected
    assert reason in other.reason
    assert decision.seconds > 0
