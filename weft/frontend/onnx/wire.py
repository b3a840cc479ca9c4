"""The large initializers of a serialized model, found without parsing them.

Protobuf copies the data of each tensor when a model is parsed and again whenever they are read.
Here one walk over the encoded fields (protobuf's documentation, "Encoding") cuts the model in two:
a small message with everything but the data of large initializers, which protobuf parses, and
views of these data.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field

from weft.support.dataclass import dataclass

# Data of fewer bytes stay in the message: shape inference reads the values of small tensors.
LARGE_BYTES = 4096

# Numbers of fields, from onnx.proto.
_MODEL_GRAPH = 7
_GRAPH_INITIALIZER = 5
_TENSOR_NAME = 8
_TENSOR_RAW_DATA = 9
_TENSOR_DATA_LOCATION = 14

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MAX_FIELD = 2**29 - 1

# The key of an entry of external data (field 1, of 8 bytes), and the start of its value (field 2).
_LOCATION = re.compile(rb"\x0a\x08location\x12")


@dataclass(frozen=True, slots=True)
class SplitModel:
    """``message`` is the model without the data in ``weights``, by the names of initializers."""

    message: bytes
    weights: dict[str, memoryview] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Field:
    """A field from ``start`` to ``end``; its value begins at ``value``."""

    number: int
    wire_type: int
    start: int
    value: int
    end: int


class _MalformedError(Exception):
    """The walk does not understand the bytes; protobuf then reads or rejects them."""


def split_model(data: memoryview) -> SplitModel | None:
    """``data`` cut in two; ``None`` if they are not a plainly encoded model with one graph."""
    try:
        fields = list(_fields(data, 0, len(data)))
        graphs = [f for f in fields if f.number == _MODEL_GRAPH]
        if len(graphs) != 1 or graphs[0].wire_type != _BYTES:
            return None
        weights: dict[str, memoryview] = {}
        inner = b"".join(_graph_parts(data, graphs[0], weights))
    except (_MalformedError, UnicodeDecodeError):
        return None
    head, tail = data[: graphs[0].start], data[graphs[0].end :]
    return SplitModel(b"".join((head, _encoded(_MODEL_GRAPH, inner), tail)), weights)


def external_files(message: bytes) -> tuple[str, ...] | None:
    """The files of external data that a model names; ``None`` if they are not plain to see.

    An entry of external data has a key, ``location``, and a value, the name of the file.
    """
    names: set[str] = set()
    found = list(_LOCATION.finditer(message))
    if len(found) != message.count(b"location"):
        return None
    for match in found:
        try:
            size, at = _varint(memoryview(message), match.end(), len(message))
            names.add(str(memoryview(message)[at : at + size], "utf-8"))
        except (_MalformedError, UnicodeDecodeError):
            return None
    return tuple(sorted(names))


def _graph_parts(data: memoryview, graph: _Field, weights: dict[str, memoryview]
                 ) -> Iterator[bytes | memoryview]:
    for part in _fields(data, graph.value, graph.end):
        is_large = part.end - part.value >= LARGE_BYTES
        if is_large and (part.number, part.wire_type) == (_GRAPH_INITIALIZER, _BYTES):
            yield _without_data(data, part, weights)
        else:
            yield data[part.start : part.end]


def _without_data(data: memoryview, tensor: _Field, weights: dict[str, memoryview]
                  ) -> bytes | memoryview:
    """The field of a tensor without its data, which are added to ``weights``."""
    fields = list(_fields(data, tensor.value, tensor.end))
    raw = [f for f in fields if f.number == _TENSOR_RAW_DATA]
    names = [f for f in fields if f.number == _TENSOR_NAME]
    plain = all(len(found) == 1 and found[0].wire_type == _BYTES for found in (raw, names))
    elsewhere = any(f.number == _TENSOR_DATA_LOCATION for f in fields)
    if not plain or elsewhere or raw[0].end - raw[0].value < LARGE_BYTES:
        return data[tensor.start : tensor.end]
    name = str(data[names[0].value : names[0].end], "utf-8")
    if not name or name in weights:  # an error that the checks of the graph report
        return data[tensor.start : tensor.end]
    weights[name] = data[raw[0].value : raw[0].end]
    rest = b"".join((data[tensor.value : raw[0].start], data[raw[0].end : tensor.end]))
    return _encoded(_GRAPH_INITIALIZER, rest)


def _fields(data: memoryview, at: int, end: int) -> Iterator[_Field]:
    """The fields of a message from ``at`` to ``end``; raises ``_MalformedError``."""
    while at < end:
        start = at
        key, at = _varint(data, at, end)
        number, wire_type = key >> 3, key & 7
        if not 0 < number <= _MAX_FIELD:
            raise _MalformedError
        value = at
        if wire_type == _VARINT:
            _, at = _varint(data, at, end)
        elif wire_type == _BYTES:
            size, value = _varint(data, at, end)
            at = value + size
        elif wire_type in (_FIXED32, _FIXED64):
            at += 4 if wire_type == _FIXED32 else 8
        else:  # a group, which onnx.proto does not have
            raise _MalformedError
        if at > end:
            raise _MalformedError
        yield _Field(number, wire_type, start, value, at)


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    """The number that starts at ``at``, and where it ends."""
    value = shift = 0
    while at < end and shift < 64:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
    raise _MalformedError


def _encoded(number: int, value: bytes) -> bytes:
    """A field whose value is bytes."""
    return b"".join((_number(number << 3 | _BYTES), _number(len(value)), value))


def _number(value: int) -> bytes:
    parts = bytearray()
    while value >= 0x80:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
