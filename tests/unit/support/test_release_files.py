"""Lists of dependencies of wheels, and the manual page."""

from __future__ import annotations

import json
from pathlib import Path

from tools import release_files

PROJECT = """
[project]
name = "weft"
version = "1.2.3"
description = "x"
license = "Apache-2.0"
dependencies = ["numpy>=1.26", "ml_dtypes>=0.5"]
[project.optional-dependencies]
serve = ["fastapi>=0.115", "numpy>=2"]
full = ["weft[serve]"]
test = ["pytest"]
"""


def test_a_list_has_what_a_project_states(tmp_path: Path) -> None:
    path = tmp_path / "pyproject.toml"
    path.write_text(PROJECT)
    found = json.loads(release_files.bill_of_materials(path))
    assert found["metadata"]["component"]["purl"] == "pkg:pypi/weft@1.2.3"
    assert {c["name"]: c["scope"] for c in found["components"]} == {
        "fastapi": "optional", "ml-dtypes": "required", "numpy": "required"}
    numpy = found["components"][-1]["properties"]
    assert [p["value"] for p in numpy] == ["numpy>=1.26", "numpy>=2"]
    assert found["dependencies"][0]["dependsOn"] == ["fastapi", "ml-dtypes", "numpy"]


def test_stale_files_are_named(tmp_path: Path, monkeypatch, capsys) -> None:
    project, listed = tmp_path / "pyproject.toml", tmp_path / "weft.cdx.json"
    project.write_text(PROJECT)
    monkeypatch.setattr(release_files, "ROOT", tmp_path)
    monkeypatch.setattr(release_files, "PROJECTS", {project: listed})
    monkeypatch.setattr(release_files, "MAN_PAGE", tmp_path / "weft.1")
    monkeypatch.setattr(release_files, "man_page", lambda: ".TH WEFT 1\n")
    assert release_files.main(["--check"]) == 1
    assert "weft.cdx.json is not of this version" in capsys.readouterr().out
    assert release_files.main([]) == 0
    assert release_files.main(["--check"]) == 0
    project.write_text(PROJECT.replace("1.2.3", "1.2.4"))
    assert release_files.main(["--check"]) == 1
