"""docs/coverage.md as data: its summary, its rows, and the tests that the rows name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coverage.md"
STATES = ("yes", "partly", "no")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")


@dataclass(frozen=True)
class Row:
    """One feature; ``note`` is what the last column says beside the tests."""

    id: str
    feature: str
    state: str
    tests: tuple[tuple[str, str], ...]
    note: str


def table_lines(text: str) -> Iterator[list[str]]:
    """The cells of each line of a table that is neither a heading nor a rule."""
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line.startswith("|") and not line.startswith("|-") and not following.startswith("|-"):
            yield [cell.strip() for cell in line.strip("|").split("|")]


def read_rows(text: str) -> list[Row]:
    """The rows of all sections; the summary has lines of two cells and is left out."""
    return [_row(*cells) for cells in table_lines(text) if len(cells) != 2]


def read_summary(text: str) -> dict[str, int]:
    """The number of rows in each state, as the page says it."""
    return {cells[0]: int(cells[1]) for cells in table_lines(text) if len(cells) == 2}


def _row(id_: str, feature: str, state: str, shown: str) -> Row:
    tests = tuple((m[1], m[2]) for m in TEST.finditer(shown))
    return Row(id_, feature, state, tests, TEST.sub("", shown).strip(" ,;"))
