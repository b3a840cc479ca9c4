"""Values of attributes: between ``AttrValue`` messages and Python values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.compat.graphdef import tensor_values
from weft.compat.graphdef.definitions import (
    AttrPlaceholder,
    ForeignType,
    FunctionRef,
    ShapeAttr,
)
from weft.ir.dtype import DType
from weft.support.errors import UnsupportedModelError

# The depth to which lists and attributes of functions may be nested.
_MAX_DEPTH = 8


def attrs_of(messages: Any, where: object, depth: int = 0) -> dict[str, Any]:
    """The attributes of a node or function, by name in the order of names."""
    return {name: value_of(messages[name], where, depth) for name in sorted(messages)}


def value_of(message: Any, where: object, depth: int = 0) -> Any:
    """The Python value of an ``AttrValue``; text is ``str`` where it is UTF-8, else ``bytes``."""
    if depth > _MAX_DEPTH:
        raise UnsupportedModelError("attributes are nested too deep", where=where)
    kind = message.WhichOneof("value")
    if kind is None:
        return None
    if kind == "list":
        return _list_of(message.list, where, depth)
    return _single(kind, getattr(message, kind), where, depth)


def _single(kind: str, value: Any, where: object, depth: int) -> Any:
    if kind == "s":
        return _text(value)
    if kind == "type":
        return tensor_values.type_of(value)
    if kind == "shape":
        return tensor_values.shape_of(value)
    if kind == "tensor":
        return _tensor(value, where)
    if kind == "func":
        return FunctionRef(value.name, attrs_of(value.attr, where, depth + 1))
    return AttrPlaceholder(value) if kind == "placeholder" else value


def _tensor(message: Any, where: object) -> Any:
    """A tensor, or its type where weft has no such elements: the node may never be lowered."""
    type_ = tensor_values.type_of(message.dtype)
    return type_ if isinstance(type_, ForeignType) else tensor_values.tensor_of(message, where)


def _list_of(message: Any, where: object, depth: int) -> tuple[Any, ...]:
    for kind in ("s", "i", "f", "b", "type", "shape", "tensor", "func"):
        values = getattr(message, kind)
        if values:
            return tuple(_single(kind, value, where, depth + 1) for value in values)
    return ()


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value


def write_attrs(messages: Any, attrs: Mapping[str, Any], where: object) -> None:
    """Fill a map of ``AttrValue`` messages."""
    for name, value in attrs.items():
        write_value(messages[name], value, f"attribute {name!r} of {where}")


def write_value(message: Any, value: Any, where: object) -> None:
    """Fill an ``AttrValue``; ``UnsupportedModelError`` for a value that it cannot hold."""
    if value is None:
        return
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        message.list.SetInParent()
        for item in value:
            _append(message.list, item, where)
        return
    kind = _kind_of(value, where)
    if kind in ("shape", "tensor", "func"):
        _fill(getattr(message, kind), kind, value, where)
    else:
        setattr(message, kind, _plain(kind, value))


def _append(message: Any, value: Any, where: object) -> None:
    kind = _kind_of(value, where)
    if kind == "placeholder":
        raise UnsupportedModelError("a list cannot hold a placeholder", where=where)
    values = getattr(message, kind)
    if kind in ("shape", "tensor", "func"):
        _fill(values.add(), kind, value, where)
    else:
        values.append(_plain(kind, value))


def _fill(message: Any, kind: str, value: Any, where: object) -> None:
    if kind == "shape":
        tensor_values.write_shape(message, value)
    elif kind == "tensor":
        tensor_values.write_tensor(message, value)
    else:
        message.name = value.name
        write_attrs(message.attr, value.attrs, where)


def _plain(kind: str, value: Any) -> Any:
    if kind == "s":
        return value.encode() if isinstance(value, str) else value
    if kind == "type":
        return tensor_values.type_number(value)
    return value.name if kind == "placeholder" else value


def _kind_of(value: Any, where: object) -> str:
    """The field of ``AttrValue`` that holds a value."""
    kinds: tuple[tuple[type | tuple[type, ...], str], ...] = (
        (bool, "b"), (int, "i"), (float, "f"), ((str, bytes), "s"), ((DType, ForeignType), "type"),
        (ShapeAttr, "shape"), (np.ndarray, "tensor"), (FunctionRef, "func"),
        (AttrPlaceholder, "placeholder"))
    for types, kind in kinds:
        if isinstance(value, types):
            return kind
    raise UnsupportedModelError("a GraphDef cannot hold this value", where=where,
                                got=f"{type(value).__name__} {value!r:.60}")
