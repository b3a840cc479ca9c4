"""Configuration of the site: ``make docs`` builds it into ``out/site``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import weft  # noqa: E402 - of this checkout

project = "weft"
author = "the weft authors"
version = release = weft.__version__
extensions = ["myst_parser"]
html_theme = "furo"
html_show_copyright = False
html_show_sphinx = False
html_title = f"weft {release}"
html_static_path = ["_static"]
html_css_files = ["weft.css"]
html_js_files = ["versions.js"]
exclude_patterns = []
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]


def leave_out_of_the_sidebar(_app: Any, name: str, source: list[str]) -> None:
    """Pages of operators are found by the list of them and by the search."""
    if name.startswith("operators/") and not name.endswith("README"):
        source[0] = f"---\norphan: true\n---\n\n{source[0]}"


def setup(app: Any) -> None:
    """Write the pages that come from code; only those that changed, so that builds are quick."""
    from tools.site.lexers import LEXERS
    from tools.site.reference_pages import generated_pages

    app.connect("source-read", leave_out_of_the_sidebar)
    for name, lexer in LEXERS.items():
        app.add_lexer(name, lexer)
    for path, text in generated_pages().items():
        target = HERE / "reference" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_text("utf-8") != text:
            target.write_text(text, "utf-8")
