"""pad, and functions that rearrange the elements of images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft.eager.emitter import call
from weft.eager.functions.complex import complex as join
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.support.errors import InvalidInputError

_MODES = ("reflect", "replicate", "circular")
Pairs = list[tuple[int, int]]


@checked
def pad(
    input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> Tensor:
    """Pad the last axes; ``pad`` holds (before, after) from the last axis backwards.

    ``mode``: "constant", "reflect", "replicate" or "circular". Negative amounts crop; "circular"
    repeats what is left then, as in torch.
    """
    amounts = tuple(pad)
    if len(amounts) % 2 or len(amounts) > 2 * input.ndim:
        raise InvalidInputError("pad: wrong number of amounts", got=str(amounts),
                                expected=f"pairs for at most {input.ndim} axes")
    count = len(amounts) // 2
    pairs = [(0, 0)] * (input.ndim - count)
    pairs += [(amounts[2 * i], amounts[2 * i + 1]) for i in reversed(range(count))]
    if mode == "constant":
        return _constant(input, pairs, value)
    if mode not in _MODES:
        raise InvalidInputError("pad: unknown mode", got=repr(mode),
                                expected="constant, reflect, replicate or circular")
    if value is not None and value != 0:
        raise InvalidInputError(f"pad: mode {mode!r} takes no value", got=value)
    for axis, (before, after) in enumerate(pairs):
        if before or after:
            at = _positions(mode, input.shape[axis], before, after, axis)
            input = call("take", input, at, axis=axis)
    return input


def _constant(input: Tensor, pairs: Pairs, value: float | None) -> Tensor:
    if any(amount < 0 for pair in pairs for amount in pair):
        input, pairs = _cropped(input, pairs)
    if not any(map(any, pairs)):
        return input.clone()
    if input.dtype.is_complex:
        number = complex(value or 0)
        return join(_constant(input.real, pairs, number.real),
                    _constant(input.imag, pairs, number.imag))
    kind = {0: bool, 1: int, 2: float}[input.dtype.rank]
    number = call("full", kind(value or 0), shape=(), dtype=input.dtype.name)
    return call("nn.pad", input, number, pad_width=tuple(pairs))


def _cropped(x: Tensor, pairs: Pairs) -> tuple[Tensor, Pairs]:
    """``x`` without what negative amounts take away, and the other amounts."""
    begin = tuple(max(-before, 0) for before, _ in pairs)
    end = tuple(size - max(-after, 0) for size, (_, after) in zip(x.shape, pairs, strict=True))
    if any(e < b for b, e in zip(begin, end, strict=True)):
        raise InvalidInputError("pad: negative amounts crop more than an axis has",
                                expected=f"at most {tuple(x.shape)}", got=str(pairs))
    kept = [(max(before, 0), max(after, 0)) for before, after in pairs]
    return call("strided_slice", x, begin=begin, end=end), kept


def _positions(mode: str, size: int, before: int, after: int, axis: int) -> np.ndarray:
    """The place in an axis of each element of the padded axis."""
    limit = {"reflect": size - 1, "circular": size}.get(mode)
    if (limit is not None and max(before, after) > limit) or (size + before + after < 0) or (
            size == 0 and max(before, after) > 0):
        raise InvalidInputError(f"pad: {mode} padding does not fit the axis", where=f"axis {axis}",
                                expected=f"amounts up to {size if limit is None else limit}",
                                got=f"{before} and {after}")
    if mode == "circular":
        first, last = max(-before, 0), size - max(-after, 0)
        places = np.arange(-max(before, 0), last - first + max(after, 0))
        return first + places % max(last - first, 1)
    places = np.arange(-before, size + after)
    if mode == "replicate":
        return np.clip(places, 0, max(size - 1, 0))
    return (size - 1) - np.abs(np.abs(places) - (size - 1))


@checked
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(…, C·r², H, W) to (…, C, H·r, W·r) (Shi et al. 2016)."""
    *leading, channels, height, width = input.shape
    r = upscale_factor
    if channels % (r * r):
        raise InvalidInputError("pixel_shuffle: wrong number of channels",
                                expected=f"a multiple of {r * r}", got=channels)
    split = input.reshape((math.prod(leading), channels // (r * r), r, r, height, width))
    mixed = call("transpose", split, axes=(0, 1, 4, 2, 5, 3))
    return mixed.reshape((*leading, channels // (r * r), height * r, width * r))


@checked
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(…, C, H·r, W·r) to (…, C·r², H, W)."""
    *leading, channels, height, width = input.shape
    r = downscale_factor
    if height % r or width % r:
        raise InvalidInputError("pixel_unshuffle: the sizes do not divide",
                                expected=f"multiples of {r}", got=f"{height} x {width}")
    split = input.reshape((math.prod(leading), channels, height // r, r, width // r, r))
    mixed = call("transpose", split, axes=(0, 1, 3, 5, 2, 4))
    return mixed.reshape((*leading, channels * r * r, height // r, width // r))


@checked
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Interleave the channels of ``groups`` groups (Zhang et al. 2018)."""
    shape = tuple(input.shape)
    split = input.reshape((shape[0], groups, shape[1] // groups, *shape[2:]))
    axes = (0, 2, 1, *range(3, len(shape) + 1))
    return call("transpose", split, axes=axes).reshape(shape)
