"""Compare the public names of weft, and what they take, with the record in ``packaging/api.txt``.

    python tools/api_record.py            what would break programs that use weft; exit code 1
    python tools/api_record.py --write    after a change that is meant, and at a release

griffe reads the sources; nothing is imported. New names and new optional parameters break nothing:
the next ``--write`` records them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORD = ROOT / "packaging" / "api.txt"
# The parts of weft that other parts and extensions use; docs/releases.md promises the rest.
INNER = frozenset({"codegen", "compiler", "frontend", "ir", "op", "runtime", "strategy", "target",
                   "te", "tir", "topi", "transform"})


def public_lines(root: Path = ROOT) -> list[str]:
    """A line per public name: its kind, its place, and its parameters."""
    from griffe import GriffeLoader

    loader = GriffeLoader(search_paths=[str(root)])
    package: Any = loader.load("weft")
    loader.resolve_aliases(implicit=True, external=False)
    lines = [*_module(package)]
    modules = {*_submodules(package), "serving"} - INNER
    for name in sorted(package.members):
        module = package.members[name]
        if not module.is_alias and module.is_module and name in modules:
            lines += _module(module)
    return sorted(set(lines))


def _submodules(package: Any) -> set[str]:
    """The modules that ``import weft`` gives, as its stub lists them."""
    stub = Path(package.filepath).with_suffix(".pyi").read_text(encoding="utf-8")
    imports = [node for node in ast.parse(stub).body
               if isinstance(node, ast.ImportFrom) and node.module == "weft"]
    return {alias.name for node in imports for alias in node.names}


def _module(module: Any) -> Iterator[str]:
    for name, member in module.members.items():
        if name.startswith("_") or (member.is_alias and not member.target_path.startswith("weft.")):
            continue
        found = _target(member)
        if found is None:
            yield f"value {module.path}.{name}"
        elif found.is_class:
            yield from _class(f"{module.path}.{name}", found)
        elif found.is_function:
            yield f"def {module.path}.{name}({_parameters(found)})"
        elif not found.is_module and member.is_alias:
            yield f"value {module.path}.{name}"


def _target(member: Any) -> Any:
    """What a name stands for; ``None`` for what a table makes when the module is imported."""
    from griffe import AliasResolutionError

    try:
        return member.final_target if member.is_alias else member
    except AliasResolutionError:
        return None


def _class(path: str, found: Any) -> Iterator[str]:
    made = found.members.get("__init__")
    yield f"class {path}({_parameters(made) if made is not None and made.is_function else ''})"
    for name, member in found.members.items():
        if not name.startswith("_") and not member.is_alias and member.is_function:
            yield f"def {path}.{name}({_parameters(member)})"


def _parameters(function: Any) -> str:
    """Names, with ``=`` where a default is; ``/``, ``*`` and ``**`` as in a signature."""
    written, kinds = [], [str(p.kind.value) for p in function.parameters]
    for number, parameter in enumerate(function.parameters):
        kind = kinds[number]
        if number and kinds[number - 1] == "positional-only" != kind:
            written.append("/")
        if kind == "keyword-only" and not {"keyword-only", "variadic positional"} & {
                *kinds[:number]}:
            written.append("*")
        stars = {"variadic positional": "*", "variadic keyword": "**"}.get(kind, "")
        default = "" if stars or parameter.default is None else "="
        written.append(f"{stars}{parameter.name}{default}")
    if kinds[-1:] == ["positional-only"]:
        written.append("/")
    return ", ".join(written)


def broken(before: list[str], after: list[str]) -> list[str]:
    """What programs written for ``before`` miss in ``after``, a sentence each."""
    now = dict(map(_parted, after))
    found = []
    for line in before:
        name, (kind, parameters) = _parted(line)
        if name not in now:
            found.append(f"{name} is gone")
        elif now[name][0] != kind:
            found.append(f"{name} was a {kind} and is a {now[name][0]}")
        elif not _takes(now[name][1], parameters):
            found.append(f"{name} took ({', '.join(parameters)}) and takes "
                         f"({', '.join(now[name][1])})")
    return found


def _parted(line: str) -> tuple[str, tuple[str, list[str]]]:
    """The name, the kind and the parameters of a line."""
    kind, _, rest = line.partition(" ")
    name, _, parameters = rest.removesuffix(")").partition("(")
    return name, ({"def": "function"}.get(kind, kind), parameters.split(", ") if parameters else [])


def _takes(now: list[str], before: list[str]) -> bool:
    """Whether calls for the parameters ``before`` are calls for ``now``.

    Only optional parameters may be new: behind the others, or by keyword.
    """
    known = {p.removesuffix("=") for p in before}
    left = [p for p in now if p.removesuffix("=") in known]
    new = [p for p in now if p.removesuffix("=") not in known]
    as_before = len(left) == len(before) and all(
        p in (b, f"{b}=") for p, b in zip(left, before, strict=True))
    keeps_places = [n for n, p in enumerate(before)
                    if p == "*" or p.startswith("**")]  # new ones may come here
    positional = min(keeps_places, default=len(before))
    behind = now[:positional] == left[:positional]
    return as_before and behind and all(p.endswith("=") or p.startswith("*") for p in new)


def main(arguments: list[str]) -> int:
    lines = public_lines()
    if arguments == ["--write"]:
        RECORD.write_text("\n".join([*lines, ""]), encoding="utf-8")
        return 0
    found = broken(RECORD.read_text(encoding="utf-8").splitlines(), lines)
    for sentence in found:
        print(sentence)
    if found:
        print(f"{len(found)} changes break programs. Keep the old names for one minor version "
              "(weft/support/deprecation.py, docs/releases.md), or record what is meant: "
              "python tools/api_record.py --write")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
