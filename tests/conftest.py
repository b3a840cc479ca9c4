"""Modules that tests make come back from text and JSON: a sample of each test's is checked."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.round_trip import Sampler, watching


@pytest.fixture
def round_trip_sampler() -> Sampler:
    """Which modules are checked; the tests of the language itself check more."""
    return Sampler()


@pytest.fixture(autouse=True)
def round_trip(round_trip_sampler: Sampler) -> Iterator[None]:
    with watching(round_trip_sampler):
        yield
    if round_trip_sampler.failures:
        raise round_trip_sampler.failures[0]
