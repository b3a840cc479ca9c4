"""The tests of the IR verify every module that they create, however large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.round_trip import Sampler
from weft.ir import IRModule, as_text, install_printer


@pytest.fixture
def round_trip_sampler() -> Sampler:
    return Sampler(largest=400, ratio=1)


@pytest.fixture(autouse=True)
def printed_modules(round_trip_sampler: Sampler) -> Iterator[None]:
    """What is printed is checked too, whenever it was made."""

    def render(node: Any) -> str:
        if isinstance(node, IRModule):
            round_trip_sampler.made(node)
        return as_text(node)

    install_printer(render)
    yield
    install_printer(as_text)
