"""``PlaceDevice``: a device for every node, and copies where data crosses devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft.compat.symbol.graph import Graph, graph_pass
from weft.compat.symbol.node import Node, NodeEntry, walk
from weft.compat.symbol.operator import operator
from weft.support.errors import OptionError


@graph_pass("PlaceDevice", depends=("device_group_attr_key", "device_assign_map",
                                    "device_copy_op"), provides=("context",), change_graph=True)
def place_device(graph: Graph) -> Graph:
    """Give nodes the device of their group or of their neighbours, and insert copies.

    ``device_group_attr_key`` names the attribute of nodes that holds the group,
    ``device_assign_map`` gives the device of each group (any values), ``device_copy_op`` the
    operator that copies. A node without a group takes the device of its first input that has one,
    else that of its first reader, else the first device of the map. ``context`` are the devices by
    node of the new graph; a tensor is copied once to each device.
    """
    nodes = list(walk(graph.outputs))
    devices = _devices(nodes, graph.attrs["device_group_attr_key"],
                       graph.attrs["device_assign_map"])
    copy_op = operator(graph.attrs["device_copy_op"])
    made: dict[Node, Node] = {}
    copies: dict[tuple[NodeEntry, object], NodeEntry] = {}
    device_of: dict[Node, object] = {}
    for node in nodes:
        new = Node(node.op, node.name, node.attrs, span=node.span)
        new.version = node.version
        made[node] = new
        device_of[new] = devices[node]
        new.control_deps = [made[n] for n in node.control_deps]
        for entry in node.inputs:
            source = NodeEntry(made[entry.node], entry.index, entry.version)
            if devices[entry.node] != devices[node]:
                key = source, devices[node]
                if key not in copies:
                    copy = Node(copy_op, f"{entry.node.name}_{entry.index}_copy", {}, [source])
                    device_of[copy] = devices[node]
                    copies[key] = NodeEntry(copy)
                source = copies[key]
            new.inputs.append(source)
    after = Graph([NodeEntry(made[e.node], e.index, e.version) for e in graph.outputs],
                  graph.attrs)
    return after.with_attrs(context=[device_of[node] for node in walk(after.outputs)])


def _devices(nodes: Sequence[Node], key: str, groups: Mapping[str, object]) -> dict[Node, object]:
    found: dict[Node, object] = {}
    for node in nodes:
        group = node.attrs.get(key)
        if group is not None:
            if group not in groups:
                raise OptionError(f"device_assign_map has no group {group!r}", where=node.span,
                                  got=node.name, expected=", ".join(groups))
            found[node] = groups[group]
    for node in nodes:  # from operands to readers
        before = [found[e.node] for e in node.inputs if e.node in found]
        if before:
            found.setdefault(node, before[0])
    for node in reversed(nodes):  # from readers to operands
        if node in found:
            for entry in node.inputs:
                found.setdefault(entry.node, found[node])
    default = next(iter(groups.values()), None)
    return {node: found.get(node, default) for node in nodes}
