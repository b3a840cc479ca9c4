"""Absorb a per-channel scale into the weights of an anchor (convolution, dense, matmul)."""

from __future__ import annotations

import numpy as np

from weft.ir import Call, Constant, Expr, TensorType
from weft.ir.deferred import Product, defers
from weft.support.dataclass import dataclass
from weft.topi.layout import Layout
from weft.transform.analysis.graph import known_type, op_name


@dataclass(frozen=True, slots=True)
class WeightAxes:
    """The channel axes of data, result, and weight (output and input channels)."""

    data: int
    result: int
    weight_output: int
    weight_input: int
    groups: int = 1


def weight_axes(call: Expr) -> WeightAxes | None:
    """The axes of an anchor with constant floating-point weights; ``None`` for other calls."""
    if not isinstance(call, Call) or len(call.args) < 2:
        return None
    weight, type_ = call.args[1], known_type(call)
    if not isinstance(weight, Constant) or not isinstance(type_, TensorType):
        return None
    axes = _axes_of(call, weight, type_.ndim - 1)
    dtype = None if axes is None else weight.tensor_type.dtype
    return axes if dtype is not None and dtype.is_float and dtype == type_.dtype else None


def _axes_of(call: Call, weight: Constant, last: int) -> WeightAxes | None:
    name = op_name(call)
    if name in ("nn.conv1d", "nn.conv2d", "nn.conv3d"):
        return _conv_axes(call)
    if name == "nn.dense":
        layout = Layout.parse(call.attrs.weight_layout)  # type: ignore[attr-defined]
        if not layout.is_primal:
            return None
        return WeightAxes(-1, last, layout.index_of("N"), layout.index_of("K"))
    if name == "nn.matmul" and weight.content.ndim == 2:
        return _matmul_axes(call, last)
    return None


def _conv_axes(call: Call) -> WeightAxes | None:
    attrs = call.attrs
    data = Layout.parse(attrs.data_layout)  # type: ignore[attr-defined]
    kernel = Layout.parse(attrs.kernel_layout)  # type: ignore[attr-defined]
    result = Layout.parse(attrs.out_layout or data)  # type: ignore[attr-defined]
    if not (data.is_primal and kernel.is_primal and result.is_primal):
        return None
    groups = attrs.groups  # type: ignore[attr-defined]
    return WeightAxes(
        data.index_of("C"), result.index_of("C"), kernel.index_of("O"), kernel.index_of("I"), groups
    )


def _matmul_axes(call: Call, last: int) -> WeightAxes | None:
    attrs = call.attrs
    if attrs.transpose_a:  # type: ignore[attr-defined]
        return None
    if attrs.transpose_b:  # type: ignore[attr-defined]
        return WeightAxes(-1, last, 0, 1)
    return WeightAxes(-1, last, 1, 0)


def output_channel_axis(call: Expr) -> int | None:
    axes = weight_axes(call)
    return None if axes is None else axes.result


def channel_vector(scale: Constant, like: Expr, axis: int) -> np.ndarray | None:
    """``scale`` as one value per channel of ``like``; ``None`` if it varies along other axes."""
    type_ = known_type(like)
    if not isinstance(type_, TensorType) or scale.tensor_type.dtype != type_.dtype:
        return None
    channels, shape = type_.shape[axis], scale.data.shape
    if not isinstance(channels, int) or len(shape) > type_.ndim:
        return None
    padded = (1,) * (type_.ndim - len(shape)) + shape
    if any(size != 1 for i, size in enumerate(padded) if i != axis):
        return None
    if padded[axis] not in (1, channels):
        return None
    return np.broadcast_to(scale.data.reshape(-1), (channels,))


def output_scaled(call: Call, vector: np.ndarray) -> Call | None:
    """``call`` with each output channel scaled, by scaling its weight; ``None`` on overflow."""
    axes = weight_axes(call)
    data, weight, *rest = call.args
    if axes is None or not isinstance(weight, Constant):
        return None
    along = [1] * weight.content.ndim
    along[axes.weight_output] = -1
    scaled = finite_product(weight, vector.reshape(along))
    if scaled is None:
        return None
    return call.replace(args=(data, scaled, *rest), checked_type=call.checked_type)


def input_scaled(call: Call, data: Expr, scale: Constant) -> Call | None:
    """``call(data * scale, w)`` as ``call(data, w')``.

    ``None`` if ``scale`` is not per channel, or a weight overflows.
    """
    axes = weight_axes(call)
    weight, rest = call.args[1], call.args[2:]
    type_ = known_type(data)
    if axes is None or not isinstance(weight, Constant) or not isinstance(type_, TensorType):
        return None
    if type_ != known_type(call.args[0]):
        return None  # the product broadcasts the data
    vector = channel_vector(scale, data, axes.data % type_.ndim)
    if vector is None:
        return None
    scaled = finite_product(weight, _per_input(vector, weight.content.shape, axes))
    if scaled is None:
        return None
    return call.replace(args=(data, scaled, *rest), checked_type=call.checked_type)


def _per_input(vector: np.ndarray, shape: tuple[int, ...], axes: WeightAxes) -> np.ndarray:
    """Factors that broadcast to a weight: those of group ``g`` are for its own input channels."""
    outputs, inputs = shape[axes.weight_output], shape[axes.weight_input]
    if axes.groups == 1:
        along = [1] * len(shape)
        along[axes.weight_input] = inputs
        return vector.reshape(along)
    by_group = vector.reshape(axes.groups, inputs)
    table = np.repeat(by_group, outputs // axes.groups, axis=0)
    if axes.weight_output > axes.weight_input:
        table = table.T
    along = [1] * len(shape)
    along[axes.weight_output], along[axes.weight_input] = outputs, inputs
    return table.reshape(along)


def finite_product(constant: Constant, factor: np.ndarray) -> Constant | None:
    """``constant * factor`` in its dtype; ``None`` if an element is infinite or NaN.

    A weight may overflow where the product of a small sum and the scale would not. Large products
    are deferred.
    """
    data = constant.data
    if defers(data) and _cannot_overflow(data, factor):
        own = np.broadcast_to(factor.copy(), data.shape)  # the memory of a weight may be given back
        return Constant(Product(data, own), span=constant.span)  # type: ignore[arg-type]
    with np.errstate(all="ignore"):
        product = np.asarray(data * factor, data.dtype)
    return Constant(product, span=constant.span) if np.isfinite(product).all() else None


def _cannot_overflow(data: np.ndarray, factor: np.ndarray) -> bool:
    """Whether the largest elements have a finite product, in a dtype of NumPy that both have.

    The product must have the shape of ``data``. NaN and infinity have no such product.
    """
    if data.dtype.kind != "f" or factor.dtype != data.dtype or factor.ndim > data.ndim:
        return False
    if np.broadcast_shapes(data.shape, factor.shape) != data.shape:
        return False
    with np.errstate(all="ignore"):
        largest = [max(-one.min(), one.max()) for one in (data, factor)]
        return bool(np.isfinite(data.dtype.type(largest[0]) * data.dtype.type(largest[1])))
