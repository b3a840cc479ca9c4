"""The page of ``weft view``: one HTML file with its facts, style and program inside."""

from __future__ import annotations

import html
import json
import math
import re
from importlib.resources import files
from pathlib import Path
from typing import Any, cast

from weft.compiler.report.view.facts import ViewFacts, compared
from weft.support.errors import OptionError

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>{style}</style></head>
<body><header><h1>{title}</h1><nav role="tablist" aria-label="Views"></nav>
<label>Search <input id="search" type="search" placeholder="operator, name, shape"></label>
<span id="said" role="status"></span></header>
<main id="view" tabindex="-1"></main>
<script type="application/json" id="facts">{facts}</script><script>{program}</script></body></html>
"""

_COMPARED = ("title", "target", "module_seconds", "arena", "calls", "kernels")
_FACTS = re.compile(r'<script type="application/json" id="facts">(.*?)</script>', re.DOTALL)


def view_page(facts: ViewFacts, against: ViewFacts | None = None) -> str:
    """The page; with ``against``, it compares the kernels of both compilations."""
    told: dict[str, Any] = {**facts}
    if against is not None:
        told["against"] = {**{key: against[key] for key in _COMPARED},
                           "rows": compared(facts, against)}
    text = json.dumps(_without_nan(told), ensure_ascii=False, separators=(",", ":"))
    # Text of a model must not end the element that holds it.
    return _PAGE.format(title=html.escape(facts["title"]), style=_resource("view.css"),
                        facts=text.replace("<", "\\u003c"),
                        program=_resource("graph.js") + _resource("view.js"))


def facts_of_page(path: Path) -> ViewFacts:
    """The facts that a page of an earlier run holds; ``OptionError`` for another file."""
    found = _FACTS.search(path.read_text(encoding="utf-8", errors="replace"))
    told = json.loads(found[1]) if found else {}
    if not set(_COMPARED) <= told.keys():
        raise OptionError("this page is not from weft view", got=str(path),
                          expected="a file that weft view -o wrote with this version")
    return cast("ViewFacts", told)


def _resource(name: str) -> str:
    return files("weft.compiler.report.view").joinpath(name).read_text(encoding="utf-8")


def _without_nan(value: Any) -> Any:
    """The same value with ``None`` for numbers that JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    return [_without_nan(one) for one in value] if isinstance(value, list) else value
