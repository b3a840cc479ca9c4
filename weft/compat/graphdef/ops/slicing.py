"""Parts of tensors: slices, gathers and scatters."""

from __future__ import annotations

from weft import op
from weft.compat.graphdef.node import Node, static_shape
from weft.compat.graphdef.registry import converts
from weft.frontend.common.masked_slice import FAR, SliceMasks, index_first, masked_slice
from weft.ir import Expr

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")


@converts("Slice", inputs=3)
def slice_(node: Node) -> Expr:
    """Size -1 takes all that follows."""
    begin = node.ints(1, "the start")
    size = node.ints(2, "the size")
    if len(begin) != node.rank() or len(size) != node.rank():
        raise node.fail("start and size need one number for each axis", got=f"{begin} and {size}")
    for start, count, total in zip(begin, size, node.shape(), strict=True):
        last = start + max(count, 0)
        if start < 0 or count < -1 or (isinstance(total, int) and last > total):
            raise node.fail("the slice is outside of the tensor", got=f"{begin} and {size}",
                            expected=f"a part of {node.type()}")
    end = tuple(FAR if count == -1 else start + count
                for start, count in zip(begin, size, strict=True))
    return node.call(op.strided_slice, node.input(0), begin=begin, end=end)


@converts("StridedSlice", inputs=4, attributes=_MASKS)
def strided_slice(node: Node) -> Expr:
    begin, end, strides = (node.ints(i, what) for i, what in
                           ((1, "the start"), (2, "the end"), (3, "the steps")))
    masks = SliceMasks(*(node.attr(name, int, 0) for name in _MASKS))
    return masked_slice(node, node.input(0), begin, end, strides, masks)


@converts("Gather", inputs=2, attributes=("validate_indices",))
def gather_rows(node: Node) -> Expr:
    return node.call(op.take, node.input(0), node.input(1), axis=0)


@converts("GatherV2", inputs=3, attributes=("batch_dims",))
def gather(node: Node) -> Expr:
    axis = node.axis(node.integer(2, "the axis"))
    batch = node.attr("batch_dims", int, 0)
    if batch == 0:
        return node.call(op.take, node.input(0), node.input(1), axis=axis)
    if batch != axis:
        raise node.unsupported("batch_dims other than the axis", got=f"{batch} and axis {axis}")
    indices = node.call(op.expand_dims, node.input(1), axis=node.rank(1))
    return node.call(op.gather_nd, node.input(0), index_first(node, indices), batch_dims=batch)


@converts("GatherNd", inputs=2)
def gather_nd(node: Node) -> Expr:
    return node.call(op.gather_nd, node.input(0), index_first(node, node.input(1)))


@converts("ScatterNd", inputs=3)
def scatter_nd(node: Node) -> Expr:
    """Updates of one element add up."""
    shape = node.ints(2, "the shape")
    zeros = node.call(op.zeros, shape=shape, dtype=node.type(1).dtype)
    return node.call(op.scatter_nd, zeros, index_first(node, node.input(0)), node.input(1),
                     mode="add")


@converts("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterMax", "TensorScatterMin",
          inputs=3)
def tensor_scatter(node: Node) -> Expr:
    mode = node.op.removeprefix("TensorScatter").lower()
    return node.call(op.scatter_nd, node.input(0), index_first(node, node.input(1)),
                     node.input(2), mode=mode)


@converts("Where", inputs=1, outputs=("index",))
def where(node: Node) -> Expr:
    static_shape(node, node.shape(), "Where")
    return node.call(op.argwhere, node.input(0))
