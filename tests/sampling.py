"""Which share of long tables a run takes.

A run draws a tenth of what is exhaustive, another tenth each time. It prints its seed, and
``WEFT_TEST_SEED`` repeats it. ``WEFT_TEST_SHARE=1`` takes everything, as ``make test-all`` does and
as a run does that names files or tests; another number is the share of a table that is taken.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

SEED, SHARE = "WEFT_TEST_SEED", "WEFT_TEST_SHARE"
TENTH = 0.1

T = TypeVar("T")


def seed() -> str:
    """The seed of this run; processes that it starts inherit it."""
    return os.environ.setdefault(SEED, str(random.SystemRandom().randrange(10**6)))


def is_whole() -> bool:
    """Whether this run takes every table whole."""
    return share_of(TENTH) == 1


def share_of(usual: float) -> float:
    """The share to take where ``usual`` is that of a run without settings."""
    asked = os.environ.get(SHARE)
    if asked is None:
        return usual
    share = float(asked)
    if not 0 < share <= 1:
        raise ValueError(f"{SHARE} is above 0 and at most 1, not {asked}")
    return share


def sampled(table: str, cases: Sequence[T], share: float = TENTH, least: int = 1) -> list[T]:
    """A share of ``cases``, at least ``least``, in their order; ``table`` names the choice."""
    return drawn(table, cases, max(least, round(share_of(share) * len(cases))))


def drawn(table: str, cases: Sequence[T], count: int) -> list[T]:
    """``count`` of the cases, or all if there are fewer, in their order."""
    numbers = random.Random(f"{seed()}/{table}").sample(range(len(cases)), min(count, len(cases)))
    return [cases[number] for number in sorted(numbers)]


def one_of_each(table: str, cases: Sequence[T], key: Callable[[T], Hashable]) -> list[T]:
    """One of all cases with the same key, in their order; everything where a run is whole."""
    if is_whole():
        return list(cases)
    groups: dict[Hashable, list[int]] = {}
    for number, case in enumerate(cases):
        groups.setdefault(key(case), []).append(number)
    draw = random.Random(f"{seed()}/{table}")
    return [cases[number] for number in sorted(draw.choice(group) for group in groups.values())]


def is_drawn(name: str, share: float = TENTH) -> bool:
    """Whether ``name`` is in the share of this run, whatever else is."""
    return random.Random(f"{seed()}/{name}").random() < share_of(share)
