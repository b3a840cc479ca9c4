"""Nested state as a list of arrays and a JSON document, and back.

A state is made of dictionaries with text or integer keys, lists, tuples, arrays, numbers, text,
booleans and None. In the document each of these but a JSON scalar is an object with one key that
names its kind, so that integer keys, tuples, NaN and the scalars of NumPy come back as they were.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from weft.support.errors import CheckpointError


def flatten(state: Any, path: str = "") -> tuple[Any, dict[str, np.ndarray]]:
    """The document of a state, and its arrays by the names of their places, such as
    ``model.fc.weight``.

    Raises ``CheckpointError`` for a value of another type, with its place.
    """
    arrays: dict[str, np.ndarray] = {}
    return _document(state, path, arrays), arrays


def _document(value: Any, path: str, arrays: dict[str, np.ndarray]) -> Any:
    if value is None or isinstance(value, bool | str) or type(value) is int:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {"dict": [[_key(key, path), _document(part, _join(path, key), arrays)]
                         for key, part in value.items()]}
    if isinstance(value, tuple | list):
        parts = [_document(part, _join(path, i), arrays) for i, part in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": parts}
    array = _array(value, path)
    name = path or "value"
    while name in arrays:  # {"a.b": x, "a": {"b": y}}
        name += "'"
    arrays[name] = array
    return {"array": name}


def _key(key: Any, path: str) -> str | int:
    if type(key) not in (str, int):
        raise CheckpointError("a key in the state is neither text nor an integer",
                              where=path or "the state", got=repr(key))
    return key


def _join(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _array(value: Any, path: str) -> np.ndarray:
    """A host array of an array, a NumPy scalar, or a tensor of weft or torch."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.dtype != object:
            return array
    raise CheckpointError("a value in the state cannot be saved", where=path or "the state",
                          got=type(value).__name__,
                          expected="arrays, numbers, text, None; dictionaries, lists and tuples "
                                   "of them; objects with state_dict() at the top")


def unflatten(document: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The state of a document. Raises ``CheckpointError`` if the document is damaged."""
    if not isinstance(document, dict):
        return document
    try:
        (kind, content), = document.items()
        if kind == "array":
            return arrays[content]
        if kind == "float":
            return float(content)
        if kind == "bytes":
            return base64.b64decode(content)
        if kind == "dict":
            return {key: unflatten(part, arrays) for key, part in content}
        parts = [unflatten(part, arrays) for part in content]
        return {"list": list, "tuple": tuple}[kind](parts)
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError("the structure of a checkpoint is damaged", got=error) from None
