"""``tools/gate.py`` runs every part, says what failed, and ends with the line of the tests."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tools import dev, gate, other_python

COMMANDS = """import os, sys
name = sys.argv[1]
print(name, os.environ.get("WEFT_TEST_SHARE"), os.environ["WEFT_TEST_SEED"])
print("3 passed" if name == "test" else "closing of " + name)
sys.exit(name == "types")
"""


@pytest.fixture(autouse=True)
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that print their names; ``types`` fails."""
    file = tmp_path / "dev.py"
    file.write_text(COMMANDS)
    monkeypatch.setattr(gate, "DEV", file)
    monkeypatch.setenv("WEFT_TEST_SEED", "12")
    monkeypatch.delenv("WEFT_TEST_SHARE", raising=False)


def test_every_part_is_a_command() -> None:
    assert {part.name for part in (*gate.SET_UP, *gate.PARTS)} <= set(dev.COMMANDS)
    assert gate.PARTS[-1].name == "test"


def test_all_parts_run_and_the_tests_have_the_last_word(capfd: pytest.CaptureFixture[str]) -> None:
    assert gate.main([]) == 1
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "3 passed"
    assert lines.count("3 passed") == 1
    for part in (*gate.SET_UP, *gate.PARTS):
        assert f"== {part.name}" in lines
        assert f"{part.name} {part.settings.get('WEFT_TEST_SHARE')} 12" in lines
    assert any(line.startswith("types ") and line.endswith("FAILED with 1") for line in lines)
    assert "seed 12; failed: types" in lines


def test_parts_can_be_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert gate.main(["lint", "test"]) == 0
    out = capfd.readouterr().out
    assert "== lint" in out
    assert "== types" not in out
    with pytest.raises(SystemExit, match="no such part: lnit"):
        gate.main(["lnit"])


def test_an_interpreter_that_does_not_start_is_not_taken(tmp_path, monkeypatch) -> None:
    """As the shims of pyenv, which stand on the path for versions that are not active."""
    version = next(v for v in reversed(dev.SUPPORTED) if v != sys.version_info[:2])
    shim = tmp_path / f"python{dev.spelled(version)}"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert list(other_python.candidates(version)) == [shim]
    assert other_python.newest_other() is None
    assert other_python.main(["test-hundred"]) == 0
