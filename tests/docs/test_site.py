"""The site: all pages are reachable, links lead somewhere, and every public name has a text."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import weft
from tests.docs.coverage_page import ROOT
from tools.site import api_pages, reference_pages
from tools.site.api_pages import Namespace, markdown_of, page_of
from tools.site.reference_pages import generated_pages

DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.glob("*.md"), *DOCS.glob("tutorials/*.md"), *DOCS.glob("guides/*.md")])
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\((?!https?://|mailto:)([^)#\s]*)(#[^)\s]*)?\)")
_BLOCK = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"^```.*?^```$|`[^`\n]+`(?!\]\()", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def generated() -> dict[str, str]:
    return generated_pages()


def headings(text: str) -> set[str]:
    """The anchors of a page, as its readers on the web and in the site see them."""
    found = re.findall(r"^#+ (.+)$", _BLOCK.sub("", text), re.MULTILINE)
    plain = (re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in found)
    return {re.sub(r"[^\w\- ]", "", heading).strip().replace(" ", "-") for heading in plain}


@pytest.mark.torch  # some public names belong to its front end
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_links_lead_to_pages_and_their_headings(page: Path, generated: dict[str, str]) -> None:
    made = {(DOCS / "reference" / path).resolve(): text for path, text in generated.items()}
    for target, anchor in _LINK.findall(_CODE.sub("", page.read_text("utf-8"))):
        path = (page.parent / target).resolve() if target else page
        assert path in made or path.exists(), f"{page.name}: no file {target}"
        if anchor and path.suffix == ".md":
            text = made.get(path) or path.read_text("utf-8")
            assert anchor[1:] in headings(text), f"{page.name}: no heading {target}{anchor}"


def test_every_page_is_in_the_contents_once() -> None:
    trees = re.findall(r"```\{toctree\}\n(.*?)```", (DOCS / "index.md").read_text("utf-8"),
                       re.DOTALL)
    listed = [line for tree in trees for line in tree.splitlines() if line and line[0] != ":"]
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in PAGES} - {"index"}
    assert pages - set(listed) == set(), "pages that docs/index.md does not list"
    assert set(listed) - pages == {"reference/index", "operators/README"}, "pages that are missing"
    assert len(listed) == len(set(listed))


def exists(name: str) -> bool:
    """Whether a dotted name is a module, or leads through attributes from one to a value."""
    module, _, attribute = name.rpartition(".")
    try:
        importlib.import_module(name)
    except ImportError:
        try:
            return bool(module) and hasattr(importlib.import_module(module), attribute)
        except ImportError:
            owner, _, class_name = module.rpartition(".")
            return bool(owner) and exists(module) and hasattr(
                getattr(importlib.import_module(owner), class_name), attribute)
    return True


@pytest.mark.torch  # some public names belong to its front end
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the page of former names
def test_names_of_weft_on_pages_exist() -> None:
    text = "".join(path.read_text("utf-8") for path in PAGES)
    found = set(re.findall(r"(?<![\w./])weft(?:\.[A-Za-z_]\w*)+\b(?![-/])", text))
    files = (".md", ".toml", ".h", ".hpp", ".c", ".js", ".cdx", ".plugins")  # entry points, too
    names = {name for name in found if not name.endswith(files)}
    assert len(names) > 200
    assert {name for name in names if not exists(name)} == set()
    assert not exists("weft.nn.Linaer")


def test_a_name_without_a_docstring_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weft.amp.autocast, "__doc__", None)
    with pytest.raises(ValueError, match=r"weft\.amp: no docstring: autocast"):
        page_of(Namespace("weft.amp", ""))


# Modules with public names that have no page of their own, and where these are described.
ELSEWHERE = {"weft.op": "pages of operators", "weft.eager": "weft",
             "weft.signal": "weft.signal.windows", "weft.onnx_backend": "the onnx package"}


@pytest.mark.torch  # some public names belong to its front end
def test_every_module_with_public_names_has_a_page() -> None:
    modules = {f"weft.{path.stem}" for path in (ROOT / "weft").glob("*.py")}
    modules |= {f"weft.{path.parent.name}" for path in (ROOT / "weft").glob("*/__init__.py")}
    public = {name for name in modules - {"weft.__init__", "weft.__main__"}
              if getattr(importlib.import_module(name), "__all__", None)}
    assert public - {one.name for one in api_pages.NAMESPACES} == ELSEWHERE.keys()


def test_an_option_without_a_meaning_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(reference_pages.OPTIONS, "tier")
    with pytest.raises(ValueError, match=r"different options: tier$"):
        reference_pages._options()


def test_docstrings_become_markdown() -> None:
    assert markdown_of("A ``long\nname``.\n\nCode::\n\n    x = 1") == \
        "A `long name`.\n\nCode:\n\n    x = 1"


@pytest.mark.torch  # some public names belong to its front end
def test_pages_of_names_have_signatures_and_texts(generated: dict[str, str]) -> None:
    page = generated["api/weft.linalg.md"]
    assert "weft.linalg.inv(A, *, out=None)" in page
    assert "The inverses of square matrices" in page
    assert len(generated) > len(api_pages.NAMESPACES) + 25
