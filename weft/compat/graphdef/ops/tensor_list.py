"""Lists of tensors of one shape (TensorArrays of loops), as tensors with the elements along axis 0.

An element that was not set is zero. A reserved list whose elements have an unknown size has size 0
along that axis until the first element is set; ``while_`` gives a loop the list of the right size.
"""

from __future__ import annotations

from weft import op
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.frontend.common.typed import tensor_type
from weft.ir.expr import Expr

_TYPES = ("element_dtype", "shape_type")


@converts("TensorListReserve", inputs=2, attributes=_TYPES, outputs=("handle",))
def reserve(node: Node) -> Expr:
    sizes, count = node.dims(0, "the shape of elements"), node.integer(1, "the number of elements")
    if node.rank(0) != 1:
        raise node.unsupported("a list of tensors of unknown rank")
    shape = (count, *(0 if size == -1 else size for size in sizes))
    return node.call(op.zeros, shape=shape, dtype=node.dtype("element_dtype"))


@converts("TensorListFromTensor", inputs=2, attributes=_TYPES, outputs=("output_handle",))
def from_tensor(node: Node) -> Expr:
    return node.input(0)


@converts("TensorListStack", inputs=2, attributes=("element_dtype", "num_elements"),
          outputs=("tensor",))
def stack(node: Node) -> Expr:
    return node.input(0)


@converts("TensorListLength", inputs=1, outputs=("length",))
def length(node: Node) -> Expr:
    return node.constant(node.shape()[0])


@converts("TensorListGetItem", inputs=3, attributes=("element_dtype",), outputs=("item",))
def get_item(node: Node) -> Expr:
    return node.call(op.take, node.input(0), node.input(1), axis=0)


@converts("TensorListSetItem", inputs=3,
          attributes=("element_dtype", "resize_if_index_out_of_bounds"),
          outputs=("output_handle",))
def set_item(node: Node) -> Expr:
    given, item = node.input(0), node.type(2)
    if node.rank() != item.ndim + 1:
        raise node.fail("the item does not have the rank of the list's elements", got=str(item),
                        expected=str(node.type()))
    if is_unset(given, item.shape):
        given = node.call(op.zeros, shape=(node.shape()[0], *item.shape), dtype=item.dtype)
    position = node.call(op.reshape, node.input(1), newshape=(1,))
    return node.call(op.scatter_nd, given, position, node.input(2), mode="update")


def is_unset(values: Expr, shape: tuple[object, ...]) -> bool:
    """Whether a list has no elements yet, whose shape is ``shape``."""
    known = tensor_type(values).shape[1:]
    return known != shape and len(known) == len(shape) and all(
        a in (0, b) for a, b in zip(known, shape, strict=True))
