"""The data layouts in which the CPU schedules want their operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np

from weft.ir.expr import Call, Constant, Expr
from weft.ir.types import TensorType, Type, is_static
from weft.op.nn.conv import ConvAttrs
from weft.strategy.cpu.common.blocking import block_for
from weft.strategy.cpu.convolution.cost import ConvSize, blocked_cycles, plain_cycles
from weft.strategy.cpu.depthwise.cost import blocked_depthwise_cycles, plain_depthwise_cycles
from weft.strategy.cpu.dot_product.convolution import conv_plan, kernel_layout
from weft.strategy.cpu.machine_model import has_masks, machine_model
from weft.strategy.implementation import attrs_of
from weft.strategy.registry import alter_layout
from weft.target import CpuTarget
from weft.topi.layout import Layout
from weft.transform.layout.layout_choice import LayoutChoice, LayoutChoices

USUAL_ROWS = 64  # of a dense layer whose batch is not known


def conv_layout(call: Call, types: Sequence[Type], target: CpuTarget) -> LayoutChoices:
    """Channels in blocks, the lanes of a block being one group's, or images as they are written."""
    attrs = attrs_of(call, ConvAttrs)
    data, kernel = _fixed(types[0]), _fixed(types[1])
    plain, plain_kernel = "NC" + attrs.spatial, "OI" + attrs.spatial
    if data is None or kernel is None or attrs.result_layout != attrs.data_layout:
        return None
    if attrs.data_layout == f"N{attrs.spatial}C":
        return _channels_last(call, kernel, target)
    if attrs.data_layout != plain or attrs.kernel_layout != plain_kernel:
        return None
    plan = conv_plan(call, (data, kernel), target)
    if plan is not None and isinstance(call.args[1], Constant):
        packed = kernel_layout(plan)
        # Channels that make no whole groups are padded with zeros, in the data as in the kernel.
        more = -data.concrete_shape[1] % plan.group
        zeros = (0, more, 0, 0) if more else None
        return LayoutChoice(attrs.replace(kernel_layout=packed),
                            ((plain, plain) if more else None, (plain_kernel, packed)),
                            paddings=(zeros, zeros))
    if 0 in (*data.concrete_shape, *kernel.concrete_shape):
        return None
    attrs = attrs.replace(finite_kernel=_is_finite(call.args[1]))
    size = ConvSize.of(attrs, data, kernel)
    if is_depthwise_shape(attrs, data, kernel):
        return _depthwise_choices(attrs, size, target)
    return [*_blocked_choices(attrs, size, target, isinstance(call.args[1], Constant)),
            LayoutChoice(attrs, ((plain, plain), None), cycles=plain_cycles(size, target))]


