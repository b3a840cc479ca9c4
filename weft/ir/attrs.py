"""Attribute records of operators: declared once, checked at construction, printed and parsed.

An operator's attributes are a frozen keyword-only dataclass whose fields come from ``attr``::

    @dataclass(frozen=True, kw_only=True)
    class SoftmaxAttrs(Attrs):
        axis: int = attr(-1, "axis normalised over; negative counts from the end")
"""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING
from enum import StrEnum
from typing import Any, TypeVar

from weft.ir.dtype import DType
from weft.ir.shape import KnownDim, SymDim, at_least
from weft.ir.size_range import is_symbol
from weft.support.dataclass import dataclass
from weft.support.errors import AttrsError
from weft.support.suggestion import did_you_mean

A = TypeVar("A", bound="Attrs")


def attr(default: Any = MISSING, doc: str = "", *, check: Callable[[Any], bool] | None = None,
         expected: str = "") -> Any:
    """A documented attribute; ``check`` validates values, ``expected`` describes valid ones."""
    metadata = {"doc": doc, "check": check, "expected": expected}
    if default is MISSING:
        return dataclasses.field(metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def one_of(*choices: Any) -> Callable[[Any], bool]:
    """A check that the value is one of ``choices``."""
    return lambda value: value in choices


def sizes_from(bound: int) -> Callable[[Sequence[KnownDim]], bool]:
    """A check that no dimension is known to be less than ``bound``."""
    return lambda dims: all(at_least(d, bound) for d in dims)


def size_from(bound: int) -> Callable[[KnownDim], bool]:
    """A check that a dimension is not known to be less than ``bound``."""
    return lambda dim: at_least(dim, bound)


@dataclass(frozen=True, kw_only=True)
class Attrs:
    """Base of all attribute records; value equality, hashable."""

    def __post_init__(self) -> None:
        for name, hint, meta in _fields_of(type(self)):
            value = getattr(self, name)
            converted = _convert(value, hint)
            if converted is _REFUSED:
                raise AttrsError(f"attribute {name!r} of {type(self).__name__} has the wrong type",
                                 expected=meta.get("expected") or _hint_text(hint), got=repr(value),
                                 help=meta.get("doc") or None)
            if converted is not value:
                object.__setattr__(self, name, converted)  # the record is still private
            check = meta.get("check")
            if check is not None and not check(converted):
                raise AttrsError(f"attribute {name!r} of {type(self).__name__} is out of range",
                                 expected=meta.get("expected") or None, got=repr(value),
                                 help=meta.get("doc") or None)

    @classmethod
    def make(cls: type[A], values: dict[str, Any]) -> A:
        """Build from keyword values; unknown and missing names raise ``AttrsError``."""
        known = {f.name: f for f in dataclasses.fields(cls)}
        unknown = [name for name in values if name not in known]
        if unknown:
            raise AttrsError(f"{cls.__name__} has no attribute {', '.join(map(repr, unknown))}",
                             expected=f"one of {', '.join(known)}" if known else "no attributes",
                             help=did_you_mean(unknown[0], known))
        missing = [
            n
            for n, f in known.items()
            if n not in values and f.default is MISSING and f.default_factory is MISSING
        ]
        if missing:
            raise AttrsError(f"{cls.__name__} needs {', '.join(map(repr, missing))}")
        return cls(**values)

    def replace(self: A, **changes: Any) -> A:
        return dataclasses.replace(self, **changes)

    def items(self) -> list[tuple[str, Any]]:
        """Names and values in declaration order."""
        return [(f.name, getattr(self, f.name)) for f in dataclasses.fields(self)]

    def non_default_items(self) -> list[tuple[str, Any]]:
        """The attributes that a printer must show."""
        shown = []
        for f in dataclasses.fields(self):
            value = getattr(self, f.name)
            if f.default is MISSING or value != f.default or type(value) is not type(f.default):
                shown.append((f.name, value))
        return shown


@dataclass(frozen=True, kw_only=True)
class NoAttrs(Attrs):
    """For operators without attributes."""


_REFUSED = object()


@functools.cache
def _fields_of(cls: type[Attrs]) -> tuple[tuple[str, Any, Any], ...]:
    hints = typing.get_type_hints(cls)
    return tuple((f.name, hints[f.name], f.metadata) for f in dataclasses.fields(cls))


def _hint_text(hint: Any) -> str:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(_hint_text, typing.get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return f"one of {', '.join(hint)}"
    if hint is type(None):
        return "None"
    if hint is SymDim:
        return "a symbolic size"
    return hint.__name__ if isinstance(hint, type) else str(hint)


def _convert(value: Any, hint: Any) -> Any:
    """``value`` converted to the type ``hint``, or ``_REFUSED``.

    Lists become tuples, and strings become dtypes, symbols or members of an enumeration.
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        options = (_convert(value, option) for option in typing.get_args(hint))
        return next((option for option in options if option is not _REFUSED), _REFUSED)
    if origin is tuple:
        return _convert_tuple(value, typing.get_args(hint))
    if hint is Any:
        return value
    if hint is type(None):
        return value if value is None else _REFUSED
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint(value) if isinstance(value, str) and value in list(hint) else _REFUSED
    if hint is SymDim and isinstance(value, str):
        return SymDim.symbol(value) if is_symbol(value) else _REFUSED
    if hint is DType:
        return DType.of(value) if isinstance(value, (DType, str)) else _REFUSED
    if hint is bool:
        return bool(value) if type(value).__name__ in ("bool", "bool_") else _REFUSED
    if hint is int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            return _REFUSED
        return value.__index__()
    if hint is float:
        number = isinstance(value, (int, float)) or hasattr(value, "__float__")
        return float(value) if number and not isinstance(value, (bool, str)) else _REFUSED
    return value if isinstance(value, hint) else _REFUSED


def _convert_tuple(value: Any, args: tuple[Any, ...]) -> Any:
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return _REFUSED
    items = tuple(value)
    if len(args) == 2 and args[1] is Ellipsis:
        args = (args[0],) * len(items)
    if len(items) != len(args):
        return _REFUSED
    converted = tuple(_convert(item, hint) for item, hint in zip(items, args, strict=True))
    if any(item is _REFUSED for item in converted):
        return _REFUSED
    same = isinstance(value, tuple) and all(a is b for a, b in zip(converted, value, strict=True))
    return value if same else converted


NO_ATTRS = NoAttrs()


def attrs_without(record: type[Attrs], *names: str, module: str) -> type[Attrs]:
    """The record without the attributes in ``names``, for an operator that takes these as operands.

    ``module`` is the ``__name__`` of the caller, who must assign the class to its own name there:
    pickle looks it up by both.
    """
    kept = [
        (name, hint, dataclasses.field(default=field.default, metadata=field.metadata))
        for (name, hint, _), field in zip(_fields_of(record), dataclasses.fields(record),
                                          strict=True)
        if name not in names
    ]
    made = dataclasses.make_dataclass(record.__name__, kept, bases=(Attrs,), frozen=True,
                                      kw_only=True)
    made.__module__, made.__doc__ = module, record.__doc__
    return made
