"""Converters of DepthToSpace and SpaceToDepth."""

from __future__ import annotations

from weft import op
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.registry import converts, register
from weft.frontend.onnx.reshaping import reshape_to
from weft.ir.expr import Expr


def _block_size(node: Node) -> int:
    size = node.attrs.integer("blocksize", 0)
    if size < 1:
        raise node.fail("invalid blocksize", expected="1 or more", got=str(size))
    return size


@converts("DepthToSpace", attributes=("blocksize",))
@converts("DepthToSpace", since=11, attributes=("blocksize", "mode"))
def depth_to_space(node: Node) -> Expr:
    mode = node.attrs.text("mode", "DCR")
    return node.call(op.nn.depth_to_space, node.input(0), block_size=_block_size(node), mode=mode)


def _by_position(node: Node) -> Expr:
    return node.call(op.nn.space_to_depth, node.input(0), block_size=_block_size(node))


register("SpaceToDepth", _by_position, attributes=("blocksize",))


@converts("SpaceToDepth", since=28, attributes=("blocksize", "mode"))
def space_to_depth_in_order(node: Node) -> Expr:
    """Convert with ``mode``: the block position is the outer (DCR) or inner (CRD) channel index."""
    mode = node.attrs.text("mode", "DCR")
    if mode == "DCR":
        return _by_position(node)
    size, shape = _block_size(node), node.shape()
    if mode != "CRD" or len(shape) != 4 or not all(isinstance(d, int) for d in shape):
        raise node.fail("unsupported mode or shape", got=f"{mode!r} of shape {shape}",
                        expected='mode "DCR" or "CRD" and fixed sizes')
    batch, channels, height, width = tensor_type(node.input(0)).concrete_shape
    if height % size or width % size:
        raise node.fail("the image size is not a multiple of the block size",
                        expected=f"multiples of {size}", got=f"{height} x {width}")
    blocks = (batch, channels, height // size, size, width // size, size)
    split = node.call(op.transpose, reshape_to(node, node.input(0), blocks),
                      axes=(0, 1, 3, 5, 2, 4))
    return reshape_to(node, split, (batch, channels * size * size, *blocks[2::2]))
