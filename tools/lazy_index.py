"""Writes the indexes of packages that load their modules when first used.

``python -m tools.lazy_index`` writes ``index.py`` of each layer in ``LAYERS``: which module defines
a public name of its packages and an entry of its registries (asked after every module was
imported). The names of ``weft.op`` follow from the records: operators, the classes of their
attributes, and what a module lists in ``__all__``; ``__init__.pyi`` tells them to type checkers.
Those of other layers are the imports under ``if TYPE_CHECKING`` of their ``__init__`` files.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import pkgutil
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple, TypeAlias

from weft.ir.op import OPS
from weft.support.lazy_package import load_names_lazily
from weft.support.registry import Registry

ROOT = Path(__file__).parents[1]


class Layer(NamedTuple):
    """``registries``: the name in the index -> ``module:attribute`` of the registry."""

    package: str
    lazy: tuple[str, ...]
    registries: Mapping[str, str]
    beside: tuple[str, ...] = ()  # other packages that make entries of these registries


Names: TypeAlias = "Mapping[str, Iterable[str]]"  # module -> names, or name=public name

OPERATOR_PACKAGES = ("weft.op", *(f"weft.op.{name}" for name in (
    "image", "linalg", "nn", "qnn", "random", "special", "vision")))
LAYERS = (
    Layer("weft.op", OPERATOR_PACKAGES, {"OPERATORS": "weft.ir.op:OPS"}),
    Layer("weft.codegen", ("weft.codegen",), {"KINDS": "weft.codegen.backend:BACKENDS"}),
    Layer("weft.transform", ("weft.transform",), {"PASSES": "weft.ir.passes:PASSES"},
          beside=("weft.compat.optimizer",)),
    Layer("weft.strategy", ("weft.strategy",), {}),
)


def names_of(package: str) -> Names:
    """The public names of a package, by the module that defines them."""
    is_known = package in OPERATOR_PACKAGES
    return _named_by_records(package) if is_known else _named_by_imports(package)


def _named_by_imports(package: str) -> Names:
    path = _folder(package) / "__init__.py"
    found: dict[str, list[str]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for line in node.body:
                if isinstance(line, ast.ImportFrom) and line.module not in (None, package):
                    found.setdefault(line.module, []).extend(
                        f"{a.name}={a.asname}" if a.asname else a.name for a in line.names)
    return found


def _named_by_records(package: str) -> Names:
    """``nn.conv2d`` is ``conv2d`` of ``weft.op.nn``, wherever its module is."""
    prefix = package.removeprefix("weft.op").lstrip(".")
    found: dict[str, set[str]] = {}
    modules = _modules("weft.op")
    for name in OPS.loaded():
        record = OPS.get(name)
        home = modules.get(OPS.origin_of(name).module)
        if home is not None and name.rpartition(".")[0] == prefix:
            variable = next(n for n, value in vars(home).items() if value is record)
            public = name.rpartition(".")[2]
            found.setdefault(home.__name__, set()).add(
                public if variable == public else f"{variable}={public}")
        attributes, owner = record.attrs_type, ".".join(("weft.op", *name.split(".")[:-1]))
        if owner in OPERATOR_PACKAGES and _package_of(attributes.__module__) == package:
            found.setdefault(attributes.__module__, set()).add(attributes.__name__)
    for module in modules.values():
        if module.__name__ not in OPERATOR_PACKAGES and _package_of(module.__name__) == package:
            found.setdefault(module.__name__, set()).update(getattr(module, "__all__", ()))
    return {module: names for module, names in found.items() if names}


def _package_of(module: str) -> str:
    """The lazy package of operators that a module is in: the nearest."""
    return max((p for p in OPERATOR_PACKAGES if module.startswith(f"{p}.")), key=len, default="")


def _modules(package: str) -> dict[str, ModuleType]:
    """All modules of a package, imported."""
    root = importlib.import_module(package)
    names = [found.name for found in pkgutil.walk_packages(root.__path__, f"{package}.")]
    return {name: importlib.import_module(name) for name in names}


def _folder(package: str) -> Path:
    return ROOT / package.replace(".", "/")


def stub_of(package: str) -> str:
    """``__init__.pyi`` of a package of operators."""
    names = {module: sorted(set(words)) for module, words in names_of(package).items()}
    prefix = package.removeprefix("weft.op").lstrip(".")
    inner = {name.removeprefix(f"{prefix}.").partition(".")[0] for name in OPS.loaded()
             if name.count(".") > prefix.count(".") + bool(prefix) and name.startswith(prefix)}
    names[package] = sorted(n for n in inner if importlib.util.find_spec(f"{package}.{n}"))
    public = [n.rpartition("=")[2] for words in names.values() for n in words]
    lines = ["# ruff: noqa: I001, RUF022", "# Generated by `python -m tools.lazy_index`."]
    for module, words in sorted(names.items()):
        text = f"from {module} import ({', '.join(words)})".replace("=", " as ")
        lines += textwrap.wrap(text, 100, subsequent_indent="    ") if words else []
    shown = ", ".join(f'"{n}"' for n in sorted(public))
    return "\n".join([*lines, "", *textwrap.wrap(f"__all__ = [{shown}]", 100)]) + "\n"


def _joined(names: Names) -> dict[str, str]:
    """The names of each module, sorted and parted by spaces."""
    return {module: " ".join(sorted(set(words))) for module, words in sorted(names.items())}


def _table(registry: str) -> Registry[object]:
    module, _, attribute = registry.partition(":")
    found: Registry[object] = getattr(importlib.import_module(module), attribute)
    return found


def entries_of(layer: Layer, registry: str) -> dict[str, str]:
    """Module -> the entries of a registry that it makes."""
    table = _table(registry)
    packages = (layer.package, *layer.beside)
    for package in packages:
        _modules(package)
    made: dict[str, list[str]] = {}
    for name in table:
        origin = table.origin_of(name).module
        if any(origin == p or origin.startswith(f"{p}.") for p in packages):
            made.setdefault(origin, []).append(name)
    return {origin: " ".join(names) for origin, names in sorted(made.items())}


def text_of(layer: Layer, *, with_entries: bool = True) -> str:
    """The index of a layer as a Python module."""
    lines = ['"""Which module defines each name of the lazy packages and registries here.',
             "", "Generated by ``python -m tools.lazy_index``.", '"""', "",
             "NAMES: dict[str, dict[str, str]] = {"]
    for package in layer.lazy:
        lines += [f'    "{package}": {{', *_rows(_joined(names_of(package)), 8), "    },"]
    lines.append("}")
    for name, registry in layer.registries.items():
        entries = entries_of(layer, registry) if with_entries else {}
        lines += ["", f"{name}: dict[str, str] = {{", *_rows(entries, 4), "}"]
    return "\n".join(lines) + "\n"


