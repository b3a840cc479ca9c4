"""Slots of NNVM's and of weft's operators: shapes of weights, and inputs that are mutated."""

from __future__ import annotations

from typing import Any

from weft.compat.symbol.inference import (
    Dtypes,
    PartialShape,
    ShapeRule,
    Shapes,
    merged_shape,
    same_shapes,
)
from weft.compat.symbol.slots import set_attr

for _name in ("leaky_relu", "clip", "softmax", "log_softmax", "dropout", "elemwise_add",
              "elemwise_sub", "elemwise_mul", "elemwise_div", "elemwise_pow", "elemwise_sum",
              "_assign", "__add_symbol__", "__sub_symbol__", "__mul_symbol__", "__div_symbol__",
              "__pow_symbol__", "__add_scalar__", "__sub_scalar__", "__mul_scalar__",
              "__div_scalar__", "__pow_scalar__", "__rsub_scalar__", "__rdiv_scalar__",
              "__rpow_scalar__", "lrn", "l2_normalize", "nn.relu", "nn.softmax", "nn.log_softmax",
              "nn.leaky_relu", "cast", "annotation.barrier", "annotation.stop_gradient"):
    set_attr(_name, "FInferShape", same_shapes)


def _size(shape: PartialShape, axis: int) -> int:
    return 0 if shape is None else shape[axis]


def _dense(attrs: Any, ins: Shapes, outs: Shapes) -> tuple[Shapes, Shapes]:
    """The weight is (units, K), and K the last axis of the data."""
    if getattr(attrs, "weight_layout", "NK") != "NK":
        return ins, outs
    units = attrs.units or _size(ins[1], 0)
    weight = merged_shape(ins[1], (units, _size(ins[0], -1)))
    data = ins[0]
    if data is None and outs[0] is not None:
        data = (*outs[0][:-1], _size(weight, 1))
    elif data is not None:
        data = (*data[:-1], merged_shape((data[-1],), (_size(weight, 1),))[0])  # type: ignore[index]
        if outs[0] is not None:
            head = merged_shape(data[:-1], outs[0][:-1])
            assert head is not None
            data = (*head, data[-1])
    out = None if data is None else merged_shape(outs[0], (*data[:-1], units))
    rest: Shapes = [merged_shape(ins[2], (units,))] if len(ins) > 2 else []
    return [data, weight, *rest], [out]


def _conv2d(attrs: Any, ins: Shapes, outs: Shapes) -> tuple[Shapes, Shapes]:
    """The weight has the channels of the result, those of the data by group, and the kernel."""
    layout = getattr(attrs, "layout", None) or getattr(attrs, "data_layout", "NCHW")
    if len(layout) != 4 or sorted(attrs.kernel_layout) != sorted("OIHW"):
        return ins, outs
    channels = _size(ins[0], layout.index("C"))
    kernel = tuple(attrs.kernel_size or (0, 0))
    sizes = {"O": attrs.channels or 0, "I": channels // attrs.groups, "H": kernel[0],
             "W": kernel[1]}
    weight = merged_shape(ins[1], tuple(sizes[axis] for axis in attrs.kernel_layout))
    rest: Shapes = [merged_shape(ins[2], (attrs.channels,))] if len(ins) > 2 else []
    return [ins[0], weight, *rest], outs


def _batch_norm(attrs: Any, ins: Shapes, outs: Shapes) -> tuple[Shapes, Shapes]:
    """Data and result have one shape, the others are vectors of the channels."""
    data = merged_shape(ins[0], outs[0])
    vector = (_size(data, attrs.axis),)
    return [data, *(merged_shape(i, vector) for i in ins[1:])], [data, *outs[1:]]


def _bias_add(attrs: Any, ins: Shapes, outs: Shapes) -> tuple[Shapes, Shapes]:
    data = merged_shape(ins[0], outs[0])
    return [data, merged_shape(ins[1], (_size(data, attrs.axis),))], [data]


_RULES: dict[str, ShapeRule] = {
    "dense": _dense, "nn.dense": _dense, "conv2d": _conv2d, "nn.conv2d": _conv2d,
    "batch_norm": _batch_norm, "nn.batch_norm": _batch_norm, "nn.bias_add": _bias_add,
    "nn.prelu": _bias_add, "prelu": _bias_add,
}
for _name, _rule in _RULES.items():
    set_attr(_name, "FInferShape", _rule)

def _take_dtypes(_attrs: Any, ins: Dtypes, outs: Dtypes) -> tuple[Dtypes, Dtypes]:
    """The data has the dtype of the result; that of the indices is another."""
    data = ins[0] or outs[0]
    return [data, *ins[1:]], [data]


set_attr("take", "FInferType", _take_dtypes)
set_attr("_assign", "FMutateInputs", lambda _attrs: (0,))
# Inference does not change the moving statistics; NNVM lists them as auxiliary states anyway.
set_attr("batch_norm", "FMutateInputs", lambda _attrs: (3, 4))
set_attr("batch_norm", "TKeepsMutatedInputs", value=True)
for _name in ("__add_scalar__", "__mul_scalar__", "relu", "elemwise_add"):
    set_attr(_name, "FInplaceOption", lambda _attrs: ((0, 0),))
