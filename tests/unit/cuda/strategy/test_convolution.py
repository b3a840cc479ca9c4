"""Convolutions on CUDA as implicit GEMMs: values in the emulator, and the code of large layers."""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from tests.unit.cuda.strategy.emulation import check_emulated
from tests.unit.cuda.strategy.products import A100, assembled, built, instructions, spills
from tests.unit.strategy.kernels import primitive
from weft import op
from weft.ir.expr import Function, var
from weft.strategy.build_tensors import anchor_of
from weft.strategy.cuda.gemm.decide import decide_call
from weft.strategy.cuda.gemm.plan import GemmPlan
from weft.strategy.cuda.gemm.simt import SimtTile
from weft.strategy.cuda.gemm.strategy import schedule_gemm
from weft.strategy.implementation import Implementation

TILES = Implementation("tiles", functools.partial(
    schedule_gemm, plan=GemmPlan(SimtTile(1, 1, 4, 4))))


def conv2d(size: tuple[int, int, int, int], out: int, kernel: int, layout: str = "NCHW",
           weight: str = "OIHW", *, dtype: str = "float32", groups: int = 1, stride: int = 1,
           padding: int = 0, dilation: int = 1) -> Function:
    """A convolution of (n, c, h, w) with bias and activation."""
    sizes = dict(zip("NCHW", size, strict=True))
    taps = {"O": out, "I": size[1] // groups, "H": kernel, "W": kernel}
    x = var("x", tuple(sizes[a] for a in layout), dtype)
    w = var("w", tuple(taps[a] for a in weight), dtype)
    b = var("b", (out, 1, 1) if layout == "NCHW" else (out,), dtype)
    y = op.nn.conv2d(x, w, strides=(stride,) * 2, padding=(padding,) * 4, dilation=(dilation,) * 2,
                     groups=groups, data_layout=layout, kernel_layout=weight)
    return primitive([x, w, b], op.nn.relu(op.add(y, b)))


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("function", [
    conv2d((2, 3, 9, 8), 5, 3, padding=1, stride=2),
    conv2d((1, 4, 7, 7), 8, 3, dilation=2, padding=2),
    conv2d((2, 8, 6, 6), 12, 3, "NHWC", "OHWI", groups=2, padding=1),
    conv2d((1, 4, 5, 5), 4, 3, "NHWC", "HWIO", padding=1),
    conv2d((1, 8, 4, 4), 8, 1),
], ids=["strided", "dilated", "grouped-nhwc", "hwio", "1x1"])
def test_layers_of_any_layout(function):
    check_emulated(function, TILES)


def test_one_and_three_dimensions():
    x, w = var("x", (2, 3, 11)), var("w", (4, 3, 3))
    check_emulated(primitive([x, w], op.nn.conv1d(x, w, padding=(1, 1))), TILES)
    x, w = var("x", (1, 2, 4, 5, 4)), var("w", (3, 2, 2, 3, 2))
    check_emulated(primitive([x, w], op.nn.conv3d(x, w)), TILES)


def test_gradients_are_products_too():
    x, w = var("x", (1, 4, 5, 5)), var("w", (4, 6, 3, 3))
    call = op.nn.conv2d_transpose(x, w, strides=(2, 2), padding=(1, 1, 1, 1))
    check_emulated(primitive([x, w], call), TILES)
    dy, x = var("dy", (2, 4, 5, 5)), var("x", (2, 3, 5, 5))
    call = op.nn.conv2d_backward_weight(dy, x, kernel_size=(3, 3), padding=(1, 1, 1, 1))
    check_emulated(primitive([dy, x], call), TILES)


def test_depthwise_layers_are_computed_directly():
    anchor = anchor_of(conv2d((1, 64, 28, 28), 64, 3, groups=64, padding=1, dtype="float16"))
    assert anchor is not None
    decision = decide_call(anchor, A100)
    assert decision is not None
    assert decision.algorithm == "generic"


@pytest.mark.parametrize(("layout", "weight", "groups"), [
    ("NHWC", "OHWI", 1), ("NHWC", "HWIO", 1), ("NCHW", "OIHW", 1), ("NHWC", "OHWI", 4)])
def test_large_layers_run_on_tensor_cores(layout, weight, groups, tmp_path: Path):
    function = conv2d((32, 128, 28, 28), 128, 3, layout, weight, groups=groups, padding=1,
                      dtype="float16")
    kernel = built(function)
    found = instructions(kernel)
    assert found["mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"] >= 8
    assert found["cp.async.cg.shared.global"] > 0
    if layout == "NHWC":  # channels are contiguous: no element is copied alone
        assert found["st.shared.b16"] == 0
    assert spills(assembled(kernel, tmp_path)) == 0
