"""CONTRIBUTING.md names targets, folders and files that exist."""

from __future__ import annotations

import re

from tests.docs.coverage_page import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_targets_of_make_exist():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    lines = re.findall(r"^make ([a-z -]+?)(?: *#.*)?$|`make ([a-z-]+)`", TEXT, re.MULTILINE)
    named = {target for pair in lines for text in pair for target in text.split()}
    assert named >= {"venv", "test", "lint", "layers", "bench"}
    assert named <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))


def test_paths_exist():
    named = re.findall(r"`((?:weft|docs|tools|\.ci)/[\w./*]+)`", TEXT)
    assert len(named) > 15
    for path in named:
        assert list(ROOT.glob(path)), path


def test_every_package_is_in_the_table():
    packages = {p.parent.name for p in (ROOT / "weft").glob("*/__init__.py")}
    rows = [line.split("|")[1] for line in TEXT.splitlines() if line.startswith("| `weft/")]
    assert set(re.findall(r"`weft/(\w+)`", " ".join(rows))) == packages
