"""SavedModels of TensorFlow: a graph, signatures, and variables in a checkpoint.

A signature becomes a graph whose placeholders and results have its names. Functions that take
variables become part of the graph, and variables have the values of the checkpoint. Which tensor of
the checkpoint belongs to a variable is what the nodes say that restore the model.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft.compat.graphdef.checkpoint import Checkpoint
from weft.compat.graphdef.definitions import GraphDef, NodeDef
from weft.compat.graphdef.expansion import with_calls_expanded
from weft.compat.graphdef.files import graph_of
from weft.compat.graphdef.messages import graph_message, message_class
from weft.compat.graphdef.names import is_node_name, parse_tensor
from weft.compat.graphdef.node_order import needed, nodes_by_name
from weft.compat.graphdef.ports import PLACEHOLDERS
from weft.compat.graphdef.restoring import keys_of_variables
from weft.compat.graphdef.state import INITIAL_VALUE, VARIABLES
from weft.support.dataclass import dataclass
from weft.support.errors import InvalidModelError, OptionError
from weft.support.names import claim

FILES = ("saved_model.pb", "saved_model.pbtxt")
_DEFAULT = "serving_default"


@dataclass(frozen=True, slots=True)
class SignatureGraph:
    """The graph of a signature, and the names of its results."""

    graph: GraphDef
    outputs: tuple[str, ...]


def is_saved_model(path: str | os.PathLike[str]) -> bool:
    """Whether a path is the folder of a SavedModel, or the file of its graph."""
    found = Path(path)
    return found.name in FILES or any((found / name).is_file() for name in FILES)


def read_saved_model(path: str | os.PathLike[str], *, signature: str | None = None,
                     tags: Sequence[str] = ("serve",)) -> SignatureGraph:
    """The graph of one signature of a SavedModel, with the values of its variables.

    ``path`` is the folder. ``signature`` is by default ``serving_default``, or the only one;
    ``tags`` choose the graph. Raises ``InvalidModelError`` for damaged files, ``OptionError`` for
    an unknown signature or unknown tags, and ``UnsupportedModelError`` for what weft cannot read.
    """
    folder = Path(path)
    folder = folder.parent if folder.name in FILES else folder
    meta = _meta_graph(_message(folder), set(tags), folder)
    name, chosen = _signature(meta, signature, folder)
    graph = graph_of(meta.graph_def, str(folder))
    graph = _for_signature(graph, chosen, name)
    outputs = tuple(sorted(chosen.outputs))
    return SignatureGraph(_with_values(graph, keys_of_variables(meta), folder), outputs)


def _with_values(graph: GraphDef, keys: Mapping[str, str], folder: Path) -> GraphDef:
    """The graph whose variables have the values of the checkpoint."""
    wanted = [n.name for n in graph.nodes if n.op in VARIABLES and n.name in keys]
    if not wanted:
        return graph
    checkpoint = Checkpoint(folder / "variables" / "variables")
    values = {n: checkpoint.tensor(keys[n]) for n in wanted}
    nodes = tuple(n if n.name not in values else dataclasses.replace(
        n, attrs={**n.attrs, INITIAL_VALUE: values[n.name]}) for n in graph.nodes)
    return dataclasses.replace(graph, nodes=nodes)


def _message(folder: Path) -> Any:
    graph_message()  # which says what to install
    from google.protobuf import text_format
    from google.protobuf.message import DecodeError

    message = message_class("SavedModel")()
    path = next((folder / name for name in FILES if (folder / name).is_file()), folder / FILES[0])
    try:
        data = path.read_bytes()
        if path.suffix == ".pbtxt":
            text_format.Parse(data.decode("utf-8"), message, allow_unknown_field=True)
        else:
            message.ParseFromString(data)
    except OSError as error:
        raise InvalidModelError(f"{path} cannot be read", got=str(error)) from None
    except (DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise InvalidModelError("not a SavedModel", where=path, got=str(error)) from None
    return message


def _meta_graph(message: Any, tags: set[str], folder: Path) -> Any:
    for meta in message.meta_graphs:
        if tags <= set(meta.meta_info_def.tags):
            return meta
    known = [", ".join(sorted(meta.meta_info_def.tags)) or "none" for meta in message.meta_graphs]
    raise OptionError("the SavedModel has no graph with these tags", got=", ".join(sorted(tags)),
                      expected=" or ".join(known) or "a graph", where=folder)


def _signature(meta: Any, name: str | None, folder: Path) -> tuple[str, Any]:
    known = sorted(n for n in meta.signature_def if not n.startswith("__"))
    if name is None:
        name = _DEFAULT if _DEFAULT in known or len(known) != 1 else known[0]
    if name not in known:
        raise OptionError(f"the SavedModel has no signature {name!r}", where=folder,
                          expected=", ".join(known) or "a SavedModel with signatures",
                          help="save the model with signatures=" if not known else None)
    return name, meta.signature_def[name]


def _for_signature(graph: GraphDef, signature: Any, name: str) -> GraphDef:
    """The part of the graph that computes a signature, with its names."""
    where = f"signature {name!r} of {graph.source}"
    inputs = {key: _tensor(info, key, where) for key, info in signature.inputs.items()}
    outputs = {key: _tensor(info, key, where) for key, info in signature.outputs.items()}
    if not outputs:
        raise InvalidModelError("the signature has no outputs", where=where)
    whole = _pruned(_with_outputs(graph, outputs, where), outputs)
    return _pruned(_renamed_inputs(with_calls_expanded(whole), inputs), outputs)


def _pruned(graph: GraphDef, outputs: Iterable[str]) -> GraphDef:
    """The nodes that ``outputs`` need."""
    kept = needed(nodes_by_name(graph.nodes, graph.source), outputs, ())
    return dataclasses.replace(graph, nodes=tuple(n for n in graph.nodes if n.name in kept))


def _tensor(info: Any, key: str, where: str) -> str:
    if not info.name:
        raise InvalidModelError(f"{key!r} is not a dense tensor", where=where)
    text = str(info.name)
    return text.removesuffix(":0")


def _with_outputs(graph: GraphDef, outputs: Mapping[str, str], where: str) -> GraphDef:
    """The graph with a node for each output, whose name it has. Nodes of such names get others."""
    taken = {node.name for node in graph.nodes}
    others = {key: claim(f"{key}_inner", taken) for key in outputs if key in taken}
    nodes = [_with_names(node, others) for node in graph.nodes]
    for key, text in sorted(outputs.items()):
        if not is_node_name(key):
            raise InvalidModelError(f"an output is named {key!r}, which no node may be",
                                    where=where)
        ref = parse_tensor(text, where)
        inner = str(ref._replace(node=others.get(ref.node, ref.node)))
        nodes.append(NodeDef(key, "Identity", (inner,)))
    return dataclasses.replace(graph, nodes=tuple(nodes))


def _renamed_inputs(graph: GraphDef, inputs: Mapping[str, str]) -> GraphDef:
    """The graph whose placeholders have the names of the signature."""
    known = {node.name: node for node in graph.nodes}
    names: dict[str, str] = {}
    for key, text in inputs.items():
        node = known.get(text)
        if node is not None and node.op in PLACEHOLDERS and is_node_name(key) \
                and key not in known:
            names[text] = key
    return dataclasses.replace(graph, nodes=tuple(_with_names(n, names) for n in graph.nodes))


def _with_names(node: NodeDef, names: Mapping[str, str]) -> NodeDef:
    """A node under another name, which reads nodes under other names."""
    if not names:
        return node

    def renamed(text: str) -> str:
        if text.startswith("^"):
            return f"^{names.get(text[1:], text[1:])}"
        ref = parse_tensor(text, node.span)
        return str(ref._replace(node=names[ref.node])) if ref.node in names else text

    return dataclasses.replace(node, name=names.get(node.name, node.name),
                               inputs=tuple(map(renamed, node.inputs)))
