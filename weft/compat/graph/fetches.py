"""The fetches of a run: tensors and nodes, in nested sequences and mappings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.compat.graph.graph import Graph
from weft.compat.graph.node import Node, Tensor
from weft.compat.graphdef.names import CONTROL, parse_tensor
from weft.support.errors import InvalidInputError, InvalidModelError


def tensor_text(graph: Graph, value: str | Tensor | Node) -> str:
    """The name of a tensor in its shortest form, ``node`` or ``node:1``; ``^node`` of a node.

    Raises ``InvalidInputError`` for a name that is not in the graph.
    """
    if isinstance(value, (Tensor, Node)):
        node = value.node if isinstance(value, Tensor) else value
        if node.graph is not graph:
            raise InvalidInputError(f"{node.name!r} is of another graph", got=node.graph.name)
        text = value.name if isinstance(value, Tensor) else f"^{value.name}"
    elif isinstance(value, str):
        text = value
    else:
        raise InvalidInputError("not a tensor of a graph", got=type(value).__name__,
                                expected="a name, a tensor, or a node")
    ref = parse_tensor(text)
    if ref.index != CONTROL:
        try:
            graph.tensor(text)
        except InvalidModelError as error:
            raise InvalidInputError(error.what, got=error.got) from error
    elif ref.node not in graph:
        raise InvalidInputError(f"the graph has no node {ref.node!r}")
    return str(ref)


class FetchTree:
    """Nested fetches; ``texts`` are the tensors and nodes among them, each once."""

    def __init__(self, graph: Graph, fetches: Any) -> None:
        self._fetches = fetches
        self._graph = graph
        found: dict[str, None] = {}
        pending = [fetches]
        while pending:
            one = pending.pop()
            if isinstance(one, Mapping):
                pending.extend(reversed(list(one.values())))
            elif isinstance(one, (list, tuple)):
                pending.extend(reversed(one))
            else:
                found[tensor_text(graph, one)] = None
        if not found:
            raise InvalidInputError("nothing to run", expected="the name of a tensor to compute")
        self.texts = tuple(found)

    def built(self, values: Mapping[str, Any]) -> Any:
        """The values in the structure of the fetches."""
        return self._built(self._fetches, values)

    def _built(self, fetches: Any, values: Mapping[str, Any]) -> Any:
        # The depth is that of the structure that the user wrote.
        if isinstance(fetches, Mapping):
            return {key: self._built(one, values) for key, one in fetches.items()}
        if isinstance(fetches, (list, tuple)):
            return [self._built(one, values) for one in fetches]
        return values[tensor_text(self._graph, fetches)]
