"""The drawing of the way of a model has the arrows that the imports of its files have."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.coverage_page import ROOT
from tests.docs.test_circles import imports_of

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_FILE = re.compile(r"[a-z_]+(?:/[a-z_]+)+\.py")


def drawn() -> dict[str, set[str]]:
    """The files of the drawing, each with those that it imports."""
    section = TEXT.partition("## The way of a model")[2].partition("\n## ")[0]
    lines = re.findall(r"^```\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)[0].splitlines()
    found = [_FILE.findall(line) for line in lines]
    return {first: set(others) for first, *others in found}


DRAWN = drawn()
MODULES = {f"weft.{name[:-3].replace('/', '.')}": name for name in DRAWN}


@pytest.mark.parametrize("name", DRAWN)
def test_arrows_are_imports(name: str):
    tree = ast.parse((ROOT / "weft" / name).read_text(encoding="utf-8"))
    found = imports_of(tree, frozenset(MODULES)) - {f"weft.{name[:-3].replace('/', '.')}"}
    assert {MODULES[module] for module in found} == DRAWN[name]


def test_the_way_is_short():
    assert len(DRAWN) <= 15
