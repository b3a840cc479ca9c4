"""Non-maximum suppression: of overlapping boxes, the one with the best score is kept.

One loop serves all operators: it visits the candidates of a group by descending score and keeps
each that overlaps no kept box. The kept boxes are copied side by side, to be compared as vectors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import te
from weft.ir.dtype import int32, int64
from weft.tir import Buffer, PrimExpr, Var, all_of, const, int_value, maximum, minimum, not_, select
from weft.tir.stmt import Allocate, BufferStore, LetStmt, Stmt, seq
from weft.topi import sort as topi_sort
from weft.topi.indexing import full
from weft.topi.loop_nest import nest
from weft.topi.radix_sort import sorted_positions
from weft.topi.upcast import converted, upcast

# Boxes that are compared at once: a loop over so many has no exit, so that it is vectorized.
_TOGETHER = 32


def suppress(
    boxes: Any, order: Any, valid: Any, classes: Any, overlap: Any, most: Any, kept: Any,
    count: Any, corners: Any, own: Any, edge: float, any_class: bool, together: int,
) -> None:
    """Set ``kept`` (group, rank) to 1 for kept candidates, and count them.

    ``boxes`` is (batch, boxes, 4), two opposite corners each; ``order`` (group, rank) has the
    box indices by descending score, of which ``valid`` are candidates; groups of a batch are
    adjacent. ``corners`` (5, blocks, ``together``) and ``own`` are room for the kept boxes and
    their classes; a block has no bounds to check, so that vectors compare its boxes.
    Boxes of different ``classes`` overlap only for ``any_class``. A box whose
    intersection over union with a kept box exceeds ``overlap`` is dropped, and so are all after
    the first ``most`` (negative: no limit). ``edge`` is added to each side length: 1 if corners
    are inclusive pixels.
    """
    per_batch = order.shape[0] // max(boxes.shape[0], 1)
    for group in range(order.shape[0]):
        batch = group // per_batch
        found = 0
        for rank in range(order.shape[1]):
            kept[group, rank] = 0
        for rank in range(min(valid[group], order.shape[1])):
            if most[group] >= 0 and found >= most[group]:
                break
            a = order[group, rank]
            top = min(boxes[batch, a, 0], boxes[batch, a, 2])
            bottom = max(boxes[batch, a, 0], boxes[batch, a, 2])
            left = min(boxes[batch, a, 1], boxes[batch, a, 3])
            right = max(boxes[batch, a, 1], boxes[batch, a, 3])
            area = (abs(boxes[batch, a, 2] - boxes[batch, a, 0]) + edge) * (
                abs(boxes[batch, a, 3] - boxes[batch, a, 1]) + edge)
            klass = classes[group, a]
            hits = 0
            for block in range((found + together - 1) // together):
                for b in range(together):
                    height = min(bottom, corners[2, block, b]) - max(top, corners[0, block, b])
                    width = min(right, corners[3, block, b]) - max(left, corners[1, block, b])
                    shared = max(height + edge, 0) * max(width + edge, 0)
                    both = area + corners[4, block, b] - shared
                    same = any_class | (own[block, b] == klass)
                    is_kept = block * together + b < found
                    hits += is_kept & same & (both > 0) & (shared > overlap[group] * both)
                if hits > 0:
                    break
            if hits == 0:
                block, b = found // together, found % together
                corners[0, block, b], corners[2, block, b] = top, bottom
                corners[1, block, b], corners[3, block, b] = left, right
                corners[4, block, b], own[block, b] = area, klass
                kept[group, rank] = 1
                found += 1
        count[group] = found


def by_score(
    scores: te.Tensor, passes: Callable[[PrimExpr, PrimExpr, Sequence[Buffer]], PrimExpr],
    reads: Sequence[te.Tensor] = (),
) -> tuple[te.Tensor, ...]:
    """The candidates of each group (group, boxes) by descending score, then 0; their number.

    ``passes`` says of a group and a box, and the buffers of ``reads``, whether it is one. Only
    candidates are sorted: most detectors have few.
    """
    groups, size = scores.shape

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        (source, *others), (order, count) = inputs, outputs

        def group(i: tuple[PrimExpr, ...]) -> Stmt:
            (g,) = i
            boxes, number = Buffer("boxes", (size,), int64), Var("number", int64)
            found = Buffer("found", (const(1),), int64, "local")
            at = found.load(0)

            def look(box: tuple[PrimExpr, ...]) -> Stmt:
                # The next box overwrites one that does not pass.
                return seq([BufferStore(boxes, box[0], (at,)), BufferStore(
                    found, at + passes(g, box[0], others).astype(int64), (const(0),))])

            sort = sorted_positions(
                number, number, lambda k: source.load(g, boxes.load(k)),
                lambda rank, k: BufferStore(order, boxes.load(k), (g, rank)), is_ascend=False,
                room=size)
            rest = nest((size - number,),
                        lambda k: BufferStore(order, const(0), (g, number + k[0])))
            body = seq([BufferStore(found, const(0), (const(0),)), nest((size,), look),
                        LetStmt(number, at, seq([BufferStore(count, number, (g,)), sort, rest]))])
            return Allocate(boxes, Allocate(found, body))

        width = int_value(size) or 0
        return nest((groups,), group, independent=True, work=width * width.bit_length())

    return te.extern([scores.shape, (groups,)], [scores, *reads], build, [int64, int64],
                     "candidates_by_score")


def kept_by_rank(
    boxes: te.Tensor, order: te.Tensor, valid: te.Tensor, classes: te.Tensor | None,
    overlap: te.Tensor, most: te.Tensor, *, edge: float = 0.0,
) -> tuple[te.Tensor, ...]:
    """``suppress`` as tensors: kept (group, rank) and count (group); one class where it is None."""
    groups, size = order.shape
    own = classes
    if own is None:
        own = te.compute((groups, size), lambda *_: const(0, int32), name="one_class")
    blocks = (size + _TOGETHER - 1) // _TOGETHER
    return te.python_extern(
        [(groups, size), (groups,)], [boxes, order, valid, own, overlap, most], suppress,
        [int32, int64], scalars=[edge, classes is None, _TOGETHER], name="suppress",
        scratch=[((5, blocks, _TOGETHER), boxes.dtype), ((blocks, _TOGETHER), own.dtype)],
    )


def compact_ranks(kept: Any, positions: Any) -> None:
    """``positions`` (group, n): the kept ranks in order, then -1."""
    for group in range(kept.shape[0]):
        found = 0
        for rank in range(kept.shape[1]):
            if kept[group, rank] != 0 and found < positions.shape[1]:
                positions[group, found] = rank
                found += 1
        for rest in range(found, positions.shape[1]):
            positions[group, rest] = -1


def ranks_kept(kept: te.Tensor, size: PrimExpr | int) -> te.Tensor:
    """The first ``size`` kept ranks of each group, then -1."""
    return te.python_extern([(kept.shape[0], size)], [kept], compact_ranks, [int64],
                            name="compact_ranks")[0]


def spread(value: te.Tensor, groups: PrimExpr, dtype: Any) -> te.Tensor:
    """A one-element tensor broadcast to the groups."""
    zeros = (0,) * value.ndim
    return te.compute((groups,), lambda _: value[zeros].astype(dtype), name="spread")


def non_max_suppression(
    data: te.Tensor, valid_count: te.Tensor, indices: te.Tensor, max_output_size: te.Tensor,
    iou_threshold: te.Tensor, *, coord_start: int, score_index: int, id_index: int,
    force_suppress: bool, top_k: int, return_indices: bool, invalid_to_bottom: bool,
) -> tuple[te.Tensor, ...]:
    """The kept rows of ``data`` (batch, boxes, elements) by descending score, -1 elsewhere.

    With ``return_indices``: the ``indices`` of the kept boxes (batch, boxes) and their number
    (batch, 1).
    """
    batch, size, elements = data.shape
    wide = upcast(data)
    boxes = te.compute((batch, size, 4), lambda b, i, k: wide[b, i, k + coord_start],
                       name="boxes")
    scores = te.compute((batch, size), lambda b, i: data[b, i, score_index], name="scores")
    classes = None if force_suppress or id_index < 0 else te.compute(
        (batch, size), lambda b, i: wide[b, i, id_index], name="classes")
    valid = _candidates(valid_count, size, top_k)
    order, _ = by_score(scores, lambda b, i, reads: i < reads[0].load(b).astype(int64),
                        [valid_count])
    overlap, most = spread(iou_threshold, batch, wide.dtype), spread(max_output_size, batch, int64)
    kept, count = kept_by_rank(boxes, order, valid, classes, overlap, most)
    if return_indices:
        position = ranks_kept(kept, size)
        found = te.compute((batch, size), lambda b, i: select(
            position[b, i] >= 0, indices[b, order[b, maximum(position[b, i], 0)]].astype(int32),
            const(-1, int32)), name="kept_indices")
        return found, te.compute((batch, 1), lambda b, _: count[b].astype(int32),
                                 name="valid_box_count")
    if invalid_to_bottom:
        position = ranks_kept(kept, size)
    else:
        position = te.compute((batch, size), lambda b, i: select(
            kept[b, i].not_equal(0), i, const(-1, int64)), name="position")
    return (te.compute((batch, size, elements), lambda b, i, k: select(
        position[b, i] >= 0, data[b, order[b, maximum(position[b, i], 0)], k],
        const(-1, data.dtype)),
        name="suppressed"),)


def _candidates(valid_count: te.Tensor, size: PrimExpr, top_k: int) -> te.Tensor:
    """The number of candidate boxes of each batch."""

    def count(b: PrimExpr) -> PrimExpr:
        valid = maximum(minimum(valid_count[b].astype(int64), size), 0)
        return minimum(valid, top_k) if top_k > 0 else valid

    return te.compute(valid_count.shape, count, name="candidates")


def all_class_suppression(
    boxes: te.Tensor, scores: te.Tensor, max_output: te.Tensor, iou_threshold: te.Tensor,
    score_threshold: te.Tensor, *, center_point_box: bool,
) -> tuple[te.Tensor, ...]:
    """Rows (batch, class, box) of the kept boxes of each class, in that order, and their number.

    ``boxes`` is (batch, boxes, 4), ``scores`` (batch, classes, boxes); only boxes with a score
    above the threshold take part.
    """
    batch, classes, size = scores.shape
    groups = batch * classes
    wide_scores = upcast(scores)
    flat = te.compute((groups, size), lambda g, i: wide_scores[g // classes, g % classes, i],
                      name="flat_scores")

    def passes(g: PrimExpr, i: PrimExpr, reads: Sequence[Buffer]) -> PrimExpr:
        score, threshold = reads[0].load(g, i), reads[1]
        least = threshold.load(*(0,) * threshold.ndim).astype(score.dtype)
        return all_of(score > least, not_(te.isnan(score)))

    order, valid = by_score(flat, passes, [flat, score_threshold])
    wide = upcast(boxes)
    corners = _corners(wide) if center_point_box else wide
    kept, count = kept_by_rank(corners, order, valid, None,
                               spread(iou_threshold, groups, wide.dtype),
                               spread(max_output, groups, int64))
    return te.python_extern(
        [(groups * size, 3), (1,)], [kept, order, count], collect, [int64, int64],
        scalars=[classes], name="collect",
    )


def best_of_classes(
    boxes: te.Tensor, scores: te.Tensor, *, per_class: int, most: int, classes: int,
    iou_threshold: float, score_threshold: float,
) -> tuple[te.Tensor, ...]:
    """The ``most`` best boxes of all classes after suppression within each, padded with zeros.

    ``scores`` is (batch, boxes, classes), of which the last ``classes`` count. Returns boxes
    (batch, most, 4), classes and scores (batch, most), and their number (batch).
    """
    batch, size = boxes.shape[:2]
    wide, table, groups = upcast(boxes), upcast(scores), batch * classes
    background = scores.shape[2] - classes
    flat = te.compute((groups, size), lambda g, i: table[
        g // classes, i, g % classes + background], name="flat_scores")
    dtype = flat.dtype
    order, valid = by_score(flat, lambda g, i, reads: reads[0].load(g, i) >= const(
        score_threshold, dtype), [flat])
    kept, count = kept_by_rank(
        wide, order, valid, None, full((groups,), const(iou_threshold, wide.dtype)),
        full((groups,), const(per_class, int64)))
    # Suppressed boxes get the lowest score, so that the second sort moves them to the end.
    stays = te.compute((batch, classes * size), lambda b, m: select(
        kept[b * classes + m // size, m % size].not_equal(0),
        flat[b * classes + m // size, order[b * classes + m // size, m % size]],
        te.min_value(dtype)), name="stays")
    best = topi_sort.argsort(stays, 1, is_ascend=False)
    c = te.reduce_axis(classes, name="c")
    total = te.compute((batch,), lambda b: te.sum(count[b * classes + c.var], c), name="total")

    def chosen(b: PrimExpr, m: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """Whether a box of that rank exists, its class, and its index."""
        # ``most`` may exceed the number of boxes: the read stays in bounds, ``exists`` is false.
        at = best[b, minimum(m, classes * size - 1)]
        exists = all_of(m < total[b], m < classes * size)
        return exists, at // size, order[b * classes + at // size, at % size]

    def box(b: PrimExpr, m: PrimExpr, k: PrimExpr) -> PrimExpr:
        exists, _, number = chosen(b, m)
        return select(exists, boxes[b, number, k], const(0, boxes.dtype))

    def klass(b: PrimExpr, m: PrimExpr) -> PrimExpr:
        exists, found, _ = chosen(b, m)
        return select(exists, found.astype(scores.dtype), const(0, scores.dtype))

    def score(b: PrimExpr, m: PrimExpr) -> PrimExpr:
        exists, found, number = chosen(b, m)
        return select(exists, scores[b, number, found + background], const(0, scores.dtype))

    return (
        te.compute((batch, most, 4), box, name="best_boxes"),
        te.compute((batch, most), klass, name="best_classes"),
        te.compute((batch, most), score, name="best_scores"),
        te.compute((batch,), lambda b: minimum(total[b], most).astype(int32), name="detections"),
    )


def _corners(boxes: te.Tensor) -> te.Tensor:
    """Boxes converted from centre and size (x, y, width, height) to two corners."""
    half = const(0.5, boxes.dtype)

    def element(b: PrimExpr, i: PrimExpr, k: PrimExpr) -> PrimExpr:
        centre, extent = boxes[b, i, 1 - k % 2], boxes[b, i, 3 - k % 2]
        return select(k < 2, centre - extent * half, centre + extent * half)

    return te.compute(boxes.shape, element, name="corners")


def collect(
    kept: Any, order: Any, count: Any, rows: Any, total: Any, classes: int
) -> None:
    """The kept boxes of all groups as rows (batch, class, box)."""
    found = 0
    for group in range(kept.shape[0]):
        left = count[group]
        for rank in range(kept.shape[1]):
            if left == 0:
                break
            if kept[group, rank] != 0:
                rows[found, 0] = group // classes
                rows[found, 1] = group % classes
                rows[found, 2] = order[group, rank]
                found += 1
                left -= 1
    total[0] = found


def valid_counts(
    data: Any, count: Any, rows: Any, numbers: Any, threshold: float, score: int, klass: int
) -> None:
    """The rows of ``data`` (batch, boxes, elements) with a score above the threshold, compacted."""
    for batch in range(data.shape[0]):
        found = 0
        for i in range(data.shape[1]):
            if data[batch, i, score] > threshold and (klass < 0 or data[batch, i, klass] >= 0):
                for k in range(data.shape[2]):
                    rows[batch, found, k] = data[batch, i, k]
                numbers[batch, found] = i
                found += 1
        count[batch] = found
        for i in range(found, data.shape[1]):
            for k in range(data.shape[2]):
                rows[batch, i, k] = -1
            numbers[batch, i] = -1


def get_valid_counts(
    data: te.Tensor, *, threshold: float, score_index: int, id_index: int
) -> tuple[te.Tensor, ...]:
    """The number of rows above the threshold, those rows compacted, and their indices, then -1."""
    batch, size, _ = data.shape
    wide = upcast(data)
    count, rows, numbers = te.python_extern(
        [(batch,), data.shape, (batch, size)], [wide], valid_counts, [int32, wide.dtype, int32],
        scalars=[threshold, score_index, id_index], name="valid_counts",
    )
    return count, converted(rows, data.dtype), numbers
