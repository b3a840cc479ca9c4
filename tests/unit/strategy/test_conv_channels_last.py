"""Channels-last convolutions: blocks of channels are contiguous without a change of layout."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir.expr import Constant, Function, var
from weft.ir.module import IRModule
from weft.topi.nn.conv import SPATIAL_AXES

TARGETS = pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])
CONVS = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}


@pytest.mark.sample(0.4)
@TARGETS
@pytest.mark.parametrize(
    ("c_in", "c_out", "sizes", "taps", "block", "attrs"),
    [
        (5, 32, (6, 9), (3, 3), 16, {"padding": (1, 1)}),
        (7, 24, (5, 11), (1, 1), 24, {"strides": (2, 2)}),
        (6, 16, (7, 8), (3, 3), 8, {"groups": 2, "padding": (2, 1), "dilation": (2, 1)}),
        (3, 16, (21,), (5,), 16, {"padding": (2,)}),
        (3, 16, (3, 4, 9), (2, 3, 3), 16, {"padding": (1, 1, 1)}),
    ],
)
def test_values(target, c_in, c_out, sizes, taps, block, attrs) -> None:
    spatial = SPATIAL_AXES[len(sizes)]
    *rows, column = spatial
    groups = attrs.get("groups", 1)
    x = var("x", (1, *sizes, c_in))
    w = var("w", (c_out // block, *taps[:-1], c_in // groups, taps[-1], block))
    y = CONVS[len(sizes)](
        x, w, **attrs, channels=c_out, kernel_size=taps, data_layout=f"N{spatial}C",
        kernel_layout=f"O{''.join(rows)}I{column}{block}o",
    )
    kernel = check(primitive([x, w], op.nn.relu(y)), target)
    assert kernel.implementation.endswith(".cpu.direct_blocked")


def test_constant_kernels_are_packed_and_images_are_left() -> None:
    x = var("x", (1, 9, 9, 12))
    weight = Constant(np.zeros((3, 3, 12, 32), np.float32))
    body = op.nn.conv2d(x, weight, padding=(1, 1), data_layout="NHWC", kernel_layout="HWIO")
    module = IRModule.from_expr(Function((x,), body))
    text = str(run_pipeline(module, CompileOptions.make(WIDE_CPU), stop_at="optimized"))
    assert "layout_transform" not in text
    assert 'kernel_layout="OHIW16o"' in text
