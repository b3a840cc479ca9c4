"""Dropout: of elements, of channels, and the variants that keep mean and variance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.eager.emitter import call
from weft.eager.signature import checked
from weft.eager.tensor import Tensor
from weft.nn.functional.randomness import dropped
from weft.support.errors import InvalidInputError


@checked
def dropout(
    input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Zero each element with probability ``p`` and divide the others by 1 - p (Srivastava 2014).

    The mask is drawn from the default generator (``weft.manual_seed``).
    """
    _check(p)
    if not training or p == 0:
        return input
    result = dropped(input, p)
    return input.copy_(result) if inplace else result


def _channels(axes: int) -> Callable[..., Tensor]:
    """Dropout of whole channels of (N, C) and ``axes`` spatial axes, or without the batch."""

    def drop(
        input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> Tensor:
        """Zero each channel with probability ``p`` and divide the others by 1 - p."""
        _check(p)
        if not training or p == 0:
            return input
        leading = tuple(input.shape[: input.ndim - axes])
        result = input * _mask(leading + (1,) * axes, p, input)
        return input.copy_(result) if inplace else result

    drop.__name__ = f"dropout{axes}d"
    return checked(drop)


dropout1d, dropout2d, dropout3d = (_channels(axes) for axes in (1, 2, 3))


@checked
def alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Dropout for SELU, which keeps mean and variance (Klambauer et al. 2017)."""
    return _alpha(input, p, training, inplace, tuple(input.shape))


@checked
def feature_alpha_dropout(
    input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    """Alpha dropout of whole channels."""
    return _alpha(input, p, training, inplace, (*input.shape[:2], *(1,) * (input.ndim - 2)))


def _alpha(
    input: Tensor, p: float, training: bool, inplace: bool, shape: tuple[int, ...]
) -> Tensor:
    _check(p)
    if not training or p == 0:
        return input
    saturation = -1.7580993408473766  # - alpha * scale of SELU
    kept = _mask(shape, p, input) > 0
    scale = ((1 - p) * (1 + p * saturation**2)) ** -0.5 if p < 1 else 0.0
    dropped = call("where", kept, input, saturation)
    result = dropped * scale - scale * p * saturation
    return input.copy_(result) if inplace else result


def _mask(shape: tuple[int, ...], p: float, like: Tensor) -> Any:
    ones = call("ones", shape=shape, dtype=like.dtype.name)
    with like.device:
        return dropped(ones, p)


def _check(p: float) -> None:
    if not 0 <= p <= 1:
        raise InvalidInputError("the probability of dropout is out of range",
                                expected="0 <= p <= 1", got=p)
