"""The nodes that tensors depend on, in an order in which they can run; the checks of edges."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Mapping, Sequence

from weft.compat.graphdef.definitions import NodeDef
from weft.compat.graphdef.names import CONTROL, check_node_name, parse_tensor
from weft.support.errors import InvalidModelError
from weft.support.suggestion import nearest

_SHOWN = 8


def nodes_by_name(nodes: Iterable[NodeDef], source: str) -> dict[str, NodeDef]:
    """The nodes by name, with checked names and edges.

    Raises ``InvalidModelError`` for an invalid name, a name that two nodes have, an input of no
    node (all of them are listed), and a data input behind a control input.
    """
    found: dict[str, NodeDef] = {}
    for node in nodes:
        check_node_name(node.name, node.span or source, inner=True)
        if node.name in found:
            raise InvalidModelError(f"two nodes have the name {node.name!r}",
                                    where=node.span or source,
                                    got=f"{found[node.name].op} and {node.op}")
        found[node.name] = node
    _check_inputs(found, source)
    return found


def _check_inputs(nodes: Mapping[str, NodeDef], source: str) -> None:
    missing: list[str] = []
    for node in nodes.values():
        seen_control = False
        for text in node.inputs:
            ref = parse_tensor(text, node.span or source)
            if ref.index != CONTROL and seen_control:
                raise InvalidModelError(
                    f"node {node.name!r} has the data input {text!r} behind a control input",
                    where=node.span or source)
            seen_control = seen_control or ref.index == CONTROL
            if ref.node not in nodes:
                close = nearest(ref.node, nodes)
                hint = f" (is it {close[0]!r}?)" if close else ""
                missing.append(f"{node.label} reads {text!r}{hint}")
    if missing:
        more = [] if len(missing) <= _SHOWN else [f"and {len(missing) - _SHOWN} more"]
        raise InvalidModelError(
            f"{len(missing)} input{'s' if len(missing) > 1 else ''} of nodes that do not exist",
            where=source, notes=missing[:_SHOWN] + more)


def producers(node: NodeDef) -> list[str]:
    """The nodes that a node reads or waits for."""
    return [text[1:] if text.startswith("^") else parse_tensor(text).node for text in node.inputs]


def needed(nodes: Mapping[str, NodeDef], targets: Iterable[str], given: Collection[str]
           ) -> set[str]:
    """The nodes that ``targets`` depend on, where the tensors of ``given`` nodes need nothing."""
    found: set[str] = set()
    pending = list(targets)
    while pending:
        name = pending.pop()
        if name not in found:
            found.add(name)
            if name not in given:
                pending.extend(producers(nodes[name]))
    return found


def execution_order(nodes: Mapping[str, NodeDef], wanted: Collection[str],
                    given: Collection[str], source: str) -> list[str]:
    """``wanted`` in an order in which they can run: of the nodes that are ready, the first.

    Raises ``InvalidModelError`` for a cycle.
    """
    position = {name: i for i, name in enumerate(nodes) if name in wanted}
    waits = {name: set() if name in given else set(producers(nodes[name])) for name in position}
    readers: dict[str, list[str]] = {}
    for name, inputs in waits.items():
        for producer in inputs:
            readers.setdefault(producer, []).append(name)
    names = list(nodes)
    ready = [position[name] for name, inputs in waits.items() if not inputs]
    heapq.heapify(ready)
    order: list[str] = []
    while ready:
        name = names[heapq.heappop(ready)]
        order.append(name)
        for reader in readers.get(name, ()):
            waits[reader].discard(name)
            if not waits[reader]:
                heapq.heappush(ready, position[reader])
    if len(order) < len(position):
        raise _cycle(nodes, {name: waits[name] for name in position if waits[name]}, source)
    return order


def _cycle(nodes: Mapping[str, NodeDef], waits: Mapping[str, Collection[str]], source: str
           ) -> InvalidModelError:
    """The error that shows one cycle among nodes that wait for each other."""
    name = next(iter(waits))
    path: list[str] = []
    while name not in path:
        path.append(name)
        name = min(n for n in waits[name] if n in waits)
    cycle: Sequence[str] = [*path[path.index(name):], name][::-1]
    shown = [nodes[n].label for n in cycle[:_SHOWN]] + (["..."] if len(cycle) > _SHOWN else [])
    return InvalidModelError(
        "the graph has a cycle", where=source, got=" -> ".join(shown),
        help="only loops made of Enter, Merge, Switch, NextIteration and Exit may be cyclic")
