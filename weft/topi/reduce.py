"""Reductions over axes of one tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import te
from weft.ir.dtype import DType
from weft.tir.expr import PrimExpr, const, int_value

Reducer = Callable[..., Any]


def reduced_shape(
    shape: Sequence[PrimExpr], axes: Sequence[int], *, keepdims: bool
) -> tuple[PrimExpr, ...]:
    if keepdims:
        return tuple(const(1) if i in axes else s for i, s in enumerate(shape))
    return tuple(s for i, s in enumerate(shape) if i not in axes)


def full_index(
    index: Sequence[PrimExpr], axes: Sequence[int], inner: Sequence[Any], *, ndim: int,
    keepdims: bool,
) -> tuple[Any, ...]:
    """The source index where ``inner`` runs over the reduced axes and ``index`` over the rest."""
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
    """``reducer`` (``te.sum``, …) of ``of(element)`` over ``axes``; nothing to reduce is a copy."""
    axes = tuple(sorted(axes))
    if not axes:
        return te.compute(x.shape, lambda *i: of(x[i]), name=name, tag="elemwise")
    inner = [te.reduce_axis(x.shape[a], name=f"k{n}") for n, a in enumerate(axes)]

    def body(*index: PrimExpr) -> Any:
        source = full_index(index, axes, inner, ndim=len(x.shape), keepdims=keepdims)
        return reducer(of(x[source]), inner)

    shape = reduced_shape(x.shape, axes, keepdims=keepdims)
    return te.compute(shape, body, name=name, tag="comm_reduce")


def count(x: te.Tensor, axes: Sequence[int]) -> PrimExpr:
    """How many elements one result of a reduction over ``axes`` sees."""
    total: PrimExpr = const(1)
    for axis in axes:
        total = total * x.shape[axis]
    return total


def mean(x: te.Tensor, axes: Sequence[int], *, keepdims: bool) -> te.Tensor:
    """The sum, then in a stage of its own the division by the count."""
    total = reduce_with(x, te.sum, axes, keepdims=keepdims, name="mean_sum")
    divisor = count(x, axes).astype(x.dtype)
    return te.compute(total.shape, lambda *i: total[i] / divisor, name="mean", tag="elemwise")


def variance(x: te.Tensor, mean: te.Tensor, axes: Sequence[int], *, keepdims: bool,
             unbiased: bool) -> te.Tensor:
    """The sum of squared distances from ``mean`` (kept axes), then its division by the count."""
    distance = te.compute(
        x.shape,
        lambda *i: x[i] - mean[tuple(const(0) if a in axes else p for a, p in enumerate(i))],
        name="distance", tag="broadcast",
    )
    total = reduce_with(distance, te.sum, axes, keepdims=keepdims, name="squares",
                        of=lambda v: v * v)
    divisor = (count(x, axes) - (1 if unbiased else 0)).astype(x.dtype)
    return te.compute(total.shape, lambda *i: total[i] / divisor, name="variance", tag="elemwise")


def collapse_sum(x: te.Tensor, shape: Sequence[PrimExpr]) -> te.Tensor:
    """``x`` summed over the axes along which ``shape`` broadcasts to it; the sizes are fixed."""
    lead = x.ndim - len(shape)
    axes = [a for a, size in enumerate(x.shape)
            if a < lead or (int_value(shape[a - lead]) == 1 and int_value(size) != 1)]
    total = reduce_with(x, te.sum, axes, keepdims=False, name="collapse")
    kept = [a - lead for a in range(lead, x.ndim) if a not in axes]
    return te.compute(shape, lambda *i: total[tuple(i[a] for a in kept)], name="collapse_sum",
                      tag="injective")


def arg_reduce(
    x: te.Tensor,
    axes: Sequence[int],
    *,
    keepdims: bool,
    largest: bool,
    select_last: bool,
    dtype: DType,
) -> te.Tensor:
    """The position (row-major over ``axes``) of the extremum; of equals the first, or the last.

    The reducer finds pairs (position, value), of which a second stage hands on the position. It
    prefers the smaller position, so the last of equals is found by counting from the end.
    """
    axes = tuple(sorted(axes))
    if not axes:
        return te.compute(x.shape, lambda *_: const(0, dtype), name="arg", tag="elemwise")
    inner = [te.reduce_axis(x.shape[a], name=f"k{n}") for n, a in enumerate(axes)]
    reducer = te.argmax if largest else te.argmin
    last = count(x, axes) - 1

    def body(*index: PrimExpr) -> Any:
        source = full_index(index, axes, inner, ndim=len(x.shape), keepdims=keepdims)
        position: PrimExpr = const(0)
        for axis, k in zip(axes, inner, strict=True):
            position = position * x.shape[axis] + k.var
        ranked = last - position if select_last else position
        return reducer((ranked.astype(dtype), x[source]), inner)

    shape = reduced_shape(x.shape, axes, keepdims=keepdims)
    name = "argmax" if largest else "argmin"
    found = te.compute(shape, body, name=name, tag="comm_reduce_idx")[0]

    def position_of(*index: PrimExpr) -> PrimExpr:
        return last.astype(dtype) - found[index] if select_last else found[index]

    return te.compute(shape, position_of, name=f"{name}_position", tag="elemwise")
