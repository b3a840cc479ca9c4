"""``dataclass`` as in the standard library, with methods that are compiled when first used.

The standard decorator compiles the source text of five or six methods for each class, 0.4 ms in
all. A compiler declares hundreds of records and uses some of them in one run, so this took half of
the time of its import. The decorator here has the same options and semantics, and the same speed
once a method has been called; ``dataclasses.fields``, ``replace``, ``asdict`` and ``is_dataclass``
work, and classes of both decorators may inherit from each other. Three things differ:

* ``__init__``, ``__eq__``, ``__hash__`` and ``__repr__`` are compiled when they are looked up;
* ``__init__`` of a frozen class with slots writes to the slots directly, which is faster;
* a class without a docstring keeps ``__doc__ = None``.

A class that uses rarer features (``order``, ``unsafe_hash``, ``weakref_slot``, ``InitVar``,
``KW_ONLY``), or that the standard decorator refuses, is passed to the standard decorator.
"""

from __future__ import annotations

import abc
import copy
import dataclasses
import sys
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field
from inspect import get_annotations
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, TypeVar

from weft.support.dataclass_methods import (
    LazyMethod,
    copy_function,
    eq_method,
    frozen_methods,
    get_state,
    hash_method,
    init_method,
    replaced,
    repr_method,
    set_state,
)

__all__ = ["dataclass", "replace"]

_T = TypeVar("_T")


def replace(instance: _T, /, **changes: Any) -> _T:
    """``dataclasses.replace``, three times as fast: the copy is compiled once for each class."""
    copied: _T = copy_function(type(instance))(instance, **changes)
    return copied


class _Options(typing.NamedTuple):
    init: bool
    repr: bool
    eq: bool
    frozen: bool
    match_args: bool
    kw_only: bool
    slots: bool


if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(
        cls: type | None = None, /, *, init: bool = True, repr: bool = True, eq: bool = True,
        frozen: bool = False, match_args: bool = True, kw_only: bool = False, slots: bool = False,
        **rare: bool,
    ) -> Any:
        """``dataclasses.dataclass``; ``rare`` are options that are passed to it with the class."""
        options = _Options(init, repr, eq, frozen, match_args, kw_only, slots)

        def decorate(cls: type) -> type:
            made = None if any(rare.values()) else _made(cls, options)
            return dataclasses.dataclass(**options._asdict(), **rare)(cls) if made is None else made

        return decorate if cls is None else decorate(cls)


def _made(cls: type, options: _Options) -> type | None:
    """The data class, or None where the standard decorator has to judge."""
    own = _own_fields(cls, options.kw_only)
    if own is None or not _is_regular(cls, own, options):
        return None
    fields: dict[str, Field[Any]] = {}
    for base in cls.__mro__[-1:0:-1]:
        fields |= getattr(base, "__dataclass_fields__", {})
    fields |= own
    regular = [f for f in fields.values() if _kind(f) is _REGULAR]
    positional = [f for f in regular if f.init and not f.kw_only]
    if options.init and not _defaults_come_last(positional):
        return None
    _set_defaults(cls, own)
    added = _added(cls, fields, options)
    if options.match_args:
        added.setdefault("__match_args__", tuple([f.name for f in positional]))
    for name in ("__init__", "__repr__", "__eq__", "__match_args__"):
        if name in cls.__dict__:  # the class has its own
            added.pop(name, None)
    if options.slots:
        made = _with_slots(cls, added, regular)
    else:
        made = cls
        for name, value in added.items():
            setattr(made, name, value)
    for value in added.values():
        if type(value) is LazyMethod:
            value.owner = made
    if options.frozen:
        for name, value in frozen_methods(made, regular).items():
            setattr(made, name, value)
    return abc.update_abstractmethods(made)


# The markers that the standard functions expect, from classes of the standard decorator.
@dataclasses.dataclass
class _Probe:
    shared: typing.ClassVar[int]
    regular: int


def _kind(f: Field[Any]) -> Any:
    return f._field_type  # type: ignore[attr-defined]  # noqa: SLF001 - ``fields`` reads it


_SHARED, _REGULAR = map(_kind, _Probe.__dataclass_fields__.values())
_parameters: dict[_Options, Any] = {}


def _parameters_of(options: _Options) -> Any:
    """The ``__dataclass_params__`` that the standard decorator stores for ``options``."""
    known = _parameters.get(options)
    if known is None:
        known = _parameters[options] = copy.copy(_Probe.__dataclass_params__)  # type: ignore[attr-defined]
        for name, value in options._asdict().items():
            if hasattr(known, name):  # Python 3.11 keeps fewer
                setattr(known, name, value)
    return known


