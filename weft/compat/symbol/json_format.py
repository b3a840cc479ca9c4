"""Symbols as JSON in NNVM's form: ``nodes arg_nodes node_row_ptr heads attrs``.

``nodes`` have ``op`` (``"null"`` for variables), ``name``, ``attrs`` (texts), ``inputs`` (node,
index, version) and ``control_deps``; ``heads`` are the entries of the symbol; ``attrs`` those of
the graph, each with the name of its kind. Version 2 of the form says its version in ``attrs``.
Version 1, which NNVM and MXNet wrote, says none: attributes of nodes may be under ``attr`` and
``param``, and entries may lack the version of a variable. It is upgraded when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.compat.symbol.node import Node, NodeEntry, walk
from weft.compat.symbol.operator import operator
from weft.support.errors import ParseError, WeftError

VERSION = 2
VERSION_KEY = "json_version"
Document = dict[str, Any]


def save_json(heads: Sequence[NodeEntry], attrs: Mapping[str, Any] | None = None) -> str:
    """The graph of ``heads`` as JSON; ``attrs`` are texts, numbers, and lists of both or shapes.

    Attributes of other kinds (modules, functions) are left out, as they are in NNVM.
    """
    nodes = list(walk(heads))
    number = {node: i for i, node in enumerate(nodes)}
    rows = [0]
    for node in nodes:
        rows.append(rows[-1] + node.num_outputs)
    kept = {key: kinded for key, value in (attrs or {}).items()
            if (kinded := _with_kind(value)) is not None}
    return json.dumps({
        "nodes": [_saved(node, number) for node in nodes],
        "arg_nodes": [i for i, node in enumerate(nodes) if node.is_variable],
        "node_row_ptr": rows,
        "heads": [_entry(entry, number) for entry in heads],
        "attrs": {**kept, VERSION_KEY: ["int", VERSION]},
    }, indent=2)


def _saved(node: Node, number: Mapping[Node, int]) -> Document:
    record: Document = {"op": "null" if node.op is None else node.op.name, "name": node.name}
    if node.attrs:
        record["attrs"] = dict(sorted(node.attrs.items()))
    record["inputs"] = [_entry(entry, number) for entry in node.inputs]
    if node.control_deps:
        record["control_deps"] = [number[n] for n in node.control_deps]
    return record


def _entry(entry: NodeEntry, number: Mapping[Node, int]) -> list[int]:
    return [number[entry.node], entry.index, entry.version]


def _with_kind(value: Any) -> list[Any] | None:
    if isinstance(value, bool):
        return ["bool", value]
    for kind, name in ((str, "str"), (int, "int")):
        if isinstance(value, kind):
            return [name, value]
        if isinstance(value, (list, tuple)) and value and all(type(v) is kind for v in value):
            return [f"list_{name}", list(value)]
    if isinstance(value, (list, tuple)) and value and all(
            v is None or isinstance(v, tuple) for v in value):
        return ["list_shape", [None if v is None else list(v) for v in value]]
    return None


def load_json(text: str, *, source: str = "<json>"
              ) -> tuple[tuple[NodeEntry, ...], dict[str, Any]]:
    """The entries and the attributes of the graph that ``save_json``, NNVM or MXNet wrote.

    Raises ``ParseError`` for text that is not such a graph, of a later version, or corrupt, and
    for unknown operators.
    """
    try:
        document = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ParseError("invalid JSON", where=source, got=error) from None
    try:
        document = _current(document, source)
        nodes = _nodes_of(document)
        heads = tuple(NodeEntry(nodes[i], index, version)
                      for i, index, version in document["heads"])
        if any(not nodes[i].is_variable for i in document["arg_nodes"]):
            raise ValueError("an argument node is not a variable")
    except ParseError:
        raise
    except WeftError as error:
        raise ParseError(f"invalid graph: {error.what}", where=source, expected=error.expected,
                         got=error.got, help=error.help) from None
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ParseError("corrupt graph", where=source, got=f"{type(error).__name__}: {error}"
                         ) from None
    return heads, {key: _value(kinded) for key, kinded in document["attrs"].items()
                   if key != VERSION_KEY}


def _value(kinded: Sequence[Any]) -> Any:
    kind, value = kinded
    if kind == "list_shape":
        return [None if v is None else tuple(v) for v in value]
    return value


def _current(document: Any, source: str) -> Document:
    """The document in the present version."""
    if not isinstance(document, dict) or not {"nodes", "arg_nodes", "heads"} <= document.keys():
        raise ParseError("not a graph of symbols", where=source,
                         expected="an object with nodes, arg_nodes and heads")
    version = dict(document.get("attrs") or {}).get(VERSION_KEY, ["int", 1])[1]
    if not isinstance(version, int) or not 1 <= version <= VERSION:
        raise ParseError("unsupported version of a graph", where=source, got=version,
                         expected=f"version {VERSION} or earlier")
    while version < VERSION:
        document = UPGRADES[version](document)
        version += 1
    return document


def _from_1(document: Document) -> Document:
    """Version 1 to 2: one key for attributes, entries of three numbers, and the version."""
    nodes = []
    for old in document["nodes"]:
        node = {key: value for key, value in old.items()
                if key not in ("attr", "param", "backward_source_id")}
        node["attrs"] = {**old.get("param", {}), **old.get("attr", {}), **old.get("attrs", {})}
        node["inputs"] = [_three(entry) for entry in old["inputs"]]
        nodes.append(node)
    return {**document, "nodes": nodes, "heads": [_three(e) for e in document["heads"]],
            "attrs": {**(document.get("attrs") or {}), VERSION_KEY: ["int", 2]}}


def _three(entry: Sequence[int]) -> list[int]:
    return [*entry, 0][:3]


# UPGRADES[n] converts a document of version n to version n + 1.
UPGRADES: dict[int, Callable[[Document], Document]] = {1: _from_1}


def _nodes_of(document: Document) -> list[Node]:
    nodes: list[Node] = []
    for record in document["nodes"]:
        op = None if record["op"] == "null" else operator(record["op"])
        attrs = {str(key): str(value) for key, value in record.get("attrs", {}).items()}
        node = Node(op, record["name"], attrs)
        for i, index, version in record["inputs"]:
            source = nodes[i]
            source.version = max(source.version, version)
            node.inputs.append(NodeEntry(source, index, version))
        node.control_deps = [nodes[i] for i in record.get("control_deps", ())]
        if op is not None:
            assert node.params is not None  # raises for attributes that do not fit
        nodes.append(node)
    return nodes