def _channels_last(call: Call, kernel: TensorType, target: CpuTarget) -> LayoutChoice | None:
    """Data and result as they are, for channels lie side by side; constant kernels in blocks."""
    attrs = attrs_of(call, ConvAttrs)
    written = Layout.parse(attrs.kernel_layout)
    if not written.is_primal or not isinstance(call.args[1], Constant):
        return None
    sizes = dict(zip(written.primal_axes, kernel.concrete_shape, strict=True))
    if 0 in sizes.values() or (attrs.groups > 1 and sizes["I"] == 1):
        return None
    block = block_for(sizes["O"] // attrs.groups, target, str(attrs.out_dtype or kernel.dtype))
    if not _fills(block, target):
        return None
    wanted = blocked_kernel(attrs.spatial, "", block)
    new = attrs.replace(kernel_layout=wanted, finite_kernel=_is_finite(call.args[1]))
    return LayoutChoice(new, (None, (written.name, wanted)))


def _is_finite(kernel: Expr) -> bool:
    """Whether the kernel is known and holds numbers only."""
    return (isinstance(kernel, Constant) and kernel.data.dtype.kind == "f"
            and bool(np.isfinite(kernel.data).all()))


def blocked_kernel(spatial: str, inputs: str, block: int) -> str:
    """The layout of kernels that ``schedule_direct`` reads front to back."""
    *rows, column = spatial
    return f"O{''.join(rows)}I{column}{inputs}{block}o"


def is_depthwise_shape(attrs: ConvAttrs, data: TensorType, kernel: TensorType) -> bool:
    outputs, group_inputs, *_ = kernel.concrete_shape
    return attrs.groups == data.concrete_shape[1] == outputs and group_inputs == 1


def _depthwise_choices(attrs: ConvAttrs, size: ConvSize, target: CpuTarget) -> LayoutChoices:
    """Channels in blocks that fill registers; images as written where lanes can be masked."""
    block = block_for(size.outputs, target, str(size.dtype))
    if not _fills(block, target):
        return None
    blocked = _in_blocks(attrs, block, block, depthwise=True)
    if not has_masks(target):
        return blocked
    plain = "NC" + attrs.spatial
    return [
        dataclasses.replace(
            blocked, cycles=blocked_depthwise_cycles(size, attrs.strides, block, target)),
        LayoutChoice(attrs, ((plain, plain), None),
                     cycles=plain_depthwise_cycles(size, attrs.strides, target)),
    ]


def _fills(block: int, target: CpuTarget) -> bool:
    """Whether blocks fill registers at least in part; else lanes are better along the row."""
    return block >= target.lanes("float32") // 4


def _blocked_choices(
    attrs: ConvAttrs, size: ConvSize, target: CpuTarget, is_constant: bool
) -> Iterator[LayoutChoice]:
    """The result in blocks, the data too or as it is written; channels filled up if that helps."""
    in_block = block_for(size.group_inputs, target, str(size.dtype))
    block = block_for(size.outputs // size.groups, target, str(size.dtype))
    if _fills(block, target):
        cycles = blocked_cycles(size, size.outputs, block, target)
        for inputs in (in_block, 1):
            yield dataclasses.replace(_in_blocks(attrs, inputs, block), cycles=cycles)
    lanes = target.lanes(size.dtype)
    more = -size.outputs % lanes
    if is_constant and size.groups == 1 and more:
        outputs = size.outputs + more
        conversion = machine_model(target).conversion_cycles(size.dtype.itemsize)
        cycles = blocked_cycles(size, outputs, lanes, target) + conversion * size.elements
        zeros = (more, 0, *(0 for _ in size.taps))
        for inputs in (in_block, 1):
            wide = _in_blocks(attrs.replace(channels=outputs), inputs, lanes)
            yield dataclasses.replace(wide, paddings=(None, zeros), cut=(1, size.outputs),
                                      cycles=cycles)


def _in_blocks(
    attrs: ConvAttrs, in_block: int, out_block: int, *, depthwise: bool = False
) -> LayoutChoice:
    """Blocks of these sizes; the data as it is written where ``in_block`` is 1."""
    plain, plain_kernel = "NC" + attrs.spatial, "OI" + attrs.spatial
    data_layout = plain if in_block == 1 else f"{plain}{in_block}c"
    out_layout = f"{plain}{out_block}c"
    packed = blocked_kernel(attrs.spatial, f"{in_block}i" if in_block > 1 else "", out_block)
    if depthwise:
        packed = f"{plain_kernel}1i{out_block}o"
    return LayoutChoice(
        attrs.replace(data_layout=data_layout, kernel_layout=packed, out_layout=out_layout),
        ((plain, data_layout), (plain_kernel, packed)),
        out_layout,
    )


for _name in ("nn.conv1d", "nn.conv2d", "nn.conv3d"):
    alter_layout(_name, target="cpu")(conv_layout)


def _fixed(type_: Type) -> TensorType | None:
    """A tensor type whose sizes are all known, else ``None``."""
    return type_ if isinstance(type_, TensorType) and is_static(type_) else None