def _own_fields(cls: type, kw_only: bool) -> dict[str, Field[Any]] | None:
    """What ``cls`` declares, class variables too; None if it needs the standard decorator."""
    made: dict[str, Field[Any]] = {}
    for name, hint in get_annotations(cls).items():
        if _is_rare(hint):
            return None
        default: Any = getattr(cls, name, MISSING)
        is_shared = _is_class_variable(hint)
        if isinstance(default, Field):
            if is_shared:
                return None
        else:
            if isinstance(default, MemberDescriptorType):  # the slot of a base
                default = MISSING
            default = dataclasses.field(default=default)
        if type(default.default).__hash__ is None and not is_shared:  # mutable, an error
            return None
        default.name = name
        default.type = hint
        default._field_type = _SHARED if is_shared else _REGULAR  # noqa: SLF001
        if default.kw_only is MISSING and not is_shared:
            default.kw_only = kw_only
        made[name] = default
    return made


def _is_rare(hint: Any) -> bool:
    """Whether an annotation marks something else than a field or a class variable."""
    if isinstance(hint, str):
        return ("InitVar" in hint or "KW_ONLY" in hint
                or ("ClassVar" in hint and not _is_class_variable(hint)))
    return hint is dataclasses.KW_ONLY or hint is dataclasses.InitVar or (
        isinstance(hint, dataclasses.InitVar))


def _is_class_variable(hint: Any) -> bool:
    if isinstance(hint, str):
        return "ClassVar" in hint and hint.partition("[")[0] in ("ClassVar", "typing.ClassVar")
    return hint is typing.ClassVar or typing.get_origin(hint) is typing.ClassVar


def _is_regular(cls: type, own: Mapping[str, Field[Any]], options: _Options) -> bool:
    """Whether the standard decorator would accept ``cls``."""
    names = cls.__dict__
    if [name for name, value in names.items() if type(value) is Field and name not in own]:
        return False  # a field without an annotation
    if options.frozen and ("__setattr__" in names or "__delattr__" in names):
        return False
    if options.slots and "__slots__" in names:
        return False
    frozen = [b.__dataclass_params__.frozen  # type: ignore[attr-defined]
              for b in cls.__mro__[1:] if hasattr(b, "__dataclass_fields__")]
    return not frozen or any(frozen) == options.frozen


def _defaults_come_last(positional: Sequence[Field[Any]]) -> bool:
    has_default = [f.default is not MISSING or f.default_factory is not MISSING
                   for f in positional]
    return has_default == sorted(has_default)


def _set_defaults(cls: type, own: Mapping[str, Field[Any]]) -> None:
    """Replace the ``field(...)`` of class attributes by their default values, or remove them."""
    for name, declared in own.items():
        if isinstance(cls.__dict__.get(name), Field):
            if declared.default is MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, declared.default)


def _added(cls: type, fields: dict[str, Field[Any]], options: _Options) -> dict[str, Any]:
    """The attributes of a data class that do not refer to the class itself."""
    added: dict[str, Any] = {"__dataclass_fields__": fields,
                             "__dataclass_params__": _parameters_of(options)}
    if options.init:
        added["__init__"] = LazyMethod("__init__", _INIT[options.frozen, options.slots])
    if options.repr:
        added["__repr__"] = LazyMethod("__repr__", repr_method)
    if options.eq:
        added["__eq__"] = LazyMethod("__eq__", eq_method)
        own_hash = cls.__dict__.get("__hash__", MISSING)
        if own_hash is MISSING or (own_hash is None and "__eq__" in cls.__dict__):
            added["__hash__"] = LazyMethod("__hash__", hash_method) if options.frozen else None
    if sys.version_info >= (3, 13) and "__replace__" not in cls.__dict__:
        added["__replace__"] = replaced
    return added


_INIT = {
    (is_frozen, has_slots): (
        lambda owner, is_frozen=is_frozen, has_slots=has_slots:
            init_method(owner, is_frozen=is_frozen, has_slots=has_slots))
    for is_frozen in (False, True) for has_slots in (False, True)
}


def _with_slots(cls: type, added: Mapping[str, Any], fields: Sequence[Field[Any]]) -> type:
    """A copy of ``cls`` with ``__slots__``, which only a new class can have."""
    inherited = {slot for base in cls.__mro__[1:-1] for slot in _slots_of(base)}
    names = {**cls.__dict__, **added}
    names["__slots__"] = tuple([f.name for f in fields if f.name not in inherited])
    for name in (*[f.name for f in fields], "__dict__", "__weakref__"):  # defaults, descriptors
        names.pop(name, None)
    if added["__dataclass_params__"].frozen:
        names.setdefault("__getstate__", get_state)
        names.setdefault("__setstate__", set_state)
    made = type(cls)(cls.__name__, cls.__bases__, names)
    made.__qualname__ = cls.__qualname__
    return made


def _slots_of(base: type) -> Sequence[str]:
    slots = base.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)
