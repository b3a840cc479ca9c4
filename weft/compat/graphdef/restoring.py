"""The tensors of a checkpoint that the variables of a graph are restored from.

Both versions of TensorFlow write nodes that restore a model: ``RestoreV2`` gives the tensors whose
names are one of its operands, and assignments store them in variables. In version 2 they are in a
function that takes the variables as arguments.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_RESTORE = "RestoreV2"
_ASSIGNMENTS = ("Assign", "AssignVariableOp")
_ALIASES = ("Identity", "Cast", "ReadVariableOp")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
_MOST_STEPS = 100


def keys_of_variables(meta: Any) -> dict[str, str]:
    """The names of tensors of the checkpoint by the names of the nodes of variables."""
    graph = meta.graph_def
    functions = {f.signature.name: f for f in graph.library.function
                 if any(node.op == _RESTORE for node in f.node_def)}
    main = {node.name: node for node in graph.node}
    found = _restored(main, {})
    for node in graph.node:
        called = functions.get(node.attr["f"].func.name if node.op in _CALLS else node.op)
        if called is None:
            continue
        given = [text for text in node.input if not text.startswith("^")]
        arguments = {arg.name: _name(_origin(text, main)) for arg, text in
                     zip(called.signature.input_arg, given, strict=False)}
        found |= _restored({n.name: n for n in called.node_def}, arguments)
    return found


def _restored(nodes: Mapping[str, Any], arguments: Mapping[str, str]) -> dict[str, str]:
    """The tensors of the checkpoint that nodes assign; ``arguments`` are variables."""
    found: dict[str, str] = {}
    for node in nodes.values():
        if node.op not in _ASSIGNMENTS or len(node.input) < 2:
            continue
        target, value = (_origin(text, nodes) for text in node.input[:2])
        restore = nodes.get(_name(value))
        if restore is None or restore.op != _RESTORE:
            continue
        keys, index = _texts(restore, 1, nodes), _index(value)
        slices = _texts(restore, 2, nodes)
        if index < len(keys) and not (index < len(slices) and slices[index]):
            found[arguments.get(_name(target), _name(target))] = keys[index].decode(
                "utf-8", "replace")
    return found


def _origin(text: str, nodes: Mapping[str, Any]) -> str:
    """The tensor that ``text`` is a copy of."""
    for _ in range(_MOST_STEPS):
        node = nodes.get(_name(text))
        if node is None or node.op not in _ALIASES or not node.input:
            break
        text = node.input[0]
    return text


def _texts(node: Any, operand: int, nodes: Mapping[str, Any]) -> list[bytes]:
    """An operand that is a constant vector of strings."""
    if operand >= len(node.input):
        return []
    source = nodes.get(_name(_origin(node.input[operand], nodes)))
    if source is None or source.op != "Const" or "value" not in source.attr:
        return []
    tensor = source.attr["value"].tensor
    values = list(tensor.string_val)
    count = tensor.tensor_shape.dim[0].size if tensor.tensor_shape.dim else 1
    return values * count if len(values) == 1 and 0 < count < 1 << 20 else values


def _name(text: str) -> str:
    return text.split(":", maxsplit=1)[0]


def _index(text: str) -> int:
    last = text.rpartition(":")[2]
    return int(last) if ":" in text and last.isdecimal() else 0
