"""Converters of NonMaxSuppression, RoiAlign and DeformConv."""

from __future__ import annotations

from weft import op
from weft.frontend.common.deformable import deformable_conv2d
from weft.frontend.onnx.node import Node, tensor_type
from weft.frontend.onnx.ops.cast import cast_to
from weft.frontend.onnx.registry import converts
from weft.frontend.onnx.reshaping import reshape_to
from weft.frontend.onnx.windows import WINDOW_ATTRIBUTES, window_of
from weft.ir.expr import Expr
from weft.support.errors import UnsupportedModelError

_IMAGE_RANK = 4
_MODES = ("half_pixel", "output_half_pixel")


@converts("NonMaxSuppression", since=10, only={"center_point_box": (0, 1)})
def non_max_suppression(node: Node) -> Expr:
    """Return rows (batch, class, box); without a maximum number of boxes none is selected."""
    most = node.input(2) if node.has_input(2) else node.constant(0, "int64")
    overlap = node.input(3) if node.has_input(3) else node.constant(0, "float32")
    lowest = node.input(4) if node.has_input(4) else node.constant(float("-inf"), "float32")
    return node.call(
        op.vision.all_class_non_max_suppression,
        node.input(0),
        node.input(1),
        most,
        overlap,
        lowest,
        center_point_box=node.attrs.flag("center_point_box"),
    )


# Mode "max" is not supported: weft takes the maximum of the interpolated samples, ONNX defines it
# as the maximum of the weighted neighbours before their sum.
@converts("RoiAlign", since=10, only={"mode": ("avg",)}, attributes=(
    "output_height", "output_width", "sampling_ratio", "spatial_scale"))  # fmt: skip
def roi_align_from_corners(node: Node) -> Expr:
    return _roi_align(node, aligned=False)


@converts("RoiAlign", since=16, only={"mode": ("avg",)}, attributes=(
    "coordinate_transformation_mode", "output_height", "output_width", "sampling_ratio",
    "spatial_scale"))  # fmt: skip
def roi_align(node: Node) -> Expr:
    mode = node.attrs.one_of("coordinate_transformation_mode", "half_pixel", _MODES)
    return _roi_align(node, aligned=mode == "half_pixel")


def _roi_align(node: Node, *, aligned: bool) -> Expr:
    """Convert RoiAlign; the weft operator takes the image index as the first column of a region."""
    rois = node.input(1)
    images = reshape_to(node, node.input(2), (tensor_type(rois).shape[0], 1))
    numbered = [cast_to(node, images, tensor_type(rois).dtype), rois]
    ratio = node.attrs.integer("sampling_ratio", 0)
    return node.call(
        op.vision.roi_align,
        node.input(0),
        node.tuple_call(op.concatenate, numbered, axis=1),
        pooled_size=(node.attrs.integer("output_height", 1), node.attrs.integer("output_width", 1)),
        spatial_scale=node.attrs.number("spatial_scale", 1.0),
        sample_ratio=ratio if ratio > 0 else -1,
        aligned=aligned,
    )


@converts("DeformConv", since=19, attributes=(*WINDOW_ATTRIBUTES, "group", "offset_group"))
def deform_conv(node: Node) -> Expr:
    if node.rank() != _IMAGE_RANK:
        raise UnsupportedModelError("DeformConv that is not two-dimensional", where=node.span,
                                    got=str(tensor_type(node.input(0))))  # fmt: skip
    kernel = [d for d in node.shape(1)[2:] if isinstance(d, int)]
    window = window_of(node, kernel, node.shape()[2:])
    result = deformable_conv2d(
        node,
        node.input(0),
        node.input(2),
        node.input(1),
        node.input(4) if node.has_input(4) else None,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilations,
        groups=node.attrs.integer("group", 1),
        deformable_groups=node.attrs.integer("offset_group", 1),
    )
    return node.call(op.nn.bias_add, result, node.input(3)) if node.has_input(3) else result
