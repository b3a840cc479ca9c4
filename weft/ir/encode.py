"""Canonical text of values that are not expressions (attributes, types, arrays).

Equal text means equal values, in every process and on every machine; structural equality and
hashes are built on it.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.ir.attrs import Attrs
from weft.ir.dtype import DType
from weft.ir.shape import AnyDim, SymDim
from weft.ir.types import CompositeType, IncompleteType, Type, TypeVar
from weft.support.errors import InternalError


def array_digest(array: np.ndarray) -> str:
    """A digest of dtype, shape and bytes (so NaN equals NaN, and 0 is not -0)."""
    digest = hashlib.blake2b(f"{array.dtype.name}{array.shape}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).view(np.uint8).reshape(-1).data)
    return digest.hexdigest()


def encode_value(value: Any) -> str:
    """Canonical text of an attribute's value.

    Raises ``InternalError`` for objects without value semantics.
    """
    if isinstance(value, np.generic):
        value = value.item()  # a NumPy scalar encodes like the number it holds
    if value is None or isinstance(value, (bool, str, bytes)):
        return repr(value)
    if isinstance(value, (int, float)) and not isinstance(value, enum.Enum):
        return f"{type(value).__name__}:{value!r}"
    if isinstance(value, (DType, SymDim, AnyDim)):
        return f"{type(value).__name__}:{value}"
    if isinstance(value, (tuple, list)):
        return f"({','.join(map(encode_value, value))})"
    if isinstance(value, (set, frozenset)):
        return f"{{{','.join(sorted(map(encode_value, value)))}}}"
    if isinstance(value, Mapping):
        items = sorted((encode_value(k), encode_value(v)) for k, v in value.items())
        return f"{{{','.join(f'{k}:{v}' for k, v in items)}}}"
    return _encode_object(value)


def _encode_object(value: Any) -> str:
    if isinstance(value, enum.Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Attrs):
        return encode_attrs(value)
    if isinstance(value, Type):
        return TypeEncoder().encode(value)
    if isinstance(value, np.ndarray):
        return f"array:{array_digest(value)}"
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return f"{type(value).__name__}{encode_value(fields)}"
    raise InternalError(f"an attribute value of type {type(value).__name__} has no canonical form",
                        help="use numbers, strings, tuples, dtypes or frozen dataclasses")


def encode_attrs(attrs: Attrs) -> str:
    """The record's class and all its values as canonical text."""
    return f"{type(attrs).__name__}{encode_value(dict(attrs.items()))}"


class TypeEncoder:
    """Encodes types with numbers for type variables and incomplete types.

    One encoder serves one program: the same variable gets the same number throughout.
    """

    def __init__(self) -> None:
        self._numbers: dict[Type, int] = {}

    def encode(self, type_: Type | None) -> str:
        if type_ is None:
            return "-"
        written: list[str] = []
        stack: list[Type | str] = [type_]
        while stack:
            item = stack.pop()
            if isinstance(item, CompositeType):
                generics = ",".join(self._number(v) for v in item.binds())
                written.append(f"{type(item).__name__}[{generics}](")
                stack.append(")")
                for part in reversed(item.components()):
                    stack += [",", part]
            elif isinstance(item, (TypeVar, IncompleteType)):
                written.append(self._number(item))
            else:
                written.append(str(item))
        return "".join(written)

    def _number(self, type_: Type) -> str:
        return f"{type(type_).__name__}{self._numbers.setdefault(type_, len(self._numbers))}"
