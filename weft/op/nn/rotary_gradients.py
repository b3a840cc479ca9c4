"""Gradients of rotary embeddings: rotations by the opposite angles, and sums over pairs."""

from __future__ import annotations

from typing import Any

from weft import op
from weft.ir import Call, Expr, KnownDim, TensorType, dim_product, infer_expr
from weft.op.gradients import clamped as clamped_to
from weft.op.gradients import known_dim, known_shape, tensor_type, typed_zeros


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
