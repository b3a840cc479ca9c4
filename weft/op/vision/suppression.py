"""Non-maximum suppression: non_max_suppression, all_class_non_max_suppression, get_valid_counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import ANY, Attrs, Bounds, Call, Expr, TupleGetItem, attr, dim_mul, int32, int64
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.typing.relation import RelationContext
from weft.op.gradients import known_shape, typed_zeros
from weft.op.relations import (
    tensor_of,
)
from weft.support.dataclass import dataclass
from weft.topi.vision import suppression as topi


def _expect_one(ctx: RelationContext, arg: int, type_: TensorType) -> None:
    """Check that a tensor has a single element."""
    if any(d != 1 for d in type_.shape):
        ctx.fail("expected a single number", arg=arg, expected="shape () or (1,)", got=type_)


@dataclass(frozen=True, kw_only=True)
class GetValidCountsAttrs(Attrs):
    score_threshold: float = attr(0.0, "exclusive lower bound of scores")
    id_index: int = attr(0, "index of the class, which must not be negative; -1 for none")
    score_index: int = attr(1, "index of the score")


def _valid_relation(ctx: RelationContext) -> bool:
    data = ctx.tensor(0)
    if data is None:
        return False
    attrs = ctx.attrs_as(GetValidCountsAttrs)
    ctx.expect_rank(0, data, 3)
    ctx.expect_float(0, data)
    _expect_elements(ctx, data, score_index=attrs.score_index, id_index=max(attrs.id_index, 0))
    batch, size, _ = data.shape
    ctx.output(TupleType((TensorType((batch,), int32), data, TensorType((batch, size), int32))))
    return True


def _expect_elements(ctx: RelationContext, data: TensorType, **indices: int) -> None:
    """Check that every index is in range of a row."""
    count = data.shape[2]
    for name, index in indices.items():
        if not isinstance(count, int) or not 0 <= index < count:
            ctx.fail(f"{name} is out of range of a row", arg=0, axis=2,
                     expected=f"more than {index} elements", got=count)


@define_op("vision.get_valid_counts", attrs=GetValidCountsAttrs, relation=_valid_relation,
           pattern=OpPattern.OPAQUE, level=5, results=3)
def get_valid_counts(data: te.Tensor, attrs: GetValidCountsAttrs) -> tuple[te.Tensor, ...]:
    """The number of rows per batch with a score above the threshold; these rows; their indices.

    Rows and indices keep the order of the data; unused entries at the end are -1.
    """
    return topi.get_valid_counts(data, threshold=attrs.score_threshold,
                                 score_index=attrs.score_index, id_index=attrs.id_index)


@get_valid_counts.gradient
def _valid_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """Each row has the gradient of its copy; rows that are left out have none."""
    data = call.args[0]
    shape = known_shape(data, call)
    if 0 in shape:
        return [typed_zeros(data)]
    places = op.broadcast_to(op.expand_dims(TupleGetItem(y, 2), axis=2), shape=shape)
    return [op.scatter_elements(typed_zeros(data), places, TupleGetItem(dy, 1), axis=1,
                                reduction="add")]


def _valid_reference(data: np.ndarray, **values: Any) -> tuple[np.ndarray, ...]:
    attrs = GetValidCountsAttrs(**values)
    passes = data[:, :, attrs.score_index].astype(np.float64) > attrs.score_threshold
    if attrs.id_index >= 0:
        passes &= data[:, :, attrs.id_index] >= 0
    rows, numbers = np.full_like(data, -1), np.full(data.shape[:2], -1, np.int32)
    for batch, chosen in enumerate(passes):
        found = np.flatnonzero(chosen)
        rows[batch, :len(found)], numbers[batch, :len(found)] = data[batch, found], found
    return passes.sum(axis=1).astype(np.int32), rows, numbers


get_valid_counts.spec(
    _valid_reference,
    op_case((2, 5, 6), score_threshold=0.1), op_case((1, 4, 5), id_index=-1, score_index=0),
    op_case((1, 0, 6)),
)


@dataclass(frozen=True, kw_only=True)
class NonMaxSuppressionAttrs(Attrs):
    force_suppress: bool = attr(False, "boxes of different classes suppress each other")
    top_k: int = attr(-1, "number of best boxes that take part; all if not positive")
    coord_start: int = attr(2, "index of the first of four elements with two opposite corners",
                            check=lambda n: n >= 0, expected="0 or more")
    score_index: int = attr(1, "index of the score")
    id_index: int = attr(0, "index of the class; -1 for none")
    return_indices: bool = attr(True, "return the indices of the kept boxes, not the rows")
    invalid_to_bottom: bool = attr(False, "rows that stay are in front; else at their rank")


def _suppression_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(5)
    if types is None:
        return False
    data, valid, numbers, most, overlap = types
    attrs = ctx.attrs_as(NonMaxSuppressionAttrs)
    ctx.expect_rank(0, data, 3)
    ctx.expect_float(0, data)
    _expect_elements(ctx, data, score_index=attrs.score_index, id_index=max(attrs.id_index, 0),
                     coord_start=attrs.coord_start + 3)
    for arg, type_, rank in ((1, valid, 1), (2, numbers, 2)):
        ctx.expect_rank(arg, type_, rank)
        ctx.expect_int(arg, type_)
        for axis in range(rank):
            ctx.expect_dim(arg, axis, type_.shape[axis], data.shape[axis],
                           "the argument does not fit the boxes")
    _expect_one(ctx, 3, most)
    ctx.expect_int(3, most)
    _expect_one(ctx, 4, overlap)
    ctx.expect_float(4, overlap)
    batch, size, _ = data.shape
    ctx.output(TupleType((TensorType((batch, size), int32), TensorType((batch, 1), int32)))
               if attrs.return_indices else data)
    return True


@define_op("vision.non_max_suppression", attrs=NonMaxSuppressionAttrs,
           relation=_suppression_relation, pattern=OpPattern.OPAQUE, level=5,
           results=lambda attrs, _: 2 if attrs.return_indices else 1)
def non_max_suppression(
    data: te.Tensor, valid_count: te.Tensor, indices: te.Tensor, max_output_size: te.Tensor,
    iou_threshold: te.Tensor, attrs: NonMaxSuppressionAttrs,
) -> Any:
    """The boxes that overlap no better box, by descending score; unused entries are -1.

    ``data`` is (batch, boxes, elements), of which the first ``valid_count`` take part. A box is
    suppressed if its intersection over union with a kept box exceeds ``iou_threshold``. The result
    is the ``indices`` of the boxes and their number, or the rows themselves.
    """
    found = topi.non_max_suppression(
        data, valid_count, indices, max_output_size, iou_threshold, coord_start=attrs.coord_start,
        score_index=attrs.score_index, id_index=attrs.id_index,
        force_suppress=attrs.force_suppress, top_k=attrs.top_k,
        return_indices=attrs.return_indices, invalid_to_bottom=attrs.invalid_to_bottom,
    )
    return found if attrs.return_indices else found[0]


def overlaps(box: np.ndarray, others: np.ndarray, edge: float = 0.0) -> np.ndarray:
    """Intersection over union of a box with each of ``others``."""
    low = np.maximum(np.minimum(box[:2], box[2:]), np.minimum(others[:, :2], others[:, 2:]))
    high = np.minimum(np.maximum(box[:2], box[2:]), np.maximum(others[:, :2], others[:, 2:]))
    shared = np.prod(np.maximum(high - low + edge, 0), axis=1)
    covered = (np.prod(np.abs(box[2:] - box[:2]) + edge)
               + np.prod(np.abs(others[:, 2:] - others[:, :2]) + edge, axis=1) - shared)
    return np.divide(shared, covered, out=np.zeros_like(shared), where=covered > 0)


def keep_best(
    boxes: np.ndarray, order: Sequence[int], overlap: float, most: int, edge: float = 0.0,
    classes: np.ndarray | None = None,
) -> list[int]:
    """The boxes of ``order`` (by descending score) to keep; each suppresses later ones."""
    left, kept = list(order), []
    while left and (most < 0 or len(kept) < most):
        best = left.pop(0)
        kept.append(best)
        shared = overlaps(boxes[best], boxes[left], edge) if left else np.zeros(0)
        apart = np.zeros(len(left), bool) if classes is None else classes[left] != classes[best]
        left = [i for i, s, other in zip(left, shared, apart, strict=True)
                if other or not s > overlap]
    return kept


def _suppression_reference(
    data: np.ndarray, valid: np.ndarray, numbers: np.ndarray, most: np.ndarray,
    overlap: np.ndarray, **values: Any,
) -> Any:
    attrs = NonMaxSuppressionAttrs(**values)
    rows = np.full_like(data, -1)
    found, counts = np.full(data.shape[:2], -1, np.int32), np.zeros((len(data), 1), np.int32)
    for b in range(len(data)):
        count = int(np.clip(valid[b], 0, data.shape[1]))
        order = np.argsort(-data[b, :count, attrs.score_index], kind="stable").tolist()
        order = order[:attrs.top_k] if attrs.top_k > 0 else order
        boxes = data[b, :, attrs.coord_start:attrs.coord_start + 4]
        alike = attrs.force_suppress or attrs.id_index < 0
        classes = None if alike else data[b, :, attrs.id_index]
        kept = keep_best(boxes, order, np.asarray(overlap, data.dtype).item(),
                         int(np.asarray(most).item()), classes=classes)
        positions = range(len(kept)) if attrs.invalid_to_bottom else [order.index(k) for k in kept]
        rows[b, list(positions)] = data[b, kept]
        found[b, :len(kept)], counts[b] = numbers[b, kept], len(kept)
    return (found, counts) if attrs.return_indices else rows


def _boxes(seed: int, *shape: int) -> np.ndarray:
    """Rows (class, score, x0, y0, x1, y1) of boxes that overlap considerably."""
    rng = np.random.default_rng(seed)
    rows = rng.uniform(0, 1, (*shape, 6)).astype(np.float32)
    rows[..., 0] = rng.integers(0, 2, shape)
    rows[..., 4:] = rows[..., 2:4] + rng.uniform(0.3, 1.0, (*shape, 2))
    return rows


def _corners(seed: int, *shape: int) -> np.ndarray:
    return np.ascontiguousarray(_boxes(seed, *shape)[..., 2:])


_NUMBERS = np.arange(24, dtype=np.int32).reshape(2, 12)
_COUNTS = np.array([12, 7], np.int32)
_ALL, _THREE = np.asarray(-1, np.int32), np.asarray([3], np.int32)
_HALF, _THIRD = np.asarray(0.5, np.float32), np.asarray([0.3], np.float32)
non_max_suppression.no_gradient(
    "which boxes stay is discrete; gather them by the indices of return_indices")
non_max_suppression.spec(
    _suppression_reference,
    op_case(_boxes(0, 2, 12), _COUNTS, _NUMBERS, _ALL, _HALF),
    op_case(_boxes(1, 2, 12), _COUNTS, _NUMBERS, _THREE, _THIRD, force_suppress=True, top_k=9),
    op_case(_boxes(2, 2, 12), _COUNTS, _NUMBERS, _ALL, _THIRD, return_indices=False,
            invalid_to_bottom=True),
    op_case(_boxes(3, 2, 12), _COUNTS, _NUMBERS, _THREE, _HALF, return_indices=False, id_index=-1),
)


@dataclass(frozen=True, kw_only=True)
class AllClassNonMaxSuppressionAttrs(Attrs):
    center_point_box: bool = attr(False, "boxes are (x, y, width, height) of their centre, not "
                                  "two opposite corners")


def _all_class_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(5)
    if types is None:
        return False
    boxes, scores, most, overlap, threshold = types
    for arg, type_ in enumerate((boxes, scores)):
        ctx.expect_rank(arg, type_, 3)
        ctx.expect_float(arg, type_)
    ctx.expect_dim(0, 2, boxes.shape[2], 4, "expected four numbers per box")
    ctx.expect_dim(1, 0, scores.shape[0], boxes.shape[0], "the batches differ")
    ctx.expect_dim(1, 2, scores.shape[2], boxes.shape[1], "expected one score per box")
    _expect_one(ctx, 2, most)
    ctx.expect_int(2, most)
    for arg, type_ in ((3, overlap), (4, threshold)):
        _expect_one(ctx, arg, type_)
        ctx.expect_float(arg, type_)
    ctx.output(TensorType((ANY, 3), int64))
    return True


@define_op("vision.all_class_non_max_suppression", attrs=AllClassNonMaxSuppressionAttrs,
           relation=_all_class_relation, pattern=OpPattern.OPAQUE, level=5)
def all_class_non_max_suppression(
    boxes: te.Tensor, scores: te.Tensor, max_output_boxes_per_class: te.Tensor,
    iou_threshold: te.Tensor, score_threshold: te.Tensor, attrs: AllClassNonMaxSuppressionAttrs,
) -> tuple[te.Tensor, ...]:
    """The boxes of each class that overlap no better box, as rows (batch, class, box).

    ``boxes`` is (batch, boxes, 4) and ``scores`` (batch, classes, boxes); only scores above the
    threshold count. One row per kept box, by batch, class and descending score.
    """
    return topi.all_class_suppression(
        boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold,
        center_point_box=attrs.center_point_box,
    )


@all_class_non_max_suppression.bounds
def _all_class_bounds(_attrs: Attrs, types: Sequence[Type]) -> Bounds:
    batch, classes, size = tensor_of(types[1]).shape
    most = dim_mul(dim_mul(batch, classes), size)
    return Bounds((TensorType((most, 3), int64),), ((0, 0, 0),))


def _all_class_reference(
    boxes: np.ndarray, scores: np.ndarray, most: np.ndarray, overlap: np.ndarray,
    threshold: np.ndarray, center_point_box: bool = False,
) -> np.ndarray:
    if center_point_box:
        centre, half = boxes[..., [1, 0]], boxes[..., [3, 2]] / 2
        boxes = np.concatenate([centre - half, centre + half], axis=-1)
    rows = []
    for b, c in np.ndindex(*scores.shape[:2]):
        order = [i for i in np.argsort(-scores[b, c], kind="stable")
                 if scores[b, c, i] > threshold]
        kept = keep_best(boxes[b], order, np.asarray(overlap).item(), int(np.asarray(most).item()))
        rows += [(b, c, i) for i in kept]
    return np.array(rows, np.int64).reshape(-1, 3)


_LOW = np.asarray(0.2, np.float32)
all_class_non_max_suppression.spec(
    _all_class_reference,
    op_case(_corners(4, 2, 9), (2, 3, 9), np.asarray(9, np.int64), _HALF, _LOW),
    op_case(_corners(5, 1, 7), (1, 2, 7), _THREE, _THIRD, _LOW, center_point_box=True),
    op_case(_corners(6, 1, 5), (1, 1, 5), np.asarray(0, np.int32), _HALF, _LOW),
    op_case((1, 0, 4), (1, 2, 0), _ALL, _HALF, _LOW),
)
