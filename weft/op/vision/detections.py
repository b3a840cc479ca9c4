"""Post-processing of detections: the best boxes of all classes."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import te
from weft.ir import Attrs, OpPattern, TensorType, TupleType, attr, define_op, int32, op_case
from weft.ir.typing.relation import RelationContext
from weft.op.vision.suppression import keep_best
from weft.support.dataclass import dataclass
from weft.topi.vision import suppression as topi


def _count_attr(doc: str) -> Any:
    return attr(doc=doc, check=lambda n: n > 0, expected="1 or more")


@dataclass(frozen=True, kw_only=True)
class RegularNonMaxSuppressionAttrs(Attrs):
    max_detections_per_class: int = _count_attr("maximum number of boxes per class")
    max_detections: int = _count_attr("number of boxes returned")
    num_classes: int = _count_attr("number of classes without background; these come last")
    iou_threshold: float = attr(0.5, "intersection over union above which a box is suppressed")
    score_threshold: float = attr(0.0, "minimum score of a box")


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    boxes, scores = types
    attrs = ctx.attrs_as(RegularNonMaxSuppressionAttrs)
    for arg, type_ in enumerate(types):
        ctx.expect_rank(arg, type_, 3)
        ctx.expect_float(arg, type_)
    for axis in (0, 1):
        ctx.expect_dim(1, axis, scores.shape[axis], boxes.shape[axis],
                       "the scores do not fit the boxes")
    ctx.expect_dim(0, 2, boxes.shape[2], 4, "expected four numbers per box")
    if boxes.shape[1] == 0:
        ctx.fail("the number of boxes is 0", arg=0, axis=1, expected="1 or more", got=0)
    classes = scores.shape[2]
    if not isinstance(classes, int) or classes < attrs.num_classes:
        ctx.fail("fewer classes than num_classes", arg=1, axis=2,
                 expected=f"{attrs.num_classes} or more", got=classes)
    batch, most = boxes.shape[0], attrs.max_detections
    ctx.output(TupleType((
        TensorType((batch, most, 4), boxes.dtype), TensorType((batch, most), scores.dtype),
        TensorType((batch, most), scores.dtype), TensorType((batch,), int32),
    )))
    return True


@define_op("vision.regular_non_max_suppression", attrs=RegularNonMaxSuppressionAttrs,
           relation=_relation, pattern=OpPattern.OPAQUE, level=5, results=4)
def regular_non_max_suppression(
    boxes: te.Tensor, scores: te.Tensor, attrs: RegularNonMaxSuppressionAttrs
) -> tuple[te.Tensor, ...]:
    """The best boxes of all classes: boxes, classes, scores, and their number.

    ``boxes`` is (batch, boxes, 4), ``scores`` (batch, boxes, classes). Overlapping boxes of a
    class are suppressed first; unused rows at the end are zeros.
    """
    return topi.best_of_classes(
        boxes, scores, per_class=attrs.max_detections_per_class, most=attrs.max_detections,
        classes=attrs.num_classes, iou_threshold=attrs.iou_threshold,
        score_threshold=attrs.score_threshold,
    )


def _reference(boxes: np.ndarray, scores: np.ndarray, **values: Any) -> tuple[np.ndarray, ...]:
    attrs = RegularNonMaxSuppressionAttrs(**values)
    batch, most = len(boxes), attrs.max_detections
    found = np.zeros((batch, most, 4), boxes.dtype)
    classes, best = np.zeros((2, batch, most), scores.dtype)
    counts = np.zeros(batch, np.int32)
    for b in range(batch):
        rows = []
        for c in range(attrs.num_classes):
            column = scores[b, :, scores.shape[2] - attrs.num_classes + c]
            order = [i for i in np.argsort(-column, kind="stable")
                     if column[i] >= np.asarray(attrs.score_threshold, np.float32)]
            kept = keep_best(boxes[b], order, attrs.iou_threshold, attrs.max_detections_per_class)
            rows += [(column[i], c, i) for i in kept]
        rows = sorted(rows, key=lambda row: -row[0])[:most]
        counts[b] = len(rows)
        for m, (score, c, i) in enumerate(rows):
            found[b, m], classes[b, m], best[b, m] = boxes[b, i], c, score
    return found, classes.copy(), best.copy(), counts


def _boxes(seed: int, *shape: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 1, (*shape, 2))
    return np.concatenate([corners, corners + rng.uniform(0.3, 1, (*shape, 2))],
                          axis=-1).astype(np.float32)


regular_non_max_suppression.no_gradient("which boxes stay is discrete")
regular_non_max_suppression.spec(
    _reference,
    op_case(_boxes(0, 2, 9), (2, 9, 4), max_detections_per_class=4, max_detections=6, num_classes=3,
            score_threshold=0.2),
    op_case(_boxes(1, 1, 5), (1, 5, 2), max_detections_per_class=2, max_detections=12,
            num_classes=2, iou_threshold=0.3),
)
