"""Attribute values as JSON; other values are objects with a single key that starts with "$"."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from weft.ir.dtype import DType
from weft.ir.json.types import load_dim
from weft.ir.shape import SymDim
from weft.support.errors import InternalError


def save_value(value: Any) -> Any:
    """``value`` in JSON's types; raises ``InternalError`` for an unsupported type."""
    if isinstance(value, StrEnum):
        return value.value
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, DType):
        return {"$dtype": value.name}
    if isinstance(value, SymDim):
        return {"$dim": str(value)}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, (tuple, list)):
        return [save_value(v) for v in value]
    if isinstance(value, Mapping):
        return {"$map": [[save_value(k), save_value(v)] for k, v in value.items()]}
    if hasattr(value, "__index__"):
        return value.__index__()
    if isinstance(value, float) or hasattr(value, "__float__"):
        number = float(value)
        return number if math.isfinite(number) else {"$float": repr(number)}
    raise InternalError(f"an attribute of type {type(value).__name__} cannot be written as JSON")


def load_value(value: Any) -> Any:
    """The inverse of ``save_value``; lists come back as tuples."""
    if isinstance(value, list):
        return tuple(map(load_value, value))
    if not isinstance(value, dict):
        return value
    ((key, inner),) = value.items()
    if key == "$map":
        return {load_value(k): load_value(v) for k, v in inner}
    if key == "$dtype":
        return DType.parse(inner)
    if key == "$dim":
        return load_dim(inner)
    return base64.b64decode(inner) if key == "$bytes" else float(inner)
