"""Attributes of operators as texts, as NNVM's nodes hold them."""

from __future__ import annotations

import ast
import dataclasses
import enum
import functools
import typing
from collections.abc import Mapping
from typing import Any

from weft.ir import Attrs, DType


def text_of(value: Any) -> str:
    """The text of an attribute: ``(3, 3)``, ``True``, ``NCHW``, ``float32``."""
    if isinstance(value, DType):
        return value.name
    if isinstance(value, enum.Enum):
        return str(value.value)
    if isinstance(value, list):
        value = tuple(value)
    return str(value)


def value_of(text: str, hint: Any) -> Any:
    """The value that ``text`` stands for in an attribute of the type ``hint``."""
    kinds = typing.get_args(hint) if typing.get_origin(hint) is not None else (hint,)
    if text == "None" and type(None) in kinds:
        return None
    if str in kinds and not {int, float, bool} & set(kinds):
        return text
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a dtype, a member of an enumeration or a symbolic size


def parsed_attrs(record: type[Attrs], texts: Mapping[str, str]) -> Attrs:
    """The record of an operator from the attributes of a node; other attributes are ignored.

    Raises ``AttrsError`` for missing attributes and texts that do not fit.
    """
    hints = _hints(record)
    return record.make({name: value_of(text, hints[name])
                        for name, text in texts.items() if name in hints})


@functools.cache
def _hints(record: type[Attrs]) -> dict[str, Any]:
    hints = typing.get_type_hints(record)
    return {f.name: hints[f.name] for f in dataclasses.fields(record)}
