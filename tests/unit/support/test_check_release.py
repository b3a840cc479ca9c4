"""What a release states: one version everywhere, one list of dependencies, named fragments."""

from __future__ import annotations

import re
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.docs.coverage_page import ROOT
from tools.check_release import CONDA, problems, stated_versions

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The files that state versions, in a folder of their own, with an empty ``changelog.d``."""
    for path in [*stated_versions(), "CHANGELOG.md"]:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / path, tmp_path / path)
    (tmp_path / "changelog.d").mkdir()
    return tmp_path


def test_all_files_state_one_version():
    assert problems(None) == []


def test_a_file_that_states_another_version_is_named(tree):
    path = tree / "CITATION.cff"
    path.write_text(re.sub("^version: .*$", "version: 9.9.9", path.read_text(), flags=re.MULTILINE))
    version = PROJECT["project"]["version"]
    assert problems(None, tree) == [f"CITATION.cff states 9.9.9, not {version}"]


def test_a_tag_needs_its_heading_and_no_fragments(tree):
    version = PROJECT["project"]["version"]
    (tree / "changelog.d" / "+x.fixed.md").write_text("x\n")
    found = problems(f"v{version}", tree)
    assert [text.split()[0] for text in found] == ["CHANGELOG.md", "changelog.d/+x.fixed.md"]
    (tree / "changelog.d" / "+x.fixed.md").unlink()
    with (tree / "CHANGELOG.md").open("a") as file:
        file.write(f"\n## {version} (2026-01-01)\n")
    assert problems(f"v{version}", tree) == []
    assert problems(version, tree) == [f"{version} is not a tag such as v1.2.3"]


def test_fragments_have_a_kind_of_change():
    kinds = {one["directory"] for one in PROJECT["tool"]["towncrier"]["type"]}
    for path in (ROOT / "changelog.d").iterdir():
        if path.name != "README.md":
            assert path.name.startswith("+"), path.name
            assert path.name.split(".")[1:] in [[kind, "md"] for kind in kinds], path.name


def test_the_conda_recipe_has_the_dependencies_of_the_project():
    text = (ROOT / CONDA).read_text(encoding="utf-8")
    run = text.partition("  run:\n")[2].partition("tests:")[0]
    named = [line.strip(" -").replace(" ", "") for line in run.splitlines()]
    assert sorted(named) == sorted([*PROJECT["project"]["dependencies"],
                                    f"python{PROJECT['project']['requires-python']}"])
