"""Sums, means and extremes over axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.eager.dtypes import as_dtype, dtype, int64, uint64
from weft.eager.emitter import call
from weft.eager.functions import reduction
from weft.eager.functions.shape import cat
from weft.eager.functions.statistics import diff as differences
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError

Axes = int | tuple[int, ...] | None


def _over(name: str, x: Tensor, axis: Axes, keepdims: bool) -> Any:
    """A reduction over axes, all with ``None``, none with ``()``."""
    if axis == ():
        return x.clone()
    return getattr(reduction, name)(x, axis, keepdims)


def _accumulated(x: Tensor, wanted: Any) -> Tensor:
    """``x`` in the dtype of its sums: int64 and uint64 for integers, its own for floats."""
    if wanted is not None:
        return x.to(as_dtype(wanted))
    return x if x.dtype.rank > 1 else x.to(_of_sums(x.dtype))


def _of_sums(own: dtype) -> dtype:
    return int64 if own.rank == 0 or own.is_signed else uint64


def sum(
    x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False
) -> Tensor:
    """The sum."""
    x = _accumulated(x, dtype)
    return _over("sum", x, axis, keepdims).to(x.dtype)


def prod(
    x: Tensor, /, *, axis: Axes = None, dtype: Any = None, keepdims: bool = False
) -> Tensor:
    """The product."""
    x = _accumulated(x, dtype)
    return _over("prod", x, axis, keepdims).to(x.dtype)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The arithmetic mean; NaN of no elements."""
    return _over("mean", x, axis, keepdims)


def var(
    x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The variance; ``correction`` is subtracted from the number of elements."""
    if axis == ():
        return var(x[None], axis=0, correction=correction)
    return reduction.var(x, axis, correction=correction, keepdim=keepdims)


def std(
    x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Tensor:
    """The standard deviation, with the arguments of ``var``."""
    return call("sqrt", var(x, axis=axis, correction=correction, keepdims=keepdims))


def _extreme(name: str, doc: str) -> Callable[..., Tensor]:
    def function(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
        if x.numel() == 0 and axis is None:
            raise InvalidInputError(f"{name[1:]} of no elements")
        return _over(name, x, axis, keepdims)

    function.__name__ = function.__qualname__ = name[1:]
    function.__doc__ = doc
    return function


max = _extreme("amax", "The largest element; NaN if one is NaN.")
min = _extreme("amin", "The smallest element; NaN if one is NaN.")


def _logical(name: str, doc: str) -> Callable[..., Tensor]:
    def function(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
        return _over(name, x.to("bool"), axis, keepdims)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return function


all = _logical("all", "Whether all elements are true.")
any = _logical("any", "Whether one element is true.")


def _cumulative(op: str, first: int, doc: str) -> Callable[..., Tensor]:
    def function(
        x: Tensor, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
    ) -> Tensor:
        if axis is None:
            if x.ndim != 1:
                raise InvalidInputError("an axis is needed", got=tuple(x.shape))
            axis = 0
        x = _accumulated(x, dtype)
        found = call(op, x, axis=axis).to(x.dtype)
        if not include_initial:
            return found
        sizes = list(x.shape)
        sizes[axis] = 1
        return cat([call("full", first, shape=tuple(sizes)).to(x.dtype), found], axis)

    function.__name__ = function.__qualname__ = op
    function.__doc__ = doc
    return function


cumulative_sum = _cumulative("cumsum", 0, "Sums of the elements so far.")
cumulative_prod = _cumulative("cumprod", 1, "Products of the elements so far.")


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """Differences of neighbours along an axis, ``n`` times."""
    prepend, append = (p if p is None else p.to(x.dtype) for p in (prepend, append))
    return differences(x, n, axis, prepend, append)
