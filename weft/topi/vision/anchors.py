"""Anchor boxes: their positions, and the offsets that predictions apply to them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft import te
from weft.ir.dtype import DType, int32, int64
from weft.tir.expr import PrimExpr, const, maximum, minimum, select
from weft.topi.indexing import full
from weft.topi.sort import argsort
from weft.topi.upcast import converted, upcast
from weft.topi.vision.suppression import kept_by_rank, ranks_kept


def choose(index: PrimExpr, values: Sequence[float], dtype: DType) -> PrimExpr:
    """``values[index]`` for a short list of constants."""
    chosen: PrimExpr = const(values[-1], dtype)
    for k in reversed(range(len(values) - 1)):
        chosen = select(index.equal(k), const(values[k], dtype), chosen)
    return chosen


def multibox_prior(
    height: PrimExpr, width: PrimExpr, dtype: DType, *, sizes: Sequence[float],
    ratios: Sequence[float], steps: Sequence[float], offsets: Sequence[float], clip: bool,
) -> te.Tensor:
    """Anchors (1, height * width * anchors, 4): x0, y0, x1, y1 relative to the image.

    The anchors of a position are the sizes with the first ratio, then the first size with the rest.
    """
    pairs = [(s, ratios[0]) for s in sizes] + [(sizes[0], r) for r in ratios[1:]]
    count = len(pairs)
    half_heights = [s / math.sqrt(r) / 2 for s, r in pairs]
    half_widths = [s * math.sqrt(r) / 2 for s, r in pairs]

    def element(_: PrimExpr, i: PrimExpr, k: PrimExpr) -> PrimExpr:
        anchor, position = i % count, i // count
        y, x = (position // width).astype(dtype), (position % width).astype(dtype)
        step_y = const(1, dtype) / height.astype(dtype) if steps[0] <= 0 else const(steps[0], dtype)
        step_x = const(1, dtype) / width.astype(dtype) if steps[1] <= 0 else const(steps[1], dtype)
        centre_y = (y + const(offsets[0], dtype)) * step_y
        centre_x = (x + const(offsets[1], dtype)) * step_x
        # Sizes are relative to the height, so that anchors of ratio 1 are square in pixels.
        reach_x = choose(anchor, half_widths, dtype) * height.astype(dtype) / width.astype(dtype)
        reach_y = choose(anchor, half_heights, dtype)
        is_x = (k % 2).equal(0)
        reach = select(is_x, reach_x, reach_y)
        value = select(is_x, centre_x, centre_y) + select(k < 2, const(0, dtype) - reach, reach)
        return maximum(minimum(value, const(1, dtype)), const(0, dtype)) if clip else value

    return te.compute((1, height * width * count, 4), element, name="multibox_prior")


def transform(
    scores: Any, moves: Any, anchors: Any, rows: Any, counts: Any, threshold: float,
    variance_x: float, variance_y: float, variance_w: float, variance_h: float, clip: bool,
    keep_background: bool,
) -> None:
    """Compact ``rows`` (batch, anchors, 6): class, score, x0, y0, x1, y1 of the decoded anchors.

    An anchor gets the class of its best score if that exceeds the threshold. Class 0 is the
    background, which takes part only if it is kept.
    """
    first = 0 if keep_background else 1
    for batch in range(scores.shape[0]):
        found = 0
        for i in range(anchors.shape[1]):
            best, which = -1.0, 0
            for klass in range(first, scores.shape[1]):
                if scores[batch, klass, i] > best:
                    best, which = scores[batch, klass, i], klass
            if not keep_background and which > 0 and best < threshold:
                which = 0
            if not keep_background and which == 0:
                continue
            x0, y0, x1, y1 = anchors[0, i, 0], anchors[0, i, 1], anchors[0, i, 2], anchors[0, i, 3]
            x = moves[batch, i * 4] * variance_x * (x1 - x0) + (x0 + x1) / 2
            y = moves[batch, i * 4 + 1] * variance_y * (y1 - y0) + (y0 + y1) / 2
            half_w = math.exp(moves[batch, i * 4 + 2] * variance_w) * (x1 - x0) / 2
            half_h = math.exp(moves[batch, i * 4 + 3] * variance_h) * (y1 - y0) / 2
            rows[batch, found, 0] = which - first
            rows[batch, found, 1] = best
            rows[batch, found, 2] = x - half_w
            rows[batch, found, 3] = y - half_h
            rows[batch, found, 4] = x + half_w
            rows[batch, found, 5] = y + half_h
            if clip:
                for k in range(2, 6):
                    rows[batch, found, k] = min(max(rows[batch, found, k], 0.0), 1.0)
            found += 1
        counts[batch] = found
        for i in range(found, anchors.shape[1]):
            for k in range(6):
                rows[batch, i, k] = -1.0


def multibox_transform_loc(
    cls_prob: te.Tensor, loc_pred: te.Tensor, anchor: te.Tensor, *, clip: bool, threshold: float,
    variances: Sequence[float], keep_background: bool,
) -> tuple[te.Tensor, ...]:
    """Rows (class, score, x0, y0, x1, y1) of the foreground anchors, and their number."""
    wide = upcast(cls_prob)
    batch, _, size = cls_prob.shape
    rows, counts = te.python_extern(
        [(batch, size, 6), (batch,)], [wide, upcast(loc_pred), upcast(anchor)], transform,
        [wide.dtype, int32], scalars=[threshold, *variances, clip, keep_background],
        name="multibox_transform",
    )
    return converted(rows, cls_prob.dtype), counts


def decode(
    scores: Any, moves: Any, info: Any, bases: Any, boxes: Any, found: Any, stride: int,
    min_size: float, iou_loss: bool
) -> None:
    """Boxes (batch, positions * anchors, 4) of all anchors, decoded and clipped, and their scores.

    ``bases`` are the anchors at the first position. Boxes smaller than ``min_size`` (times the
    image scale) or outside the image get the score -1.
    """
    count = bases.shape[0]
    for b in range(scores.shape[0]):
        high, long, scale = info[b, 0], info[b, 1], info[b, 2]
        for i in range(boxes.shape[1]):
            a, w = i % count, i // count % scores.shape[3]
            h = i // count // scores.shape[3]
            x0, y0 = bases[a, 0] + w * stride, bases[a, 1] + h * stride
            x1, y1 = bases[a, 2] + w * stride, bases[a, 3] + h * stride
            dx, dy = moves[b, a * 4, h, w], moves[b, a * 4 + 1, h, w]
            dw, dh = moves[b, a * 4 + 2, h, w], moves[b, a * 4 + 3, h, w]
            if iou_loss:
                x0, y0, x1, y1 = x0 + dx, y0 + dy, x1 + dw, y1 + dh
            else:
                wide, tall = x1 - x0 + 1.0, y1 - y0 + 1.0
                x = x0 + 0.5 * (wide - 1.0) + dx * wide
                y = y0 + 0.5 * (tall - 1.0) + dy * tall
                half_w = 0.5 * (math.exp(dw) * wide - 1.0)
                half_h = 0.5 * (math.exp(dh) * tall - 1.0)
                x0, y0, x1, y1 = x - half_w, y - half_h, x + half_w, y + half_h
            x0, x1 = max(min(x0, long - 1.0), 0.0), max(min(x1, long - 1.0), 0.0)
            y0, y1 = max(min(y0, high - 1.0), 0.0), max(min(y1, high - 1.0), 0.0)
            boxes[b, i, 0], boxes[b, i, 1] = x0, y0
            boxes[b, i, 2], boxes[b, i, 3] = x1, y1
            least = min_size * scale
            small = x1 - x0 + 1.0 < least or y1 - y0 + 1.0 < least
            outside = h >= int(high / stride) or w >= int(long / stride)
            found[b, i] = -1.0 if small or outside else scores[b, count + a, h, w]


def base_anchors(
    stride: int, ratios: Sequence[float], scales: Sequence[float]
) -> list[tuple[float, float, float, float]]:
    """The anchors at the first position, ratio by ratio, with integral side lengths."""
    centre = 0.5 * (stride - 1.0)
    anchors = []
    for ratio in ratios:
        side = math.floor(math.sqrt(math.floor(stride * stride / ratio)) + 0.5)
        for scale in scales:
            x = 0.5 * (side * scale - 1.0)
            y = 0.5 * (math.floor(side * ratio + 0.5) * scale - 1.0)
            anchors.append((centre - x, centre - y, centre + x, centre + y))
    return anchors


def proposal(
    cls_prob: te.Tensor, bbox_pred: te.Tensor, im_info: te.Tensor, *, scales: Sequence[float],
    ratios: Sequence[float], stride: int, threshold: float, pre_nms: int, post_nms: int,
    min_size: float, iou_loss: bool,
) -> te.Tensor:
    """Rows (batch * ``post_nms``, 5): batch index and corners of the best boxes.

    If fewer boxes remain, they are repeated from the first.
    """
    batch, _, rows, columns = cls_prob.shape
    wide = upcast(cls_prob)
    dtype = wide.dtype
    anchors = [v for anchor in base_anchors(stride, ratios, scales) for v in anchor]
    count = len(anchors) // 4
    bases = te.compute((count, 4), lambda a, k: choose(a * 4 + k, anchors, dtype), name="bases")
    size = rows * columns * count
    boxes, scores = te.python_extern(
        [(batch, size, 4), (batch, size)], [wide, upcast(bbox_pred), upcast(im_info), bases],
        decode, [dtype, dtype], scalars=[stride, min_size, iou_loss], name="decode",
    )
    order = argsort(scores, 1, is_ascend=False)
    limit = minimum(size, pre_nms) if pre_nms > 0 else size
    kept, found = kept_by_rank(
        boxes, order, full((batch,), limit.astype(int64)), None,
        full((batch,), const(threshold, dtype)), full((batch,), const(post_nms, int64)), edge=1.0)
    position = ranks_kept(kept, post_nms)

    def element(i: PrimExpr, k: PrimExpr) -> PrimExpr:
        b = i // post_nms
        rank = position[b, i % post_nms % maximum(found[b], 1)]
        corner = boxes[b, order[b, maximum(rank, 0)], maximum(k - 1, 0)]
        return select(k.equal(0), b.astype(dtype), corner).astype(cls_prob.dtype)

    return te.compute((batch * post_nms, 5), element, name="proposal")
