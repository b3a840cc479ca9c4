"""Repetition and reversal: tile, reverse, reverse_sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, RelationContext, TensorType, attr, normalize_axis, sizes_from
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import Dim, KnownDim, dim_mul
from weft.ir.traits import COPIES_ELEMENTS, linear
from weft.op.batching import aligned, along, sequences_at, with_attrs
from weft.op.gradients import attrs_of, known_shape, tensor_type
from weft.op.transform.like import zeros_like
from weft.support.dataclass import dataclass
from weft.tir.expr import maximum
from weft.topi import indexing
from weft.topi.sizes import as_sizes


@dataclass(frozen=True, kw_only=True)
class TileAttrs(Attrs):
    reps: tuple[KnownDim, ...] = attr(doc="repetitions along each axis, aligned at the last axis",
                                      check=sizes_from(0), expected="numbers >= 0")


def _tile_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    reps = ctx.attrs_as(TileAttrs).reps
    rank = max(len(reps), source.ndim)
    sizes = (1,) * (rank - source.ndim) + source.shape
    times = (1,) * (rank - len(reps)) + reps
    shape = tuple(dim_mul(s, n) for s, n in zip(sizes, times, strict=True))
    ctx.output(TensorType(shape, source.dtype))
    return True


@define_op("tile", attrs=TileAttrs, relation=_tile_relation, pattern=OpPattern.INJECTIVE, level=3,
           traits=COPIES_ELEMENTS)
def tile(x: te.Tensor, attrs: TileAttrs) -> te.Tensor:
    """``x`` repeated along its axes, and along new leading axes."""
    reps = as_sizes(attrs.reps)
    lead = max(len(reps) - x.ndim, 0)
    times = (1,) * (x.ndim + lead - len(reps)) + reps
    shape = [n if i < lead else x.shape[i - lead] * n for i, n in enumerate(times)]
    return te.compute(
        shape,
        lambda *i: x[tuple(p % maximum(size, 1)  # avoids a modulo by 0 for an empty axis
                           for p, size in zip(i[lead:], x.shape, strict=True))],
        name="tile",
    )


tile.spec(np.tile, op_case((2, 3), reps=(2, 1)), op_case((3,), reps=(2, 2)),
          op_case((2, 3), reps=(3,)), op_case((), reps=(4,)), op_case((2,), reps=(0,)))


@tile.gradient
def _tile_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Reshape so that repetitions become separate axes, and sum over these."""
    shape, reps = known_shape(call.args[0], call), attrs_of(call, TileAttrs).reps
    rank = max(len(shape), len(reps))
    sizes = (1,) * (rank - len(shape)) + shape
    times = (1,) * (rank - len(reps)) + tuple(reps)
    apart = tuple(n for pair in zip(times, sizes, strict=True) for n in pair)
    copies = tuple(range(0, 2 * rank, 2))
    total = op.sum(op.reshape(dy, newshape=apart, allowzero=True), axis=copies)
    return [op.reshape(total, newshape=shape, allowzero=True)]


@dataclass(frozen=True, kw_only=True)
class ReverseAttrs(Attrs):
    axis: int = attr(0, "axis that is reversed")


def _reverse_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    normalize_axis(ctx, ctx.attrs_as(ReverseAttrs).axis, source.ndim)
    ctx.output(source)
    return True


@define_op("reverse", attrs=ReverseAttrs, relation=_reverse_relation, pattern=OpPattern.INJECTIVE,
           level=3, traits=COPIES_ELEMENTS)
def reverse(x: te.Tensor, attrs: ReverseAttrs) -> te.Tensor:
    """The elements along an axis in reverse order."""
    axis = attrs.axis % x.ndim
    return te.compute(
        x.shape,
        lambda *i: x[(*i[:axis], x.shape[axis] - 1 - i[axis], *i[axis + 1:])],
        name="reverse",
    )


reverse.spec(lambda x, axis=0: np.ascontiguousarray(np.flip(x, axis)), op_case((3, 4)),
             op_case((2, 3, 4), axis=-2), op_case((0, 2)))


@reverse.gradient
def _reverse_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [op.reverse(dy, **dict(call.attrs.items()))]


@dataclass(frozen=True, kw_only=True)
class ReverseSequenceAttrs(Attrs):
    seq_axis: int = attr(1, "axis along which sequences are reversed")
    batch_axis: int = attr(0, "axis of the batch")


def _reverse_sequence_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    source, lengths = types
    attrs = ctx.attrs_as(ReverseSequenceAttrs)
    seq = normalize_axis(ctx, attrs.seq_axis, source.ndim, name="seq_axis")
    batch = normalize_axis(ctx, attrs.batch_axis, source.ndim, name="batch_axis")
    if seq == batch:
        ctx.fail("seq_axis and batch_axis are equal", expected="two axes", got=attrs.seq_axis)
    ctx.expect_rank(1, lengths, 1)
    ctx.expect_int(1, lengths)
    ctx.expect_dim(1, 0, lengths.shape[0], source.shape[batch],
                   "expected one length per sequence")
    ctx.output(source)
    return True


@define_op("reverse_sequence", attrs=ReverseSequenceAttrs, relation=_reverse_sequence_relation,
           pattern=OpPattern.INJECTIVE, level=3, traits=linear())
def reverse_sequence(
    x: te.Tensor, seq_lengths: te.Tensor, attrs: ReverseSequenceAttrs
) -> te.Tensor:
    """Each sequence with its first elements, as many as its length, in reverse order."""
    return indexing.reverse_sequence(x, seq_lengths, attrs.seq_axis % x.ndim,
                                     attrs.batch_axis % x.ndim)


def _reverse_sequence_reference(
    x: np.ndarray, seq_lengths: np.ndarray, seq_axis: int = 1, batch_axis: int = 0
) -> np.ndarray:
    result = np.moveaxis(x, (batch_axis, seq_axis), (0, 1)).copy()
    for line, length in zip(result, seq_lengths, strict=True):
        count = min(max(int(length), 0), line.shape[0])
        line[:count] = line[:count][::-1].copy()
    return np.ascontiguousarray(np.moveaxis(result, (0, 1), (batch_axis, seq_axis)))


reverse_sequence.spec(
    _reverse_sequence_reference, op_case((2, 5), np.array([3, 1])),
    op_case((4, 3, 2), np.array([0, 4, 9], np.int32), seq_axis=0, batch_axis=1),
    op_case((2, 4), np.array([2, 3]), seq_axis=-1, batch_axis=-2),
    op_case((0, 3), np.zeros(0, np.int64)),
)
reverse_sequence.gradient(lambda call, _y, dy: [
    reverse_sequence(dy, call.args[1], **dict(call.attrs.items())), zeros_like(call.args[1])])


reverse.batching(along("axis"))


@tile.batching
def _tile_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], _size: Dim
) -> Expr:
    reps, ndim = attrs_of(call, TileAttrs).reps, tensor_type(call).ndim
    times = (1,) * (1 + ndim - len(reps)) + reps
    return with_attrs(call, [aligned(args[0], call.args[0], ndim)], reps=times)

reverse_sequence.batching(sequences_at(lambda attrs: attrs.batch_axis))

for _op in (tile, reverse):
    _op.refer(shape_value="weft.op.shape_values:moved")
