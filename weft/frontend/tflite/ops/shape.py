"""Shapes, joins, repetitions and borders of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.typed import tensor_type
from weft.frontend.onnx.shape_value import ShapeValue
from weft.frontend.tflite.node import Node, Value, known_options
from weft.frontend.tflite.ops.elementwise import activated
from weft.frontend.tflite.registry import converts
from weft.ir.expr import Expr
from weft.ir.shape import AnyDim
from weft.support.allocation import check_nodes

_MODES = {0: "REFLECT", 1: "SYMMETRIC"}


@converts("SHAPE")
def shape(node: Node) -> Value:
    sizes = node.shape()
    if all(isinstance(d, int) for d in sizes):
        return node.constant(sizes, node.result_dtype())
    if any(isinstance(d, AnyDim) for d in sizes):
        return node.call(op.shape_of, node.input(0), dtype=node.result_dtype())
    return ShapeValue(ShapeValue.of_shape(sizes).dims, node.result_dtype())


@converts("RANK")
def rank(node: Node) -> Expr:
    return node.constant(node.rank(), "int32")


@converts("RESHAPE")
def reshape(node: Node) -> Expr:
    target = node.dims(1, "the shape") if node.has(1) else node.option("NewShape", ())
    return node.call(op.reshape, node.input(0), newshape=target, allowzero=True)


@converts("SQUEEZE")
def squeeze(node: Node) -> Expr:
    axes = tuple(node.axis(a, node.rank()) for a in node.option("SqueezeDims", ()))
    if not axes:
        axes = tuple(i for i, size in enumerate(node.shape()) if size == 1)
    return node.call(op.squeeze, node.input(0), axis=axes) if axes else node.input(0)


@converts("EXPAND_DIMS")
def expand_dims(node: Node) -> Expr:
    axis = node.axis(node.integer(1, "the axis"), node.rank() + 1)
    return node.call(op.expand_dims, node.input(0), axis=axis)


@converts("TRANSPOSE")
def transpose(node: Node) -> Expr:
    return node.call(op.transpose, node.input(0), axes=node.ints(1, "the order of axes"))


@converts("CONCATENATION")
def concatenation(node: Node) -> Expr:
    parts = node.inputs()
    axis = node.axis(node.option("Axis"), tensor_type(parts[0]).ndim)
    return activated(node, parts[0] if len(parts) == 1
                     else node.tuple_call(op.concatenate, parts, axis=axis))


@converts("PACK")
def pack(node: Node) -> Expr:
    axis = node.axis(node.option("Axis"), node.rank() + 1)
    return node.tuple_call(op.stack, node.inputs(), axis=axis)


@converts("UNPACK")
def unpack(node: Node) -> Sequence[Expr]:
    axis = node.axis(node.option("Axis"), node.rank())
    (count,) = node.fixed((node.shape()[axis],), "UNPACK")
    check_nodes(count)
    return tuple(node.call(op.take, node.input(0), node.constant(i, "int32"), axis=axis)
                 for i in range(count))


@converts("SPLIT")
def split(node: Node) -> Sequence[Expr]:
    axis, count = node.axis(node.integer(0, "the axis"), node.rank(1)), len(node.results)
    if count != node.option("NumSplits", count):
        raise node.fail("the number of results is another", got=str(count),
                        expected=str(node.option("NumSplits")))
    if count == 1:
        return (node.input(1),)
    made = node.call(op.split, node.input(1), indices_or_sections=count, axis=axis)
    return node.fields(made, count)


@converts("SPLIT_V")
def split_sizes(node: Node) -> Sequence[Expr]:
    axis, sizes = node.axis(node.integer(2, "the axis"), node.rank()), list(
        node.ints(1, "the sizes"))
    (total,) = node.fixed((node.shape()[axis],), "SPLIT_V")
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = total - sum(sizes) - 1
    if sum(sizes) != total or min(sizes, default=0) < 0:
        raise node.fail("the sizes do not add up to that of the axis", expected=str(total),
                        got=str(sizes))
    if len(sizes) == 1:
        return (node.input(0),)
    ends = tuple(int(end) for end in np.cumsum(sizes)[:-1])
    made = node.call(op.split, node.input(0), indices_or_sections=ends, axis=axis)
    return node.fields(made, len(sizes))


@converts("TILE")
def tile(node: Node) -> Expr:
    return node.call(op.tile, node.input(0), reps=node.ints(1, "the repetitions"))


@converts("FILL")
def fill(node: Node) -> Expr:
    value = node.input(1)
    return node.call(op.full, node.reshape(value, ()), shape=node.dims(0, "the shape"))


@converts("BROADCAST_TO")
def broadcast_to(node: Node) -> Expr:
    return node.call(op.broadcast_to, node.input(0), shape=node.dims(1, "the shape"))


@converts("BROADCAST_ARGS")
def broadcast_args(node: Node) -> Expr:
    shapes = [node.ints(i, "a shape") for i in range(2)]
    return node.constant(np.broadcast_shapes(*shapes), node.result_dtype())


@converts("RANGE")
def arange(node: Node) -> Expr:
    dtype = node.result_dtype()
    if dtype.is_int:
        bounds: list[Any] = [node.dims(i, "a bound")[0] for i in range(3)]
    else:
        bounds = [node.array(i, "a bound").item() for i in range(3)]
    start, stop, step = bounds
    if step == 0:
        raise node.fail("the step is zero")
    if all(isinstance(b, (int, float)) for b in bounds):
        return node.constant(arrays.arange(start, stop, step), dtype)
    return node.call(op.arange, start=start, stop=stop, step=step, dtype=dtype)


def _borders(node: Node) -> tuple[tuple[int, int], ...]:
    flat = node.ints(1, "the padding")
    if len(flat) != 2 * node.rank():
        raise node.fail("the padding needs two numbers for each axis", got=str(flat))
    return tuple(zip(flat[::2], flat[1::2], strict=True))


@converts("PAD", "PADV2")
def pad(node: Node) -> Expr:
    x = node.input(0)
    value = node.reshape(node.input(2), ()) if node.op == "PADV2" else node.scalar_like(0, x)
    return node.call(op.nn.pad, x, value, pad_width=_borders(node))


@converts("MIRROR_PAD")
def mirror_pad(node: Node) -> Expr:
    mode = known_options(node, _MODES, node.option("Mode"), "mode")
    return node.call(op.nn.mirror_pad, node.input(0), pad_width=_borders(node), mode=mode)


@converts("REVERSE_V2")
def reverse(node: Node) -> Expr:
    result = node.input(0)
    for axis in node.ints(1, "the axes"):
        result = node.call(op.reverse, result, axis=node.axis(axis, node.rank()))
    return result


@converts("REVERSE_SEQUENCE")
def reverse_sequence(node: Node) -> Expr:
    return node.call(op.reverse_sequence, node.input(0), node.input(1),
                     seq_axis=int(node.option("SeqDim")), batch_axis=int(node.option("BatchDim")))


@converts("DILATE")
def dilate(node: Node) -> Expr:
    """Elements of the third operand between those of the first."""
    x = node.input(0)
    strides = node.ints(1, "the dilations")
    fill_value = float(node.array(2, "the padding").reshape(()))
    return node.call(op.nn.dilate, x, strides=strides, dilation_value=fill_value)
