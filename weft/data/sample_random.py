"""Random numbers that are a function of (seed, epoch, position), not of the order of the draws.

The generator is Philox 4x64 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011):
seed and epoch are its key, position and purpose the high words of its counter, so the streams of
two samples cannot overlap. Workers therefore need no state, and no number depends on their count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import IntEnum
from typing import Any

import numpy as np

from weft.support.errors import OptionError

_WORD = (1 << 64) - 1
_current: ContextVar[np.random.Generator | None] = ContextVar("weft_data_sample", default=None)


class Purpose(IntEnum):
    """What a stream of numbers is for; streams of different purposes are independent."""

    ORDER = 0
    SAMPLE = 1
    SPLIT = 2


def generator_for(
    seed: int, epoch: int = 0, position: int = 0, purpose: Purpose = Purpose.ORDER
) -> np.random.Generator:
    """The generator of one stream; equal arguments give equal numbers."""
    key = np.array([seed & _WORD, epoch & _WORD], np.uint64)
    counter = np.array([0, 0, position & _WORD, int(purpose)], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def seed_of(generator: Any, seed: int) -> int:
    """The seed of a generator of weft or torch, or ``seed`` without one."""
    if generator is None:
        return seed
    if not hasattr(generator, "initial_seed"):
        raise OptionError("not a generator", got=type(generator).__name__,
                          expected="a Generator of weft or torch", help="pass seed= for a number")
    return int(generator.initial_seed())


def sample_generator() -> np.random.Generator:
    """The generator of the sample that a loader is reading; random transforms draw from it.

    The transforms of one sample draw from it one after the other. Outside a loader it is a new
    generator of seed 0, epoch 0 and index 0.
    """
    current = _current.get()
    return generator_for(0, purpose=Purpose.SAMPLE) if current is None else current


@contextmanager
def reading_sample(seed: int, epoch: int, index: int) -> Iterator[None]:
    """Inside the block, ``sample_generator`` is the one of this sample in this epoch."""
    token = _current.set(generator_for(seed, epoch, index, Purpose.SAMPLE))
    try:
        yield
    finally:
        _current.reset(token)
