"""docs/symbols.md: its programs give what it says, and its table names every pass."""

from __future__ import annotations

import contextlib
import io
import re

from tests.docs.coverage_page import ROOT
from weft.graph.symbol import GRAPH_PASSES

TEXT = (ROOT / "docs" / "symbols.md").read_text(encoding="utf-8")


def test_the_page_runs():
    scope: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```\n```\n(.*?)```", TEXT, re.DOTALL)
    assert len(blocks) == 5
    for code, expected in blocks:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, scope)
        assert out.getvalue() == expected


def test_every_pass_is_described():
    named = set(re.findall(r"`([A-Z]\w+)`", TEXT))
    assert {name for name in GRAPH_PASSES if not name.startswith("Test")} <= named
