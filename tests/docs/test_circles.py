"""No modules of weft import each other in a circle, at the top or in functions.

Imports for types alone are left out, and so is what packages hand on (``__init__``).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.docs.coverage_page import ROOT

# Tensors, their functions and the modules of ``weft.nn`` know each other as torch's do.
KNOWN = {"weft.eager", "weft.nn"}


def runtime_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below ``node`` that run, without blocks for type checkers."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from runtime_nodes(child)


def imports_of(tree: ast.Module, modules: frozenset[str]) -> set[str]:
    found: set[str] = set()
    for node in runtime_nodes(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found & modules


def circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The modules that are left when those that import no other are removed, again and again."""
    left = dict(imports)
    while True:
        done = {name for name, found in left.items() if not found & left.keys()}
        done |= {name for name in left
                 if not any(name in found for other, found in left.items() if other != name)}
        if not done:
            return [sorted(left)] if left else []
        left = {name: found - {name} for name, found in left.items() if name not in done}


def test_modules_import_each_other_in_one_direction():
    paths = {".".join(path.relative_to(ROOT).with_suffix("").parts): path
             for path in (ROOT / "weft").rglob("*.py") if path.name != "__init__.py"}
    modules = frozenset(paths)
    imports = {name: imports_of(ast.parse(path.read_text(encoding="utf-8")), modules) - {name}
               for name, path in paths.items()
               if not any(name.startswith(f"{known}.") for known in KNOWN)}
    assert circles(imports) == []


def test_a_circle_is_found():
    assert circles({"a": {"b"}, "b": {"a", "c"}, "c": set(), "d": {"a"}}) == [["a", "b"]]
