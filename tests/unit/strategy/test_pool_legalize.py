"""Maxima of large windows are taken down the columns, then along the rows."""

from __future__ import annotations

import numpy as np
import pytest

import weft
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir.expr import Call, Function, var
from weft.ir.module import IRModule
from weft.ir.visitor import post_order
from weft.transform.reference import evaluate


def _module(**attrs) -> IRModule:
    x = var("x", (2, 3, 13, 11))
    return IRModule.from_expr(Function((x,), op.nn.max_pool2d(x, **attrs)))


def _windows(module: IRModule) -> list[tuple[int, int]]:
    after = run_pipeline(module, CompileOptions.make(), stop_at="optimized")
    return [n.attrs.pool_size for n in post_order(after["main"])
            if isinstance(n, Call) and str(n.op) == "nn.max_pool2d"]


@pytest.mark.parametrize("attrs", [
    {"pool_size": (5, 5), "strides": (1, 1), "padding": (2, 2, 2, 2)},
    {"pool_size": (4, 7), "strides": (3, 2), "padding": (1, 0, 2, 3), "ceil_mode": True},
    {"pool_size": (4, 4), "strides": (2, 3), "dilation": (2, 1), "padding": (0, 1)},
])
def test_values(attrs) -> None:
    module = _module(**attrs)
    assert len(_windows(module)) == 2
    x = np.random.default_rng(1).standard_normal((2, 3, 13, 11)).astype(np.float32)
    x[0, 1, 6, 5] = np.nan
    np.testing.assert_array_equal(weft.compile(module)(x), evaluate(module, [x]))


@pytest.mark.parametrize("size", [(3, 3), (2, 2), (1, 20), (3, 5)])
def test_small_and_narrow_windows_stay_whole(size) -> None:
    module = _module(pool_size=(min(size[0], 13), min(size[1], 11)), strides=(1, 1))
    assert len(_windows(module)) == 1
