"""For all tests: a sample of long tables, and of the modules that tests make, through files."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.round_trip import Sampler, watching

# Of a long table of cases the fast tests run so many, spread over it.
SAMPLE = 8

# On a CPU that no table describes the tests decide by the nearest table, not by a measurement.
os.environ.setdefault("WEFT_CALIBRATE", "0")

# The same examples in each run: a failure is then that of a change. ``WEFT_FUZZ_EXAMPLES`` asks for
# new ones.
settings.register_profile("repeatable", derandomize="WEFT_FUZZ_EXAMPLES" not in os.environ)
settings.load_profile("repeatable")


@pytest.hookimpl(tryfirst=True)  # before cases are selected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark most cases of long tables ``slow``, so that ``make test-fast`` takes a sample."""
    tables: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        tables[item.nodeid.partition("[")[0]].append(item)
    for cases in tables.values():
        step = -(-len(cases) // SAMPLE)
        for number, item in enumerate(cases):
            if number % step:
                item.add_marker(pytest.mark.slow)


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
