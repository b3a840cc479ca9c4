"""The tutorials run as they stand, each in a fresh process outside the package."""

from __future__ import annotations

import io
import re
import shutil
import tokenize
from pathlib import Path

import pytest

from tests.docs.tutorials import FOLDER, read_blocks, run_page, with_examples

PAGES = {path.stem: path.read_text(encoding="utf-8") for path in sorted(FOLDER.glob("*.md"))}
MOST_LINES = 40


# What pages say that need a package which not every environment has.
PACKAGES = {"weft[sign]": "cryptography", "weft[cross]": "ziglang", "weft[sandbox]": "wasmtime"}

# Pages that import torch are tests of torch.
MARKS = {page: [pytest.mark.torch] for page, text in PAGES.items()
         if re.search(r"^import torch$", text, re.MULTILINE)}


@pytest.mark.sample(0.25)
@pytest.mark.parametrize("page", [pytest.param(p, marks=MARKS.get(p, [])) for p in PAGES])
def test_tutorial_prints_what_it_shows(page: str, tmp_path: Path) -> None:
    """After a change of a message, ``python -m tests.docs.tutorials`` writes the new ones."""
    if "te.python_extern" in PAGES[page]:
        pytest.importorskip("numba")
    for words, package in PACKAGES.items():
        if words in PAGES[page]:
            pytest.importorskip(package)
    if '["node"' in PAGES[page] and not shutil.which("node"):
        pytest.skip("there is no node")
    if '["cc"' in PAGES[page] and not (shutil.which("cc") and shutil.which("c++")):
        pytest.skip("there is no C compiler")
    blocks = read_blocks(PAGES[page])
    printed = run_page(PAGES[page], tmp_path)
    assert {b.file: text for b, text in zip(blocks, printed, strict=True)} == {
        b.file: b.printed for b in blocks}


def test_pages_show_the_examples_as_they_are() -> None:
    """After a change of an example, ``python -m tests.docs.tutorials`` writes it to the page."""
    for page, text in PAGES.items():
        assert with_examples(text) == text, page
    assert "# toy_target/backend.py\n" in PAGES["add_target"]


def test_every_block_of_python_is_read() -> None:
    for page, text in PAGES.items():
        files = [block.file for block in read_blocks(text)]
        assert text.count("```python\n") == sum(file.endswith(".py") for file in files), page


def test_the_mistakes_that_the_page_promises_are_there() -> None:
    shown = "".join(b.printed for b in read_blocks(PAGES["add_operator"]))
    for words in ("contradicts its type relation", "does not return a tensor", "E0600",
                  "the gradient of acme.square with respect to x has the wrong type"):
        assert words in shown


def test_an_operator_takes_at_most_forty_lines() -> None:
    """Attributes, relation, compute, strategy, gradient and specification, imports among them."""
    (source,) = (b.source for b in read_blocks(PAGES["add_operator"]) if b.file == "acme_ops.py")
    skipped = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
               tokenize.ENDMARKER}
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in skipped
             for line in range(token.start[0], token.end[0] + 1)}
    assert len(lines) <= MOST_LINES, len(lines)
    for part in ("relation=", "@define_op", "@strategy", ".gradient", ".spec("):
        assert part in source