def _rows(table: Mapping[str, str], indent: int) -> list[str]:
    rows = []
    for key, words in table.items():
        short = f'{" " * indent}"{key}": "{words}",'
        if len(short) <= 100:
            rows.append(short)
            continue
        rows.append(f'{" " * indent}"{key}": (')
        rows += [f'{" " * (indent + 4)}"{line} "' for line in textwrap.wrap(
            words, 92 - indent, break_on_hyphens=False, break_long_words=False)]
        rows.append(f'{" " * indent}),')
    return rows


def forget() -> None:
    """Let modules be imported as if there were no index: one that moved has another entry."""
    for package in map(importlib.import_module, OPERATOR_PACKAGES):
        load_names_lazily(package.__name__, {})
    for layer in LAYERS:
        for registry in layer.registries.values():
            _table(registry).forget_index()


def main() -> None:
    """Write every index: first the names, which the modules that make the entries import."""
    forget()
    for package in map(importlib.import_module, OPERATOR_PACKAGES):
        load_names_lazily(package.__name__, _joined(names_of(package.__name__)))
        for name in package.__all__:  # imports have bound the modules of the same names
            vars(package).pop(name, None)
    for with_entries in (False, True):
        for layer in LAYERS:
            (_folder(layer.package) / "index.py").write_text(
                text_of(layer, with_entries=with_entries), encoding="utf-8")
    for package in OPERATOR_PACKAGES:
        (_folder(package) / "__init__.pyi").write_text(stub_of(package), encoding="utf-8")


if __name__ == "__main__":
    main()
