"""Sampling at positions that are data, in operators that have gradients.

Each axis has taps: elements around a position, with weights that are differentiable functions of
it. The elements are rows (one number for each channel) of the images, gathered by number, so that
the gradient of the images is a scatter-add of rows.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Sequence

from weft import op
from weft.ir import Call, DType, Expr, KnownDim, const, dim_product, infer_expr, int64
from weft.op.gradients import clamped, known_dim, known_shape, scalar, size_value, tensor_type
from weft.support.dataclass import dataclass

_CUBIC = -0.75  # of Keys' kernel


@dataclass(frozen=True, slots=True)
class Tap:
    """An element along an axis for each position: its int64 index, inside the data, and weight.

    ``found`` is false for elements outside of the data, which count as zeros; ``None`` if all are
    inside. A weight of ``None`` is 1.
    """

    index: Expr
    weight: Expr | None
    found: Expr | None


def typed(x: Expr) -> Expr:
    """``x`` with its type."""
    return x if x.checked_type is not None else infer_expr(x, trust=True)


def tap_at(at: Expr, weight: Expr | None, size: KnownDim, *, is_padded: bool) -> Tap:
    """The tap at whole numbers ``at``; outside of the data it is zero, or the border's element."""
    at = typed(at)
    dtype = tensor_type(at).dtype
    found: Expr | None = None
    if is_padded:
        last = op.subtract(size_value(size, dtype), const(1.0, dtype))
        found = op.logical_and(op.greater_equal(at, const(0.0, dtype)), op.less_equal(at, last))
    # NaN has no integer; any element serves, because the weight is NaN.
    number = op.where(op.equal(at, at), at, op.zeros_like(at))
    limited = op.minimum(op.maximum(number, const(0.0, dtype)),
                         op.subtract(size_value(size, dtype), const(1.0, dtype)))
    return Tap(clamped(op.cast(limited, dtype="int64"), size, int64), weight, found)


def linear_taps(position: Expr, size: KnownDim, *, is_padded: bool) -> list[Tap]:
    """The two neighbours of a position."""
    position = typed(position)
    first = typed(op.floor(position))
    share = typed(op.subtract(position, first))
    one = scalar(1.0, position)
    return [tap_at(first, typed(op.subtract(one, share)), size, is_padded=is_padded),
            tap_at(op.add(first, one), share, size, is_padded=is_padded)]


def cubic_taps(position: Expr, size: KnownDim, fold: Callable[[Expr], Expr], *, is_padded: bool
               ) -> list[Tap]:
    """The four neighbours of a position, weighted by Keys' kernel (1981)."""
    position = typed(position)
    first = typed(op.floor(position))
    share = typed(op.subtract(position, first))
    taps = []
    for step in (-1, 0, 1, 2):
        sign = -1.0 if step > 0 else 1.0
        distance = typed(op.multiply(op.subtract(share, scalar(step, share)),
                                     scalar(sign, share)))
        weigh = _near if step in (0, 1) else _far
        at = fold(typed(op.add(first, scalar(step, first))))
        taps.append(tap_at(at, weigh(distance), size, is_padded=is_padded))
    return taps


def _polynomial(d: Expr, *coefficients: float) -> Expr:
    value: Expr = scalar(coefficients[0], d)
    for c in coefficients[1:]:
        value = op.add(op.multiply(value, d), scalar(c, d))
    return typed(value)


def _near(d: Expr) -> Expr:
    return _polynomial(d, _CUBIC + 2, -(_CUBIC + 3), 0.0, 1.0)


def _far(d: Expr) -> Expr:
    return _polynomial(d, _CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)


def nearest_tap(position: Expr, size: KnownDim, *, is_padded: bool) -> list[Tap]:
    """The element at a position that is a whole number."""
    return [tap_at(position, None, size, is_padded=is_padded)]


def sampled(images: Expr, number: Expr, taps: Sequence[Sequence[Tap]], call: Call) -> Expr:
    """The samples (positions.., channels) of ``images`` (N, axes.., channels), typed.

    ``number`` is the int64 image of each position, and ``taps`` holds the taps along each axis;
    all have shapes that broadcast to one.
    """
    shape = known_shape(images, call)
    rows = op.reshape(images, newshape=(dim_product(shape[:-1]), shape[-1]), allowzero=True)
    parts = [_corner(rows, number, corner, shape) for corner in itertools.product(*taps)]
    return typed(functools.reduce(op.add, parts))


