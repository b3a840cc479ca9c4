"""docs/operators is what the operators' records say, and its examples run."""

from __future__ import annotations

import contextlib
import io
import re

import numpy as np
import pytest

from tools.operator_pages import FOLDER, is_own, pages
from weft.cli.operator_page import source_of
from weft.ir import OPS

EXAMPLE = re.compile(r"## Example\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
# All examples are programs of the operator's own cases, which other tests run; these run whole.
SAMPLE = ("add", "argwhere", "concatenate", "nn.conv2d", "nn.softmax", "split", "where")


@pytest.fixture(scope="module")
def written():
    return {p.name: p.read_text(encoding="utf-8") for p in FOLDER.glob("*.md")}


@pytest.mark.torch
def test_pages_are_up_to_date(written):
    """If not: ``python -m tools.operator_pages``. Pages name operators of torch."""
    pytest.importorskip("torch")
    wanted = pages()
    assert sorted(written) == sorted(wanted)
    stale = [name for name in wanted if written[name] != wanted[name]]
    assert not stale


def test_every_page_has_every_section(written):
    for name in filter(is_own, OPS):
        text = written[f"{name}.md"]
        for section in ("Types", "Meaning in NumPy", "Example", "Facts"):
            assert f"\n## {section}\n" in text, name
        for field in OPS.get(name).attrs_type.__dataclass_fields__.values():
            assert f"| `{field.name}` |" in text
            assert field.metadata.get("doc"), f"{name}: {field.name} has no meaning"


def test_the_pages_name_models_operators(written):
    assert "| used for ONNX | Conv, " in written["nn.conv2d.md"]
    assert "aten.tanh" in written["tanh.md"]


@pytest.mark.parametrize("name", SAMPLE)
def test_example_runs(written, name):
    (program,) = EXAMPLE.findall(written[f"{name}.md"])
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, f"{name}.md", "exec"), {})
    assert printed.getvalue().strip()


def test_sources_of_references_are_cut_out_of_their_lines():
    pair = (lambda x: x + 1, lambda x, y: np.maximum(x,
                                                     y) * 2)
    assert source_of(pair[0]) == "lambda x: x + 1"
    assert source_of(pair[1]) == "lambda x, y: np.maximum(x, y) * 2"
    assert source_of(np.tanh) == "numpy.tanh"
