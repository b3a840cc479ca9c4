"""Normalisation."""

from __future__ import annotations

from weft.export.onnx.call import CallWriter
from weft.export.onnx.registry import writes
from weft.export.writers import Value


@writes("nn.batch_norm")
def batch_norm(c: CallWriter) -> Value | None:
    """Inference; the statistics are results, too."""
    if not all(t.dtype == c.dtype for t in c.types):
        return c.no_form("statistics of another dtype than the data")
    data, gamma, beta, mean, var = c.inputs
    a, axis = c.attrs, c.attrs.axis % c.ndim
    channels = (c.types[1].shape[0],)
    gamma = gamma if a.scale else c.emit("Expand", c.const(1), c.sizes(channels))
    beta = beta if a.center else c.emit("Expand", c.const(0), c.sizes(channels))
    order = [0, axis, *(i for i in range(1, c.ndim) if i != axis)] if axis else None
    if order is None:
        return c.no_form("channels along the first axis")
    found = c.emit("BatchNormalization", c.transposed(data, order), gamma, beta, mean, var,
                   epsilon=a.epsilon)
    return c.transposed(found, [order.index(i) for i in range(c.ndim)]), mean, var


@writes("nn.layer_norm")
def layer_norm(c: CallWriter) -> Value | None:
    a = c.attrs
    if a.axis % c.ndim != c.ndim - 1 or not a.scale:
        return c.no_form("along another axis than the last, or without gamma")
    return c.emit("LayerNormalization", *c.inputs[:3 if a.center else 2], axis=-1,
                  epsilon=a.epsilon)


@writes("nn.group_norm")
def group_norm(c: CallWriter) -> Value | None:
    a = c.attrs
    if a.axis % c.ndim != 1 or not (a.scale and a.center) or c.ndim < 3:
        return c.no_form("channels along another axis than 1, or without gamma and beta")
    return c.emit("GroupNormalization", *c.inputs, num_groups=a.num_groups, epsilon=a.epsilon)


@writes("nn.instance_norm")
def instance_norm(c: CallWriter) -> Value | None:
    a = c.attrs
    if a.axis % c.ndim != 1 or not (a.scale and a.center) or c.ndim < 3:
        return c.no_form("channels along another axis than 1, or without gamma and beta")
    return c.emit("InstanceNormalization", *c.inputs, epsilon=a.epsilon)


@writes("nn.lrn")
def lrn(c: CallWriter) -> Value | None:
    a = c.attrs
    if a.axis % c.ndim != 1 or a.size % 2 == 0:
        return c.no_form("along another axis than 1, or with an even number of neighbours")
    return c.emit("LRN", c.inputs[0], size=a.size, alpha=a.alpha, beta=a.beta, bias=a.bias)
