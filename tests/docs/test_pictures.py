"""Pictures of the pages are those of the stored figures, and pages show pictures that exist."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree as ET

import pytest

from tests.docs.coverage_page import ROOT
from tools.site import drawings
from tools.site.charts import Chart, Line, y_ticks
from tools.site.pictures import PICTURES, STEPS, STORED, drawn

FIGURES = json.loads(STORED.read_text("utf-8"))


def test_pictures_are_those_of_the_stored_figures() -> None:
    """After a change, ``python -m tools.site.pictures`` draws them again."""
    for path, text in drawn(FIGURES).items():
        assert (PICTURES / path).read_text("utf-8") == text, path


def test_drawings_are_those_of_the_program() -> None:
    """After a change, ``python -m tools.site.drawings`` draws them again."""
    for name, text in drawings.drawn().items():
        assert (drawings.FOLDER / name).read_text("utf-8") == text, name


def test_words_that_leave_their_box_are_refused() -> None:
    with pytest.raises(AssertionError, match="need 72 pixels"):
        drawings.Drawing("t", 40).box(0, 0, 60, 20, "ten letters"[:10])


def test_every_step_of_the_product_gains_in_the_end() -> None:
    largest = [FIGURES["gemm"][step][-1] for step in STEPS]
    assert max(largest[:2]) < max(largest[2:5]) < max(largest[5:8]) < largest[9]
    assert 10 * largest[0] < largest[8] < 1.1 * FIGURES["peak"]


def test_pages_show_pictures_that_exist() -> None:
    shown = set()
    for page in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md")):
        for target in re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).is_file(), f"{page.name}: no picture {target}"
            shown.add((page.parent / target).resolve())
    assert set(PICTURES.rglob("*.svg")) == shown, "pictures that no page shows"


def test_a_chart_is_xml_with_its_lines_inside_of_the_frame() -> None:
    chart = Chart("a < b", "x", "y", [Line([(0, 0), (10, 7)], "up & down", strong=True),
                                      Line([(0, 7), (10, 7)], dashed=True)], (0, 5, 10), 7)
    root = ET.fromstring(chart.svg())
    assert root[0].text == "a < b"
    assert "up & down" in [one.text for one in root]
    points = [tuple(map(float, pair.split(","))) for line in root if "points" in line.attrib
              for pair in line.attrib["points"].split()]
    assert points == [(44, 196), (464, 26), (44, 26), (464, 26)]


def test_ticks_are_round_and_reach_the_top() -> None:
    assert y_ticks(7) == [0, 1, 2, 3, 4, 5, 6, 7]
    assert y_ticks(130) == [0, 25, 50, 75, 100, 125]
    assert y_ticks(2.4) == [0, 0.5, 1, 1.5, 2]
