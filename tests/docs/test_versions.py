"""The documentation of several versions: which tags have one, their sources and their list."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from tools.site.versions import newest_patches, unpack, write_start


def test_the_newest_patch_of_each_minor_version_has_a_site() -> None:
    tags = ["v1.0.0", "v1.0.10", "v1.0.9", "v1.2.0", "v0.9.1", "v2.0.0rc1", "nightly", "v1.10.0"]
    assert list(newest_patches(tags).items()) == [
        ("1.10", "v1.10.0"), ("1.2", "v1.2.0"), ("1.0", "v1.0.10"), ("0.9", "v0.9.1")]


def test_the_sources_are_those_of_the_tag(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words],
                       cwd=tmp_path, check=True, capture_output=True)

    page = tmp_path / "docs" / "index.md"
    page.parent.mkdir()
    git("init")
    for text, tag in (("old", "v1.0.0"), ("new", "v1.1.0")):
        page.write_text(text, "utf-8")
        git("add", ".")
        git("commit", "-m", text)
        git("tag", tag)
    unpack("v1.0.0", tmp_path / "sources", tmp_path)
    assert (tmp_path / "sources" / "docs" / "index.md").read_text("utf-8") == "old"


def test_the_list_of_versions_names_their_pages(tmp_path: Path) -> None:
    for page in ("latest/index.html", "latest/guides/slow.html", "1.0/index.html"):
        (tmp_path / page).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / page).write_text("", "utf-8")
    write_start(tmp_path, ["latest", "1.0"])
    text = (tmp_path / "versions.js").read_text("utf-8")
    assert json.loads(text.removeprefix("window.WEFT_VERSIONS = ").rstrip(";\n")) == [
        {"name": "latest", "pages": ["guides/slow.html", "index.html"]},
        {"name": "1.0", "pages": ["index.html"]}]
    assert "url=latest/index.html" in (tmp_path / "index.html").read_text("utf-8")
