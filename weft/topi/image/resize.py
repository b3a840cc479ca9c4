"""Resampling of axes on a regular grid, one axis after the other.

Positions and weights along an axis are lookup tables, computed once in float64. A resampling stage
follows for each axis.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any

from weft import te
from weft.ir.dtype import DType, float32, float64, int32, int64
from weft.tir.expr import (
    PrimExpr,
    all_of,
    any_of,
    as_prim,
    const,
    int_value,
    maximum,
    minimum,
    not_,
    select,
)
from weft.topi.image.taps import Arithmetic, Resampling
from weft.topi.sizes import size_bounds

# Sums over more taps than this are reductions instead of expressions.
MAX_WRITTEN_OUT = 8
MAX_INT32 = 2**31 - 1


class _Expressions:
    """``Arithmetic`` on tensor expressions of float64."""

    @staticmethod
    def floor(x: PrimExpr) -> PrimExpr:
        return te.floor(x)

    @staticmethod
    def ceil(x: PrimExpr) -> PrimExpr:
        return te.ceil(x)

    @staticmethod
    def choose(condition: PrimExpr, yes: PrimExpr, no: PrimExpr) -> PrimExpr:
        return select(condition, yes, no)


EXPRESSIONS: Arithmetic = _Expressions()


def resize(
    x: te.Tensor, axes: Mapping[int, Resampling], out_dtype: DType, extrapolation_value: float
) -> te.Tensor:
    """``x`` with its ``axes`` resampled; integers are interpolated in float32 and rounded.

    Positions outside the data give ``extrapolation_value`` for ``tf_crop_and_resize`` and the
    border element otherwise. Shrinking axes come first, then the others from the innermost out:
    that order gathers the fewest elements.
    """
    moving = {a: axis for a, axis in axes.items() if not _keeps(axis, x.shape[a])}
    interpolates = any(axis.method != "nearest_neighbor" for axis in moving.values())
    work = x.dtype if not interpolates or x.dtype in (float32, float64) else float32
    outside = {a: _outside(axis, x.shape[a]) for a, axis in moving.items()
               if axis.transform == "tf_crop_and_resize"}
    result = x
    for a in sorted(moving, key=lambda a: _order(moving[a], x.shape[a], a)):
        result = _resample(result, a, moving[a], work)

    def element(*index: PrimExpr) -> PrimExpr:
        value = result[index]
        if outside:
            beyond = any_of(*(flags[index[a]].not_equal(0) for a, flags in outside.items()))
            value = select(beyond, const(extrapolation_value, value.dtype), value)
        if interpolates and out_dtype.is_int:
            value = te.round(value)
        return value.astype(out_dtype)

    if not outside and result.dtype == out_dtype and result is not x:
        return result
    return te.compute(result.shape, element, name="resized")


def _keeps(axis: Resampling, size: PrimExpr) -> bool:
    known = int_value(size)
    return known is not None and axis.keeps(known)


def _order(axis: Resampling, size: PrimExpr, position: int) -> tuple[bool, int]:
    least, _ = size_bounds(size)
    # An axis that shrinks leaves fewer elements for the next stage, one that grows leaves more.
    shrinks = least is not None and isinstance(axis.new_size, int) and axis.new_size < least
    grows = not shrinks
    return grows, -position if grows else position


def _coord(axis: Resampling, i: PrimExpr, size: PrimExpr) -> PrimExpr:
    return as_prim(axis.source(i.astype(float64), size.astype(float64)))


def _outside(axis: Resampling, size: PrimExpr) -> te.Tensor:
    """The lookup table (new size,): 1 for output positions outside the data, else 0."""

    def flag(i: PrimExpr) -> PrimExpr:
        coord = _coord(axis, i, size)
        inside = all_of(coord >= const(0, float64), coord <= (size - 1).astype(float64))
        return select(not_(inside), const(1, int64), const(0, int64))

    return te.compute((axis.new_size,), flag, name="outside", role=te.StageRole.LOOKUP_TABLE)


def _resample(x: te.Tensor, position: int, axis: Resampling, work: DType) -> te.Tensor:
    size = x.shape[position]
    shape = (*x.shape[:position], axis.new_size, *x.shape[position + 1:])

    def read(index: tuple[PrimExpr, ...], at: PrimExpr) -> PrimExpr:
        return x[(*index[:position], at.astype(int64), *index[position + 1:])]

    if axis.method == "nearest_neighbor":
        nearest = _table(axis, lambda i, _: _clamped(
            axis.nearest(_coord(axis, i, size), EXPRESSIONS), size), 1, "nearest")
        return te.compute(shape, lambda *i: read(i, nearest[0, i[position]]), name="resample",
                          role=te.StageRole.RESAMPLING)
    positions, weights, count = _linear_combination(axis, size, work)

    def element(*index: PrimExpr) -> Any:
        i = index[position]

        def term(k: PrimExpr) -> PrimExpr:
            return read(index, positions[k, i]).astype(work) * weights[k, i]

        # An expression instead of a reduction: the schedule can inline it into what follows.
        if count <= MAX_WRITTEN_OUT:
            return functools.reduce(operator.add, (term(const(k)) for k in range(count)))
        k = te.reduce_axis(count, name="k")
        return te.sum(term(k.var), k)

    return te.compute(shape, element, name="resample", role=te.StageRole.RESAMPLING)


def _table(axis: Resampling, value: Any, count: int, name: str) -> te.Tensor:
    """``value(i, k)`` at ``[k, i]``: vectors of results read neighbours for each of the taps."""
    return te.compute((count, axis.new_size), lambda k, i: value(i, k), name=name,
                      role=te.StageRole.LOOKUP_TABLE)


def _clamped(coord: PrimExpr, size: PrimExpr) -> PrimExpr:
    """A position as int32 where all positions are: gathers take more of these at once."""
    found = maximum(minimum(coord.astype(int64), size - 1), 0)
    _, most = size_bounds(size)
    return found if most is None or most > MAX_INT32 else found.astype(int32)


def _linear_combination(
    axis: Resampling, size: PrimExpr, work: DType
) -> tuple[te.Tensor, te.Tensor, int]:
    """The lookup tables of positions and weights (taps, new size), and the number of taps."""
    known = int_value(size)
    shrink = 1.0 if known is None else axis.shrink(known)
    count = axis.count(shrink)

    def tap(i: PrimExpr, k: PrimExpr) -> PrimExpr:
        first = axis.first(_coord(axis, i, size), shrink, EXPRESSIONS)
        return first + k.astype(float64)

    def weight(i: PrimExpr, k: PrimExpr) -> PrimExpr:
        at = tap(i, k)
        away = te.abs(_coord(axis, i, size) - at) * const(shrink, float64)
        value = as_prim(axis.weigh(away, EXPRESSIONS))
        if not axis.exclude_outside:
            return value
        inside = all_of(at >= const(0, float64), at < size.astype(float64))
        return select(inside, value, const(0, float64))

    # Taps outside repeat the border element, unless their weight is zero (``exclude_outside``).
    positions = _table(axis, lambda i, k: _clamped(tap(i, k), size), count, "positions")
    if not axis.is_normalised:
        weights = _table(axis, lambda i, k: weight(i, k).astype(work), count, "weights")
        return positions, weights, count
    # Divided in float64, before the rounding to ``work``: the weights then sum to 1 but for
    # rounding.
    raw = _table(axis, weight, count, "raw_weights")
    k = te.reduce_axis(count, name="k")
    total = te.compute((axis.new_size,), lambda i: te.sum(raw[k.var, i], k), name="total",
                       role=te.StageRole.LOOKUP_TABLE)
    weights = _table(axis, lambda i, k: (raw[k, i] / total[i]).astype(work), count, "weights")
    return positions, weights, count


def repeat_nearest(x: te.Tensor, factors: Mapping[int, int]) -> te.Tensor:
    """``x`` with every element repeated ``factors[axis]`` times along each axis."""

    def element(*index: PrimExpr) -> PrimExpr:
        return x[tuple(i // factors[a] if factors.get(a, 1) > 1 else i
                       for a, i in enumerate(index))]

    shape = [s * factors[a] if factors.get(a, 1) > 1 else s for a, s in enumerate(x.shape)]
    return te.compute(shape, element, name="repeat_nearest")
