"""The sidebar of every page is made of the titles of pages only, so that the build is quick.

For each page Sphinx copies the headings of all pages, and then drops all but the titles.
"""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.addnodes import toctree


def quick_sidebar(app: Any, _page: str, _template: str, context: dict[str, Any],
                  _tree: Any) -> None:
    """Let ``toctree(titles_only=True)`` of a page's template copy titles instead of headings."""
    whole = context.get("toctree")
    if whole is None:
        return

    def of_titles(**options: Any) -> str:
        if not options.get("titles_only"):
            return whole(**options)
        kept = app.env.tocs
        app.env.tocs = titles(app, kept)
        try:
            return whole(**options)
        finally:
            app.env.tocs = kept

    context["toctree"] = of_titles


def titles(app: Any, tocs: dict[str, nodes.bullet_list]) -> dict[str, nodes.bullet_list]:
    """The titles of all pages, with the lists of pages that they have; made once in a build."""
    if not hasattr(app, "weft_titles"):
        app.weft_titles = {name: _title_of(toc) for name, toc in tocs.items()}
    return app.weft_titles


def _title_of(toc: nodes.bullet_list) -> nodes.bullet_list:
    found = toc.copy()
    for item in toc.children:
        kept = item.copy()
        kept += [child.deepcopy() for child in item.children[:1]]
        lists = [node.deepcopy() for child in item.children[1:] for node in child.findall(toctree)]
        if lists:
            kept += nodes.bullet_list("", *lists)
        found += kept
    return found
