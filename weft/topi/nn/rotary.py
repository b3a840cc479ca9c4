"""Rotary position embedding: pairs of elements rotated by angles that grow with the position.

Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding" (2021).
"""

from __future__ import annotations

from collections.abc import Callable

from weft import te
from weft.ir.dtype import DType, float32
from weft.tir.expr import PrimExpr, const, int_value, select
from weft.topi.indexing import within

# (batch, position, pair) -> cosine and sine of the angle
Angle = Callable[[PrimExpr, PrimExpr, PrimExpr], tuple[PrimExpr, PrimExpr]]


def rotary_embedding(
    x: te.Tensor, positions: te.Tensor, cos: te.Tensor, sin: te.Tensor, *, axis: int,
    interleaved: bool,
) -> te.Tensor:
    """``x`` rotated by the rows of tables at ``positions``.

    ``x``: (batch, …, dim) with the sequence along ``axis``; ``positions``: (batch or 1, sequence),
    clamped to the tables ``cos`` and ``sin``, (positions, r / 2). The first ``r`` elements of each
    row form pairs: neighbours if ``interleaved``, else ``d`` and ``d + r / 2``.
    """
    dtype = _wide(x.dtype)

    def angle(batch: PrimExpr, step: PrimExpr, pair: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        row = within(_position(positions, batch, step), cos.shape[0])
        return cos[row, pair].astype(dtype), sin[row, pair].astype(dtype)

    return _rotated(x, cos.shape[1], angle, axis=axis, interleaved=interleaved)


def rotary_from_frequencies(
    x: te.Tensor, positions: te.Tensor, frequencies: te.Tensor, *, axis: int, interleaved: bool,
) -> te.Tensor:
    """``rotary_embedding`` by the angles position * frequency; ``frequencies``: (r / 2,).

    The cosines and sines are a stage of their own, which all heads share.
    """
    dtype = _wide(x.dtype)
    shape = (*positions.shape, frequencies.shape[0])
    angles = te.compute(
        shape, lambda b, s, i: positions[b, s].astype(dtype) * frequencies[i].astype(dtype),
        name="angles")
    cos = te.compute(shape, lambda *i: te.cos(angles[i]), name="cos")
    sin = te.compute(shape, lambda *i: te.sin(angles[i]), name="sin")

    def angle(batch: PrimExpr, step: PrimExpr, pair: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        row = const(0) if int_value(positions.shape[0]) == 1 else batch
        return cos[row, step, pair], sin[row, step, pair]

    return _rotated(x, frequencies.shape[0], angle, axis=axis, interleaved=interleaved)


def _wide(dtype: DType) -> DType:
    return dtype if dtype.bits > 16 else float32


def _position(positions: te.Tensor, batch: PrimExpr, step: PrimExpr) -> PrimExpr:
    return positions[const(0) if int_value(positions.shape[0]) == 1 else batch, step]


def _rotated(
    x: te.Tensor, half: PrimExpr, angle: Angle, *, axis: int, interleaved: bool
) -> te.Tensor:
    dtype = _wide(x.dtype)

    def element(*index: PrimExpr) -> PrimExpr:
        *lead, d = index
        # The pair of an element, whether it is the second of it, and the element beside it.
        pair, second = (d // 2, d % 2) if interleaved else (d % half, d // half)
        other = d + 1 - 2 * second if interleaved else d + half - 2 * half * second
        cos, sin = angle(index[0], index[axis], pair)
        sign = select(second.equal(const(0)), const(-1, dtype), const(1, dtype))
        own, beside = x[index].astype(dtype), x[(*lead, other)].astype(dtype)
        return (own * cos + sign * (beside * sin)).astype(x.dtype)

    width = x.shape[-1]
    if int_value(width) is not None and int_value(width) == int_value(2 * half):
        return te.compute(x.shape, element, name="rotary_embedding")

    def partial(*index: PrimExpr) -> PrimExpr:
        return te.if_then_else(index[-1] < 2 * half, element(*index), x[index])

    return te.compute(x.shape, partial, name="rotary_embedding")
