"""Check that weft has all operators of a graph, before anything of it is lowered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.compat.graphdef.definitions import FunctionRef, Library, NodeDef
from weft.compat.graphdef.registry import CONVERTERS
from weft.frontend.common.coverage import counted, misspelling, unsupported_operators
from weft.ir.op import OPS


def check_coverage(nodes: Sequence[NodeDef], library: Library, source: str) -> None:
    """Raise an ``UnsupportedModelError`` that lists all operators without a converter.

    The bodies of functions that the nodes call are part of it.
    """
    missing: dict[str, list[str]] = {}
    for node in (*nodes, *_bodies(nodes, library)):
        if CONVERTERS.find(node.op) is None and node.op not in OPS \
                and node.op not in library.functions:
            missing.setdefault(f"operator {node.op}", []).append(node.name)
    if missing:
        raise unsupported_operators(
            f"the graph uses {counted(len(missing), 'operator')} that weft does not support",
            missing, source, _suggestion(sorted(missing)))


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


def _suggestion(missing: Sequence[str]) -> str:
    names = (gap.removeprefix("operator ") for gap in missing)
    found = (misspelling(op, CONVERTERS.names(), cutoff=0.8) for op in names)
    return next(filter(None, found),
                "docs/graphs.md lists the operators of TensorFlow that weft reads")
