"""Check that weft has all operators of a graph, before anything of it is lowered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from weft.compat.graphdef.definitions import FunctionRef, Library, NodeDef
from weft.compat.graphdef.registry import find_converter, supported_operators
from weft.ir.op import OPS
from weft.support.errors import UnsupportedModelError
from weft.support.suggestion import nearest

_NAMES_SHOWN = 3


def check_coverage(nodes: Sequence[NodeDef], library: Library, source: str) -> None:
    """Raise an ``UnsupportedModelError`` that lists all operators without a converter.

    The bodies of functions that the nodes call are part of it.
    """
    missing: dict[str, list[str]] = {}
    for node in (*nodes, *_bodies(nodes, library)):
        if find_converter(node.op) is None and node.op not in OPS \
                and node.op not in library.functions:
            missing.setdefault(node.op, []).append(node.name)
    if missing:
        count = len(missing)
        raise gaps_error(f"{count} operator{'s' if count != 1 else ''} that weft does not support",
                         missing, source, _suggestion(sorted(missing)))


def gaps_error(what: str, missing: Mapping[str, Sequence[str]], source: str,
               help: str | None = None) -> UnsupportedModelError:
    """The error that lists operators, those of most nodes first, with names of nodes."""
    ordered = sorted(missing, key=lambda op: (-len(missing[op]), op))
    return UnsupportedModelError(f"the graph uses {what}", where=source, help=help,
                                 notes=[_note(op, missing[op]) for op in ordered])


def _bodies(nodes: Sequence[NodeDef], library: Library) -> Iterable[NodeDef]:
    """The nodes of the functions that are called, each function once."""
    pending = list(nodes)
    seen: set[str] = set()
    while pending:
        node = pending.pop()
        called = [v.name for v in node.attrs.values() if isinstance(v, FunctionRef)]
        for name in (node.op, *called):
            if name in library.functions and name not in seen:
                seen.add(name)
                pending.extend(library.functions[name].nodes)
                yield from library.functions[name].nodes


def _note(op: str, names: Sequence[str]) -> str:
    more = ", ..." if len(names) > _NAMES_SHOWN else ""
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"operator {op}: {len(names)} node{'s' if len(names) != 1 else ''} ({shown}{more})"


def _suggestion(missing: Sequence[str]) -> str:
    for op in missing:
        close = nearest(op, supported_operators(), cutoff=0.8)
        if close:
            return f"is {op!r} meant to be {close[0]!r}?"
    return "docs/graphs.md lists the operators of TensorFlow that weft reads"
