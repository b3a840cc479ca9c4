"""Runs the programs of a page of ``docs``: one session over all of its Python blocks."""

from __future__ import annotations

import doctest
import re
from collections.abc import Callable
from pathlib import Path

from tests.docs.coverage_page import ROOT


def run_page(name: str | Path, *, flags: int = doctest.ELLIPSIS,
             chosen: Callable[[str], bool] = lambda _: True) -> int:
    """Run the blocks of ``docs/<name>.md`` that are ``chosen``; how many examples they have.

    ``name`` may be the path of a page elsewhere. ``flags`` are those of doctest.
    Fails with all results that differ from what the page says.
    """
    page = name if isinstance(name, Path) else ROOT / "docs" / f"{name}.md"
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"),
                        re.MULTILINE | re.DOTALL)
    text = "\n".join(filter(chosen, blocks))
    test = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
    failures: list[str] = []
    doctest.DocTestRunner(optionflags=flags).run(test, out=failures.append)
    assert not failures, "".join(failures)
    return len(test.examples)
