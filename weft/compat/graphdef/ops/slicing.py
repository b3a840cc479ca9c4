"""Parts of tensors: slices, gathers and scatters."""

from __future__ import annotations

from weft import op
from weft.compat.graphdef.node import Node, static_shape
from weft.compat.graphdef.registry import converts
from weft.ir import Dim, Expr

_MASKS = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
_FAR = 2**62  # beyond the end of every axis


@converts("Slice", inputs=3)
def slice_(node: Node) -> Expr:
    """Size -1 takes all that follows."""
    begin = node.ints(1, "the start")
    size = node.ints(2, "the size")
    if len(begin) != node.rank() or len(size) != node.rank():
        raise node.fail("start and size need one number for each axis", got=f"{begin} and {size}")
    for start, count, total in zip(begin, size, node.shape(), strict=True):
        last = start + max(count, 0)
        if start < 0 or count < -1 or (isinstance(total, int) and last > total):
            raise node.fail("the slice is outside of the tensor", got=f"{begin} and {size}",
                            expected=f"a part of {node.type()}")
    end = tuple(_FAR if count == -1 else start + count
                for start, count in zip(begin, size, strict=True))
    return node.call(op.strided_slice, node.input(0), begin=begin, end=end)


@converts("StridedSlice", inputs=4, attributes=_MASKS)
def strided_slice(node: Node) -> Expr:
    """Bit i of each mask is about entry i of ``begin``, ``end`` and ``strides``.

    An entry is a range, an index (shrink), a new axis, or an ellipsis for the axes between.
    """
    begin, end, strides = (node.ints(i, what) for i, what in
                           ((1, "the start"), (2, "the end"), (3, "the steps")))
    if not len(begin) == len(end) == len(strides):
        raise node.fail("start, end and steps differ in length",
                        got=f"{begin}, {end}, {strides}")
    masks = {name: node.attr(name, int, 0) for name in _MASKS}
    ranges: list[tuple[int, int, int]] = []
    shape: list[Dim | str] = []
    entries = _entries(node, masks, len(begin))
    for entry in entries:
        axis = len(ranges)
        if entry is None:
            ranges.append((0, _FAR, 1))
            shape.append("axis")
            continue
        bit = 1 << entry
        if masks["new_axis_mask"] & bit:
            shape.append("new")
        elif masks["shrink_axis_mask"] & bit:
            ranges.append(_index(node, axis, begin[entry]))
            shape.append("drop")
        else:
            step = strides[entry]
            if step == 0:
                raise node.fail("a step is zero", got=str(strides))
            first = (0 if step > 0 else _FAR) if masks["begin_mask"] & bit else begin[entry]
            last = (_FAR if step > 0 else -_FAR) if masks["end_mask"] & bit else end[entry]
            ranges.append((first, last, step))
            shape.append("axis")
    return _shaped(node, ranges, [text for text in shape if isinstance(text, str)])


def _entries(node: Node, masks: dict[str, int], count: int) -> list[int | None]:
    """The entries in the order of axes; ``None`` for an axis without one."""
    used = sum(1 for i in range(count)
               if not (masks["new_axis_mask"] | masks["ellipsis_mask"]) >> i & 1)
    rest = node.rank() - used
    if rest < 0:
        raise node.fail("more indices than axes", expected=str(node.rank()), got=str(used))
    found: list[int | None] = []
    has_ellipsis = False
    for i in range(count):
        if masks["ellipsis_mask"] >> i & 1:
            if has_ellipsis:
                raise node.fail("more than one ellipsis")
            has_ellipsis = True
            found.extend([None] * rest)
        else:
            found.append(i)
    return found if has_ellipsis else found + [None] * rest


def _index(node: Node, axis: int, index: int) -> tuple[int, int, int]:
    """The range of one element; negative indices count from the end."""
    total = node.shape()[axis]
    if isinstance(total, int) and not -total <= index < total:
        raise node.fail("the index is outside of the axis", got=str(index),
                        expected=f"[{-total}, {total})")
    return index, _FAR if index == -1 else index + 1, 1


def _shaped(node: Node, ranges: list[tuple[int, int, int]], axes: list[str]) -> Expr:
    """The slice, without the axes that are dropped and with those that are new."""
    x = node.input(0)
    if any(r != (0, _FAR, 1) for r in ranges):
        begin, end, strides = (tuple(r[i] for r in ranges) for i in range(3))
        x = node.call(op.strided_slice, x, begin=begin, end=end, strides=strides)
    kept = [kind for kind in axes if kind != "new"]
    dropped = tuple(i for i, kind in enumerate(kept) if kind == "drop")
    if dropped:
        x = node.call(op.squeeze, x, axis=dropped)
    position = 0
    for kind in axes:
        if kind == "new":
            x = node.call(op.expand_dims, x, axis=position)
        position += kind != "drop"
    return x


@converts("Gather", inputs=2, attributes=("validate_indices",))
def gather_rows(node: Node) -> Expr:
    return node.call(op.take, node.input(0), node.input(1), axis=0)


@converts("GatherV2", inputs=3, attributes=("batch_dims",))
def gather(node: Node) -> Expr:
    axis = node.axis(node.integer(2, "the axis"))
    batch = node.attr("batch_dims", int, 0)
    if batch == 0:
        return node.call(op.take, node.input(0), node.input(1), axis=axis)
    if batch != axis:
        raise node.unsupported("batch_dims other than the axis", got=f"{batch} and axis {axis}")
    indices = node.call(op.expand_dims, node.input(1), axis=node.rank(1))
    return node.call(op.gather_nd, node.input(0), _index_first(node, indices), batch_dims=batch)


@converts("GatherNd", inputs=2)
def gather_nd(node: Node) -> Expr:
    return node.call(op.gather_nd, node.input(0), _index_first(node, node.input(1)))


def _index_first(node: Node, indices: Expr) -> Expr:
    """Indices along axis 0, where weft has them; TensorFlow has them along the last."""
    rank = len(indices.checked_type.shape)  # type: ignore[union-attr]
    return node.call(op.transpose, indices, axes=(rank - 1, *range(rank - 1)))


@converts("ScatterNd", inputs=3)
def scatter_nd(node: Node) -> Expr:
    """Updates of one element add up."""
    shape = node.ints(2, "the shape")
    zeros = node.call(op.zeros, shape=shape, dtype=node.type(1).dtype)
    return node.call(op.scatter_nd, zeros, _index_first(node, node.input(0)), node.input(1),
                     mode="add")


@converts("TensorScatterUpdate", "TensorScatterAdd", "TensorScatterMax", "TensorScatterMin",
          inputs=3)
def tensor_scatter(node: Node) -> Expr:
    mode = node.op.removeprefix("TensorScatter").lower()
    return node.call(op.scatter_nd, node.input(0), _index_first(node, node.input(1)),
                     node.input(2), mode=mode)


@converts("Where", inputs=1, outputs=("index",))
def where(node: Node) -> Expr:
    static_shape(node, node.shape(), "Where")
    return node.call(op.argwhere, node.input(0))
