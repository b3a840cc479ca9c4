"""Rotary position embeddings, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import (
    CONTINUOUS,
    Attrs,
    Call,
    Dim,
    Expr,
    KnownDim,
    RelationContext,
    TensorType,
    attr,
    dim_product,
    infer_expr,
)
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.typing.relations import normalize_axis
from weft.op.batching import merged, repeated, unmerged, with_attrs
from weft.op.gradients import clamped as clamped_to
from weft.op.gradients import known_dim, known_shape, tensor_type, typed_zeros
from weft.support.dataclass import dataclass
from weft.topi.nn import rotary as topi_rotary


def table_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """A rotation is orthogonal up to its scale: its adjoint rotates by the opposite angles.

    The gradients of the cosines and sines are those of all pairs that read them, added up at their
    positions.
    """
    x, positions, cos, sin = call.args
    attrs: Any = call.attrs
    dx = op.nn.rotary_embedding(dy, positions, cos, op.negative(sin), **dict(attrs.items()))
    pairs = known_dim(tensor_type(cos).shape[1], call)
    (a, b), (da, db) = (_pairs(t, pairs, attrs.interleaved) for t in (x, dy))
    dcos, dsin = op.add(op.multiply(da, a), op.multiply(db, b)), op.subtract(
        op.multiply(db, a), op.multiply(da, b))
    return [dx, typed_zeros(positions), _in_table(call, dcos, cos), _in_table(call, dsin, sin)]


def frequency_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """An angle moves the rotated pair (a, b) along (-b, a)."""
    x, positions, frequencies = call.args
    attrs: Any = call.attrs
    dx = op.nn.rotary_from_frequencies(dy, positions, op.negative(frequencies),
                                       **dict(attrs.items()))
    pairs = known_dim(tensor_type(frequencies).shape[0], call)
    (a, b), (da, db) = (_pairs(t, pairs, attrs.interleaved) for t in (y, dy))
    angles = _per_position(call, op.subtract(op.multiply(db, a), op.multiply(da, b)))
    steps = op.expand_dims(op.cast(positions, dtype=tensor_type(x).dtype), axis=2)
    total = op.sum(op.multiply(angles, steps), axis=(0, 1))
    return [dx, typed_zeros(positions), op.cast(total, dtype=tensor_type(frequencies).dtype)]


def _pairs(x: Expr, pairs: KnownDim, interleaved: bool) -> tuple[Expr, Expr]:
    """The first and the second elements of the pairs that rotate."""
    strides = (2,) if interleaved else (1,)
    bounds = (((0, 2 * pairs), (1, 2 * pairs)) if interleaved else
              ((0, pairs), (pairs, 2 * pairs)))
    first, second = (op.strided_slice(x, begin=(low,), end=(high,), strides=strides, axes=(-1,))
                     for low, high in bounds)
    return infer_expr(first, trust=True), infer_expr(second, trust=True)


def _per_position(call: Call, x: Expr) -> Expr:
    """``x`` (batch, ..., pairs) summed to (batch or 1, sequence, pairs), typed."""
    data, positions = (tensor_type(a) for a in call.args[:2])
    attrs: Any = call.attrs
    axis = attrs.axis % data.ndim
    others = tuple(i for i in range(1, data.ndim - 1) if i != axis)
    summed = op.sum(x, axis=others) if others else x
    if positions.shape[0] == 1 and data.shape[0] != 1:
        summed = op.sum(summed, axis=(0,), keepdims=True)
    return infer_expr(summed, trust=True)


def _in_table(call: Call, x: Expr, table: Expr) -> Expr:
    """The gradients of all pairs, added up in the rows of the table that they read."""
    type_: TensorType = tensor_type(table)
    rows, pairs = known_shape(table, call)
    per_position = _per_position(call, x)
    count = dim_product(tuple(known_shape(per_position, call)[:2]))
    indices = call.args[1]
    if 0 in (rows, count):
        return typed_zeros(table)
    places = op.reshape(clamped_to(indices, rows, tensor_type(indices).dtype),
                        newshape=(1, count))
    values = op.reshape(op.cast(per_position, dtype=type_.dtype), newshape=(count, pairs),
                        allowzero=True)
    return op.scatter_nd(typed_zeros(table), places, values, mode="add")


@dataclass(frozen=True, kw_only=True)
class RotaryEmbeddingAttrs(Attrs):
    axis: int = attr(-2, "axis of the sequence")
    interleaved: bool = attr(False, "pairs are neighbours instead of elements of two halves")


def _check_positions(ctx: RelationContext, x: TensorType, positions: TensorType) -> None:
    ctx.expect_float(0, x)
    ctx.expect_min_rank(0, x, 3)
    axis = normalize_axis(ctx, ctx.attrs_as(RotaryEmbeddingAttrs).axis, x.ndim)
    if axis in (0, x.ndim - 1):
        ctx.fail("the sequence is the batch or the last axis", arg=0, axis=axis,
                 expected=f"an axis in 1..{x.ndim - 2}", got=axis)
    ctx.expect_int(1, positions)
    ctx.expect_rank(1, positions, 2)
    if positions.shape[0] != 1:
        ctx.expect_dim(1, 0, positions.shape[0], x.shape[0], "the batches differ",
                       why=" (that of the data), or 1")
    ctx.expect_dim(1, 1, positions.shape[1], x.shape[axis], "one position per step is needed",
                   why=" (the sequence)")


def _check_pairs(ctx: RelationContext, arg: int, pairs: Dim, width: Dim) -> None:
    if isinstance(pairs, int) and isinstance(width, int) and 2 * pairs > width:
        ctx.fail("more elements rotate than there are", arg=arg,
                 expected=f"at most {width // 2} pairs", got=pairs)


def _table_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(4)
    if types is None:
        return False
    x, positions, cos, sin = types
    _check_positions(ctx, x, positions)
    for arg, type_ in ((2, cos), (3, sin)):
        ctx.expect_float(arg, type_)
        ctx.expect_rank(arg, type_, 2)
        for axis in range(2):
            ctx.expect_dim(arg, axis, type_.shape[axis], cos.shape[axis],
                           "the tables of cosines and sines differ")
    if cos.shape[0] == 0 and 0 not in positions.shape:
        ctx.fail("the tables are empty", arg=2, axis=0, expected="a size of 1 or more", got=0)
    _check_pairs(ctx, 2, cos.shape[1], x.shape[-1])
    ctx.output(x)
    return True


def _frequency_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    x, positions, frequencies = types
    _check_positions(ctx, x, positions)
    ctx.expect_float(2, frequencies)
    ctx.expect_rank(2, frequencies, 1)
    _check_pairs(ctx, 2, frequencies.shape[0], x.shape[-1])
    ctx.output(x)
    return True


@define_op("nn.rotary_embedding", attrs=RotaryEmbeddingAttrs, relation=_table_relation,
           pattern=OpPattern.INJECTIVE, level=10, traits=CONTINUOUS)
def rotary_embedding(x: te.Tensor, positions: te.Tensor, cos: te.Tensor, sin: te.Tensor,
                     attrs: RotaryEmbeddingAttrs) -> te.Tensor:
    """Pairs of elements of ``x`` rotated by the angles of their positions.

    ``x``: (batch, …, dim); ``positions``: (batch or 1, sequence) integers; ``cos`` and ``sin``:
    tables (positions, pairs), to which positions are clamped. A pair (a, b) becomes
    (a cos - b sin, b cos + a sin). The first 2 * pairs elements rotate, the others stay.
    """
    return topi_rotary.rotary_embedding(x, positions, cos, sin, axis=attrs.axis % x.ndim,
                                        interleaved=attrs.interleaved)


@define_op("nn.rotary_from_frequencies", attrs=RotaryEmbeddingAttrs,
           relation=_frequency_relation, pattern=OpPattern.INJECTIVE, level=10,
           traits=CONTINUOUS)
def rotary_from_frequencies(x: te.Tensor, positions: te.Tensor, frequencies: te.Tensor,
                            attrs: RotaryEmbeddingAttrs) -> te.Tensor:
    """``nn.rotary_embedding`` by the angles position * frequency, with a frequency per pair."""
    return topi_rotary.rotary_from_frequencies(x, positions, frequencies,
                                               axis=attrs.axis % x.ndim,
                                               interleaved=attrs.interleaved)


def _rotated(x: np.ndarray, cos: np.ndarray, sin: np.ndarray, axis: int, interleaved: bool
             ) -> np.ndarray:
    """``cos`` and ``sin`` are (batch or 1, sequence, pairs)."""
    pairs = cos.shape[-1]
    shape = [1] * x.ndim
    shape[0], shape[axis % x.ndim], shape[-1] = cos.shape
    cos, sin = cos.reshape(shape), sin.reshape(shape)
    wide = x.astype(np.float64)
    first = (..., slice(0, 2 * pairs, 2) if interleaved else slice(0, pairs))
    second = (..., slice(1, 2 * pairs, 2) if interleaved else slice(pairs, 2 * pairs))
    result = wide.copy()
    result[first] = wide[first] * cos - wide[second] * sin
    result[second] = wide[second] * cos + wide[first] * sin
    return result.astype(x.dtype)


def _table_reference(
    x: np.ndarray, positions: np.ndarray, cos: np.ndarray, sin: np.ndarray, axis: int = -2,
    interleaved: bool = False,
) -> np.ndarray:
    rows = np.clip(positions, 0, max(len(cos) - 1, 0))
    return _rotated(x, cos[rows].astype(np.float64), sin[rows].astype(np.float64), axis,
                    interleaved)


def _frequency_reference(
    x: np.ndarray, positions: np.ndarray, frequencies: np.ndarray, axis: int = -2,
    interleaved: bool = False,
) -> np.ndarray:
    wide = x.dtype if x.dtype.itemsize > 2 else np.float32
    angles = positions[..., None].astype(wide) * frequencies.astype(wide)
    return _rotated(x, np.cos(angles.astype(np.float64)), np.sin(angles.astype(np.float64)), axis,
                    interleaved)


rotary_embedding.gradient(table_gradient)
rotary_from_frequencies.gradient(frequency_gradient)

_POSITIONS = np.array([[0, 1, 2], [5, 3, 9]])
rotary_embedding.spec(
    _table_reference,
    op_case((2, 4, 3, 8), _POSITIONS, (7, 4), (7, 4)),
    op_case((2, 4, 3, 8), _POSITIONS, (7, 4), (7, 4), interleaved=True),
    op_case((2, 3, 4, 6), _POSITIONS[:1].astype(np.int32), (4, 2), (4, 2), axis=1),
    op_case((2, 2, 3, 6), _POSITIONS, (7, 2), (7, 2), interleaved=True),
    op_case((2, 3, 4), _POSITIONS, (10, 2), (10, 2), axis=1, dtypes=("float16",)),
    op_case((1, 2, 0, 4), np.zeros((1, 0), np.int64), (3, 2), (3, 2)),
)
rotary_from_frequencies.spec(
    _frequency_reference,
    op_case((2, 4, 3, 8), _POSITIONS, (4,), high=1.0, low=0.0),
    op_case((2, 4, 3, 8), _POSITIONS, (3,), interleaved=True),
    op_case((2, 3, 4, 6), _POSITIONS[:1], (2,), axis=1),
)


@rotary_embedding.batching
@rotary_from_frequencies.batching
def _rotary_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    """The batch joins the first axis of the data, and of positions unless all share them."""
    if any(is_batched[2:]):
        return None
    x = merged(repeated(args[0], call.args[0], is_batched=is_batched[0], size=size), call.args[0],
               size)
    positions = args[1]
    batch, length = known_shape(call.args[0], call)[0], known_shape(call.args[1], call)[1]
    if is_batched[1] or known_shape(call.args[1], call)[0] != 1:
        positions = op.broadcast_to(positions, shape=(size, batch, length))
        positions = op.reshape(positions, newshape=(size * batch, length), allowzero=True)
    return unmerged(with_attrs(call, (x, positions, *args[2:])), call.checked_type, size)
