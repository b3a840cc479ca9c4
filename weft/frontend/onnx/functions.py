"""Inlining of model-local functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import onnx.inliner
from onnx import FunctionProto, NodeProto

from weft.frontend.onnx.loader import LoadedModel
from weft.frontend.onnx.nested import nested_nodes
from weft.support.errors import InvalidModelError

# A chain of functions that each call the next one twice grows exponentially.
MAX_EXPANDED_NODES = 1_000_000
Key = tuple[str, str]


def inline_functions(loaded: LoadedModel) -> LoadedModel:
    """Inline all model-local functions.

    Raises ``InvalidModelError`` for recursive functions and for more than ``MAX_EXPANDED_NODES``.
    """
    proto = loaded.proto
    if not proto.functions:
        return loaded
    size = _expanded_size(proto.graph.node, _function_sizes(proto.functions))
    if size > MAX_EXPANDED_NODES:
        raise InvalidModelError(
            "the model-local functions expand to too many nodes",
            where=loaded.source,
            expected=f"at most {MAX_EXPANDED_NODES}",
            got=str(size),
        )
    try:
        inlined = onnx.inliner.inline_local_functions(proto)
    except (RuntimeError, ValueError, onnx.checker.ValidationError) as error:
        raise InvalidModelError(
            "the model-local functions cannot be inlined", where=loaded.source, got=str(error)
        ) from None
    return replace(loaded, proto=inlined)


def _function_sizes(functions: Iterable[FunctionProto]) -> dict[Key, int]:
    """Return the node count of each function after inlining; recursive functions are omitted."""
    waiting = {(f.domain, f.name): f for f in functions}
    sizes: dict[Key, int] = {}
    while True:
        ready = [
            key
            for key, function in waiting.items()
            if not any(_key(node) in waiting for node in nested_nodes(function.node))
        ]
        if not ready:
            return sizes
        for key in ready:
            sizes[key] = _expanded_size(waiting.pop(key).node, sizes)


def _expanded_size(nodes: Iterable[NodeProto], sizes: Mapping[Key, int]) -> int:
    return sum(sizes.get(_key(node), 1) for node in nested_nodes(nodes))


def _key(node: NodeProto) -> Key:
    return node.domain, node.op_type
