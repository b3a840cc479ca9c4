"""docs/jax.md says what the table of converters says."""

from __future__ import annotations

from pathlib import Path

from tests.unit.frontend.stablehlo.jax_page import OUTSIDE, SPECIFIED, render
from weft.frontend.stablehlo.refused import REFUSED
from weft.frontend.stablehlo.registry import CONVERTERS

PAGE = Path(__file__).parents[4] / "docs" / "jax.md"


def test_the_page_is_up_to_date() -> None:
    """To mend: python -m tests.unit.frontend.stablehlo.jax_page > docs/jax.md"""
    assert PAGE.read_text(encoding="utf-8") == render()


def test_each_operation_is_converted_or_refused_with_a_reason() -> None:
    for name in (*SPECIFIED, *OUTSIDE):
        is_converted = f"stablehlo.{name}" in CONVERTERS.entries or name == "custom_call"
        assert is_converted != (name in REFUSED), name
