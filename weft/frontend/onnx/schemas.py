"""ONNX's schemas of operators as a table, by which most nodes are accepted without ``onnx``.

Importing ``onnx`` and making its schemas takes longer than to compile a small model whose kernels
are cached. A published version of an operator never changes, so the table holds for every release
of ``onnx``. It accepts nodes; a node that it does not accept is for ``onnx`` to judge.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from weft.frontend.onnx.protos import AttributeProto, NodeProto, TensorProto

FILE = Path(__file__).with_name("schemas.json")  # ``tools/onnx_schemas.py`` writes it
MOST = 1 << 30  # stands for any number of inputs or outputs

# The kinds of attributes that the table accepts, and the field with the value of each.
_FIELDS = {AttributeProto.FLOAT: "f", AttributeProto.INT: "i", AttributeProto.STRING: "s",
           AttributeProto.TENSOR: "t", AttributeProto.GRAPH: "g", AttributeProto.FLOATS: "floats",
           AttributeProto.INTS: "ints", AttributeProto.STRINGS: "strings"}
_MESSAGES = (AttributeProto.TENSOR, AttributeProto.GRAPH)
# The bytes of an element in raw data, and the field that may have the data instead.
_TENSORS: Mapping[int, tuple[int, str]] = {
    TensorProto.FLOAT: (4, "float_data"), TensorProto.DOUBLE: (8, "double_data"),
    TensorProto.INT64: (8, "int64_data"), TensorProto.INT32: (4, "int32_data"),
    TensorProto.UINT8: (1, "int32_data"), TensorProto.INT8: (1, "int32_data"),
    TensorProto.BOOL: (1, "int32_data"), TensorProto.FLOAT16: (2, "int32_data"),
}


def operator_key(domain: str, name: str) -> str:
    """The name of an operator in the table."""
    return f"{domain}.{name}" if domain else name


@functools.lru_cache(maxsize=1)
def _table() -> Mapping[str, Any]:
    table: Mapping[str, Any] = json.loads(FILE.read_bytes())
    return table


def newest_known() -> int:
    """The newest opset of the default domain in the table."""
    newest: int = _table()["newest"][""]
    return newest


def accepts(node: NodeProto, opsets: Mapping[str, int]) -> bool:
    """Whether the table is sure that ONNX's checker accepts a node; bodies are not checked."""
    names = {attribute.name for attribute in node.attribute}
    if not (node.input or node.output) or len(names) != len(node.attribute):
        return False
    if node.domain and not node.domain.startswith("ai.onnx"):  # ONNX has no schemas of it
        return node.domain in opsets and all(
            each.name and _is_attribute(each, each.type) for each in node.attribute)
    facts = _facts(node, opsets.get(node.domain))
    if not facts:
        return False
    inputs, outputs, attributes, required = facts
    return (
        _has_ports(node.input, *inputs) and _has_ports(node.output, *outputs)
        and names.issuperset(required)
        and all(_is_attribute(each, attributes.get(each.name)) for each in node.attribute)
    )


def _facts(node: NodeProto, version: int | None) -> Sequence[Any]:
    """What the table says of the operator of a node in an opset; nothing where it does not know."""
    table = _table()
    if version is None or version > table["newest"].get(node.domain, 0):
        return ()
    rows = table["operators"].get(operator_key(node.domain, node.op_type), ())
    return next((row[1:] for row in reversed(rows) if row[0] <= version), ())


def _has_ports(names: Sequence[str], least: int, most: int, options: str,
               except_for: Sequence[int]) -> bool:
    """Whether the inputs or outputs are as many as may be, and those present that must be."""
    count = len(names)
    if not least <= count <= most or count in except_for \
            or (count > len(options) and not options.endswith("v")):
        return False
    return all(name or option != "s" for name, option in zip(names, options, strict=False))


def _is_attribute(attribute: AttributeProto, kind: int | None) -> bool:
    """Whether an attribute has a kind, and no value or one of this kind."""
    if kind not in _FIELDS or attribute.type != kind:
        return False
    values = _fields(attribute) - {"name", "type", "doc_string"}
    if not values:
        return kind not in _MESSAGES
    if values != {_FIELDS[kind]}:
        return False
    return kind != AttributeProto.TENSOR or _is_tensor(attribute.t)


def _is_tensor(tensor: TensorProto) -> bool:
    """Whether a tensor has as many data as its shape says, in one field."""
    size, field = _TENSORS.get(tensor.data_type, (0, ""))
    values = _fields(tensor) - {"dims", "data_type", "name", "doc_string"}
    if not size or any(dim < 0 for dim in tensor.dims):
        return False
    count = prod(tensor.dims)
    if count == 0:
        return not values or (values == {"raw_data"} and not tensor.raw_data)
    if values == {field}:
        return len(getattr(tensor, field)) >= count
    return values == {"raw_data"} and len(tensor.raw_data) >= count * size


def _fields(message: Message) -> set[str]:
    """The names of the fields that a message has."""
    return {descriptor.name for descriptor, _ in message.ListFields()}
