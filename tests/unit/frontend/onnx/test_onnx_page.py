"""docs/onnx.md says what the tables of the program say."""

from __future__ import annotations

from pathlib import Path

from tests.unit.frontend.onnx.onnx_page import render

PAGE = Path(__file__).parents[4] / "docs" / "onnx.md"


def test_the_page_is_up_to_date() -> None:
    """To mend: python -m tests.unit.frontend.onnx.onnx_page > docs/onnx.md"""
    assert PAGE.read_text(encoding="utf-8") == render()
