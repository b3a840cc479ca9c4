"""Which convolutions run by minimal filtering: those whose estimate is clearly shorter."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import op
from weft.ir.expr import Call, Constant, Expr
from weft.ir.passes import PassContext
from weft.ir.types import TensorType, Type, is_static
from weft.op.nn.conv import ConvAttrs
from weft.op.nn.winograd import WinogradConv2DAttrs
from weft.strategy.cpu.common.blocking import block_for
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.cpu.winograd.cost import WinogradSize, plan_winograd
from weft.strategy.implementation import attrs_of
from weft.strategy.registry import alter_layout
from weft.target import CpuTarget
from weft.topi.nn.conv import full_padding
from weft.topi.nn.winograd import TAPS, TILES
from weft.transform.layout.layout_choice import LayoutChoice

WORTH = 0.8  # of the direct time: less is not worth the larger weights and rounding errors


def use_winograd(call: Call, types: Sequence[Type], context: PassContext) -> Expr | None:
    """``nn.winograd_conv2d`` for 3 x 3 kernels with stride 1, constant weights and float32.

    Rounding differs: relative errors, to the largest result, stay below 1e-4 (about 1e-6 for a
    direct sum). ``WEFT_WINOGRAD=0`` forbids it.
    """
    if not context.config.get("winograd", True) or not isinstance(call.args[1], Constant):
        return None
    attrs, data, weight = attrs_of(call, ConvAttrs), types[0], types[1]
    if not (isinstance(data, TensorType) and isinstance(weight, TensorType)):
        return None
    if not _applies(attrs, data, weight) or not isinstance(context.target, CpuTarget):
        return None
    tile = _cheapest_tile(attrs, data, weight, context.target)
    if tile is None:
        return None
    points = op.nn.winograd_weight(call.args[1], tile=tile, span=call.span)
    return op.nn.winograd_conv2d(call.args[0], points, tile=tile, padding=attrs.padding,
                                 span=call.span)


def _applies(attrs: ConvAttrs, data: TensorType, weight: TensorType) -> bool:
    if not (is_static(data) and is_static(weight)) or 0 in data.concrete_shape:
        return False
    plain = (attrs.data_layout, attrs.kernel_layout, attrs.out_layout or "NCHW")
    return (
        weight.concrete_shape[2:] == (TAPS, TAPS)
        and attrs.groups == 1
        and tuple(attrs.strides) == tuple(attrs.dilation) == (1, 1)
        and plain == ("NCHW", "OIHW", "NCHW")
        and str(data.dtype) == "float32"
        and (attrs.out_dtype is None or attrs.out_dtype == data.dtype)
    )


def _cheapest_tile(
    attrs: ConvAttrs, data: TensorType, weight: TensorType, target: CpuTarget
) -> int | None:
    """The tile that takes the least time, ``None`` where that is not clearly less than direct."""
    batch, channels, height, width = data.concrete_shape
    outputs = weight.concrete_shape[0]
    top, left, bottom, right = full_padding(attrs.padding, 2)
    rows, columns = height + top + bottom - 2, width + left + right - 2
    lanes = target.lanes("float32")
    block = block_for(outputs, target)
    if min(block, block_for(channels, target)) < lanes // 2 or min(rows, columns) < 1:
        return None  # mostly empty registers
    products = math.prod((batch, rows, columns, TAPS * TAPS, channels, outputs))
    weights = 4 * TAPS * TAPS * channels * outputs
    model = machine_model(target)
    direct = products / (model.fma_per_cycle * lanes)
    if weights > target.l2_bytes // 2:
        direct += weights / model.beyond_l2_load_store_bandwidth
    costs = {}
    for tile in TILES:
        size = WinogradSize(tile, batch, -(-rows // tile), -(-columns // tile), channels,
                            outputs // block, block)
        costs[tile] = plan_winograd(size, target).work
    best = min(TILES, key=lambda tile: (costs[tile], tile))
    return best if costs[best] < WORTH * direct else None


@alter_layout("nn.winograd_conv2d", target="cpu")
def winograd_layout(call: Call, types: Sequence[Type], target: CpuTarget) -> LayoutChoice | None:
    """Blocked channels for data and result, and the weights of a block side by side."""
    attrs, data, weight = attrs_of(call, WinogradConv2DAttrs), types[0], types[1]
    if attrs.data_layout != "NCHW" or not isinstance(data, TensorType) or not is_static(data):
        return None
    if not isinstance(weight, TensorType) or not is_static(weight):
        return None
    block = block_for(weight.concrete_shape[2], target)
    data_layout = f"NCHW{block_for(data.concrete_shape[1], target)}c"
    kernel_layout, out_layout = f"HWOI{block}o", f"NCHW{block}c"
    return LayoutChoice(
        attrs.replace(data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout),
        (("NCHW", data_layout), ("HWOI", kernel_layout)),
        out_layout,
    )
