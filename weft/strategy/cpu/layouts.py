"""The data layouts in which the CPU schedules want their operands."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir.expr import Call, Constant
from weft.ir.types import TensorType, Type, is_static
from weft.op.nn.conv import ConvAttrs
from weft.op.nn.dense import DenseAttrs
from weft.strategy.cpu.blocking import block_for, panel_width
from weft.strategy.cpu.dot_product_conv import conv_plan, kernel_layout
from weft.strategy.cpu.dot_product_matmul import panel_layout, plan_of
from weft.strategy.implementation import attrs_of
from weft.strategy.registry import alter_layout
from weft.target import Target
from weft.topi.layout import Layout
from weft.transform.layout_choice import LayoutChoice


def conv_layout(call: Call, types: Sequence[Type], target: Target) -> LayoutChoice | None:
    """Blocked channels for data, kernel and result; the lanes of a block are one group's."""
    attrs = attrs_of(call, ConvAttrs)
    data, kernel = _fixed(types[0]), _fixed(types[1])
    plain, plain_kernel = "NC" + attrs.spatial, "OI" + attrs.spatial
    if attrs.data_layout != plain or attrs.kernel_layout != plain_kernel:
        return None
    if data is None or kernel is None:
        return None
    plan = conv_plan(call, (data, kernel), target)
    if plan is not None and isinstance(call.args[1], Constant):
        packed = kernel_layout(plan)
        return LayoutChoice(attrs.replace(kernel_layout=packed), (None, (plain_kernel, packed)))
    outputs, group_inputs, *_ = kernel.concrete_shape
    channels = data.concrete_shape[1]
    if 0 in (*data.concrete_shape, *kernel.concrete_shape):
        return None
    depthwise = attrs.groups == channels == outputs and group_inputs == 1
    dtype = str(data.dtype)
    out_block = block_for(outputs if depthwise else outputs // attrs.groups, target, dtype)
    in_block = out_block if depthwise else block_for(group_inputs, target, dtype)
    if out_block < target.lanes(dtype) // 4:
        return None  # mostly empty registers: schedule_plain has its lanes along the row
    data_layout, out_layout = f"{plain}{in_block}c", f"{plain}{out_block}c"
    blocked_kernel = f"{plain_kernel}{1 if depthwise else in_block}i{out_block}o"
    return LayoutChoice(
        attrs.replace(
            data_layout=data_layout, kernel_layout=blocked_kernel, out_layout=out_layout
        ),
        ((plain, data_layout), (plain_kernel, blocked_kernel)),
        out_layout,
    )


for _name in ("nn.conv1d", "nn.conv2d", "nn.conv3d"):
    alter_layout(_name, target="cpu")(conv_layout)


@alter_layout("nn.dense", target="cpu")
def dense_layout(call: Call, types: Sequence[Type], target: Target) -> LayoutChoice | None:
    """Constant weights are packed into panels; others would be packed again at every call."""
    weight, attrs = _fixed(types[1]), attrs_of(call, DenseAttrs)
    if attrs.weight_layout != "NK" or not isinstance(call.args[1], Constant):
        return None
    if weight is None or 0 in weight.concrete_shape:
        return None
    plan = plan_of(call, target, is_packed=True)
    if plan is not None:
        units, depth = weight.concrete_shape
        packed = Layout.parse(panel_layout(units, plan))
        zeros = (-units % packed.factor_of("N"), -depth % packed.factor_of("K"))
        return LayoutChoice(attrs.replace(weight_layout=packed.name, units=units),
                            (None, ("NK", packed.name)), paddings=(None, zeros))
    units = weight.concrete_shape[0]
    panel = panel_width(units, target.lanes(str(weight.dtype)))
    layout = f"NK{panel}n"
    filling = (-units % panel, 0)
    return LayoutChoice(attrs.replace(weight_layout=layout, units=units if filling[0] else None),
                        (None, ("NK", layout)), paddings=(None, filling if filling[0] else None))


def _fixed(type_: Type) -> TensorType | None:
    """A tensor type whose sizes are all known, else ``None``."""
    return type_ if isinstance(type_, TensorType) and is_static(type_) else None
