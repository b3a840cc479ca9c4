"""Converters of gather and scatter operators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import broadcast_to, positions, positions_along, reshape_to
from weft.frontend.onnx.shape_value import ShapeValue, object_array, settle, size_data
from weft.ir import Constant, Dim, Expr
from weft.support.errors import UnsupportedModelError

_REDUCTIONS = {"none": "update", "add": "add", "mul": "mul", "min": "min", "max": "max"}


def counted_from_start(node: Node, indices: Expr, sizes: Sequence[Dim]) -> Expr:
    """Convert negative indices; ``sizes`` holds one size, or one for each entry of axis 0."""
    type_ = tensor_type(indices)
    if not type_.dtype.is_int:
        raise node.fail("the indices are not integers", got=str(type_.dtype))
    shape = () if len(sizes) == 1 else (len(sizes), *(1,) * (type_.ndim - 1))
    known = settle(object_array(list(sizes)).reshape(shape), type_.dtype)
    lengths = (size_data(known, node.span) if isinstance(known, ShapeValue)
               else Constant(known, span=node.span))
    moved = node.call(op.add, indices, lengths)
    return node.call(op.where, node.call(op.less, indices, node.scalar_like(0, indices)), moved,
                     indices)


def index_tuples(node: Node, index: int, batch: int = 0) -> Expr:
    """Move the index tuples of input ``index`` from the last axis to the first, as weft expects."""
    rank = node.rank(index)
    if rank == 0:
        raise node.fail("the indices are a scalar", expected="rank 1 or more")
    length = node.shape(index)[-1]
    axes = (rank - 1, *range(rank - 1))
    tuples = node.call(op.transpose, node.input(index), axes=axes)
    sizes = node.shape()[batch:]
    if not isinstance(length, int) or length > len(sizes):
        raise node.fail("the index tuples are longer than the data has axes",
                        expected=f"at most {len(sizes)}", got=str(length))
    return counted_from_start(node, tuples, sizes[:length]) if length else tuples


@converts("GatherElements", since=11, attributes=("axis",))
def gather_elements(node: Node) -> Expr:
    axis = node.axis(node.attrs.integer("axis", 0), node.rank())
    indices = counted_from_start(node, node.input(1), (node.shape()[axis],))
    return node.call(op.gather, node.input(0), indices, axis=axis)


@converts("GatherND", since=11, attributes=("batch_dims",))
def gather_nd(node: Node) -> Expr:
    batch = node.attrs.integer("batch_dims", 0)
    indices = index_tuples(node, 1, batch)
    return node.call(op.gather_nd, node.input(0), indices, batch_dims=batch)


@converts("Scatter", since=9, attributes=("axis",))
@converts("ScatterElements", since=11, attributes=("axis", "reduction"))
def scatter_elements(node: Node) -> Expr:
    axis = node.axis(node.attrs.integer("axis", 0), node.rank())
    indices = counted_from_start(node, node.input(1), (node.shape()[axis],))
    reduction = _REDUCTIONS[node.attrs.one_of("reduction", "none", tuple(_REDUCTIONS))]
    return node.call(op.scatter_elements, node.input(0), indices, node.input(2), axis=axis,
                     reduction=reduction)


@converts("ScatterND", since=11, attributes=("reduction",))
def scatter_nd(node: Node) -> Expr:
    mode = _REDUCTIONS[node.attrs.one_of("reduction", "none", tuple(_REDUCTIONS))]
    indices = index_tuples(node, 1)
    return node.call(op.scatter_nd, node.input(0), indices, node.input(2), mode=mode)


@converts("TensorScatter", since=24, attributes=("axis", "mode"))
def tensor_scatter(node: Node) -> Expr:
    """Write a block along ``axis`` at a start index for each batch entry; ``circular`` wraps."""
    rank = node.rank()
    axis = node.axis(node.attrs.integer("axis", -2), rank)
    size, (batch, *_) = node.shape()[axis], node.shape()
    shape = node.shape(1)
    if axis == 0:
        raise UnsupportedModelError("TensorScatter along the batch axis", where=node.span)
    steps = positions_along(node, shape[axis], axis, rank)
    if node.has_input(2):
        start = reshape_to(node, node.input(2), (batch, *(1,) * (rank - 1)))
        steps = node.call(op.add, steps, start)
    if node.attrs.one_of("mode", "linear", ("linear", "circular")) == "circular":
        steps = node.call(op.floor_mod, steps, node.size(size, tensor_type(steps).dtype))
    steps = broadcast_to(node, steps, shape)
    return node.call(op.scatter_elements, node.input(0), steps, node.input(1), axis=axis,
                     reduction="update")


@converts("OneHot", since=9, attributes=("axis",))
def one_hot(node: Node) -> Expr:
    """Compare indices with the classes; indices out of range give only off values."""
    depth = node.array(1, "depth")
    if depth.size != 1 or not 1 <= depth.item() < 2**63:
        raise node.fail("invalid depth", expected="one number, at least 1", got=str(depth))
    if node.shape(2) != (2,):
        raise node.fail("the values are not a pair", expected="off and on", got=str(node.shape(2)))
    return _one_hot(node, int(depth.item()))


def _one_hot(node: Node, depth: int) -> Expr:
    rank = node.rank() + 1
    axis = node.axis(node.attrs.integer("axis", -1), rank)
    indices = node.input(0)
    dtype = tensor_type(indices).dtype
    if not dtype.is_int or depth > np.iinfo(dtype.numpy).max:
        indices = node.call(op.cast, indices, dtype="int64")
    indices = counted_from_start(node, indices, (depth,))
    indices = node.call(op.expand_dims, indices, axis=axis, num_newaxis=1)
    classes = positions(node, depth, tensor_type(indices).dtype)
    if axis < rank - 1:
        classes = node.call(op.expand_dims, classes, axis=1, num_newaxis=rank - axis - 1)
    hot = node.call(op.equal, indices, classes)
    off, on = (
        node.call(op.strided_slice, node.input(2), begin=(i,), end=(i + 1,), strides=(1,),
                  axes=(0,))
        for i in (0, 1)
    )
    return node.call(op.where, hot, on, off)


@converts("ReverseSequence", since=10, attributes=("batch_axis", "time_axis"))
def reverse_sequence(node: Node) -> Expr:
    """Reverse the first ``sequence_lens[b]`` steps of batch ``b``; keep the others."""
    batch, time = node.attrs.integer("batch_axis", 1), node.attrs.integer("time_axis", 0)
    shape, rank = node.shape(), node.rank()
    if {batch, time} != {0, 1} or rank < 2:
        raise node.fail("invalid axes", expected="batch_axis and time_axis are 0 and 1, for an "
                        "input of rank 2 or more", got=f"{batch} and {time}, rank {rank}")
    lengths = reshape_to(node, node.input(1),
                         tuple(shape[batch] if a == batch else 1 for a in range(rank)))
    step = positions_along(node, shape[time], time, rank)
    last = node.call(op.subtract, node.call(op.subtract, lengths, node.scalar_like(1, lengths)),
                     step)
    positions = node.call(op.where, node.call(op.less, step, lengths), last, step)
    return node.call(op.gather, node.input(0), broadcast_to(node, positions, shape), axis=time)
