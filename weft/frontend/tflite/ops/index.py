"""Parts of tensors: slices, gathers, scatters, segments."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import op
from weft.frontend.common import arrays
from weft.frontend.common.masked_slice import FAR, SliceMasks, index_first, masked_slice
from weft.frontend.common.typed import tensor_type
from weft.frontend.tflite.node import Node
from weft.frontend.tflite.registry import converts
from weft.ir.expr import Expr


@converts("SLICE")
def slice_(node: Node) -> Expr:
    """Size -1 takes all that follows. A start that is computed keeps known sizes."""
    size = node.dims(2, "the size")
    if len(size) != node.rank():
        raise node.fail("the size needs one number for each axis", got=str(size))
    if not node.is_known(1):
        return _slice_at(node, size)
    begin = node.dims(1, "the start")
    end = tuple(FAR if count == -1 else start + count
                for start, count in zip(begin, size, strict=True))
    return node.call(op.strided_slice, node.input(0), begin=begin, end=end)


def _slice_at(node: Node, size: tuple[Any, ...]) -> Expr:
    """A slice from a start that is computed; axes that it takes whole start at 0."""
    x = node.input(0)
    for axis, (count, total) in enumerate(zip(size, node.shape(), strict=True)):
        if count in (-1, total):
            continue
        start = node.call(op.take, node.input(1), node.constant([axis], "int32"), axis=0)
        (length,) = node.fixed((count,), "a slice from a computed start")
        along = node.constant(arrays.arange(length), tensor_type(start).dtype)
        x = node.call(op.take, x, node.call(op.add, along, start), axis=axis, mode="clip")
    return x


def _elements_at(node: Node, masks: SliceMasks) -> Expr:
    """A strided slice that picks one element of the first axes, at a position that is computed."""
    count = node.shape(1)[0]
    if not isinstance(count, int) or masks.shrink_axis != (1 << count) - 1 \
            or masks.ellipsis or masks.new_axis:
        raise node.unsupported("a range that is computed when the model runs")
    x, begin = node.input(0), node.input(1)
    for axis in range(count):
        if not masks.begin >> axis & 1:
            at = node.call(op.take, begin, node.constant(axis, "int32"), axis=0)
        else:
            at = node.constant(0, "int32")
        (total,) = node.fixed(tensor_type(x).shape[:1], "an element at a computed position")
        size = node.constant(total, "int32")
        at = node.cast(at, "int32")
        at = node.call(op.where, node.call(op.less, at, node.constant(0, "int32")),
                       node.call(op.add, at, size), at)
        x = node.call(op.take, x, at, axis=0, mode="clip")
    return x


@converts("STRIDED_SLICE")
def strided_slice(node: Node) -> Expr:
    masks = SliceMasks(*(int(node.option(f"{name}Mask"))
                         for name in ("Begin", "End", "Ellipsis", "NewAxis", "ShrinkAxis")))
    if not node.is_known(1):
        return _elements_at(node, masks)
    begin, end = node.dims(1, "the start"), node.dims(2, "the end")
    strides = node.ints(3, "the steps")
    return masked_slice(node, node.input(0), begin, end, strides, masks)


@converts("GATHER")
def gather(node: Node) -> Expr:
    axis = node.axis(node.option("Axis"), node.rank())
    batch = int(node.option("BatchDims"))
    if batch < 0:
        batch += node.rank(1)
    if batch == 0:
        return node.call(op.take, node.input(0), node.input(1), axis=axis)
    if batch != axis:
        raise node.unsupported("batch_dims other than the axis", got=f"{batch} and axis {axis}")
    indices = node.call(op.expand_dims, node.input(1), axis=node.rank(1))
    return node.call(op.gather_nd, node.input(0), index_first(node, indices), batch_dims=batch)


@converts("GATHER_ND")
def gather_nd(node: Node) -> Expr:
    return node.call(op.gather_nd, node.input(0), index_first(node, node.input(1)))


@converts("EMBEDDING_LOOKUP")
def embedding_lookup(node: Node) -> Expr:
    return node.call(op.take, node.input(1), node.input(0), axis=0)


@converts("SCATTER_ND")
def scatter_nd(node: Node) -> Expr:
    """Updates of one element add up."""
    zeros = node.call(op.zeros, shape=node.dims(2, "the shape"),
                      dtype=tensor_type(node.input(1)).dtype)
    return node.call(op.scatter_nd, zeros, index_first(node, node.input(0)), node.input(1),
                     mode="add")


@converts("SPARSE_TO_DENSE")
def sparse_to_dense(node: Node) -> Expr:
    """Operands: indices, the shape, values and the default."""
    shape, indices, values = node.dims(1, "the shape"), node.input(0), node.input(2)
    base = node.call(op.full, node.reshape(node.input(3), ()), shape=shape)
    rank = len(shape)
    if tensor_type(indices).ndim < 2:
        indices = node.reshape(indices, (-1, 1) if rank == 1 else (1, rank))
    if tensor_type(values).ndim == 0:
        values = node.call(op.broadcast_to, values, shape=(tensor_type(indices).shape[0],))
    return node.call(op.scatter_nd, base, index_first(node, indices), values, mode="update")


@converts("DYNAMIC_UPDATE_SLICE")
def dynamic_update_slice(node: Node) -> Expr:
    """Starts are moved so that the update lies inside."""
    x, update, starts = node.input(0), node.input(1), node.input(2)
    inner = node.fixed(node.shape(1), "an update")
    outer = node.fixed(node.shape(0), "an updated tensor")
    last = node.constant([o - i for o, i in zip(outer, inner, strict=True)],
                         tensor_type(starts).dtype)
    starts = node.call(op.maximum, node.scalar_like(0, starts), node.call(op.minimum, starts, last))
    grid = np.stack(np.meshgrid(*(arrays.arange(n) for n in inner), indexing="ij")) if inner \
        else arrays.zeros((0,), np.int64)
    dtype = tensor_type(starts).dtype
    shifts = node.reshape(starts, (len(inner), *(1,) * len(inner)))
    return node.call(op.scatter_nd, x, node.call(op.add, node.constant(grid, dtype), shifts),
                     update, mode="update")


@converts("SEGMENT_SUM")
def segment_sum(node: Node) -> Expr:
    """The number of segments follows from ids that are known."""
    ids = node.array(1, "the segments")
    return _segments(node, int(ids.max()) + 1 if ids.size else 0, "add", 0)


_SEGMENTS = {"UNSORTED_SEGMENT_SUM": ("add", 0), "UNSORTED_SEGMENT_PROD": ("mul", 1),
             "UNSORTED_SEGMENT_MAX": ("max", "least"), "UNSORTED_SEGMENT_MIN": ("min", "most")}


@converts(*_SEGMENTS)
def unsorted_segment(node: Node) -> Expr:
    return _segments(node, node.integer(2, "the number of segments"), *_SEGMENTS[node.op])


def _segments(node: Node, count: int, mode: str, first: int | str) -> Expr:
    """Rows that have one id, combined. Segments without rows have the neutral element."""
    x, dtype = node.input(0), node.dtype()
    if isinstance(first, str):
        info: Any = np.finfo(dtype.numpy) if dtype.is_float else np.iinfo(dtype.numpy)
        value: Any = info.min if first == "least" else info.max
    else:
        value = first
    if node.rank(1) != 1:
        raise node.unsupported("segments of more than one axis", got=str(node.rank(1)))
    base = node.call(op.full, node.constant(value, dtype), shape=(count, *node.shape()[1:]))
    return node.call(op.scatter_nd, base, node.reshape(node.input(1), (1, -1)), x, mode=mode)


@converts("ONE_HOT")
def one_hot(node: Node) -> Expr:
    return node.call(op.one_hot, node.input(0), node.reshape(node.input(2), ()),
                     node.reshape(node.input(3), ()), depth=node.integer(1, "the depth"),
                     axis=node.option("Axis", -1))


@converts("MATRIX_DIAG", "MATRIX_SET_DIAG")
def diagonal(node: Node) -> Expr:
    vector = node.input(node.op == "MATRIX_SET_DIAG")
    if node.op == "MATRIX_SET_DIAG":
        return node.call(op.matrix_set_diag, node.input(0), vector)
    shape = tensor_type(vector).shape
    zeros = node.call(op.zeros, shape=(*shape, shape[-1]), dtype=tensor_type(vector).dtype)
    return node.call(op.matrix_set_diag, zeros, vector)


@converts("WHERE")
def where(node: Node) -> Expr:
    return node.cast(node.call(op.argwhere, node.input(0)), "int64")
