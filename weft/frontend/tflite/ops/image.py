"""Images: resizing, and blocks of pixels as channels or as batches."""

from __future__ import annotations

from weft import op
from weft.frontend.tflite.node import Node
from weft.frontend.tflite.registry import converts
from weft.ir.expr import Expr
from weft.ir.op import Op

_METHODS = {"RESIZE_BILINEAR": "linear", "RESIZE_NEAREST_NEIGHBOR": "nearest_neighbor"}


@converts(*_METHODS)
def resize(node: Node) -> Expr:
    size = node.dims(1, "the size")
    if len(size) != 2:
        raise node.fail("the size must be two numbers", got=str(size))
    corners, centers = bool(node.option("AlignCorners")), bool(node.option("HalfPixelCenters"))
    method = _METHODS[node.op]
    mode = "align_corners" if corners else "half_pixel" if centers else "asymmetric"
    if method == "nearest_neighbor" and centers and not corners:
        mode = "tf_half_pixel_for_nn"
    return node.call(op.image.resize2d, node.input(0), size=size, layout="NHWC", method=method,
                     coordinate_transformation_mode=mode,
                     rounding_method="round_prefer_ceil" if corners else "floor")


@converts("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def blocks(node: Node) -> Expr:
    operator: Op = op.nn.space_to_depth if node.op == "SPACE_TO_DEPTH" else op.nn.depth_to_space
    return node.call(operator, node.input(0), block_size=int(node.option("BlockSize")),
                     layout="NHWC")


def _pairs(node: Node, index: int, what: str) -> tuple[tuple[int, int], ...]:
    flat = node.ints(index, what)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


@converts("SPACE_TO_BATCH_ND")
def space_to_batch(node: Node) -> Expr:
    return node.call(op.nn.space_to_batch_nd, node.input(0),
                     block_shape=node.ints(1, "the block"),
                     paddings=_pairs(node, 2, "the padding"))


@converts("BATCH_TO_SPACE_ND")
def batch_to_space(node: Node) -> Expr:
    return node.call(op.nn.batch_to_space_nd, node.input(0),
                     block_shape=node.ints(1, "the block"), crops=_pairs(node, 2, "the crops"))
