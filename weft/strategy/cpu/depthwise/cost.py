"""Estimates of depthwise convolutions, in cycles of one core."""

from __future__ import annotations

import math

from weft.ir import TensorType
from weft.op.nn.conv import ConvAttrs
from weft.strategy.cpu.common.blocking import registers
from weft.strategy.cpu.convolution.problem import ConvShape
from weft.strategy.cpu.depthwise.schedule import row_tile, unrolled_taps
from weft.strategy.cpu.machine_model import MachineModel, machine_model
from weft.target import CpuTarget
from weft.topi.layout import Layout, convert_shape
from weft.topi.nn.conv import kernel_axes

# A tap of rows that share their loads, masks at the border included, in multiply-adds whose load is
# shared; measured on Zen 5.
_SHARING_TAP = 1.25


def has_depthwise_kernel(attrs: ConvAttrs, kernel: TensorType) -> bool:
    """Whether each group has one input channel and one output channel, by the kernel alone."""
    outputs, group_inputs, *_ = convert_shape(
        Layout.parse(attrs.kernel_layout), kernel_axes(attrs.spatial), kernel.shape)
    return attrs.groups > 1 and group_inputs == 1 and outputs == attrs.groups


def blocked_depthwise_cycles(shape: ConvShape, block: int, target: CpuTarget) -> float:
    """Lanes are the channels of a block; the last register of a block may hold few."""
    model = machine_model(target)
    vectors = shape.elements // block * registers(block, target.lanes(shape.dtype))
    taps = math.prod(shape.taps) * model.fma_shared_load_cycles
    return max(vectors * taps, _transfer_cycles(model, shape))


def unblocked_depthwise_cycles(shape: ConvShape, target: CpuTarget) -> float:
    """Lanes are positions along a row; the last vector of a row may hold few."""
    model = machine_model(target)
    lanes, width = target.lanes(shape.dtype), shape.extents[-1]
    vectors = shape.elements // width * -(-width // lanes)
    by_stride = {1: model.fma_unaligned_load_cycles, 2: model.fma_strided_load_cycles}
    tap = by_stride.get(shape.strides[-1], model.fma_gather_cycles)
    share = _loaded_share(shape, lanes)
    if share < 1:
        tap = min(tap, max(tap * share, model.fma_shared_load_cycles * _SHARING_TAP))
    return max(vectors * math.prod(shape.taps) * tap, _transfer_cycles(model, shape))


def _loaded_share(shape: ConvShape, lanes: int) -> float:
    """How many vectors are loaded for each multiply-add.

    The rows of a tile whose window is unrolled share what they load. Strided loads share too, but
    their shuffles take the time.
    """
    taps = shape.taps
    if len(taps) < 2 or shape.strides[-1] > 1 or shape.has_open_row or shape.has_open_height:
        return 1.0
    tile = row_tile(shape.extents[-2], shape.extents[-1], lanes, shape.row_stride)
    if unrolled_taps(taps, tile) < math.prod(taps):
        return 1.0
    read = tile.rows * taps[-2]
    return min(read, (tile.rows - 1) * shape.row_stride + taps[-2]) / read


def _transfer_cycles(model: MachineModel, shape: ConvShape) -> float:
    """Cycles to load the data and to store the result."""
    # With strides, each result stands for ``prod(strides)`` elements of the data.
    moved = shape.elements * shape.dtype.itemsize * (math.prod(shape.strides) + 1)
    return moved / model.l2_bandwidth
