"""Reductions over axes of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import te
from weft.ir.dtype import DType, int32, int64
from weft.tir.expr import PrimExpr, any_of, call, const, int_value, select
from weft.tir.row_major import element_count, ravel

Reducer = Callable[..., Any]
# Positions below this fit int32, whose vectors have as many lanes as those of float32.
MOST_POSITIONS = 1 << 31


def reduced_shape(
    shape: Sequence[PrimExpr], axes: Sequence[int], *, keepdims: bool
) -> tuple[PrimExpr, ...]:
    """``shape`` without ``axes``, or with size 1 there if ``keepdims``."""
    if keepdims:
        return tuple(const(1) if i in axes else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in axes)


def full_index(
    index: Sequence[PrimExpr], axes: Sequence[int], inner: Sequence[Any], *, ndim: int,
    keepdims: bool,
) -> tuple[Any, ...]:
    """The source index: ``inner`` for the reduced axes, ``index`` for the others."""
    kept = iter(i for p, i in enumerate(index) if not (keepdims and p in axes))
    reduced = dict(zip(axes, inner, strict=True))
    return tuple(reduced[p] if p in reduced else next(kept) for p in range(ndim))


def reduce_with(
    x: te.Tensor,
    reducer: Reducer,
    axes: Sequence[int],
    *,
    keepdims: bool,
    name: str,
    of: Callable[[PrimExpr], PrimExpr] = lambda v: v,
) -> te.Tensor:
    """``reducer`` (``te.sum``, …) of ``of(element)`` over ``axes``; a copy if ``axes`` is empty."""
    axes = tuple(sorted(axes))
    if not axes:
        return te.compute(x.shape, lambda *i: of(x[i]), name=name)
    inner = [te.reduce_axis(x.shape[a], name=f"k{n}") for n, a in enumerate(axes)]

    def body(*index: PrimExpr) -> Any:
        source = full_index(index, axes, inner, ndim=len(x.shape), keepdims=keepdims)
        return reducer(of(x[source]), inner)

    shape = reduced_shape(x.shape, axes, keepdims=keepdims)
    return te.compute(shape, body, name=name)


def count(x: te.Tensor, axes: Sequence[int]) -> PrimExpr:
    """The number of elements that one result of a reduction over ``axes`` combines."""
    return element_count(x.shape[axis] for axis in axes)


def mean(x: te.Tensor, axes: Sequence[int], *, keepdims: bool) -> te.Tensor:
    """The mean: a sum, then the division by the count as a separate stage."""
    total = reduce_with(x, te.sum, axes, keepdims=keepdims, name="mean_sum")
    divisor = count(x, axes).astype(x.dtype)
    return te.compute(total.shape, lambda *i: total[i] / divisor, name="mean")


def variance(x: te.Tensor, mean: te.Tensor, axes: Sequence[int], *, keepdims: bool,
             unbiased: bool) -> te.Tensor:
    """The variance: summed squared deviations from ``mean`` (axes kept) over the count."""
    distance = te.compute(
        x.shape,
        lambda *i: x[i] - mean[tuple(const(0) if a in axes else p for a, p in enumerate(i))],
        name="distance",
    )
    total = reduce_with(distance, te.sum, axes, keepdims=keepdims, name="squares",
                        of=lambda v: v * v)
    divisor = (count(x, axes) - (1 if unbiased else 0)).astype(x.dtype)
    return te.compute(total.shape, lambda *i: total[i] / divisor, name="variance")


def collapse_sum(x: te.Tensor, shape: Sequence[PrimExpr]) -> te.Tensor:
    """``x`` summed over the axes along which ``shape`` broadcasts to it; sizes must be fixed."""
    lead = x.ndim - len(shape)
    axes = [a for a, size in enumerate(x.shape)
            if a < lead or (int_value(shape[a - lead]) == 1 and int_value(size) != 1)]
    total = reduce_with(x, te.sum, axes, keepdims=False, name="collapse")
    kept = [a - lead for a in range(lead, x.ndim) if a not in axes]
    return te.compute(shape, lambda *i: total[tuple(i[a] for a in kept)], name="collapse_sum")


def arg_reduce(
    x: te.Tensor,
    axes: Sequence[int],
    *,
    keepdims: bool,
    largest: bool,
    select_last: bool,
    dtype: DType,
) -> te.Tensor:
    """The position (row-major over ``axes``) of the first or last extremum.

    NaN counts as the extremum. Two reductions that vectorize: the extremum (stage
    ``argmax_value`` or ``argmin_value``), then the first or last position that holds it
    (``argmax`` or ``argmin``), which reads its row from L1. Positions are int32 if they fit.
    """
    axes = tuple(sorted(axes))
    if not axes:
        return te.compute(x.shape, lambda *_: const(0, dtype), name="arg")
    name = "argmax" if largest else "argmin"
    best = reduce_with(x, te.max if largest else te.min, axes, keepdims=keepdims,
                       name=f"{name}_value")
    inner = [te.reduce_axis(x.shape[a], name=f"k{n}") for n, a in enumerate(axes)]
    size = int_value(count(x, axes))
    counter = int32 if size is not None and size < MOST_POSITIONS else int64
    nowhere = te.max_value(counter) if not select_last else te.min_value(counter)

    def body(*index: PrimExpr) -> Any:
        source = full_index(index, axes, inner, ndim=len(x.shape), keepdims=keepdims)
        position = ravel([k.var for k in inner], [x.shape[axis] for axis in axes])
        value = x[source]
        found = value.equal(best[index])
        # The extremum of a row with NaN is NaN, which equals nothing.
        if x.dtype.is_float:
            found = any_of(found, call("bool", "isnan", value))
        reducer = te.max if select_last else te.min
        return reducer(select(found, position.astype(counter), nowhere), inner)

    coord = te.compute(best.shape, body, name=name)
    if counter is dtype:
        return coord
    return te.compute(best.shape, lambda *i: coord[i].astype(dtype), name=f"{name}_position")
