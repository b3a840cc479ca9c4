"""Converters of torchvision's own operators: suppression, regions, and deformable convolution."""

from __future__ import annotations

import numpy as np

from weft import op
from weft.frontend.common.deformable import deformable_conv2d
from weft.frontend.torch.aten.counted import true_positions
from weft.frontend.torch.aten.shape import range_of_sizes
from weft.frontend.torch.node import Node, dtype_in, shape_in
from weft.frontend.torch.registry import converts
from weft.ir import DType, Expr

_ALL = np.iinfo(np.int32).max


@converts("torchvision.nms")
def nms(node: Node, boxes: Expr, scores: Expr, overlap: float) -> Expr:
    """The boxes that overlap no better box, by descending score: a size that data determines."""
    count, dtype = shape_in(scores)[0], dtype_in(boxes)
    column = node.reshape(node.cast(scores, dtype), (count, 1))
    rows = node.tuple_call(op.concatenate, [column, boxes], axis=1)
    found = node.call(
        op.vision.non_max_suppression,
        node.reshape(rows, (1, count, 5)),
        node.constant([_ALL], "int32"),
        node.reshape(node.cast(range_of_sizes(node, count), "int32"), (1, count)),
        node.constant(-1, "int32"),
        node.constant(_not_above(overlap, dtype), dtype),
        coord_start=1, score_index=0, id_index=-1,
    )
    kept = node.reshape(node.field(found, 0), (count,))
    at = true_positions(node, node.call(op.greater_equal, kept, node.constant(0, "int32")))
    return node.cast(node.call(op.take, kept, at, axis=0, mode="clip"), "int64")


def _not_above(number: float, dtype: DType) -> np.ndarray:
    """The largest ``dtype`` that is at most ``number``: torchvision compares in double precision.

    An overlap of ``dtype`` exceeds both or neither.
    """
    kind = (dtype if dtype.bits >= 32 else DType.of("float32")).numpy
    rounded = np.asarray(number, kind)
    return np.nextafter(rounded, kind.type(-np.inf)) if rounded.item() > number else rounded


@converts("torchvision.roi_align")
def roi_align(node: Node, data: Expr, rois: Expr, scale: float, rows: int, columns: int,
              ratio: int, is_aligned: bool) -> Expr:
    return node.call(op.vision.roi_align, data, rois, pooled_size=(rows, columns),
                     spatial_scale=scale, sample_ratio=ratio if ratio > 0 else -1,
                     aligned=is_aligned)


@converts("torchvision.roi_pool")
def roi_pool(node: Node, data: Expr, rois: Expr, scale: float, rows: int,
             columns: int) -> tuple[Expr, None]:
    """The maxima; where they stand is for torchvision's own backward."""
    if node.fields is None or 1 in node.fields:
        raise node.unsupported("the positions of the maxima of torchvision.roi_pool")
    return node.call(op.vision.roi_pool, data, rois, pooled_size=(rows, columns),
                     spatial_scale=scale), None


@converts("torchvision.deform_conv2d")
def deform_conv2d(
    node: Node, data: Expr, kernel: Expr, offset: Expr, mask: Expr, bias: Expr, *numbers: int,
) -> Expr:
    """``numbers``: steps, padding, distances, groups, groups of offsets, use of the mask."""
    *pairs, groups, offset_groups, has_mask = numbers
    made = deformable_conv2d(
        node, data, offset, kernel, mask if has_mask else None, strides=tuple(pairs[:2]),
        padding=tuple(pairs[2:4]), dilation=tuple(pairs[4:6]), groups=groups,
        deformable_groups=offset_groups)
    return node.call(op.nn.bias_add, made, bias)
