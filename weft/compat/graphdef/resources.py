"""Resources besides variables, and tensors sent between partitions, as nodes that need neither.

A receive takes the tensor of the send with the same rendezvous name. A lookup in a table takes the
keys and values that initialize the table. What an iterator or a queue gives is an input.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from weft.compat.graphdef.definitions import NodeDef
from weft.compat.graphdef.names import TensorRef, parse_tensor
from weft.support.errors import InvalidModelError

SENDS = frozenset({"_Send", "_HostSend", "Send", "HostSend"})
RECEIVES = frozenset({"_Recv", "_HostRecv", "Recv", "HostRecv"})
TABLES = frozenset({"HashTable", "HashTableV2"})
_INITIALIZERS = frozenset({"InitializeTable", "InitializeTableV2", "LookupTableImport",
                           "LookupTableImportV2"})
_LOOKUPS = frozenset({"LookupTableFind", "LookupTableFindV2", "LookupTableSize",
                      "LookupTableSizeV2"})
# Their results come from outside of the graph; the attribute with the types of the results.
_SOURCES = {"IteratorGetNext": "output_types", "IteratorGetNextSync": "output_types",
            "QueueDequeue": "component_types", "QueueDequeueV2": "component_types",
            "QueueDequeueMany": "component_types", "QueueDequeueManyV2": "component_types"}
_KEY = ("tensor_name", "send_device", "recv_device", "send_device_incarnation")


def without_resources(nodes: Mapping[str, NodeDef], source: str) -> dict[str, NodeDef]:
    """The nodes without sends, tables, iterators and queues.

    Raises ``InvalidModelError`` for two sends, or two initializers, of one name.
    """
    ops = {node.op for node in nodes.values()}
    if not ops & (SENDS | RECEIVES | _LOOKUPS | _SOURCES.keys()):
        return dict(nodes)
    made = _joined(nodes, source)
    made = _with_contents(made, source)
    return _with_inputs(made)


def _joined(nodes: Mapping[str, NodeDef], source: str) -> dict[str, NodeDef]:
    sends: dict[tuple[Any, ...], NodeDef] = {}
    for node in nodes.values():
        if node.op in SENDS and sends.setdefault(_rendezvous(node), node) is not node:
            raise InvalidModelError(f"tensor {rendezvous_name(node)!r} is sent twice",
                                    where=node.span or source,
                                    got=f"{sends[_rendezvous(node)].name} and {node.name}")
    made: dict[str, NodeDef] = {}
    for name, node in nodes.items():
        if node.op in SENDS:
            waits = [f"^{parse_tensor(text).node}" for text in node.data_inputs]
            controls = [f"^{text}" for text in node.control_inputs]
            made[name] = dataclasses.replace(node, op="NoOp", attrs={},
                                             inputs=tuple(dict.fromkeys([*waits, *controls])))
        elif node.op in RECEIVES:
            made[name] = _received(node, sends.get(_rendezvous(node)))
        else:
            made[name] = node
    return made


def _received(node: NodeDef, send: NodeDef | None) -> NodeDef:
    """A receive as the tensor that was sent; without its send it can be fed."""
    type_ = node.attrs.get("tensor_type")
    if send is None or not send.data_inputs:
        return dataclasses.replace(node, attrs={**node.attrs, "dtype": type_})
    waits = tuple(f"^{name}" for name in (*send.control_inputs, *node.control_inputs))
    return dataclasses.replace(node, op="Identity", attrs={"T": type_},
                               inputs=(send.data_inputs[0], *dict.fromkeys(waits)))


def _rendezvous(node: NodeDef) -> tuple[Any, ...]:
    return tuple(_text(node.attrs.get(name)) for name in _KEY)


def rendezvous_name(node: NodeDef) -> str:
    """The name of the tensor that a node sends or receives."""
    return str(_text(node.attrs.get("tensor_name", "")))


def _text(value: Any) -> Any:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _with_contents(nodes: Mapping[str, NodeDef], source: str) -> dict[str, NodeDef]:
    """Lookups read the keys and values of their table: operands 0 and 1, before their own."""
    contents: dict[str, NodeDef] = {}
    for node in nodes.values():
        if node.op in _INITIALIZERS and len(node.data_inputs) == 3:
            table = _table(nodes, node)
            if contents.setdefault(table, node) is not node:
                raise InvalidModelError(f"table {table!r} is initialized twice",
                                        where=node.span or source,
                                        got=f"{contents[table].name} and {node.name}")
    made = dict(nodes)
    for name, node in nodes.items():
        table = _table(nodes, node)
        is_handle = node.op == "Identity" and table in nodes and nodes[table].op in TABLES
        if node.op in _LOOKUPS:
            given = contents[table].data_inputs[1:] if table in contents else ()
            made[name] = dataclasses.replace(node, inputs=(*given, *node.inputs[1:]))
        elif node.op in _INITIALIZERS or is_handle:
            made[name] = dataclasses.replace(node, op="NoOp", inputs=(), attrs={})
    return made


def _table(nodes: Mapping[str, NodeDef], node: NodeDef) -> str:
    """The table that a node reads, through identities."""
    name = parse_tensor(node.data_inputs[0]).node if node.data_inputs else ""
    for _ in nodes:
        if name not in nodes or nodes[name].op != "Identity":
            break
        name = parse_tensor(nodes[name].data_inputs[0]).node
    return name


def _with_inputs(nodes: Mapping[str, NodeDef]) -> dict[str, NodeDef]:
    """Placeholders instead of iterators and queues: ``next`` and, for result 1, ``next_1``."""
    made: dict[str, NodeDef] = {}
    moved: dict[TensorRef, str] = {}
    for name, node in nodes.items():
        types = node.attrs.get(_SOURCES.get(node.op, ""), ())
        if not types or not isinstance(types, tuple):
            made[name] = node
            continue
        shapes = node.attrs.get("output_shapes", ())
        for index, type_ in enumerate(types):
            own = name if index == 0 else _free(f"{name}_{index}", nodes)
            attrs = {"dtype": type_}
            if isinstance(shapes, tuple) and index < len(shapes):
                attrs["shape"] = shapes[index]
            made[own] = NodeDef(own, "Placeholder", (), node.device, attrs, node.span)
            moved[TensorRef(name, index)] = own
    if not moved:
        return made
    return {name: dataclasses.replace(node, inputs=tuple(
        moved.get(parse_tensor(text), text) if not text.startswith("^") else text
        for text in node.inputs)) for name, node in made.items()}


def _free(name: str, nodes: Mapping[str, NodeDef]) -> str:
    while name in nodes:
        name += "_"
    return name
