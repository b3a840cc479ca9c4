"""The table of docs/frontends.md is what the tables of converters say."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tools.frontends_page import PAGE, ROWS, Row, row, table, torch_rows, with_table

TEXT = PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("rows", [
    pytest.param(rows, id=rows.__name__, marks=[pytest.mark.torch] if rows is torch_rows else [])
    for rows in ROWS])
def test_the_rows_are_up_to_date(rows: Callable[[], Iterator[Row]]) -> None:
    """If not: ``python -m tools.frontends_page``."""
    assert [one.text() for one in rows() if one.text() not in TEXT] == []


def test_a_row_accounts_for_each_operator() -> None:
    made = row("X", ["a", "b", "c", "d"], "a".__eq__, {"b": "no", "a": "no", "d": ""}, ["a", "c"])
    assert made == Row("X", 1, 1, 1, ("d",))
    assert made.text() == "| X | 4 | 1 | 1 | 1 | d |\n"


def test_the_table_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.frontends_page.ROWS", (lambda: iter([Row("X", 1)]),))
    once = with_table(TEXT)
    assert table() in once
    assert "| CHLO |" not in once
    assert with_table(once) == once
