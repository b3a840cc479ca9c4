"""docs/coverage.md names tests that exist, and has all rows."""

from __future__ import annotations

import ast
import functools
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.docs.coverage_page import PAGE, ROOT, STATES, Row, read_rows, read_summary

TEXT = PAGE.read_text(encoding="utf-8")
ROWS = read_rows(TEXT)
IDS = (Path(__file__).parent / "row_ids.txt").read_text(encoding="utf-8").split()


# What a row says of a part that is not there.
LACKS = re.compile(r"\b(missing|refused|not read|none for|none of)\b")


@functools.cache
def defined_tests(path: str) -> frozenset[str]:
    """The test functions that a file defines, without importing it."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return frozenset(n.name for n in tree.body if isinstance(n, ast.FunctionDef))


def test_every_row_is_there_once_and_in_order():
    assert [row.id for row in ROWS] == IDS
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_row(row: Row):
    assert row.feature
    assert row.state in STATES
    for path, name in row.tests:
        assert (ROOT / path).is_file(), f"there is no {path}"
        assert name.startswith("test_")
        assert name in defined_tests(path), f"{path} does not define {name}"
    assert "::" not in row.note, "a reference to a test that cannot be read"
    assert len(set(row.tests)) == len(row.tests)
    if row.state == "no":
        assert not row.tests
    else:
        assert row.tests, "no test shows it"
    assert row.note or row.state == "yes", "what is missing is not said"
    lacks = LACKS.search(row.note)
    assert row.state != "yes" or lacks is None, f"the row is partly there: {lacks}"


def test_the_summary_counts_the_rows():
    states = Counter(row.state for row in ROWS)
    assert read_summary(TEXT) == {**states, "all": len(ROWS)}
