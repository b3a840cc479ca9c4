"""Names that are not taken."""

from __future__ import annotations

from weft.support.names import claim, numbered, unused


def test_names_get_underscores_or_numbers_only_where_they_are_taken() -> None:
    taken = {"x", "x_", "x_2"}
    assert (unused("y", taken), numbered("y", taken)) == ("y", "y")
    assert (unused("x", taken), numbered("x", taken)) == ("x__", "x_3")


def test_a_claimed_name_is_taken() -> None:
    taken: set[str] = set()
    assert [claim("x", taken) for _ in range(3)] == ["x", "x_2", "x_3"]
