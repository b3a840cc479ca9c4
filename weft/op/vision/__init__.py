"""Object detection operators: ``op.vision.roi_align``, ``op.vision.non_max_suppression``, …"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

if TYPE_CHECKING:
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
    from weft.op.vision.roi import (
        roi_align,
        roi_align_grad,
        roi_align_tangent,
        roi_pool,
        roi_pool_grad,
        roi_pool_tangent,
    )
    from weft.op.vision.roi_attrs import RoiAlignAttrs, RoiPoolAttrs
    from weft.op.vision.suppression import (
        AllClassNonMaxSuppressionAttrs,
        GetValidCountsAttrs,
        NonMaxSuppressionAttrs,
        all_class_non_max_suppression,
        get_valid_counts,
        non_max_suppression,
    )
    from weft.op.vision.yolo_reorg import YoloReorgAttrs, yolo_reorg
else:
    load_names_lazily(__name__, NAMES[__name__])

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
    "roi_align_grad",
    "roi_align_tangent",
    "roi_pool",
    "roi_pool_grad",
    "roi_pool_tangent",
    "yolo_reorg",
]
