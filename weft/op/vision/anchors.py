"""Anchor boxes: multibox_prior, multibox_transform_loc, proposal."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import ZERO_GRADIENT, Attrs, Call, Expr, Tuple, attr, const, infer_expr, int32, int64
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import KnownDim, dim_mul
from weft.ir.types import TensorType, TupleType
from weft.ir.typing.relation import RelationContext
from weft.op.gradients import attrs_of, known_shape, numbered, size_value, tensor_type
from weft.op.vision.suppression import keep_best
from weft.support.dataclass import dataclass
from weft.topi.vision import anchors as topi


def _all_positive(values: Sequence[float]) -> bool:
    return bool(values) and all(v > 0 for v in values)


def _numbers_attr(default: Any, doc: str) -> Any:
    return attr(default, doc, check=_all_positive, expected="numbers > 0")


@dataclass(frozen=True, kw_only=True)
class MultiBoxPriorAttrs(Attrs):
    sizes: tuple[float, ...] = _numbers_attr((1.0,), "heights of the anchors, as fractions of the "
                                             "image")
    ratios: tuple[float, ...] = _numbers_attr((1.0,), "widths over heights")
    steps: tuple[float, float] = attr((-1.0, -1.0), "distances of the centres along height and "
                                      "width, as fractions of the image; even if not positive")
    offsets: tuple[float, float] = attr((0.5, 0.5), "first centre, in steps")
    clip: bool = attr(False, "clip the anchors to the image")


def _prior_relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    ctx.expect_rank(0, data, 4)
    ctx.expect_float(0, data)
    attrs = ctx.attrs_as(MultiBoxPriorAttrs)
    count = len(attrs.sizes) + len(attrs.ratios) - 1
    positions = dim_mul(data.shape[2], data.shape[3])
    ctx.output(TensorType((1, dim_mul(positions, count), 4), data.dtype))
    return True


@define_op("vision.multibox_prior", attrs=MultiBoxPriorAttrs, relation=_prior_relation,
           pattern=OpPattern.OPAQUE, level=5, traits=ZERO_GRADIENT)
def multibox_prior(data: te.Tensor, attrs: MultiBoxPriorAttrs) -> te.Tensor:
    """The anchors (x0, y0, x1, y1) around every element of a feature map (NCHW).

    For each element: all sizes with the first ratio, then the first size with the other ratios.
    """
    return topi.multibox_prior(data.shape[2], data.shape[3], data.dtype, sizes=attrs.sizes,
                               ratios=attrs.ratios, steps=attrs.steps, offsets=attrs.offsets,
                               clip=attrs.clip)


def _prior_reference(data: np.ndarray, **values: Any) -> np.ndarray:
    attrs = MultiBoxPriorAttrs(**values)
    height, width = data.shape[2:]
    steps = [s if s > 0 else 1 / n for s, n in zip(attrs.steps, (height, width), strict=True)]
    pairs = [(s, attrs.ratios[0]) for s in attrs.sizes]
    pairs += [(attrs.sizes[0], r) for r in attrs.ratios[1:]]
    boxes = []
    for y, x in np.ndindex(height, width):
        cy, cx = (y + attrs.offsets[0]) * steps[0], (x + attrs.offsets[1]) * steps[1]
        for size, ratio in pairs:
            w = size * height / width * math.sqrt(ratio) / 2
            h = size / math.sqrt(ratio) / 2
            boxes.append((cx - w, cy - h, cx + w, cy + h))
    found = np.array(boxes, data.dtype).reshape(1, -1, 4)
    return np.clip(found, 0, 1) if attrs.clip else found


multibox_prior.spec(
    _prior_reference,
    op_case((1, 3, 2, 4), sizes=(0.5, 0.25), ratios=(1.0, 2.0, 0.5)),
    op_case((2, 1, 3, 3), sizes=(0.9,), steps=(0.3, 0.2), offsets=(0.1, 0.7), clip=True),
)


@dataclass(frozen=True, kw_only=True)
class MultiBoxTransformLocAttrs(Attrs):
    clip: bool = attr(True, "clip the boxes to the image")
    threshold: float = attr(0.01, "minimum score of a box")
    variances: tuple[float, float, float, float] = attr(
        (0.1, 0.1, 0.2, 0.2), "scales of the predictions for x, y, width and height"
    )
    keep_background: bool = attr(False, "treat class 0 like the other classes")


def _transform_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    scores, moves, anchors = types
    for arg, (type_, rank) in enumerate(((scores, 3), (moves, 2), (anchors, 3))):
        ctx.expect_rank(arg, type_, rank)
        ctx.expect_float(arg, type_)
    batch, classes, size = scores.shape
    if isinstance(classes, int) and classes < 1:
        ctx.fail("the number of classes is 0", arg=0, axis=1, expected="1 or more", got=classes)
    ctx.expect_dim(1, 0, moves.shape[0], batch, "the batches differ")
    ctx.expect_dim(1, 1, moves.shape[1], dim_mul(size, 4), "expected four numbers per anchor")
    ctx.expect_dim(2, 0, anchors.shape[0], 1, "the anchors must have batch size 1")
    ctx.expect_dim(2, 1, anchors.shape[1], size, "expected one anchor per score")
    ctx.expect_dim(2, 2, anchors.shape[2], 4, "expected four numbers per anchor")
    ctx.output(TupleType((TensorType((batch, size, 6), scores.dtype),
                          TensorType((batch,), int32))))
    return True


@define_op("vision.multibox_transform_loc", attrs=MultiBoxTransformLocAttrs,
           relation=_transform_relation, pattern=OpPattern.OPAQUE, level=5, results=2)
def multibox_transform_loc(
    cls_prob: te.Tensor, loc_pred: te.Tensor, anchor: te.Tensor, attrs: MultiBoxTransformLocAttrs
) -> tuple[te.Tensor, ...]:
    """The foreground anchors moved by the predictions, and their number in each batch.

    Rows are (class, score, x0, y0, x1, y1); unused rows at the end are -1. Classes are numbered
    from the first one after the background.
    """
    return topi.multibox_transform_loc(
        cls_prob, loc_pred, anchor, clip=attrs.clip, threshold=attrs.threshold,
        variances=attrs.variances, keep_background=attrs.keep_background,
    )


@multibox_transform_loc.expansion
def _transform_expansion(call: Call) -> Expr | None:
    """The boxes as arithmetic; those that pass are moved to the front by their ranks."""
    attrs = attrs_of(call, MultiBoxTransformLocAttrs)
    scores, moves, anchors = call.args
    first, (batch, classes, size) = int(not attrs.keep_background), known_shape(scores, call)
    if classes == first or size == 0:
        return None
    dtype = tensor_type(scores).dtype
    cut = op.strided_slice(scores, begin=(first,), end=(classes,), axes=(1,))
    best = infer_expr(op.max(cut, axis=(1,)), trust=True)
    parts = [op.cast(op.argmax(cut, axis=1), dtype=dtype), best]
    columns = [op.expand_dims(p, axis=2) for p in parts]
    boxes = infer_expr(_moved_boxes(moves, anchors, (batch, size), attrs), trust=True)
    rows = infer_expr(op.concatenate(Tuple((*columns, boxes)), axis=2), trust=True)
    if attrs.keep_background:
        return Tuple((rows, op.full(op.cast(size_value(size, int64), dtype="int32"),
                                    shape=(batch,))))
    passes = op.cast(op.greater_equal(best, const(attrs.threshold, dtype)), dtype="int32")
    count = op.sum(passes, axis=(1,), keepdims=True)
    order = op.argsort(op.subtract(const(1, int32), passes), axis=1, dtype="int64")
    places = op.broadcast_to(op.expand_dims(order, axis=2), shape=(batch, size, 6))
    is_used = op.less(op.cast(numbered((1, size)), dtype="int32"), count)
    kept = op.where(op.expand_dims(is_used, axis=2), op.gather(rows, places, axis=1),
                    const(-1.0, dtype))
    return Tuple((kept, op.squeeze(count, axis=(1,))))


def _moved_boxes(moves: Expr, anchors: Expr, shape: tuple[KnownDim, KnownDim],
                 attrs: MultiBoxTransformLocAttrs) -> Expr:
    """(batch, anchors, 4) corners of the anchors moved by the predictions."""
    dtype = tensor_type(moves).dtype
    units = op.multiply(op.reshape(moves, newshape=(*shape, 4), allowzero=True),
                        const(np.array(attrs.variances), dtype))
    low, high, step, growth = (op.strided_slice(x, begin=(a,), end=(a + 2,), axes=(2,))
                               for x, a in ((anchors, 0), (anchors, 2), (units, 0), (units, 2)))
    half, sides = const(0.5, dtype), op.subtract(high, low)
    centre = op.add(op.multiply(step, sides), op.multiply(op.add(low, high), half))
    reach = op.multiply(op.multiply(op.exp(growth), sides), half)
    corners = op.concatenate(Tuple((op.subtract(centre, reach), op.add(centre, reach))), axis=2)
    return op.clip(corners, a_min=0.0, a_max=1.0) if attrs.clip else corners


def _transform_reference(
    scores: np.ndarray, moves: np.ndarray, anchors: np.ndarray, **values: Any
) -> tuple[np.ndarray, np.ndarray]:
    attrs = MultiBoxTransformLocAttrs(**values)
    first = 0 if attrs.keep_background else 1
    best = scores[:, first:].max(axis=1, initial=-1)
    which = scores[:, first:].argmax(axis=1)
    chosen = np.ones_like(best, bool) if attrs.keep_background else best >= attrs.threshold
    low, high = np.split(anchors[0].astype(np.float64), 2, axis=-1)
    units = moves.reshape(len(moves), moves.shape[1] // 4, 4) * np.array(attrs.variances)
    centre = units[..., :2] * (high - low) + (low + high) / 2
    half = np.exp(units[..., 2:]) * (high - low) / 2
    boxes = np.concatenate([centre - half, centre + half], axis=-1)
    boxes = np.clip(boxes, 0, 1) if attrs.clip else boxes
    rows = np.full((*best.shape, 6), -1, scores.dtype)
    for b, passes in enumerate(chosen):
        found = np.flatnonzero(passes)
        rows[b, :len(found)] = np.column_stack([which[b, found], best[b, found], boxes[b, found]])
    return rows, chosen.sum(axis=1).astype(np.int32)


multibox_transform_loc.spec(
    _transform_reference,
    op_case((2, 3, 5), (2, 20), (1, 5, 4), low=0.05, high=1.0, threshold=0.6),
    op_case((1, 4, 6), (1, 24), (1, 6, 4), low=0.0, high=1.0, keep_background=True, clip=False),
)


@dataclass(frozen=True, kw_only=True)
class ProposalAttrs(Attrs):
    scales: tuple[float, ...] = _numbers_attr((4.0, 8.0, 16.0, 32.0), "sizes of the anchors, in "
                                              "strides")
    ratios: tuple[float, ...] = _numbers_attr((0.5, 1.0, 2.0), "heights over widths")
    feature_stride: int = attr(16, "pixels of the image per element", check=lambda n: n > 0,
                               expected="1 or more")
    threshold: float = attr(0.7, "intersection over union above which a box is suppressed")
    rpn_pre_nms_top_n: int = attr(6000, "number of best boxes that take part; all if not "
                                  "positive")
    rpn_post_nms_top_n: int = attr(300, "number of boxes returned per image",
                                   check=lambda n: n > 0, expected="1 or more")
    rpn_min_size: float = attr(16.0, "minimum side of a box, at the scale of the image")
    iou_loss: bool = attr(False, "predictions move the corners, not centre and size")

def _proposal_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    scores, moves, info = types
    attrs = ctx.attrs_as(ProposalAttrs)
    count = len(attrs.scales) * len(attrs.ratios)
    for arg, (type_, rank) in enumerate(((scores, 4), (moves, 4), (info, 2))):
        ctx.expect_rank(arg, type_, rank)
        ctx.expect_float(arg, type_)
    ctx.expect_dim(0, 1, scores.shape[1], 2 * count, "expected two scores per anchor")
    ctx.expect_dim(1, 1, moves.shape[1], 4 * count, "expected four numbers per anchor")
    for axis in (0, 2, 3):
        ctx.expect_dim(1, axis, moves.shape[axis], scores.shape[axis],
                       "the predictions do not fit the scores")
    ctx.expect_dim(2, 0, info.shape[0], scores.shape[0], "the batches differ")
    ctx.expect_dim(2, 1, info.shape[1], 3, "expected three numbers per image",
                   why=" (height, width, scale)")
    for axis in (2, 3):
        if scores.shape[axis] == 0:
            ctx.fail("the feature map is empty", arg=0, axis=axis, expected="1 or more", got=0)
    total = dim_mul(scores.shape[0], attrs.rpn_post_nms_top_n)
    ctx.output(TensorType((total, 5), scores.dtype))
    return True


@define_op("vision.proposal", attrs=ProposalAttrs, relation=_proposal_relation,
           pattern=OpPattern.OPAQUE, level=5)
def proposal(
    cls_prob: te.Tensor, bbox_pred: te.Tensor, im_info: te.Tensor, attrs: ProposalAttrs
) -> te.Tensor:
    """The best boxes that a region proposal network predicts for each image.

    ``cls_prob`` is (batch, 2 * anchors, rows, columns), foreground in the second half;
    ``bbox_pred`` (batch, 4 * anchors, rows, columns); ``im_info`` (batch, 3) height, width and
    scale. Rows of the result are (image, x0, y0, x1, y1), repeated if there are too few.
    """
    return topi.proposal(
        cls_prob, bbox_pred, im_info, scales=attrs.scales, ratios=attrs.ratios,
        stride=attrs.feature_stride, threshold=attrs.threshold, pre_nms=attrs.rpn_pre_nms_top_n,
        post_nms=attrs.rpn_post_nms_top_n, min_size=attrs.rpn_min_size, iou_loss=attrs.iou_loss,
    )


def _proposal_reference(
    scores: np.ndarray, moves: np.ndarray, info: np.ndarray, **values: Any
) -> np.ndarray:
    attrs = ProposalAttrs(**values)
    bases = np.array(topi.base_anchors(attrs.feature_stride, attrs.ratios, attrs.scales))
    batch, _, rows, columns = scores.shape
    y, x = np.mgrid[:rows, :columns] * attrs.feature_stride
    anchors = bases + np.stack([x, y, x, y], axis=-1)[:, :, None]
    result = []
    for b in range(batch):
        high, long, scale = info[b].astype(np.float64)
        delta = moves[b].transpose(1, 2, 0).reshape(rows, columns, -1, 4).astype(np.float64)
        if attrs.iou_loss:
            boxes = anchors + delta
        else:
            sides = anchors[..., 2:] - anchors[..., :2] + 1
            centre = anchors[..., :2] + 0.5 * (sides - 1) + delta[..., :2] * sides
            half = 0.5 * (np.exp(delta[..., 2:]) * sides - 1)
            boxes = np.concatenate([centre - half, centre + half], axis=-1)
        boxes = np.clip(boxes, 0, [long - 1, high - 1, long - 1, high - 1])
        found = scores[b, len(bases):].transpose(1, 2, 0).astype(np.float64)
        small = ((boxes[..., 2:] - boxes[..., :2] + 1) < attrs.rpn_min_size * scale).any(axis=-1)
        outside = ((y >= int(high / attrs.feature_stride) * attrs.feature_stride)
                   | (x >= int(long / attrs.feature_stride) * attrs.feature_stride))
        found = np.where(small | outside[..., None], -1.0, found).reshape(-1)
        flat = boxes.reshape(-1, 4)
        order = np.argsort(-found, kind="stable")
        order = order[:attrs.rpn_pre_nms_top_n] if attrs.rpn_pre_nms_top_n > 0 else order
        kept = keep_best(flat, order.tolist(), attrs.threshold, attrs.rpn_post_nms_top_n, edge=1.0)
        chosen = [kept[i % len(kept)] for i in range(attrs.rpn_post_nms_top_n)]
        result.append(np.column_stack([np.full(len(chosen), b), flat[chosen]]))
    return np.concatenate([np.zeros((0, 5)), *result]).astype(scores.dtype)


proposal.no_gradient("which boxes stay is discrete, and the proposals of a network are "
                     "constants for what follows (Ren et al. 2015)")
_INFO = np.array([[40.0, 56.0, 1.0], [64.0, 64.0, 0.5]], np.float32)
proposal.spec(
    _proposal_reference,
    op_case((2, 8, 4, 4), (2, 16, 4, 4), _INFO, scales=(1.0, 2.0), ratios=(0.5, 1.0),
            rpn_min_size=4.0, rpn_post_nms_top_n=6, threshold=0.5, low=0.0, high=0.6, rtol=1e-4),
    op_case((2, 2, 4, 4), (2, 4, 4, 4), _INFO, scales=(1.5,), ratios=(1.0,), iou_loss=True,
            rpn_pre_nms_top_n=9, rpn_post_nms_top_n=12, threshold=0.3, low=0.0, high=0.9,
            rtol=1e-4),
)
