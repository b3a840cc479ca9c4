"""Shapes, joins and repetitions of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op
from weft.compat.graphdef.node import Node, element_count, static_shape
from weft.compat.graphdef.registry import converts
from weft.ir import DType, Expr
from weft.support.allocation import check_nodes


def _out_type(node: Node) -> DType:
    return node.attr("out_type", DType, DType.of("int32"))


@converts("Shape", inputs=1, attributes=("out_type",))
def shape(node: Node) -> Expr:
    return _shape(node, 0)


@converts("ShapeN", attributes=("out_type",))
def shapes(node: Node) -> Sequence[Expr]:
    return tuple(_shape(node, index) for index in range(len(node.inputs)))


def _shape(node: Node, index: int) -> Expr:
    if element_count(node.shape(index)) is not None:
        return node.constant(node.shape(index), _out_type(node))
    return node.call(op.shape_of, node.input(index), dtype=_out_type(node))


@converts("Size", inputs=1, attributes=("out_type",))
def size(node: Node) -> Expr:
    count = element_count(node.shape())
    if count is not None:
        return node.constant(count, _out_type(node))
    return node.call(op.ndarray_size, node.input(0), dtype=_out_type(node))


@converts("Rank", inputs=1)
def rank(node: Node) -> Expr:
    return node.constant(node.rank())


@converts("Reshape", inputs=2)
def reshape(node: Node) -> Expr:
    return node.call(op.reshape, node.input(0), newshape=node.dims(1, "the shape"),
                     allowzero=True)


@converts("Transpose", inputs=2, outputs=("y",))
def transpose(node: Node) -> Expr:
    return node.call(op.transpose, node.input(0), axes=node.ints(1, "the order of axes"))


@converts("ExpandDims", inputs=2)
def expand_dims(node: Node) -> Expr:
    axis = node.axis(node.integer(1, "the axis"), node.rank() + 1)
    return node.call(op.expand_dims, node.input(0), axis=axis)


@converts("Squeeze", inputs=1, attributes=("squeeze_dims", "axis"))
def squeeze(node: Node) -> Expr:
    axes = node.sizes("squeeze_dims", ()) or node.sizes("axis", ())
    return node.call(op.squeeze, node.input(0), axis=axes or None)


@converts("ConcatV2")
def concat(node: Node) -> Expr:
    axis = node.axis(node.integer(len(node.inputs) - 1, "the axis"))
    return _concatenated(node, node.inputs[:-1], axis)


@converts("Concat")
def concat_axis_first(node: Node) -> Expr:
    return _concatenated(node, node.inputs[1:], node.axis(node.integer(0, "the axis"),
                                                          node.rank(1)))


def _concatenated(node: Node, parts: Sequence[Expr], axis: int) -> Expr:
    return node.call(op.concatenate, tuple(parts), axis=axis) if len(parts) > 1 else parts[0]


@converts("Pack", attributes=("axis",))
def pack(node: Node) -> Expr:
    axis = node.axis(node.attr("axis", int, 0), node.rank() + 1)
    return node.call(op.stack, tuple(node.inputs), axis=axis)


@converts("Unpack", inputs=1, attributes=("axis", "num"))
def unpack(node: Node) -> Sequence[Expr]:
    axis = node.axis(node.attr("axis", int, 0))
    (count,) = static_shape(node, (node.shape()[axis],), "Unpack")
    if node.attr("num", int, count) != count:
        raise node.fail("the number of results is not the size of the axis",
                        expected=str(node.attr("num", int)), got=str(count))
    check_nodes(count)
    return tuple(node.call(op.take, node.input(0), node.constant(i), axis=axis)
                 for i in range(count))


@converts("Split", inputs=2, attributes=("num_split",))
def split(node: Node) -> Sequence[Expr]:
    axis = node.axis(node.integer(0, "the axis"), node.rank(1))
    count = node.attr("num_split", int)
    return node.fields(node.call(op.split, node.input(1), indices_or_sections=count, axis=axis),
                       count)


@converts("SplitV", inputs=3, attributes=("num_split",))
def split_sizes(node: Node) -> Sequence[Expr]:
    axis = node.axis(node.integer(2, "the axis"))
    sizes = list(node.ints(1, "the sizes"))
    (total,) = static_shape(node, (node.shape()[axis],), "SplitV")
    if sizes.count(-1) == 1:
        sizes[sizes.index(-1)] = total - sum(sizes) - 1
    if sum(sizes) != total or min(sizes, default=0) < 0:
        raise node.fail("the sizes do not add up to that of the axis", expected=str(total),
                        got=str(sizes))
    ends = tuple(int(end) for end in np.cumsum(sizes)[:-1])
    result = node.call(op.split, node.input(0), indices_or_sections=ends, axis=axis)
    return node.fields(result, len(sizes))


@converts("Tile", inputs=2)
def tile(node: Node) -> Expr:
    return node.call(op.tile, node.input(0), reps=node.ints(1, "the repetitions"))


@converts("Fill", inputs=2, attributes=("index_type",))
def fill(node: Node) -> Expr:
    return node.call(op.full, node.input(1), shape=node.dims(0, "the shape"))


@converts("BroadcastTo", inputs=2)
def broadcast_to(node: Node) -> Expr:
    return node.call(op.broadcast_to, node.input(0), shape=node.dims(1, "the shape"))


def _padding(node: Node) -> tuple[tuple[int, int], ...]:
    flat = node.ints(1, "the padding")
    if len(flat) != 2 * node.rank():
        raise node.fail("the padding needs two numbers for each axis", got=str(flat))
    return tuple(zip(flat[::2], flat[1::2], strict=True))


@converts("Pad", "PadV2", inputs=(2, 3))
def pad(node: Node) -> Expr:
    value = node.input(2) if node.op == "PadV2" else node.scalar_like(0, node.input(0))
    return node.call(op.nn.pad, node.input(0), value, pad_width=_padding(node))


@converts("MirrorPad", inputs=2, attributes=("mode",))
def mirror_pad(node: Node) -> Expr:
    mode = node.attr("mode", str)
    if mode not in ("REFLECT", "SYMMETRIC"):
        raise node.fail("unknown mode", got=repr(mode))
    return node.call(op.nn.mirror_pad, node.input(0), pad_width=_padding(node), mode=mode)


@converts("ReverseV2", inputs=2)
def reverse(node: Node) -> Expr:
    result = node.input(0)
    for axis in node.ints(1, "the axes"):
        result = node.call(op.reverse, result, axis=node.axis(axis))
    return result


@converts("ReverseSequence", inputs=2, attributes=("seq_dim", "batch_dim"))
def reverse_sequence(node: Node) -> Expr:
    return node.call(op.reverse_sequence, node.input(0), node.input(1),
                     seq_axis=node.attr("seq_dim", int), batch_axis=node.attr("batch_dim", int, 0))


@converts("OneHot", inputs=4, attributes=("axis",))
def one_hot(node: Node) -> Expr:
    return node.call(op.one_hot, node.input(0), node.input(2), node.input(3),
                     depth=node.integer(1, "the depth"), axis=node.attr("axis", int, -1))


@converts("InvertPermutation", inputs=1, outputs=("y",))
def invert_permutation(node: Node) -> Expr:
    return node.call(op.invert_permutation, node.input(0))


@converts("MatrixBandPart", inputs=3, outputs=("band",))
def band_part(node: Node) -> Expr:
    """A negative number of diagonals keeps all of that side."""
    result = node.input(0)
    lower = node.integer(1, "the number of lower diagonals")
    upper = node.integer(2, "the number of upper diagonals")
    if lower >= 0:
        result = node.call(op.trilu, result, node.constant(-lower, "int64"), upper=True)
    if upper >= 0:
        result = node.call(op.trilu, result, node.constant(upper, "int64"), upper=False)
    return result
