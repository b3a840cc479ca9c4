"""Functions that change shapes and put arrays together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.array_api.data_types import promoted
from weft.eager.emitter import call
from weft.eager.functions import shape as shapes
from weft.eager.functions.creation import tensor
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError

Axes = int | tuple[int, ...]


class SizeError(InvalidInputError, ValueError):
    """An axis does not have the size that a function needs."""


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """The array repeated to a shape."""
    return shapes.expand(x, tuple(shape))


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Arrays one after the other along an axis; flat with ``axis=None``."""
    operands = promoted(*arrays)
    if axis is None:
        operands, axis = tuple(a.reshape(-1) for a in operands), 0
    return shapes.cat(operands, axis)


def expand_dims(x: Tensor, /, *, axis: int = 0) -> Tensor:
    """With a new axis of size 1."""
    return shapes.unsqueeze(x, axis)


def flip(x: Tensor, /, *, axis: Axes | None = None) -> Tensor:
    """In reverse along axes, or along all."""
    axes = range(x.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return shapes.flip(x, tuple(axes)) if tuple(axes) else x.clone()


def moveaxis(x: Tensor, source: Axes, destination: Axes, /) -> Tensor:
    """With axes at other positions."""
    return shapes.movedim(x, source, destination)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """With the axes in another order."""
    return shapes.permute(x, tuple(axes))


def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element as often as ``repeats`` says: one number, or one for each."""
    counts = tensor(repeats, "int64")
    if axis is None:
        x, axis = x.reshape(-1), 0
    return shapes.repeat_interleave(x, counts.expand((x.shape[axis],)), axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """In another shape, one of whose sizes may be -1."""
    found = shapes.reshape(x, tuple(shape))
    return found.clone() if copy else found


def roll(x: Tensor, /, shift: Axes, *, axis: Axes | None = None) -> Tensor:
    """Shifted along axes; what leaves at one end enters at the other."""
    if isinstance(axis, tuple) and isinstance(shift, int):
        shift = (shift,) * len(axis)
    return shapes.roll(x, shift, axis)


def squeeze(x: Tensor, /, axis: Axes) -> Tensor:
    """Without axes, whose sizes are 1."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    for one in axes:
        if x.shape[one] != 1:
            raise SizeError("squeeze: the size of an axis is not 1", got=x.shape[one],
                            where=f"axis {one}")
    return shapes.squeeze(x, axes) if axes else x.clone()


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Arrays of one shape along a new axis."""
    return shapes.stack(promoted(*arrays), axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """The whole array repeated along its axes, and along new ones before them."""
    missing = x.ndim - len(repetitions)
    counts = (1,) * missing + tuple(repetitions)
    if 0 in counts or x.numel() == 0:
        wide = (1,) * -missing + tuple(x.shape)
        sizes = [size * count for size, count in zip(wide, counts, strict=True)]
        return shapes.reshape(x, -1)[:0].reshape(tuple(sizes))
    return call("tile", x, reps=counts) if counts else x.clone()


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The parts along an axis, without it."""
    return tuple(shapes.unbind(x, axis))
