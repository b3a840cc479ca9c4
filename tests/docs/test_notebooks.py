"""Notebooks have the text and the code of the tutorials; ``make docs-test`` runs them."""

from __future__ import annotations

from tests.docs.tutorials import FOLDER
from tools.site.notebooks import has_notebook, notebook, printed_by

PAGES = {path.stem: path.read_text("utf-8") for path in FOLDER.glob("*.md")}
PAGE = """# Title

See [the page](../other.md) and [the web](https://example.org).

Save each block under the name in its first line, and
run it.

```python
# first.py
value = 1
```

```python
# second.py
from first import value
print(value)
```

```text
1
E0500 wrong
```

End.
"""


def test_a_page_becomes_cells() -> None:
    cells = notebook(PAGE)["cells"]
    assert [cell["source"] for cell in cells] == [
        "# Title\n\nSee the page and [the web](https://example.org).",
        "%%writefile first.py\n# first.py\nvalue = 1", "import first",
        "from first import value\nprint(value)", "End."]
    assert [printed_by(cell) for cell in cells] == [
        "", "Writing first.py\n", "", "1\nE0500 wrong\n", ""]
    assert [cell["metadata"] for cell in cells[1:4]] == [{}, {}, {"tags": ["raises-exception"]}]


def test_tutorials_that_are_files_of_their_own_are_notebooks() -> None:
    made = {name for name, text in PAGES.items() if has_notebook(text)}
    assert set(PAGES) - made == {"add_target", "plugin"}, "these make packages"
    for name in made:
        for cell in notebook(PAGES[name])["cells"]:
            if cell["cell_type"] == "code" and not cell["source"].startswith("%%"):
                compile(cell["source"], name, "exec")
