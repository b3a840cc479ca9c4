"""A run draws a share of long tables, and can be repeated."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import sampling

CASES = [(name, number) for name in "abcdefgh" for number in range(10)]


@pytest.fixture(autouse=True)
def seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(sampling.SEED, "5")
    monkeypatch.delenv(sampling.SHARE, raising=False)


def test_a_seed_draws_the_same_again(monkeypatch):
    tenth, each = sampling.sampled("t", CASES), sampling.one_of_each("t", CASES, lambda c: c[0])
    assert sampling.sampled("t", CASES) == tenth
    assert sampling.one_of_each("t", CASES, lambda c: c[0]) == each
    monkeypatch.setenv(sampling.SEED, "6")
    assert sampling.sampled("t", CASES) != tenth
    assert sampling.one_of_each("t", CASES, lambda c: c[0]) != each


def test_shares():
    assert len(sampling.sampled("t", CASES)) == 8
    assert len(sampling.sampled("t", CASES, 0.5)) == 40
    assert len(sampling.sampled("t", CASES[:3], 0.1, least=2)) == 2
    assert [c[0] for c in sampling.one_of_each("t", CASES, lambda c: c[0])] == list("abcdefgh")
    assert sampling.drawn("t", CASES, 100) == CASES
    drawn = sum(sampling.is_drawn(f"{case}", 0.25) for case in CASES)
    assert 5 < drawn < 40


def test_many_runs_draw_everything(monkeypatch):
    seen = set()
    for seed in range(100):
        monkeypatch.setenv(sampling.SEED, str(seed))
        seen |= set(sampling.sampled("t", CASES))
    assert seen == set(CASES)


def test_the_whole_is_asked_for(monkeypatch):
    monkeypatch.setenv(sampling.SHARE, "1")
    assert sampling.sampled("t", CASES) == CASES
    assert sampling.one_of_each("t", CASES, lambda c: c[0]) == CASES
    assert sampling.is_drawn("anything", 0.01)
    for wrong in ("0", "1.5"):
        monkeypatch.setenv(sampling.SHARE, wrong)
        with pytest.raises(ValueError, match=sampling.SHARE):
            sampling.sampled("t", CASES)


def test_a_run_of_a_folder_samples_and_one_of_a_file_does_not(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\nmarkers = ["sample(share)", "slow", "torch"]')
    tests = Path(sampling.__file__).parent
    (tmp_path / "conftest.py").write_text((tests / "conftest.py").read_text(encoding="utf-8"))
    (tmp_path / "some").mkdir()
    (tmp_path / "some" / "test_long.py").write_text(
        "import pytest\n@pytest.mark.sample(0.1)\n@pytest.mark.parametrize('n', range(60))\n"
        "def test_long(n):\n    pass\n")
    environment = {**os.environ, "PYTHONPATH": str(tests.parent)}
    for argument, settings, passed in (("some", {}, 6), ("some/test_long.py", {}, 60),
                                       ("some", {"WEFT_TEST_COUNT": "2"}, 2)):
        done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", argument],
                              cwd=tmp_path, env=environment | settings, capture_output=True,
                              text=True, check=False)
        assert f"{passed} passed" in done.stdout.splitlines()[-1], done.stdout
