"""docs/architecture.md names files, passes and symbols that exist, and the real order of layers."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

from tests.docs.coverage_page import ROOT
from weft.compiler.pipeline import PHASE_NAMES
from weft.ir.op import OPS
from weft.ir.passes import PASSES
from weft.topi.layout import Layout

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PROSE = re.sub(r"^```\n.*?^```$", "", TEXT, flags=re.MULTILINE | re.DOTALL)
PACKAGE = ROOT / "weft"
# Spans may go on in the next line, paths among them.
SPANS = [" ".join(s.split()).replace("/ ", "/") for s in re.findall(r"`([^`]+)`", PROSE)]
PATH = re.compile(r"[a-z_]+(/[\w.]+)*(/|\.py)|[a-z_]+(/[a-z_]+)+")
WORD = re.compile(r"\w+(\.\w+)*")
LAYOUT = re.compile(r"[A-Z]+(\d+[a-z])+")  # NCHW16c
NOT_OURS = {"is", "Conv_3"}  # Python's operator, and a node of the model in the example


def paths() -> list[str]:
    """Files and folders in the text and in its drawing."""
    drawing = "".join(re.findall(r"^```\n(.*?)^```$", TEXT, re.MULTILINE | re.DOTALL))
    drawn = re.findall(r"(?<![\w/])[a-z_]+/(?:[\w.]+/?)*", drawing)
    return sorted({s for s in SPANS if PATH.fullmatch(s)} | set(drawn))


def words() -> list[str]:
    found = {s for s in SPANS if WORD.fullmatch(s) and not PATH.fullmatch(s)}
    return sorted(found - NOT_OURS)


@functools.cache
def known_words() -> frozenset[str]:
    """Every name that weft defines, and every string that it contains."""
    found: set[str] = {path.name for path in PACKAGE.rglob("*") if path.is_dir()}
    for path in PACKAGE.rglob("*.py"):
        found.add(path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.Name(id=name):
                    found.add(name)
                case ast.arg(arg=name) | ast.Attribute(attr=name) | ast.Constant(value=str(name)):
                    found.add(name)
    return frozenset(found | set(OPS))


@functools.cache
def files() -> tuple[str, ...]:
    return tuple(p.relative_to(ROOT).as_posix() + "/" * p.is_dir() for p in PACKAGE.rglob("*"))


@pytest.mark.parametrize("path", paths())
def test_path_exists(path: str):
    """Paths start at the root, at ``weft/``, or at the layer that a paragraph is about."""
    if (ROOT / path).exists():
        return
    end = path if path.endswith((".py", "/")) else f"{path}/"
    assert path == "weft/" or any(f"/{known}".endswith(f"/{end}") for known in files())


@pytest.mark.parametrize("word", words())
def test_word_is_in_the_code(word: str):
    if LAYOUT.fullmatch(word):
        assert Layout.parse(word).name == word
    else:
        assert word in known_words() or set(word.split(".")) <= known_words()


def test_every_package_is_described():
    layers = {p.name for p in PACKAGE.iterdir() if (p / "__init__.py").is_file()}
    described = ",".join(re.findall(r"^\*\*(.+?)\*\*", TEXT, re.MULTILINE)).replace(" ", "")
    assert {name.split("/")[0] for name in described.split(",")} == layers


def test_layers_are_those_that_are_checked():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    checked = [set(line.split(" | ")) for line in contracts["contracts"][0]["layers"]]
    (written,) = [s for s in SPANS if s.startswith("support <")]
    assert [set(part.split(", ")) for part in written.split(" < ")] == checked[::-1]


def test_phases_are_those_of_the_pipeline():
    assert " ▸ ".join(PHASE_NAMES) in TEXT


def test_passes_of_the_example_are_registered():
    section = TEXT.split("## The life of one convolution")[1].split("\n## ")[0]
    named = {s for s in re.findall(r"`([a-z]+(?:_[a-z]+)+)`", section) if s in PASSES}
    assert named >= {"simplify_inference", "fold_scale_axis", "fold_constant", "fuse_ops"}


def test_documents_are_named_where_they_lie():
    for page in (ROOT / "docs").glob("*.md"):
        for link in re.findall(r"`((?:docs|tests|benchmarks|examples|tools)/[\w/.]+)`",
                               page.read_text(encoding="utf-8")):
            assert Path(ROOT / link).exists(), f"{page.name}: {link}"
