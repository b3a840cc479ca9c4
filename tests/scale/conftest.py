"""Tests of several processes: ``make test-scale`` takes them whole, the gate a few of each file.

A test that hangs ends the run, with the stacks of all threads.
"""

from __future__ import annotations

import faulthandler
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import sampling

LONGEST = 180
FEWEST = 2  # of a file


@pytest.hookimpl(trylast=True)  # after tables are drawn
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    files: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            files[item.path.name].append(item)
    left = {id(item) for name, tests in files.items()
            for item in set(tests) - set(sampling.sampled(f"scale/{name}", tests, least=FEWEST))}
    config.hook.pytest_deselected(items=[item for item in items if id(item) in left])
    items[:] = [item for item in items if id(item) not in left]


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    faulthandler.dump_traceback_later(LONGEST, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()
