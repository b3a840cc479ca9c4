"""``tools/dev.py`` picks an interpreter that weft supports, and an environment for it."""

from __future__ import annotations

import os
import re
import stat
import sys
import tomllib
from pathlib import Path

import pytest

from tests.docs.coverage_page import ROOT
from tools import dev

OWN = dev.spelled(sys.version_info)
OTHERS = [dev.spelled(v) for v in dev.SUPPORTED if v != sys.version_info[:2]]


@pytest.fixture
def on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts interpreters of these versions on the path, which say how they were started."""
    def put(*versions: str) -> None:
        for version in versions:
            file = tmp_path / "bin" / f"python{version}"
            file.parent.mkdir(exist_ok=True)
            file.write_text(f'#!/bin/sh\necho "{version} $*"\nexit 7\n')
            file.chmod(file.stat().st_mode | stat.S_IXUSR)

    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("WEFT_PYTHON", raising=False)
    monkeypatch.delenv("WEFT_VENV", raising=False)
    return put


def unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this interpreter be one that weft does not support."""
    rest = tuple(v for v in dev.SUPPORTED if v != sys.version_info[:2])
    monkeypatch.setattr(dev, "SUPPORTED", rest)


def test_the_interpreter_at_hand_serves_where_it_is_supported(on_path) -> None:
    on_path(*OTHERS)
    assert dev.other_python(None) is None
    assert dev.other_python(OWN) is None


def test_a_version_can_be_asked_for(on_path, capfd: pytest.CaptureFixture[str]) -> None:
    on_path(*OTHERS)
    for version in OTHERS:
        assert dev.main(["--python", version, "test", "-x"]) == 7
        assert capfd.readouterr().out.split() == [version, dev.__file__, "test", "-x"]


def test_the_newest_supported_one_takes_the_place_of_one_that_is_not(on_path, monkeypatch) -> None:
    on_path("3.9", *OTHERS[:-1])
    unsupported(monkeypatch)
    found = dev.other_python(None)
    assert found is not None
    assert Path(found).name == f"python{OTHERS[-2]}"


@pytest.mark.parametrize("wanted", [None, OTHERS[0]])
def test_nothing_on_the_path(on_path, monkeypatch, capsys, wanted) -> None:
    on_path("3.9")
    unsupported(monkeypatch)
    with pytest.raises(SystemExit):
        dev.other_python(wanted)
    assert f"python{OTHERS[0]}" in capsys.readouterr().err


@pytest.mark.parametrize("wanted", ["3.9", "2.7", "new"])
def test_versions_that_weft_does_not_support(on_path, capsys, wanted) -> None:
    on_path(wanted)
    with pytest.raises(SystemExit):
        dev.other_python(wanted)
    assert f"does not support Python {wanted}" in capsys.readouterr().err


@pytest.mark.parametrize("key", ["version", "version_info"])
def test_each_version_has_an_environment_of_its_own(on_path, monkeypatch, tmp_path, key) -> None:
    on_path()
    monkeypatch.setattr(dev, "ROOT", tmp_path)
    assert dev.venv() == tmp_path / ".venv"
    (tmp_path / ".venv").mkdir()
    config = tmp_path / ".venv" / "pyvenv.cfg"
    config.write_text(f"home = /usr/bin\n{key} = {OWN}.2\n")
    assert dev.venv() == tmp_path / ".venv"
    config.write_text(f"home = /usr/bin\n{key} = {OTHERS[0]}.2.final.0\n")
    assert dev.venv() == tmp_path / f".venv-{OWN}"
    assert dev.interpreter().is_relative_to(tmp_path / f".venv-{OWN}")
    monkeypatch.setenv("WEFT_VENV", os.devnull)
    assert dev.venv() == Path(os.devnull)


def test_the_package_says_the_same_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(project["classifiers"]))
    assert named == [dev.spelled(v) for v in dev.SUPPORTED]
    assert project["requires-python"] == f">={named[0]}"
