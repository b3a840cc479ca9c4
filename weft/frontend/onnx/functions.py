"""Inlining of model-local functions, and of the function bodies that ONNX defines for operators.

A function body can depend on the attributes of a node, on its input types, and on which inputs are
omitted. So each node without a converter gets a model-local function, which is then inlined.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from weft.frontend.onnx.contained import infer_shapes
from weft.frontend.onnx.loader import LoadedModel
from weft.frontend.onnx.protos import (
    AttributeProto,
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    TypeProto,
)
from weft.frontend.onnx.registry import CONVERTERS, DEFAULT_DOMAIN, operator_name
from weft.support.errors import InvalidModelError


def nested_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """Yield ``graph`` and its subgraphs, recursively."""
    yield graph
    for node in nested_nodes(graph.node):
        yield from bodies_of(node)


def nested_nodes(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Yield ``nodes`` and the nodes of their subgraphs, recursively."""
    for node in nodes:
        yield node
        for body in bodies_of(node):
            yield from nested_nodes(body.node)


def bodies_of(node: NodeProto) -> Iterator[GraphProto]:
    """Yield the subgraphs among the attributes of ``node``."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            yield attribute.g


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
    import onnx.inliner

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


# Limit for nested expansion: bodies contain operators that are expanded in turn.
_MAX_ROUNDS = 8
_DOMAIN = "weft.function_bodies"
# ``onnx.defs.OpSchema``; the stubs of the package lack its attributes for function bodies.
Schema: TypeAlias = Any


def expand_function_bodies(loaded: LoadedModel, opsets: Mapping[str, int]) -> LoadedModel:
    """Expand nodes that have no converter; those without a function body remain."""
    proto = loaded.proto
    for _ in range(_MAX_ROUNDS):
        expanded = _expanded_once(proto, opsets)
        if expanded is None:
            break
        proto = expanded
    return loaded if proto is loaded.proto else replace(loaded, proto=proto)


def _expanded_once(proto: ModelProto, opsets: Mapping[str, int]) -> ModelProto | None:
    """Expand one level; ``None`` if no node can be expanded or the expansion fails.

    The coverage check reports the remaining nodes.
    """
    if all(_schema_with_body(node, opsets) is None for node in nested_nodes(proto.graph.node)):
        return None
    import onnx

    try:
        return _inlined(proto, opsets)
    except (RuntimeError, ValueError, onnx.checker.ValidationError):
        return None


def _schema_with_body(node: NodeProto, versions: Mapping[str, int]) -> Schema | None:
    domain = "" if node.domain in DEFAULT_DOMAIN else node.domain
    if domain not in versions:
        return None
    if CONVERTERS.find(operator_name(node), versions[domain]) is not None:
        return None
    import onnx

    try:
        schema: Schema = onnx.defs.get_schema(node.op_type, versions[domain], domain)
    except onnx.defs.SchemaError:
        return None
    has_body = schema.has_function or schema.has_context_dependent_function
    return schema if has_body else None


def _inlined(proto: ModelProto, versions: Mapping[str, int]) -> ModelProto | None:
    import onnx.inliner

    model = ModelProto()
    model.CopyFrom(proto)
    types = functools.cache(lambda: _value_types(proto))  # on demand: few bodies need them
    # Collect the nodes first: renaming a node changes the result of ``_schema_with_body``.
    found = [
        (node, schema)
        for node in nested_nodes(model.graph.node)
        if (schema := _schema_with_body(node, versions)) is not None
    ]
    for index, (node, schema) in enumerate(found):
        node.attribute.extend(_missing_defaults(node, schema))
        body = _body_of(node, schema, types, versions)
        if body is None:
            continue
        body.domain, body.name = _DOMAIN, f"{node.op_type}_{index}"
        # The inliner requires equal opset numbers. ONNX guarantees that the operators of the body
        # have the same meaning at the opset of the model.
        del body.opset_import[:]
        body.opset_import.extend(proto.opset_import)
        model.functions.append(body)
        node.domain, node.op_type = body.domain, body.name
    if not model.functions:
        return None
    model.opset_import.add(domain=_DOMAIN, version=1)
    inlined = onnx.inliner.inline_local_functions(model)
    kept = [o for o in inlined.opset_import if o.domain != _DOMAIN]
    del inlined.opset_import[:]
    inlined.opset_import.extend(kept)
    return inlined


def _body_of(
    node: NodeProto, schema: Schema, types: Callable[[], Mapping[str, TypeProto]],
    versions: Mapping[str, int],
) -> FunctionProto | None:
    """Return the newest function body whose opset is not newer than that of the model."""
    version = versions[""]
    if schema.has_context_dependent_function:
        fitting = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        if fitting:
            known = types()
            inputs = [known.get(name, TypeProto()).SerializeToString() for name in node.input]
            data = schema.get_context_dependent_function_with_opset_version(
                max(fitting), node.SerializeToString(), inputs
            )
            return FunctionProto.FromString(data) if data else None
    fitting = [v for v in schema.function_opset_versions if v <= version]
    if not fitting:
        return None
    return FunctionProto.FromString(schema.get_function_with_opset_version(max(fitting)))


def _missing_defaults(node: NodeProto, schema: Schema) -> list[AttributeProto]:
    """Return the default attributes that ``node`` omits; bodies refer to attributes by name."""
    present = {a.name for a in node.attribute}
    defaults = [schema.attributes[n].default_value for n in sorted(schema.attributes)]
    return [d for d in defaults if d.name and d.name not in present]


def _value_types(proto: ModelProto) -> dict[str, TypeProto]:
    """Return the type of every value; only the declared types if shape inference fails."""
    import onnx

    graph = (infer_shapes(proto) or proto).graph
    types: dict[str, TypeProto] = {}
    for inner in nested_graphs(graph):
        types |= {v.name: v.type for v in (*inner.value_info, *inner.output, *inner.input)}
        for tensor in inner.initializer:
            types[tensor.name] = onnx.helper.make_tensor_type_proto(tensor.data_type, tensor.dims)
    return types
