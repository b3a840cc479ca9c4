"""Normalisation by the root mean square, and by the Euclidean norm."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te
from weft.tir.expr import PrimExpr, const, maximum


def rms_norm(x: te.Tensor, weight: te.Tensor, *, axis: int, epsilon: float) -> te.Tensor:
    """``x`` divided by its root mean square along ``axis``, times ``weight``.

    Stages ``rms_norm_squares``, ``rms_norm_scale``, ``rms_norm_output``.
    """
    squares = _square_sum(x, (axis,), "rms_norm_squares")
    size = x.shape[axis].astype(x.dtype)
    factor = te.compute(
        squares.shape,
        lambda *i: const(1, x.dtype) / te.sqrt(squares[i] / size + const(epsilon, x.dtype)),
        name="rms_norm_scale",
    )

    def element(*index: PrimExpr) -> PrimExpr:
        return x[index] * factor[_without(index, (axis,))] * weight[index[axis]]

    return te.compute(x.shape, element, name="rms_norm_output")


def l2_normalize(x: te.Tensor, *, axes: Sequence[int], epsilon: float) -> te.Tensor:
    """``x`` divided by its Euclidean norm along ``axes``; the squared norm is at least ``epsilon``.

    Stages ``l2_norm_squares``, ``l2_norm_scale``, ``l2_norm_output``.
    """
    squares = _square_sum(x, axes, "l2_norm_squares")
    factor = te.compute(
        squares.shape,
        lambda *i: const(1, x.dtype) / te.sqrt(maximum(squares[i], const(epsilon, x.dtype))),
        name="l2_norm_scale",
    )
    return te.compute(x.shape, lambda *i: x[i] * factor[_without(i, axes)], name="l2_norm_output")


def _without(index: tuple[PrimExpr, ...], axes: Sequence[int]) -> tuple[PrimExpr, ...]:
    return tuple(i for axis, i in enumerate(index) if axis not in axes)


def _square_sum(x: te.Tensor, axes: Sequence[int], name: str) -> te.Tensor:
    over = {axis: te.reduce_axis(x.shape[axis], name=f"k{axis}") for axis in sorted(axes)}

    def element(*index: PrimExpr) -> Any:
        rest = iter(index)
        position = tuple(over[p].var if p in over else next(rest) for p in range(x.ndim))
        return te.sum(x[position] * x[position], list(over.values()))

    return te.compute(_without(x.shape, axes), element, name=name)
