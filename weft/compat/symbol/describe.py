"""Symbols as text: names of results, and NNVM's ``debug_str``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from weft.compat.symbol.node import Node, NodeEntry, walk
from weft.compat.symbol.slots import get_attr


def output_name(entry: NodeEntry) -> str:
    """The name of an entry: that of the variable, or ``<node>_output``, numbered if several."""
    node = entry.node
    if node.op is None:
        return node.name
    names = get_attr(node.op, "FListOutputNames")
    if names is not None:
        result = names(node.params)[entry.index]
    else:
        result = "output" if node.num_outputs == 1 else f"output{entry.index}"
    return f"{node.name}_{result}" if node.name else str(result)


def debug_text(heads: Sequence[NodeEntry]) -> str:
    """``Symbol.debug_str``."""
    first = heads[0].node
    if len(heads) == 1 and not first.inputs and not first.control_deps:
        if first.op is None:
            return f"Variable:{first.name}\n"
        return f"AtomicFunctor Op:{first.op.name}\n"
    lines = ["Symbol Outputs:"]
    lines += [f"\toutput[{i}]={e.node.name}({e.index})" for i, e in enumerate(heads)]
    for node in walk(heads):
        lines += _lines_of(node)
    return "\n".join(lines) + "\n"


def _lines_of(node: Node) -> Iterator[str]:
    if node.op is None:
        yield f"Variable:{node.name}"
        return
    yield "-" * 20
    yield f"Op:{node.op.name}, Name={node.name}"
    yield "Inputs:"
    for index, entry in enumerate(node.inputs):
        version = f" version={entry.version}" if entry.node.is_variable else ""
        yield f"\targ[{index}]={entry.node.name}({entry.index}){version}"
    if node.attrs:
        yield "Attrs:"
        yield from (f"\t{key}={value}" for key, value in sorted(node.attrs.items()))
    if node.control_deps:
        yield "Control deps:"
        yield from (f"\tcdep[{i}]={n.name}" for i, n in enumerate(node.control_deps))
