"""What ``weft ops`` prints: weft's operators, also by the names of ONNX and torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from itertools import chain

import click

import weft.op  # noqa: F401 - fills the registry
from weft.cli.common import print_json, print_table
from weft.cli.operator_page import page_of
from weft.cli.operator_uses import onnx_names, torch_names
from weft.ir import OPS, Linearity, Op, OpPattern
from weft.support.errors import RegistryError
from weft.support.plugins import load_plugins
from weft.support.suggestion import nearest

# By the package that a format needs: its title, and its operators by weft's; the fastest first.
_FORMATS = {"onnx": ("ONNX", onnx_names), "torch": ("torch", torch_names)}
_GRADIENTS = ("operator", "cases", "reverse mode", "forward mode")


def print_operators(name: str | None, *, as_json: bool, gradients: bool) -> None:
    """All operators, those that a word finds, or the page of one."""
    load_plugins()
    if gradients:
        _print_gradients(name or "", as_json=as_json)
        return
    if name is not None and name in OPS and not as_json:
        formats = {"ONNX": onnx_names()} if find_spec("onnx") is not None else {}
        click.echo(page_of(OPS.get(name), formats))
        return
    word = (name or "").lower()
    found = [o for o in OPS if word in o.lower() or word in OPS.get(o).doc.lower()]
    spelled = spellings(word) if name is not None and not found else {}
    rows = [(o, ", ".join(OPS.get(o).inputs), OPS.get(o).doc.splitlines()[0])
            for o in (found or dict.fromkeys(chain.from_iterable(spelled.values())))]
    if not rows:
        raise _unknown(word)
    if as_json:
        print_json([{"name": n, "inputs": i, "doc": d} for n, i, d in rows])
        return
    for foreign, operators in spelled.items():
        click.echo(f"{foreign} converts to: {', '.join(operators)}")
    title = f"{len(rows)} operator{'s' * (len(rows) != 1)}"
    print_table(title if found else "\n" + title, ("operator", "inputs", "what it computes"), rows)


def print_places(name: str, *, as_json: bool) -> None:
    """The files that know the operators called ``name``, by role."""
    from weft.cli.operator_places import family_of, operators_called, places_of

    load_plugins()
    names = operators_called(name)
    if not names:
        raise _unknown(name.lower())
    found = {o: places_of(OPS.get(o)) for o in names}
    if as_json:
        print_json({o: [{"role": p.role, "file": str(p)} for p in places]
                    for o, places in found.items()})
        return
    for operator, places in found.items():
        family = family_of(OPS.get(operator))
        of_family = f", of the family {family}" if family else ""
        beside = sum(p.role.startswith(("test", "page")) for p in places)
        title = f"{operator}{of_family}: {len(places) - beside} files, {beside} tests and pages"
        print_table(title, ("what", "file"),
                    [(p.role, str(p)) for p in places])


def _print_gradients(word: str, *, as_json: bool) -> None:
    operators = [OPS.get(o) for o in OPS if word.lower() in o.lower()]
    if not operators:
        raise _unknown(word.lower())
    rows = rows_of(operators)
    if as_json:
        print_json([dict(zip(_GRADIENTS, row, strict=True)) for row in rows])
    else:
        print_table(f"{len(rows)} operators: {totals(operators)}", _GRADIENTS, rows)


def spellings(word: str) -> dict[str, list[str]]:
    """Weft's operators for each ONNX or torch operator called ``word``, as ``ONNX Gelu``."""
    return {f"{title} {foreign}": operators for title, table in _tables()
            for foreign, operators in table.items()
            if foreign.lower().rpartition(".")[2].rpartition("::")[2] == word}


def _tables() -> list[tuple[str, Mapping[str, list[str]]]]:
    """For each installed format, weft's operators by the name of the format's operator."""
    return [(title, _inverted(names())) for package, (title, names) in _FORMATS.items()
            if find_spec(package) is not None]


def _inverted(users: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for operator in sorted(users):
        for foreign in users[operator]:
            found.setdefault(foreign, []).append(operator)
    return found


def _unknown(word: str) -> RegistryError:
    known: dict[str, list[str]] = {}  # weft's own names come first
    for name in OPS:
        for spelling in dict.fromkeys((name.lower(), name.rpartition(".")[2].lower())):
            known.setdefault(spelling, []).append(name)
    for title, table in _tables():
        for foreign in table:
            spelling = foreign.lower().rpartition(".")[2]
            known.setdefault(spelling, []).append(f"{title} {foreign}")
    close = list(dict.fromkeys(name for spelling in nearest(word, known)
                               for name in known[spelling]))
    return RegistryError(f"unknown operator {word!r}",
                         help=f"did you mean {' or '.join(close[:4])}?" if close else None)

def rows_of(operators: Iterable[Op]) -> list[tuple[str, str, str, str]]:
    """A row of ``weft ops --gradients`` for each operator: columns as in ``_GRADIENTS``."""
    return [(op.name, str(len(op.cases)), reverse_mode(op), forward_mode(op)) for op in operators]


def totals(operators: Iterable[Op]) -> str:
    """The number of operators for each way of reverse mode."""
    counts = Counter(reverse_mode(op).partition(":")[0] for op in operators)
    return ", ".join(f"{count} {way}" for way, count in counts.most_common())


def reverse_mode(op: Op) -> str:
    """How ``Gradient`` differentiates the operator."""
    if op.hook("expansion") is not None:
        return "expansion"
    if op.gradient_rule is not None:
        return "rule"
    if op.hook("decomposition") is not None and op.no_gradient_reason is None:
        return "decomposition"
    return _without_rule(op)


def forward_mode(op: Op) -> str:
    """How ``ForwardMode`` differentiates the operator."""
    if op.jvp_rule is not None:
        return "rule"
    if op.traits.linearity is not Linearity.NONE:
        return "linear"
    way = reverse_mode(op)
    if way != "rule":
        return way
    return "gradient of an elementwise operator" if op.pattern <= OpPattern.BROADCAST else (
        "transposed gradient")


def _without_rule(op: Op) -> str:
    if op.no_gradient_reason is not None:
        return f"none: {op.no_gradient_reason}"
    return "zero" if op.traits.has_zero_gradient else "none"
