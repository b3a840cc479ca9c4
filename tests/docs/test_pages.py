"""Pages of ``docs``: their programs give what the pages say."""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.coverage_page import ROOT
from tests.docs.page_programs import run_page
from tests.unit.cli.commands import run
from weft.frontend.onnx.registry import CONVERTERS
from weft.transform.external.codegen import EXTERNAL_CODEGENS

SPACES = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def page(name: str, least: int, *marks: Any, flags: int = doctest.ELLIPSIS) -> Any:
    """A page, the number of examples that it has at least, and the flags of doctest."""
    return pytest.param(name, least, flags, id=name, marks=marks)


@pytest.fixture(autouse=True)
def _surroundings(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch
                  ) -> Iterator[None]:
    """Folders of its own; code generators and converters of the page are forgotten."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before = set(EXTERNAL_CODEGENS)
    yield
    for name in CONVERTERS.of_users():
        del CONVERTERS.entries[name]
    for name in set(EXTERNAL_CODEGENS) - before:
        EXTERNAL_CODEGENS.remove(name)


PROGRAMS = [
    page("array_api", 8),
    page("artifacts", 15),
    page("autodiff", 50, pytest.mark.slow),
    page("batch_work", 10, pytest.mark.slow),
    page("codegen", 15, flags=SPACES),
    page("compile_time", 5),
    page("cuda", 10, flags=SPACES),
    page("debugging", 10, pytest.mark.slow),
    page("get_started", 20, pytest.mark.slow),
    page("graphs", 10, pytest.mark.slow),
    page("guides/from_onnxruntime", 8),
    page("guides/result_differs", 8),
    page("guides/slow", 10, flags=SPACES),
    page("guides/unsupported_operator", 12),
    page("guides/without_python", 6),
    page("language_models", 15, pytest.mark.slow),
    page("machine_model", 10, flags=doctest.NORMALIZE_WHITESPACE),
    page("performance", 10, pytest.mark.slow, flags=SPACES),
    page("memory_plan", 3),
    page("quantization", 10),
    page("scale", 10, flags=SPACES),
    page("tuning", 8, flags=SPACES),
    page("strategies", 3),
    page("tensors", 30, pytest.mark.slow),
    page("training", 50, pytest.mark.slow),
    page("training_on_many", 10, flags=SPACES),
]
# Pages with examples that other tests run.
ELSEWHERE = {"dynamic_shapes", "generation", "serving", "grammar", "language"}


@pytest.mark.sample(0.25)
@pytest.mark.parametrize(("name", "least", "flags"), PROGRAMS)
def test_programs(name: str, least: int, flags: int) -> None:
    assert run_page(name, flags=flags) > least


def test_every_page_with_examples_is_run() -> None:
    docs = ROOT / "docs"
    shown = {path.relative_to(docs).with_suffix("").as_posix()
             for path in (*docs.glob("*.md"), *docs.glob("guides/*.md"))
             if re.search("^>>> ", path.read_text("utf-8"), re.MULTILINE)}
    assert shown == {str(one.id) for one in PROGRAMS} | ELSEWHERE


def test_commands_of_get_started(capsys: pytest.CaptureFixture[str]) -> None:
    """They run on the file that the page writes."""
    run_page("get_started", chosen=lambda block: "import numpy" in block or "onnx.save" in block)
    text = (ROOT / "docs" / "get_started.md").read_text("utf-8")
    shells = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    lines = [line for block in shells for line in block.splitlines() if line.startswith("weft ")]
    assert len(lines) == 3
    for line in lines:
        code, _, err = run(shlex.split(line)[1:], capsys)
        assert code == 0, f"{line}: {err}"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_programs_of_dynamic_shapes() -> None:
    pytest.importorskip("onnx")
    assert run_page("dynamic_shapes", chosen=lambda block: "torch" not in block) > 40


def test_programs_of_serving() -> None:
    assert run_page("serving", chosen=lambda block: "torch" not in block) > 10


@pytest.mark.sample(0.4, 1)
@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "least", "flags"), [
    page("dynamic_shapes", 43),
    page("generation", 30, flags=0),
    page("serving", 20),
])
def test_programs_with_torch(name: str, least: int, flags: int) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    assert run_page(name, flags=flags) > least
