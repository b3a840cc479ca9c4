"""Depthwise convolutions in the original layout, and when they are not blocked."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.strategy.kernels import SMALL_CPU, WIDE_CPU, check, primitive
from weft import op
from weft.ir.expr import Call, Constant, Function, var
from weft.ir.types import TensorType
from weft.ir.typing.infer import infer_expr
from weft.strategy.cpu.convolution.layouts import conv_layouts
from weft.strategy.cpu.convolution.problem import ConvShape
from weft.strategy.cpu.depthwise.cost import unblocked_depthwise_cycles
from weft.strategy.cpu.depthwise.schedule import RowTile, row_tile, unrolled_taps
from weft.strategy.cpu.estimate import CpuCostModel


@pytest.mark.parametrize(("shape", "attrs"), [
    ((1, 3, 9, 37), {"kernel_size": (3, 3), "padding": (1, 1)}),
    ((2, 3, 12, 28), {"kernel_size": (3, 3), "padding": (1, 1), "strides": (2, 2)}),
    ((1, 2, 17, 150), {"kernel_size": (3, 3), "padding": (1, 1), "strides": (2, 2)}),
    ((1, 2, 7, 7), {"kernel_size": (5, 5), "padding": (2, 2)}),
    ((1, 2, 14, 14), {"kernel_size": (3, 2), "padding": (0, 1, 2, 0), "strides": (1, 3)}),
    ((1, 2, 11, 19), {"kernel_size": (3, 3), "padding": (2, 2), "dilation": (2, 2)}),
])
def test_images(shape, attrs):
    channels, taps = shape[1], attrs["kernel_size"]
    x, w, b = var("x", shape), var("w", (channels, 1, *taps)), var("b", (channels, 1, 1))
    y = op.nn.conv2d(x, w, groups=channels, channels=channels, **attrs)
    kernel = check(primitive([x, w, b], op.nn.relu(op.add(y, b))), WIDE_CPU)
    assert kernel.implementation == "nn.conv2d.cpu.depthwise_unblocked"


def test_signals_and_volumes():
    x, w = var("x", (2, 3, 45)), var("w", (3, 1, 4))
    y = op.nn.conv1d(x, w, kernel_size=(4,), groups=3, channels=3, padding=(1, 2), strides=(2,))
    check(primitive([x, w], y), WIDE_CPU)
    x, w = var("x", (1, 2, 5, 6, 18)), var("w", (2, 1, 3, 2, 3))
    y = op.nn.conv3d(x, w, kernel_size=(3, 2, 3), groups=2, channels=2, padding=(1, 0, 1))
    check(primitive([x, w], y), WIDE_CPU)


def choices_of(shape, taps, target, **attrs):
    x = var("x", shape)
    w = Constant(np.ones((shape[1], 1, *taps), np.float32))
    y = op.nn.conv2d(x, w, kernel_size=taps, groups=shape[1], channels=shape[1], **attrs)
    call = infer_expr(Function((x,), y)).body
    assert isinstance(call, Call)
    return conv_layouts(call, [a.checked_type for a in call.args], target)


def test_few_taps_are_worth_no_change_of_layout():
    shape = (1, 96, 56, 56)
    change = 2 * CpuCostModel(WIDE_CPU).conversion_seconds(TensorType.of(shape))
    blocked, *_, unblocked = choices_of(shape, (3, 3), WIDE_CPU, padding=(1, 1))
    assert blocked.takes_blocks
    assert blocked.seconds < unblocked.seconds < blocked.seconds + change
    blocked, *_, unblocked = choices_of(shape, (7, 7), WIDE_CPU, padding=(3, 3))
    assert blocked.seconds + change < unblocked.seconds


def test_without_masks_there_is_one_way():
    (only,) = choices_of((1, 96, 56, 56), (3, 3), SMALL_CPU)
    assert only.takes_blocks


def test_tiles_fill_registers():
    assert row_tile(56, 112, 16, 2) == RowTile(1, 7)
    assert row_tile(56, 112, 16, 1) == RowTile(4, 2)
    assert row_tile(14, 14, 16, 1) == RowTile(7, 1)
    assert row_tile(28, 28, 16, 1) == RowTile(4, 2)
    assert row_tile(9, 300, 16, 2) == row_tile(1, 300, 16, 1) == RowTile(1, 7)


def test_windows_are_unrolled_while_the_code_is_short():
    """Rows of a tile then share what they load, which is what takes the time."""
    assert unrolled_taps((3, 3), RowTile(4, 2)) == 9
    assert unrolled_taps((5, 5), RowTile(8, 1)) == 25
    assert unrolled_taps((7, 7), RowTile(8, 1)) == 7


def cycles_of(taps, strides=(1, 1)):
    x, w = var("x", (1, 96, 64, 64)), var("w", (96, 1, *taps))
    y = op.nn.conv2d(x, w, kernel_size=taps, groups=96, channels=96, strides=strides)
    call = infer_expr(Function((x, w), y)).body
    assert isinstance(call, Call)
    shape = ConvShape.of(call.attrs, *(a.checked_type for a in call.args))
    return unblocked_depthwise_cycles(shape, WIDE_CPU) / (shape.elements * shape.depth)


def test_estimates_know_that_rows_share_what_they_load():
    """As long as the window is unrolled, and where no shuffles are between loads and sums."""
    assert 1.5 * cycles_of((3, 3)) < cycles_of((7, 7))
    assert cycles_of((3, 3), (1, 2)) > 2.5 * cycles_of((3, 3))
