"""Attribute records of operators: declared once, checked at construction, printed and parsed.

An operator's attributes are a frozen keyword-only dataclass whose fields come from ``attr``::

    @dataclass(frozen=True, kw_only=True)
    class SoftmaxAttrs(Attrs):
        axis: int = attr(-1, "axis normalised over; negative counts from the end")
"""

from __future__ import annotations

import dataclasses
import functools
import operator
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import MISSING
from enum import StrEnum
from typing import Any, TypeVar

from weft.ir.dtype import DType
from weft.ir.shape import KnownDim, SymDim, at_least
from weft.ir.size_range import is_symbol
from weft.support.dataclass import dataclass, replace
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
        for name, convert, check in _checks_of(type(self)):
            value = getattr(self, name)
            converted = convert(value)
            if converted is not value:
                if converted is _REFUSED:
                    raise self._refusal(name, "has the wrong type", value)
                object.__setattr__(self, name, converted)  # the record is still private
            if check is not None and not check(converted):
                raise self._refusal(name, "is out of range", value)

    def _refusal(self, name: str, what: str, value: Any) -> AttrsError:
        hint, meta = next((hint, meta) for known, hint, meta in _fields_of(type(self))
                          if known == name)
        expected = meta.get("expected") or None
        if what == "has the wrong type":
            expected = expected or _hint_text(hint)
        return AttrsError(f"attribute {name!r} of {type(self).__name__} {what}", expected=expected,
                          got=repr(value), help=meta.get("doc") or None)

    @classmethod
    def make(cls: type[A], values: dict[str, Any]) -> A:
        """Build from keyword values; unknown and missing names raise ``AttrsError``."""
        known, required = _declared(cls)
        if not known.keys() >= values.keys():
            unknown = [name for name in values if name not in known]
            raise AttrsError(f"{cls.__name__} has no attribute {', '.join(map(repr, unknown))}",
                             expected=f"one of {', '.join(known)}" if known else "no attributes",
                             help=did_you_mean(unknown[0], known))
        if not values.keys() >= required:
            missing = [name for name in known if name in required and name not in values]
            raise AttrsError(f"{cls.__name__} needs {', '.join(map(repr, missing))}")
        return cls(**values)

    def replace(self: A, **changes: Any) -> A:
        return replace(self, **changes)

    def items(self) -> list[tuple[str, Any]]:
        """Names and values in declaration order."""
        return [(name, getattr(self, name)) for name in _declared(type(self))[0]]

    def non_default_items(self) -> list[tuple[str, Any]]:
        """The attributes that a printer must show."""
        shown = []
        for f in _declared(type(self))[0].values():
            value = getattr(self, f.name)
            if f.default is MISSING or value != f.default or type(value) is not type(f.default):
                shown.append((f.name, value))
        return shown


@dataclass(frozen=True, kw_only=True)
class NoAttrs(Attrs):
    """For operators without attributes."""


_REFUSED = object()


@functools.cache
def _declared(cls: type[Attrs]) -> tuple[dict[str, dataclasses.Field[Any]], frozenset[str]]:
    """The attributes by name, in order, and the names of those without a default."""
    fields = {f.name: f for f in dataclasses.fields(cls)}
    return fields, frozenset(f.name for f in fields.values()
                             if f.default is MISSING and f.default_factory is MISSING)


@functools.cache
def _fields_of(cls: type[Attrs]) -> tuple[tuple[str, Any, Any], ...]:
    hints = typing.get_type_hints(cls)
    return tuple((f.name, hints[f.name], f.metadata) for f in dataclasses.fields(cls))


@functools.cache
def may_hold_floats(cls: type[Attrs]) -> bool:
    """Whether an attribute may be or contain a float; 0.0 and -0.0 are equal and not the same."""
    return any("float" in str(hint) or "Any" in str(hint) for _, hint, _ in _fields_of(cls))


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


_Converter = Callable[[Any], Any]


@functools.cache
def _checks_of(cls: type[Attrs]) -> Sequence[tuple[str, _Converter, Callable[[Any], bool] | None]]:
    """The name of each attribute, what converts its values, and its check."""
    return tuple((name, _converter(hint), meta.get("check"))
                 for name, hint, meta in _fields_of(cls))


@functools.cache
def _converter(hint: Any) -> _Converter:
    """A function that converts values to the type ``hint``; it returns ``_REFUSED`` for others.

    Lists become tuples, and strings become dtypes, symbols or members of an enumeration.
    """
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType):
        return _to_one_of(tuple(map(_converter, typing.get_args(hint))))
    if origin is tuple:
        items = typing.get_args(hint)
        if len(items) == 2 and items[1] is Ellipsis:
            return _to_tuple(_converter(items[0]), None)
        return _to_tuple(None, tuple(map(_converter, items)))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        members = tuple(hint)
        return lambda value: hint(value) if isinstance(value, str) and value in members \
            else _REFUSED
    return _CONVERTERS.get(hint) or (lambda value: value if isinstance(value, hint) else _REFUSED)


def _to_one_of(options: tuple[_Converter, ...]) -> _Converter:
    def convert(value: Any) -> Any:
        for option in options:
            converted = option(value)
            if converted is not _REFUSED:
                return converted
        return _REFUSED

    return convert


def _to_tuple(each: _Converter | None, fixed: tuple[_Converter, ...] | None) -> _Converter:
    """To tuples with items of one kind, or with an item of each of several kinds."""
    def convert(value: Any) -> Any:
        if isinstance(value, str) or not hasattr(value, "__iter__"):
            return _REFUSED
        items = tuple(value)
        if fixed is not None and len(items) != len(fixed):
            return _REFUSED
        converted = tuple(map(each, items)) if each is not None \
            else tuple([one(item) for one, item in zip(fixed or (), items, strict=True)])
        if any(item is _REFUSED for item in converted):
            return _REFUSED
        same = items is value and all(map(operator.is_, converted, items))
        return value if same else converted

    return convert


def _to_symbol(value: Any) -> Any:
    if isinstance(value, str):
        return SymDim.symbol(value) if is_symbol(value) else _REFUSED
    return value if isinstance(value, SymDim) else _REFUSED


def _to_int(value: Any) -> Any:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return _REFUSED
    return value.__index__()


def _to_float(value: Any) -> Any:
    number = isinstance(value, (int, float)) or hasattr(value, "__float__")
    return float(value) if number and not isinstance(value, (bool, str)) else _REFUSED


_CONVERTERS: dict[Any, _Converter] = {
    Any: lambda value: value,
    type(None): lambda value: value if value is None else _REFUSED,
    SymDim: _to_symbol,
    DType: lambda value: DType.of(value) if isinstance(value, (DType, str)) else _REFUSED,
    bool: lambda value: bool(value) if type(value).__name__ in ("bool", "bool_") else _REFUSED,
    int: _to_int,
    float: _to_float,
}


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
