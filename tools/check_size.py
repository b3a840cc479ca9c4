"""Hold files and functions to sizes that can be read in one go.

A file may have 500 lines and a function 60; marks that say work was left undone are refused. Run
as ``python tools/check_size.py`` from the root of the repository; ``--table`` lists the packages.
"""

from __future__ import annotations

import ast
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

MAX_FILE = 500
MAX_FUNCTION = 60
FOLDERS = ("weft", "tests", "tools", "examples", "benchmarks")
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|NotImplemented" r"Error)\b")
# Path -> the reason for its size. Only tables of data qualify.
LARGER_WITH_REASON: dict[str, str] = {}


def python_files(root: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted((root / folder).rglob("*.py"))


def functions(tree: ast.AST) -> Iterator[tuple[str, int, int]]:
    """Name, first line and length of every function."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1


def problems_of(path: Path, text: str, tree: ast.AST) -> Iterator[str]:
    lines = text.splitlines()
    if len(lines) > MAX_FILE and str(path) not in LARGER_WITH_REASON:
        yield f"{path}: {len(lines)} lines, at most {MAX_FILE}"
    for name, line, length in functions(tree):
        if length > MAX_FUNCTION and f"{path}:{name}" not in LARGER_WITH_REASON:
            yield f"{path}:{line}: {name} has {length} lines, at most {MAX_FUNCTION}"
    for number, line_text in enumerate(lines, 1):
        if UNFINISHED.search(line_text):
            yield f"{path}:{number}: unfinished work: {line_text.strip()}"
    if path.parts[0] == "weft" and lines and not ast.get_docstring(tree):  # type: ignore[arg-type]
        yield f"{path}:1: the file does not say what it is for (module docstring)"


def main(arguments: list[str]) -> int:
    root = Path.cwd()
    problems: list[str] = []
    lengths: list[int] = []
    per_package: dict[str, int] = defaultdict(int)
    for path in python_files(root):
        text = path.read_text(encoding="utf-8")
        relative = path.relative_to(root)
        tree = ast.parse(text, str(relative))
        problems.extend(problems_of(relative, text, tree))
        lengths.extend(length for _, _, length in functions(tree))
        per_package["/".join(relative.parts[:2])] += len(text.splitlines())
    if "--table" in arguments:
        for package, count in sorted(per_package.items()):
            print(f"{count:7d}  {package}")
    print("\n".join(problems), end="\n" if problems else "")
    print(f"{sum(per_package.values())} lines, {len(lengths)} functions, median "
          f"{statistics.median(lengths or [0]):.0f} lines, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
