"""Which share of long tables a run takes.

A run draws a tenth of what is exhaustive, the same tenth each time, so that a failure is that of a
change. ``WEFT_TEST_SEED`` draws another one, as the weekly run does. Each case is drawn by its own
name: one that is added changes nothing for the others. ``WEFT_TEST_SHARE=1`` takes everything, as
``make test-all`` does and as a run does that names files or tests; another number is the share of a
table that is taken.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

SEED, SHARE = "WEFT_TEST_SEED", "WEFT_TEST_SHARE"
USUAL_SEED = "0"
TENTH = 0.1

T = TypeVar("T")


def seed() -> str:
    """The seed of this run; processes that it starts inherit it."""
    return os.environ.setdefault(SEED, USUAL_SEED)


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


def sampled(table: str, cases: Sequence[T], share: float = TENTH, least: int = 1,
            label: Callable[[T], str] = str) -> list[T]:
    """A share of ``cases``, at least ``least``, in their order; ``table`` names the choice."""
    return drawn(table, cases, max(least, round(share_of(share) * len(cases))), label)


def drawn(table: str, cases: Sequence[T], count: int, label: Callable[[T], str] = str) -> list[T]:
    """``count`` of the cases, or all if there are fewer, in their order.

    ``label`` names a case; those whose names give the lowest numbers are drawn.
    """
    numbers = sorted((number_of(table, label(case)), at) for at, case in enumerate(cases))
    return [cases[at] for at in sorted(at for _, at in numbers[:count])]


def one_of_each(table: str, cases: Sequence[T], key: Callable[[T], Hashable]) -> list[T]:
    """One of all cases with the same key, in their order; everything where a run is whole."""
    if is_whole():
        return list(cases)
    groups: dict[Hashable, list[int]] = {}
    for at, case in enumerate(cases):
        groups.setdefault(key(case), []).append(at)
    return [cases[at] for at in sorted(group[int(number_of(table, str(name)) * len(group))]
                                       for name, group in groups.items())]


def is_drawn(name: str, share: float = TENTH) -> bool:
    """Whether ``name`` is in the share of this run, whatever else is."""
    return number_of("", name) < share_of(share)


def number_of(table: str, name: str) -> float:
    """A number from 0 up to 1 that depends on the seed and the names alone."""
    digest = hashlib.blake2b(f"{seed()}/{table}/{name}".encode(), digest_size=6).digest()
    return int.from_bytes(digest, "big") / 2**48