def _corner(rows: Expr, number: Expr, corner: Sequence[Tap], shape: Sequence[KnownDim]) -> Expr:
    place, weight, found = number, None, None
    for tap, size in zip(corner, shape[1:-1], strict=True):
        place = op.add(op.multiply(place, size_value(size, int64)), tap.index)
        weight = _both(op.multiply, weight, tap.weight)
        found = _both(op.logical_and, found, tap.found)
    value = typed(op.gather_nd(rows, op.expand_dims(place, axis=0)))
    if found is not None:
        value = typed(op.where(op.expand_dims(found, axis=-1), value, scalar(0.0, value)))
    return value if weight is None else op.multiply(value, op.expand_dims(weight, axis=-1))


def _both(combine: Callable[[Expr, Expr], Expr], a: Expr | None, b: Expr | None) -> Expr | None:
    if a is None or b is None:
        return b if a is None else a
    return combine(a, b)


def grid_taps(position: Expr, size: KnownDim, method: str, padding: str, *, align_corners: bool
              ) -> list[Tap]:
    """The taps of ``image.grid_sample`` along an axis, for positions from -1 to 1."""
    position = typed(position)
    dtype = tensor_type(position).dtype
    whole, one, half = size_value(size, dtype), const(1.0, dtype), const(0.5, dtype)
    moved = op.add(position, one)
    at = (op.multiply(op.multiply(moved, half), op.subtract(whole, one)) if align_corners else
          op.multiply(op.subtract(op.multiply(moved, whole), one), half))
    is_padded = padding == "zeros"

    def fold(p: Expr) -> Expr:
        if is_padded:
            return p
        return (_limited(p, whole) if padding == "border" else
                _reflected(p, whole, align_corners=align_corners))

    if method == "nearest":
        return nearest_tap(fold(typed(op.round(fold(typed(at))))), size, is_padded=is_padded)
    if method == "bilinear":
        return linear_taps(fold(typed(at)), size, is_padded=is_padded)
    return cubic_taps(at, size, fold, is_padded=is_padded)


def _limited(p: Expr, size: Expr) -> Expr:
    """``p`` inside the data; like ``clip``, a position outside has no gradient."""
    last = op.subtract(size, scalar(1.0, size))
    low = op.where(op.less(p, scalar(0.0, p)), scalar(0.0, p), p)
    return typed(op.where(op.greater(low, last), last, low))


def _reflected(p: Expr, size: Expr, *, align_corners: bool) -> Expr:
    """``p`` reflected at the border elements, or at their edges, until it is inside."""
    p = typed(p)
    dtype = tensor_type(p).dtype
    low = const(0.0 if align_corners else -0.5, dtype)
    width = op.subtract(size, const(1.0, dtype)) if align_corners else size
    # One element with aligned corners has width 0; its position is 0.
    safe = op.maximum(width, const(0.5, dtype))
    away = op.abs(op.subtract(p, low))
    turns = typed(op.floor(op.divide(away, safe)))
    rest = typed(op.subtract(away, op.multiply(turns, safe)))
    pairs = op.multiply(op.floor(op.multiply(turns, const(0.5, dtype))), const(2.0, dtype))
    is_odd = op.greater(op.subtract(turns, pairs), const(0.5, dtype))
    back = op.add(op.where(is_odd, op.subtract(safe, rest), rest), low)
    single = op.greater(width, const(0.0, dtype))
    return _limited(typed(op.where(single, back, const(0.0, dtype))), size)


def as_dtype(x: Expr, dtype: DType) -> Expr:
    """``x`` in ``dtype``, typed."""
    x = typed(x)
    return x if tensor_type(x).dtype == dtype else typed(op.cast(x, dtype=dtype))


def channels_last(x: Expr) -> Expr:
    """(N, C, axes..) as (N, axes.., C), typed."""
    ndim = tensor_type(x).ndim
    return typed(op.transpose(x, axes=(0, *range(2, ndim), 1)))


def channels_first(x: Expr) -> Expr:
    """(N, axes.., C) as (N, C, axes..), typed."""
    ndim = tensor_type(x).ndim
    return typed(op.transpose(x, axes=(0, ndim - 1, *range(1, ndim - 1))))


def image_numbers(count: KnownDim, ndim: int) -> Expr:
    """0, 1, .. along axis 0 of ``ndim`` axes."""
    from_zero = op.arange(start=0, stop=count, dtype="int64")
    return op.expand_dims(from_zero, axis=1, num_newaxis=ndim - 1) if ndim > 1 else from_zero


def size_of(x: Expr, axis: int, call: Call) -> KnownDim:
    """The size of an axis, which must be known."""
    return known_dim(tensor_type(x).shape[axis], call)
