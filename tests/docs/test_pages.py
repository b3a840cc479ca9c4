"""Pages of ``docs``: their programs give what the pages say."""

from __future__ import annotations

import doctest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.page_programs import run_page
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


@pytest.mark.parametrize(("name", "least", "flags"), [
    page("array_api", 8),
    page("artifacts", 15),
    page("autodiff", 50, pytest.mark.slow),
    page("codegen", 15, flags=SPACES),
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
    page("quantization", 10),
    page("scale", 10, flags=SPACES),
    page("tensors", 30, pytest.mark.slow),
    page("training", 50, pytest.mark.slow),
])
def test_programs(name: str, least: int, flags: int) -> None:
    assert run_page(name, flags=flags) > least


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_programs_of_dynamic_shapes() -> None:
    pytest.importorskip("onnx")
    assert run_page("dynamic_shapes", chosen=lambda block: "torch" not in block) > 40


def test_programs_of_serving() -> None:
    assert run_page("serving", chosen=lambda block: "torch" not in block) > 10


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
