"""Which files know an operator: what ``weft ops --where NAME`` prints.

The record leads to the definition, its hooks, its compute, and the functions that targets have
registered for it or its family. Other files are found by their text: a reference ``op.nn.softmax``,
an import of the record, or its name in a table. Generated files are left out.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FunctionType
from typing import NamedTuple

import weft
from weft.cli.operator_uses import mentioned
from weft.ir.op import OPS, HookPlace, Op
from weft.ir.traits import Family
from weft.strategy.decision import deciders_of
from weft.strategy.registry import LAYOUT_HOOKS, LEGALIZATIONS, strategies_of
from weft.strategy.variants import VARIANTS
from weft.target import TARGET_KINDS

PACKAGE = Path(weft.__file__).parent
ROOT = PACKAGE.parent
# The role of files by the folder of weft, the first that fits. Files elsewhere use an operator to
# build something else, as do those of ``op``.
ROLES = {
    "frontend/onnx": "ONNX", "frontend/torch": "torch", "frontend/stablehlo": "StableHLO",
    "frontend/tflite": "TensorFlow Lite",
    "frontend": "front ends", "export": "writers",
    "compat/graphdef": "GraphDef", "compat/symbol": "NNVM", "compat": "TensorFlow",
    "array_api": "array API", "eager": "eager", "nn": "nn", "op/composites": "composites",
    "transform": "passes",
}
# Folders in which a string without a dot, such as ``"add"``, may mean something else.
AMBIGUOUS = ("frontend", "op")
GENERATED = ("index.py",)


class Place(NamedTuple):
    """``role`` is what a file has of the operator: its definition, a row of a converter, .."""

    role: str
    file: Path

    def __str__(self) -> str:
        return self.file.relative_to(ROOT).as_posix() if self.file.is_relative_to(ROOT) else str(
            self.file)


def operators_called(name: str) -> list[str]:
    """The operators of a full name, or of a last part: ``softmax`` is ``nn.softmax`` too."""
    return [o for o in OPS if o == name or o.rpartition(".")[2] == name]


def places_of(op: Op) -> list[Place]:
    """Every file that knows ``op``, by role; a file has the first role that fits."""
    found: dict[Path, Place] = {}
    for role, module in _by_record(op):
        spec = importlib.util.find_spec(module)
        if spec is not None and spec.origin is not None:
            found.setdefault(Path(spec.origin), Place(role, Path(spec.origin)))
    for place in (*_in_package(op.name), *_in_checkout(op.name)):
        found.setdefault(place.file, place)
    return list(found.values())


def _by_record(op: Op) -> Iterator[tuple[str, str]]:
    home = OPS.origin_of(op.name).module
    yield "definition", home
    text = _text_of(home)
    for table, hook in sorted(op.hooks.items()):
        module = hook.module if isinstance(hook, HookPlace) else getattr(hook, "__module__", "")
        if module and module != home and f'"{module}' in text:  # named by the definition
            yield f"hook {table}", module
    yield from (("compute", module) for module in dict.fromkeys(_computes(op.compute)))
    for kind in TARGET_KINDS:
        for function in _registered(op, kind):
            yield f"strategy {kind}", function.__module__


def _registered(op: Op, kind: str) -> Iterator[Callable[..., object]]:
    yield from strategies_of(op.name, kind)
    yield from deciders_of(op.name, kind)
    for registry in (LAYOUT_HOOKS, LEGALIZATIONS, VARIANTS):
        found = registry.of_operator(op.name, kind)
        if found is not None:
            yield found


def _computes(function: object) -> Iterator[str]:
    """The modules of topi whose functions a compute calls."""
    seen: set[int] = set()
    pending = [function]
    while pending:
        value = pending.pop()
        module = getattr(value, "__module__", None) or ""
        if id(value) in seen or not isinstance(value, FunctionType):
            continue
        seen.add(id(value))
        if module.startswith("weft.topi."):
            yield module
        elif module.startswith("weft.op."):
            pending += mentioned(value)


def _text_of(module: str) -> str:
    spec = importlib.util.find_spec(module)
    has_file = spec is not None and spec.origin is not None and Path(spec.origin).is_file()
    return Path(spec.origin).read_text(encoding="utf-8") if has_file else ""  # type: ignore[union-attr,arg-type]


def _in_package(name: str) -> Iterator[Place]:
    last = name.rpartition(".")[2]
    for folder, role in ROLES.items():
        for path in sorted((PACKAGE / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            if last in text and path.name not in GENERATED and _mentions(
                    ast.parse(text), name, strings="." in name or not folder.startswith(AMBIGUOUS)):
                yield Place(role, path)


def _mentions(tree: ast.Module, name: str, *, strings: bool) -> bool:
    package, _, last = f"weft.op.{name}".rpartition(".")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == last:
            if ast.unparse(node).removeprefix("weft.") == f"op.{name}":
                return True
        elif isinstance(node, ast.ImportFrom):
            home = OPS.origin_of(name).module
            if node.module in (package, home) and any(a.name == last for a in node.names):
                return True
        elif strings and isinstance(node, ast.Constant) and node.value == name:
            return True
    return False


def _in_checkout(name: str) -> Iterator[Place]:
    """Tests and pages, where weft runs from its source."""
    word = re.escape(name)
    pattern = re.compile(rf"\bop\.{word}\b|[\"'`]{word}[\"'`(]|(?<![\w.]){word}\(" if "." in name
                         else rf"\bop\.{word}\b|[\"'`]{word}[\"'`]")
    for role, files in (("test", _files("tests", "*.py")), ("page", _files("docs", "*.md"))):
        for path in files:
            if pattern.search(path.read_text(encoding="utf-8")):
                generated = path.parent.name == "operators"
                yield Place("page (generated)" if generated else role, path)


def _files(folder: str, pattern: str) -> Iterable[Path]:
    return sorted((ROOT / folder).rglob(pattern)) if (ROOT / "pyproject.toml").is_file() else ()


def family_of(op: Op) -> str:
    """The family for which targets register strategies, or the empty string."""
    return "" if op.traits.family is Family.NONE else op.traits.family.value
