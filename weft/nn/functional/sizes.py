"""Arguments that are one number or one per axis, and checks that the functions share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.eager.emitter import call
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


def reduced(losses: Tensor, reduction: str) -> Tensor:
    """The mean, the sum or all of ``losses``."""
    if reduction == "none":
        return losses
    if reduction not in ("mean", "sum"):
        raise InvalidInputError("unknown reduction", expected="mean, sum or none",
                                got=repr(reduction))
    return call(reduction, losses)


def along(vector: Tensor, axis: int, rank: int) -> Tensor:
    """A vector reshaped so that it broadcasts along ``axis`` of a tensor of ``rank``."""
    shape: Sequence[int] = [1] * rank
    return vector.reshape(tuple(vector.shape[0] if i == axis else s for i, s in enumerate(shape)))
