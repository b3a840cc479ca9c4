"""Every test runs somewhere: those that need torch in ``make test-torch``, all others before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.coverage_page import ROOT
from tools import dev

TESTS = ROOT / "tests"
FILES = sorted(TESTS.rglob("test_*.py"))


def wants_torch(node: ast.AST) -> bool:
    """Whether this statement imports torch, or skips without it."""
    if isinstance(node, ast.Import):
        return any(name.name.partition(".")[0] == "torch" for name in node.names)
    if isinstance(node, ast.ImportFrom):
        return (node.module or "").partition(".")[0] == "torch"
    return (isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.importorskip"
            and ast.unparse(node.args[0]).strip("'\"").partition(".")[0] == "torch")


def unmarked(source: str) -> Iterator[str]:
    """Tests that need torch and do not say so by ``pytest.mark.torch``."""
    tree = ast.parse(source)
    module_is_marked = any(
        isinstance(s, ast.Assign) and ast.unparse(s.targets[0]) == "pytestmark"
        and "mark.torch" in ast.unparse(s.value) for s in tree.body)
    if module_is_marked:
        return
    for statement in tree.body:
        is_function = isinstance(statement, ast.FunctionDef)
        if is_function and any("mark.torch" in ast.unparse(d) for d in statement.decorator_list):
            continue
        if any(map(wants_torch, ast.walk(statement))):
            yield statement.name if is_function else ast.unparse(statement)


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(TESTS)))
def test_tests_of_torch_are_marked(path: Path) -> None:
    assert list(unmarked(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize(("source", "found"), [
    ("torch = pytest.importorskip('torch')", 1),
    ("import torch.nn", 1),
    ("def test_x():\n    from torch import nn", 1),
    ('def test_x():\n    pytest.importorskip("torch")', 1),
    ("@pytest.mark.torch\ndef test_x():\n    import torch", 0),
    ("import torch\npytestmark = [pytest.mark.slow, pytest.mark.torch]", 0),
    ("import weft\ndef test_x():\n    weft.frontend.torch", 0),
])
def test_what_is_found_unmarked(source: str, found: int) -> None:
    assert len(list(unmarked(source))) == found


def test_every_folder_is_collected(pytestconfig: pytest.Config) -> None:
    """``make test-onnx``, ``test-scale`` and ``test-targets`` run suites of their own."""
    folders = [ROOT / folder for folder in pytestconfig.getini("testpaths")]
    folders += [TESTS / name for name in ("onnx", "scale", "targets")]
    left = [p for p in FILES if not any(p.is_relative_to(f) for f in folders)]
    assert left == []


def test_both_commands_together_run_every_mark() -> None:
    (rest,), (_, torch) = dev.COMMANDS["test"][1], dev.COMMANDS["test-torch"][1]
    assert rest[rest.index("-m", 2) + 1] == "not torch"
    assert torch[torch.index("-m", 2) + 1] == "torch"


def test_torch_tests_fail_where_torch_is_missing() -> None:
    """They skip in other environments; that of ``make test-torch`` must have what they need."""
    check, _ = dev.COMMANDS["test-torch"][1]
    assert {"torch", "transformers", "onnxscript"} <= set(check[1].replace(",", " ").split())
