"""Pipelines of passes as text: ``fold_constant,fuse_ops{max_depth=8},dead_code_elimination``.

Options are in braces, separated by commas. A tuple is in parentheses, with spaces between its items
(``skip=(nn.dropout nn.lrn)``); a single item needs no parentheses. ``none`` is ``None`` for an
option that may be ``None``.
"""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from typing import Any

from weft.ir.passes import PASSES, Pass, Sequential
from weft.support.errors import PassError
from weft.support.suggestion import did_you_mean

_ITEM = re.compile(r"\s*([A-Za-z_][\w.]*)\s*(?:\{([^{}]*)\})?\s*(,|$)")
_REFUSED = object()


def parse_pipeline(text: str) -> Sequential:
    """The passes of ``text``.

    Raises ``PassError`` for wrong syntax or options, ``RegistryError`` for unknown passes.
    """
    passes: list[Pass] = []
    position = 0
    while position < len(text):
        match = _ITEM.match(text, position)
        if match is None:
            raise PassError("syntax error in a pipeline of passes", where=f"column {position + 1}",
                            expected="name or name{option=value,option=value}, separated by commas",
                            got=repr(text[position : position + 30]))
        passes.append(_make(match[1], match[2] or ""))
        position = match.end()
    return Sequential(tuple(passes))


def _make(name: str, options: str) -> Pass:
    cls = PASSES.get(name)
    hints = typing.get_type_hints(cls)
    fields = {f.name: f for f in dataclasses.fields(cls)}
    values: dict[str, Any] = {}
    for option in filter(None, (item.strip() for item in options.split(","))):
        key, equals, text = (field.strip() for field in option.partition("="))
        if key not in fields:
            raise PassError(f"unknown option {key!r} of the pass {name}",
                            expected=", ".join(fields) or "no options",
                            help=did_you_mean(key, fields))
        # ``verbose`` alone means ``verbose=true``.
        value = _read(text if equals else "true", hints[key])
        if value is _REFUSED:
            raise PassError(f"option {key!r} of the pass {name} has the wrong type",
                            expected=getattr(hints[key], "__name__", str(hints[key])),
                            got=repr(text))
        values[key] = value
    return cls(**values)


def _read(text: str, hint: Any) -> Any:
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = typing.get_args(hint)
        if text == "none" and type(None) in options:
            return None  # before a member such as ``str`` reads it as a value
        found = (_read(text, option) for option in options)
        return next((value for value in found if value is not _REFUSED), _REFUSED)
    if origin in (tuple, frozenset):
        inner = text[1:-1] if text.startswith("(") and text.endswith(")") else text
        items = [_read(item, typing.get_args(hint)[0]) for item in inner.split()]
        return _REFUSED if _REFUSED in items else origin(items)
    if hint is type(None):
        return None if text == "none" else _REFUSED
    if hint is bool:
        return {"true": True, "false": False}.get(text.lower(), _REFUSED)
    if hint in (int, float):
        try:
            return hint(text)
        except ValueError:
            return _REFUSED
    return text if hint is str else _REFUSED
