"""The graph of a phase for the page: nodes with their kernels, in scopes that fold.

Scopes come from the names of an imported model (``/layer1/layer1.0/conv1/Conv``). Where names have
none, blocks that follow each other with the same operators and types are the scopes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypedDict

import numpy as np

from weft.ir import Call, Expr, Function, post_order
from weft.ir.drawing import DrawnNode

# Blocks of fewer nodes are as easy to read unfolded.
_LEAST_BLOCK = 4
_ALMOST = 0.8
# The share of named nodes in scopes from which on names decide.
_NAMED_SHARE = 0.5


class NodeFacts(TypedDict):
    """``scope`` is a number in ``GraphFacts.scopes``, -1 outside of all; ``kernel`` a symbol."""

    kind: str
    lines: list[str]
    inputs: list[int]
    names: list[str]
    scope: int
    kernel: str


class ScopeFacts(TypedDict):
    """``parent`` is the number of the scope around, -1 for none."""

    title: str
    parent: int


class GraphFacts(TypedDict):
    """What a page draws of a phase."""

    nodes: list[NodeFacts]
    scopes: list[ScopeFacts]


def graph_facts(nodes: Sequence[DrawnNode], symbol_of: Callable[[Function], str]) -> GraphFacts:
    """The nodes of ``drawn_nodes``; ``symbol_of`` names the kernel of a primitive function."""
    names = [list(dict.fromkeys(node_names(node.node))) for node in nodes]
    scopes: list[ScopeFacts] = []
    places = _scopes_of_names(names, scopes) or _repeated_blocks(nodes, scopes)
    facts: list[NodeFacts] = [
        {"kind": node.kind, "lines": list(node.lines), "inputs": list(node.inputs),
         "names": names[number], "scope": places[number], "kernel": _kernel(node, symbol_of)}
        for number, node in enumerate(nodes)]
    return {"nodes": facts, "scopes": scopes}


def _kernel(node: DrawnNode, symbol_of: Callable[[Function], str]) -> str:
    is_kernel = node.kind == "kernel" and isinstance(node.node, Call)
    return symbol_of(node.node.op) if is_kernel else ""  # type: ignore[union-attr, arg-type]


def node_names(node: Expr | None) -> Iterator[str]:
    """The nodes of the model, or its lines, that an expression comes from."""
    if node is None:
        return
    inside = (post_order(node.op.body) if isinstance(node, Call) and isinstance(node.op, Function)
              else (node,))
    for one in inside:
        if one.span is not None and (isinstance(one, Call) or one is node):
            line = f"line {one.span.line}" if one.span.line is not None else ""
            if name := one.span.node or line:
                yield name


def _scopes_of_names(names: Sequence[Sequence[str]], scopes: list[ScopeFacts]) -> list[int] | None:
    """The scope of each node by its last name; ``None`` where few names have scopes."""
    paths = [_path(found[-1]) if found else () for found in names]
    named = sum(bool(found) for found in names)
    if sum(map(bool, paths)) < _NAMED_SHARE * max(named, 1):
        return None
    numbers: dict[tuple[str, ...], int] = {(): -1}
    for path in paths:
        for end in range(1, len(path) + 1):
            if path[:end] not in numbers:
                numbers[path[:end]] = len(scopes)
                scopes.append({"title": path[end - 1], "parent": numbers[path[: end - 1]]})
    return [numbers[path] for path in paths]


def _path(name: str) -> tuple[str, ...]:
    """``("layer1", "conv1")`` of ``/layer1/conv1/Conv (Conv)``."""
    return tuple(filter(None, name.removesuffix(")").rsplit(" (", 1)[0].split("/")))[:-1]


def _repeated_blocks(nodes: Sequence[DrawnNode], scopes: list[ScopeFacts]) -> list[int]:
    """The block of each node, where blocks of equal nodes follow each other."""
    numbers: dict[tuple[str, ...], int] = {}
    labels = np.asarray([numbers.setdefault((n.kind, *n.lines), len(numbers)) for n in nodes])
    places = [-1] * len(nodes)
    for found, period, count in _repeats(labels):
        first = _best_start(nodes, labels, found, period, count)
        for block in range(count):
            places[first + block * period: first + (block + 1) * period] = [len(scopes)] * period
            scopes.append({"title": f"block {block + 1} of {count}", "parent": -1})
    return places


def _repeats(labels: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """First number, length and count of repeated blocks that do not overlap.

    The shortest blocks come first among those that cover almost the most nodes: twelve layers, not
    two halves of six.
    """
    found = []
    for period in range(_LEAST_BLOCK, len(labels) // 2 + 1):
        equal = np.concatenate(([0], labels[:-period] == labels[period:], [0])).astype(np.int8)
        change = np.diff(equal)
        for start, end in zip(np.flatnonzero(change > 0), np.flatnonzero(change < 0), strict=True):
            count = int(end - start) // period + 1
            if count > 1 and len(set(labels[start: start + period])) > 1:
                found.append((int(start), period, count))
    while found:
        enough = _ALMOST * max(period * count for _, period, count in found)
        first, period, count = min((one for one in found if one[1] * one[2] >= enough),
                                   key=lambda one: one[1])
        yield first, period, count
        found = [one for one in found if one[0] + one[1] * one[2] <= first
                 or one[0] >= first + period * count]


def _best_start(nodes: Sequence[DrawnNode], labels: np.ndarray, first: int, period: int, count: int
                ) -> int:
    """Where to cut a run of equal blocks, so that the fewest nodes read from other blocks."""
    def crossing(start: int) -> int:
        return sum(used < start for number in range(start, start + period)
                   for used in nodes[number].inputs)

    last = first
    while (last + period * count < len(labels) and last < first + period - 1
           and labels[last] == labels[last + period * count]):
        last += 1
    return min(range(first, last + 1), key=crossing)
