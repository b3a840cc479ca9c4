"""Operators without a converter, replaced by the function bodies that ONNX defines for them."""

from __future__ import annotations

import onnx
import onnx.inliner
from onnx import ModelProto

from weft.frontend.onnx.loader import LoadedModel
from weft.frontend.onnx.registry import find_converter

# Bodies use operators that have bodies themselves.
_MAX_ROUNDS = 8


def expand_function_bodies(loaded: LoadedModel, opset: int) -> LoadedModel:
    """``loaded`` with every node that needs it expanded; operators without a body stay.

    The bodies depend on the types of their inputs, which ``onnx`` infers.
    """
    proto = loaded.proto
    for _ in range(_MAX_ROUNDS):
        wanted = _expandable(proto, opset)
        if not wanted:
            break
        proto = _with_default_attributes(proto, wanted)
        try:
            expanded = onnx.inliner.inline_selected_functions(
                proto, wanted, inline_schema_functions=True
            )
        except (RuntimeError, ValueError, onnx.checker.ValidationError):
            break  # the coverage check names the operators
        proto = expanded
    return loaded if proto is loaded.proto else LoadedModel(proto, loaded.source, loaded.folder)


def _with_default_attributes(proto: ModelProto, wanted: list[tuple[str, str]]) -> ModelProto:
    """Bodies refer to attributes by name, also to those that a node leaves at their defaults."""
    versions = {o.domain: o.version for o in proto.opset_import}
    filled = ModelProto()
    filled.CopyFrom(proto)
    for node in filled.graph.node:
        if (node.domain, node.op_type) not in wanted:
            continue
        domain = "" if node.domain == "ai.onnx" else node.domain
        schema = onnx.defs.get_schema(node.op_type, versions[node.domain], domain)
        present = {a.name for a in node.attribute}
        for name in sorted(schema.attributes):
            default = schema.attributes[name].default_value
            if name not in present and default.name:
                node.attribute.append(default)
    return filled


def _expandable(proto: ModelProto, opset: int) -> list[tuple[str, str]]:
    versions = {o.domain: o.version for o in proto.opset_import}
    found: dict[tuple[str, str], None] = {}
    for node in proto.graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if domain == "" and find_converter(node.op_type, opset) is not None:
            continue
        version = opset if domain == "" else versions.get(domain)
        if version is not None and has_body(node.op_type, version, domain):
            found[node.domain, node.op_type] = None
    return list(found)


def has_body(op: str, version: int, domain: str = "") -> bool:
    """Whether ONNX defines the operator by other operators."""
    try:
        schema = onnx.defs.get_schema(op, version, domain)
    except onnx.defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
