"""Configuration of the site: ``make docs`` builds it into ``out/site``."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import weft  # noqa: E402 - of this checkout

project = "weft"
author = "the weft authors"
version = release = weft.__version__
extensions = ["myst_parser", "sphinx_copybutton"]
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
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


def change_source(app: Any, name: str, source: list[str]) -> None:
    """Adapt a page that is also read in the repository.

    Pages of operators are found by the list of them and by the search, so they are not in the
    sidebar. Doctest's empty line at the end of a block is dropped. Tutorials offer their notebooks.
    """
    text = re.sub(r"\n\n```$", "\n```", source[0], flags=re.MULTILINE)
    if name.startswith("operators/") and not name.endswith("README"):
        text = f"---\norphan: true\n---\n\n{text}"
    folder, _, page = name.rpartition("/")
    if folder == "tutorials" and page in app.weft_notebooks:
        title, _, rest = text.partition("\n")
        link = f'<a href="../notebooks/{page}.ipynb" download>Download as a notebook</a>'
        text = f"{title}\n\n{link}\n{rest}"
    source[0] = text


def setup(app: Any) -> None:
    """Write the pages that come from code; only those that changed, so that builds are quick."""
    from tools.site.lexers import LEXERS
    from tools.site.notebooks import write as write_notebooks
    from tools.site.reference_pages import generated_pages
    from tools.site.sidebar import quick_sidebar

    app.weft_notebooks = write_notebooks(Path(app.outdir) / "notebooks")
    app.connect("source-read", change_source)
    app.connect("html-page-context", quick_sidebar, priority=100)  # before the theme asks
    for name, lexer in LEXERS.items():
        app.add_lexer(name, lexer)
    for path, text in generated_pages().items():
        target = HERE / "reference" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_text("utf-8") != text:
            target.write_text(text, "utf-8")
