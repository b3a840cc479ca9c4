"""Object detection operators: ``op.vision.roi_align``, ``op.vision.non_max_suppression``, …"""

from weft.op.vision.anchors import (
    MultiBoxPriorAttrs,
    MultiBoxTransformLocAttrs,
    ProposalAttrs,
    multibox_prior,
    multibox_transform_loc,
    proposal,
)
from weft.op.vision.detections import (
    RegularNonMaxSuppressionAttrs,
    regular_non_max_suppression,
)
from weft.op.vision.roi import RoiAlignAttrs, RoiPoolAttrs, roi_align, roi_pool
from weft.op.vision.suppression import (
    AllClassNonMaxSuppressionAttrs,
    GetValidCountsAttrs,
    NonMaxSuppressionAttrs,
    all_class_non_max_suppression,
    get_valid_counts,
    non_max_suppression,
)
from weft.op.vision.yolo_reorg import YoloReorgAttrs, yolo_reorg

__all__ = [
    "AllClassNonMaxSuppressionAttrs",
    "GetValidCountsAttrs",
    "MultiBoxPriorAttrs",
    "MultiBoxTransformLocAttrs",
    "NonMaxSuppressionAttrs",
    "ProposalAttrs",
    "RegularNonMaxSuppressionAttrs",
    "RoiAlignAttrs",
    "RoiPoolAttrs",
    "YoloReorgAttrs",
    "all_class_non_max_suppression",
    "get_valid_counts",
    "multibox_prior",
    "multibox_transform_loc",
    "non_max_suppression",
    "proposal",
    "regular_non_max_suppression",
    "roi_align",
    "roi_pool",
    "yolo_reorg",
]
