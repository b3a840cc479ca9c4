"""Arguments that are one number or one per axis, and checks that the functions share."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from weft.eager.emitter import call
from weft.eager.functions.elementwise import operands
from weft.eager.record import wrap
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError


def per_axis(value: Any, axes: int, name: str) -> tuple[int, ...]:
    """``value`` once for each axis; a sequence must have one number for each."""
    if isinstance(value, int):
        return (value,) * axes
    values = tuple(value)
    if len(values) == 1:
        return values * axes
    if len(values) != axes:
        raise InvalidInputError(f"{name} has the wrong number of values",
                                expected=f"1 or {axes}", got=str(values))
    return values


def axis_of(dim: int, rank: int) -> int:
    """``dim`` counted from the front; raises ``InvalidInputError`` outside of the rank."""
    size = max(rank, 1)
    if not -size <= dim < size:
        raise InvalidInputError("dim is out of range", expected=f"{-size} to {size - 1}", got=dim)
    return dim % size


def with_batch(x: Tensor, rank: int, what: str) -> tuple[Tensor, bool]:
    """``x`` with a batch axis, and whether it had one. ``rank`` counts the batch."""
    if x.ndim == rank:
        return x, True
    if x.ndim == rank - 1:
        return call("expand_dims", x, axis=0), False
    raise InvalidInputError(f"{what}: wrong number of dimensions",
                            expected=f"{rank}, or {rank - 1} without a batch",
                            got=f"shape {tuple(x.shape)}")


def without_batch(x: Tensor, has_batch: bool) -> Tensor:
    """Undo ``with_batch``."""
    return x if has_batch else call("squeeze", x, axis=0)


def promoted(*tensors: Any, to_float: bool = False) -> tuple[Any, ...]:
    """Tensors and numbers in their common dtype; ``to_float`` makes integers floats."""
    return tuple([wrap(node) for node in operands(*tensors, to_float=to_float)])


def reduced(
    losses: Tensor, reduction: str, size_average: bool | None = None, reduce: bool | None = None
) -> Tensor:
    """The mean, the sum or all of ``losses``."""
    reduction = reduction_of(reduction, size_average, reduce)
    if reduction == "none":
        return losses
    if reduction == "mean" and not losses.numel():
        return losses.sum() * float("nan")
    return call(reduction, losses) if losses.ndim else losses


def reduction_of(
    reduction: str, size_average: bool | None = None, reduce: bool | None = None
) -> str:
    """A reduction that is known; ``size_average`` and ``reduce`` replace it, with a warning."""
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
        warnings.warn(f"size_average and reduce are deprecated: pass reduction={reduction!r}",
                      DeprecationWarning, stacklevel=3)
    if reduction not in ("mean", "sum", "none"):
        raise InvalidInputError("unknown reduction", expected="mean, sum or none",
                                got=repr(reduction))
    return reduction


def along(vector: Tensor, axis: int, rank: int) -> Tensor:
    """A vector reshaped so that it broadcasts along ``axis`` of a tensor of ``rank``."""
    shape: Sequence[int] = [1] * rank
    return vector.reshape(tuple(vector.shape[0] if i == axis else s for i, s in enumerate(shape)))


def of_axes(function: Callable[..., Any], axes: int, name: str) -> Callable[..., Any]:
    """``function`` with ``axes`` spatial axes, named ``name``."""
    return _bound(functools.partial(function, axes), function, name)


def with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    """A pool that returns the indices of its elements too."""
    name = f"{pool.__name__}_with_indices"
    return _bound(functools.partial(pool, return_indices=True), pool, name)


def in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    """The form of an activation that writes its input, named with an underscore."""
    return _bound(functools.partial(function, inplace=True), function, f"{function.__name__}_")


def _bound(bound: Any, function: Callable[..., Any], name: str) -> Callable[..., Any]:
    functools.update_wrapper(bound, function)
    del bound.__wrapped__  # whose signature has the bound argument too
    bound.__name__ = name
    return checked(bound)
