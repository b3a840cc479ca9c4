"""Winograd convolution: values, rounding errors, and where it is chosen."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import weft
from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op
from weft.compiler.options import CompileOptions
from weft.compiler.pipeline import run_pipeline
from weft.ir.dtype import float32
from weft.ir.expr import Call, Constant, Expr, Function, var
from weft.ir.module import IRModule
from weft.ir.visitor import post_order
from weft.op.nn.conv_reference import conv_reference
from weft.strategy.cpu.winograd.cost import WinogradShape, plan_winograd
from weft.topi.nn.winograd import TILES, transforms

TARGETS = pytest.mark.parametrize("target", [SMALL_CPU, WIDE_CPU], ids=["avx2", "avx512"])


@pytest.mark.parametrize("tile", TILES)
def test_the_transforms_are_exact(tile: int) -> None:
    """Of one dimension, in rational numbers: output (kernel taps * data x) is the correlation."""
    matrices = transforms(tile)
    x = [Fraction(v, 7) for v in (3, -2, 5, 1, -4, 6)[:tile + 2]]
    taps = [Fraction(v, 3) for v in (2, -5, 4)]
    points = [
        sum(k * t for k, t in zip(kernel, taps, strict=True))
        * sum(d * v for d, v in zip(data, x, strict=True))
        for kernel, data in zip(matrices.filter, matrices.input, strict=True)
    ]
    got = [sum(a * p for a, p in zip(row, points, strict=True)) for row in matrices.output]
    assert got == [sum(taps[k] * x[i + k] for k in range(3)) for i in range(tile)]


@pytest.mark.sample(0.4)
@TARGETS
@pytest.mark.parametrize(
    ("tile", "size", "blocks", "channels", "epilogue"),
    [
        (4, (8, 8), (8, 8), (8, 16), "relu"),
        (4, (7, 9), (8, 8), (16, 8), "nothing"),
        (2, (5, 7), (4, 8), (8, 24), "sigmoid"),
        (4, (3, 3), (8, 24), (8, 24), "relu"),
    ],
)
def test_kernel(target, tile, size, blocks, channels, epilogue) -> None:
    ins, outs = blocks
    data = var("x", (2, channels[0] // ins, *size, ins))
    weight = var("w", (tile + 2, tile + 2, channels[1] // outs, channels[0], outs))
    bias = var("b", (1, channels[1] // outs, 1, 1, outs))
    y = op.nn.winograd_conv2d(
        data, weight, tile=tile, padding=(1, 1, 1, 1), data_layout=f"NCHW{ins}c",
        kernel_layout=f"HWOI{outs}o", out_layout=f"NCHW{outs}c",
    )
    if epilogue == "nothing":
        function = primitive([data, weight], y)
    elif epilogue == "relu":
        function = primitive([data, weight, bias], op.nn.relu(op.add(y, bias)))
    else:  # the result is used twice
        function = primitive([data, weight], op.multiply(y, op.sigmoid(y)))
    kernel = check(function, target, rtol=1e-3)
    assert kernel.implementation == "nn.winograd_conv2d.cpu.blocked"


def _convolution(channels: int, size: int, **attrs) -> IRModule:
    rng = np.random.default_rng(3)
    kernel = rng.standard_normal((channels, channels, 3, 3)) / np.sqrt(9 * channels)
    x = var("x", (1, channels, size, size))
    weight = Constant(kernel.astype(np.float32))
    return IRModule.from_expr(Function((x,), op.nn.conv2d(x, weight, **attrs)))


def _names(module: IRModule) -> set[str]:
    return {n.op.name for n in post_order(module["main"]) if _is_operator(n)}


def _is_operator(node: Expr) -> bool:
    return isinstance(node, Call) and hasattr(node.op, "name")


def _chosen(module: IRModule) -> set[str]:
    options = CompileOptions.make(WIDE_CPU)
    return _names(run_pipeline(module, options, stop_at="optimized"))


def test_it_is_chosen_where_it_saves_time_and_can_be_forbidden() -> None:
    module = _convolution(64, 28, padding=(1, 1))
    assert "nn.winograd_conv2d" in _chosen(module)
    assert "nn.winograd_weight" not in _chosen(module), "weights are transformed at compile time"
    with weft.config(winograd=False):
        assert "nn.conv2d" in _chosen(module)
        assert CompileOptions.make(WIDE_CPU).key_text() != CompileOptions(WIDE_CPU).key_text()


@pytest.mark.parametrize("attrs", [{"strides": (2, 2)}, {"dilation": (2, 2)}, {"groups": 64}])
def test_it_is_not_chosen_where_it_does_not_apply(attrs) -> None:
    if "groups" in attrs:
        x = var("x", (1, 64, 28, 28))
        weight = Constant(np.ones((64, 1, 3, 3), np.float32))
        module = IRModule.from_expr(Function((x,), op.nn.conv2d(x, weight, **attrs)))
    else:
        module = _convolution(64, 28, **attrs)
    assert "nn.winograd_conv2d" not in _chosen(module)


def test_few_tiles_of_many_channels_stay_direct() -> None:
    """The transformed weights would be read from memory for four tiles."""
    assert "nn.conv2d" in _chosen(_convolution(512, 7, padding=(1, 1)))


def test_relative_error_of_a_compiled_layer() -> None:
    module = _convolution(64, 27, padding=(1, 1))
    x = np.random.default_rng(5).standard_normal((1, 64, 27, 27)).astype(np.float32)
    weight = next(n.data for n in post_order(module["main"]) if isinstance(n, Constant))
    exact = conv_reference(x.astype(np.float64), weight.astype(np.float64), (1, 1), (1,) * 4,
                           (1, 1), 1)
    got = weft.compile(module)(x)
    assert np.abs(got - exact).max() / np.abs(exact).max() < 1e-4


def test_a_plan_covers_odd_sizes() -> None:
    for tall, wide, blocks in [(1, 1, 1), (13, 37, 3), (5, 2, 7)]:
        plan = plan_winograd(WinogradShape(4, 1, tall, wide, 48, blocks, 16, float32), WIDE_CPU)
        assert 1 <= plan.row_block <= tall
        assert blocks % plan.channel_splits == 0
        assert plan.register_columns <= wide
        assert plan.total_cycles <= plan.balanced_cycles
