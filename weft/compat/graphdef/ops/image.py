"""Images: resizing, crops, blocks of pixels as channels."""

from __future__ import annotations

from weft import op
from weft.compat.graphdef.node import Node
from weft.compat.graphdef.registry import converts
from weft.ir.expr import Expr

_METHODS = {"ResizeBilinear": "linear", "ResizeNearestNeighbor": "nearest_neighbor",
            "ResizeBicubic": "cubic"}


@converts(*_METHODS, inputs=2, attributes=("align_corners", "half_pixel_centers"),
          outputs=("resized_images",))
def resize(node: Node) -> Expr:
    """NHWC. Results are float32, except those of the nearest neighbour."""
    size = node.ints(1, "the size")
    if len(size) != 2 or min(size) < 1:
        raise node.fail("the size must be two positive numbers", got=str(size))
    corners = node.attr("align_corners", bool, default=False)
    centers = node.attr("half_pixel_centers", bool, default=False)
    if corners and centers:
        raise node.fail("align_corners and half_pixel_centers exclude each other")
    method = _METHODS[node.op]
    x = node.input(0)
    if method != "nearest_neighbor" and node.type().dtype.name != "float32":
        x = node.call(op.cast, x, dtype="float32")
    mode = "align_corners" if corners else "half_pixel" if centers else "asymmetric"
    if method == "nearest_neighbor" and centers:
        mode = "tf_half_pixel_for_nn"
    rounding = "round_prefer_ceil" if corners else "floor"
    return node.call(op.image.resize2d, x, size=size, layout="NHWC", method=method,
                     coordinate_transformation_mode=mode, rounding_method=rounding,
                     cubic_alpha=-0.5 if centers else -0.75, cubic_exclude=centers)


@converts("CropAndResize", inputs=4, attributes=("method", "extrapolation_value"),
          outputs=("crops",))
def crop_and_resize(node: Node) -> Expr:
    method = node.attr("method", str, "bilinear")
    if method not in ("bilinear", "nearest"):
        raise node.fail("unknown method", got=repr(method))
    return node.call(
        op.image.crop_and_resize, node.input(0), node.input(1), node.input(2),
        crop_size=node.ints(3, "the size of crops"), layout="NHWC",
        method="bilinear" if method == "bilinear" else "nearest_neighbor",
        extrapolation_value=node.attr("extrapolation_value", float, 0.0))


@converts("SpaceToDepth", "DepthToSpace", inputs=1, attributes=("block_size", "data_format"))
def blocks(node: Node) -> Expr:
    layout = node.attr("data_format", str, "NHWC")
    if layout not in ("NHWC", "NCHW"):
        raise node.unsupported("unknown data_format", got=repr(layout))
    operator = op.nn.space_to_depth if node.op == "SpaceToDepth" else op.nn.depth_to_space
    return node.call(operator, node.input(0), block_size=node.attr("block_size", int),
                     layout=layout)


def _pairs(node: Node, index: int, what: str) -> tuple[tuple[int, int], ...]:
    flat = node.ints(index, what)
    return tuple(zip(flat[::2], flat[1::2], strict=True))


@converts("SpaceToBatchND", inputs=3)
def space_to_batch(node: Node) -> Expr:
    return node.call(op.nn.space_to_batch_nd, node.input(0),
                     block_shape=node.ints(1, "the block"),
                     paddings=_pairs(node, 2, "the padding"))


@converts("BatchToSpaceND", inputs=3)
def batch_to_space(node: Node) -> Expr:
    return node.call(op.nn.batch_to_space_nd, node.input(0),
                     block_shape=node.ints(1, "the block"), crops=_pairs(node, 2, "the crops"))
