"""Numbers that describe a machine live in the machine model, and others have a name.

A bare number in a comparison or a product of a strategy is a threshold that was fitted on some CPU,
or soon is one. Small ones count operands, dimensions and bytes.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import weft

STRATEGY = Path(weft.__file__).parent / "strategy"
LARGEST = 4  # the bytes of a float32, the sides of a kernel
# What other numbers may be compared with: widths of types, numbers of arguments and registers.
COUNTED = ("bits", "ndim", "len", "lanes", "vector_registers")


def _files() -> list[Path]:
    return [path for path in sorted((STRATEGY / "cpu").rglob("*.py"))
            if path.name != "machine_model.py"]


def bare_numbers(source: str) -> Iterator[str]:
    """The comparisons and products in functions with a number that needs a name."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        for node in ast.walk(function):
            match node:
                case ast.Compare(left=left, comparators=others):
                    operands = [left, *others]
                case ast.BinOp(left=left, right=right, op=ast.Mult() | ast.Div() | ast.FloorDiv()):
                    operands = [left, right]
                case _:
                    continue
            if any(map(_is_large, operands)) and not _counts(node):
                yield f"{function.name}: {ast.unparse(node)}"


def _is_large(node: ast.expr) -> bool:
    return (isinstance(node, ast.Constant) and isinstance(node.value, (int, float))
            and (abs(node.value) > LARGEST or node.value not in (*range(LARGEST + 1), 0.5)))


def _counts(node: ast.AST) -> bool:
    names = {getattr(part, "attr", getattr(part, "id", "")) for part in ast.walk(node)}
    return not names.isdisjoint(COUNTED)


def test_strategies_have_no_bare_thresholds():
    found = [f"{path.relative_to(STRATEGY)}: {text}" for path in _files()
             for text in bare_numbers(path.read_text(encoding="utf-8"))]
    assert not found, "give the number a name with its reason, or move it to the machine model"


def test_thresholds_are_found():
    source = "def f(target, n):\n    return n > 20_000 and n * 0.85 < target.l2_bytes // 3 * 6"
    assert list(bare_numbers(source)) == [
        "f: n > 20000", "f: n * 0.85", "f: target.l2_bytes // 3 * 6"]
    assert not list(bare_numbers("def f(x):\n    return x.bits > 16 and 4 * x.size"))
