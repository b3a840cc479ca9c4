"""The methods of ``weft.support.dataclass``: source text, and the compilation at first use."""

from __future__ import annotations

import dataclasses
import functools
import reprlib
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError
from types import CodeType, MemberDescriptorType
from typing import Any


class _NoArgument:
    """Stands in signatures for the result of a default factory."""

    def __repr__(self) -> str:
        return "<factory>"


_NO_ARGUMENT = _NoArgument()


class LazyMethod:
    """A method that takes its own place in the class when it is first looked up.

    ``make(owner)`` gives the function. Calls, ``inspect.signature`` and ``super()`` look methods up
    through ``__get__``, so none of them sees this object.
    """

    __slots__ = ("make", "name", "owner")

    def __init__(self, name: str, make: Callable[[type], Any]) -> None:
        self.name = name
        self.make = make
        self.owner: type = object

    def __get__(self, instance: Any, kind: type | None = None) -> Any:
        function = self.make(self.owner)
        if self.owner.__dict__.get(self.name) is self:  # not replaced since
            type.__setattr__(self.owner, self.name, function)
        return function if instance is None else function.__get__(instance, kind)


def _compiled(owner: type, name: str, parameters: str, body: Sequence[str],
              captured: dict[str, Any], renamed: Mapping[str, str] | None = None) -> Any:
    """The function ``name`` of ``owner``, which reads ``captured`` as free variables.

    ``renamed`` gives the final names of variables, so that classes share the compiled text.
    """
    lines = "\n".join([f"  {line}" for line in body]) or "  pass"
    text = f"def make({', '.join(captured)}):\n def {name}({parameters}):\n{lines}\n return {name}"
    module = sys.modules.get(owner.__module__)
    names: dict[str, Any] = {}
    exec(_code_of(text), {} if module is None else module.__dict__, names)  # noqa: S102 - field names only
    function = names["make"](**captured)
    if renamed:
        code = function.__code__
        found = tuple([renamed.get(variable, variable) for variable in code.co_varnames])
        function.__code__ = code.replace(co_varnames=found)
    function.__qualname__ = f"{owner.__qualname__}.{name}"
    return function


@functools.cache
def _code_of(text: str) -> CodeType:
    return compile(text, "<string>", "exec")


def fields_of(owner: type) -> list[Field[Any]]:
    """The fields of a data class, inherited ones included."""
    return list(dataclasses.fields(owner))


def _self_name(fields: Sequence[Field[Any]]) -> str:
    return "__dataclass_self__" if any(f.name == "self" for f in fields) else "self"


def _first_value(f: Field[Any], place: int, has_slots: bool, captured: dict[str, Any]
                 ) -> str | None:
    """The text of the value that ``__init__`` gives to a field; None where it writes nothing.

    ``place`` numbers the fields: their names are no part of the text.
    """
    if f.default_factory is not MISSING:
        captured[f"__factory_{place}"] = f.default_factory
        made = f"__factory_{place}()"
        if not f.init:
            return made
        captured["__no_argument__"] = _NO_ARGUMENT
        return f"{made} if _{place} is __no_argument__ else _{place}"
    if f.init:
        return f"_{place}"
    if has_slots and f.default is not MISSING:  # no class attribute holds it
        captured[f"__default_{place}"] = f.default
        return f"__default_{place}"
    return None


def _assignment(owner: type, f: Field[Any], place: int, value: str, captured: dict[str, Any]
                ) -> str:
    """The statement that writes a field of a frozen class.

    ``__set__`` of the slot takes two thirds of the time of ``object.__setattr__``.
    """
    slot = getattr(owner, f.name, None)
    if isinstance(slot, MemberDescriptorType):
        captured[f"__slot_{place}"] = slot.__set__
        return f"__slot_{place}(__self__, {value})"
    captured["__set_attribute__"] = object.__setattr__
    captured[f"__name_{place}"] = f.name
    return f"__set_attribute__(__self__, __name_{place}, {value})"


def init_method(owner: type, *, is_frozen: bool, has_slots: bool) -> Any:
    """``__init__``: positional fields, keyword-only ones, and then ``__post_init__``."""
    fields = fields_of(owner)
    captured: dict[str, Any] = {}
    body = []
    for place, f in enumerate(fields):
        value = _first_value(f, place, has_slots, captured)
        if value is not None:
            body.append(_assignment(owner, f, place, value, captured) if is_frozen
                        else f"__self__.{f.name} = {value}")
    if hasattr(owner, "__post_init__"):
        body.append("__self__.__post_init__()")
    given = [(f"_{place}", f) for place, f in enumerate(fields) if f.init]
    positional = [f for _, f in given if not f.kw_only]
    named = [f for _, f in given if f.kw_only]
    texts = ["__self__", *[text for text, f in given if not f.kw_only], *(["*"] if named else []),
             *[text for text, f in given if f.kw_only]]
    renamed = {"__self__": _self_name(fields)} | {text: f.name for text, f in given}
    function = _compiled(owner, "__init__", ", ".join(texts), body, captured, renamed)
    function.__defaults__ = tuple([_default(f) for f in positional if _has_default(f)]) or None
    function.__kwdefaults__ = {f.name: _default(f) for f in named if _has_default(f)} or None
    function.__annotations__ = {f.name: f.type for f in (*positional, *named)} | {"return": None}
    return function


def _has_default(f: Field[Any]) -> bool:
    return f.default is not MISSING or f.default_factory is not MISSING


def _default(f: Field[Any]) -> Any:
    return f.default if f.default is not MISSING else _NO_ARGUMENT


def _tuple_text(this: str, fields: Sequence[Field[Any]]) -> str:
    return f"({''.join([f'{this}.{f.name},' for f in fields])})"


def eq_method(owner: type) -> Any:
    """``__eq__``: the same class, and equal tuples of the fields that are compared."""
    compared = [f for f in fields_of(owner) if f.compare]
    body = ("if other.__class__ is self.__class__:",
            f" return {_tuple_text('self', compared)} == {_tuple_text('other', compared)}",
            "return NotImplemented")
    return _compiled(owner, "__eq__", "self, other", body, {})


def hash_method(owner: type) -> Any:
    """``__hash__`` of the tuple of the fields that are compared, or that ask to be hashed."""
    hashed = [f for f in fields_of(owner) if (f.compare if f.hash is None else f.hash)]
    return _compiled(owner, "__hash__", "self", (f"return hash({_tuple_text('self', hashed)})",),
                     {})


def repr_method(owner: type) -> Any:
    """``__repr__``: ``Name(field=value, ...)``, with ``...`` for an object inside itself."""
    shown = ", ".join([f"{f.name}={{self.{f.name}!r}}" for f in fields_of(owner) if f.repr])
    body = (f'return f"{{self.__class__.__qualname__}}({shown})"',)
    return reprlib.recursive_repr()(_compiled(owner, "__repr__", "self", body, {}))


def frozen_methods(owner: Any, fields: Sequence[Field[Any]]) -> dict[str, Any]:
    """``__setattr__`` and ``__delattr__`` that refuse fields, and all names of ``owner`` itself."""
    names = frozenset([f.name for f in fields])

    def set_attribute(self: Any, name: str, value: Any) -> None:
        if type(self) is owner or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(owner, self).__setattr__(name, value)

    def delete_attribute(self: Any, name: str) -> None:
        if type(self) is owner or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(owner, self).__delattr__(name)

    return {"__setattr__": set_attribute, "__delattr__": delete_attribute}


def get_state(self: Any) -> list[Any]:
    """``__getstate__`` of frozen classes with slots, which ``pickle`` cannot fill by itself."""
    return [getattr(self, f.name) for f in dataclasses.fields(self)]


def set_state(self: Any, state: Sequence[Any]) -> None:
    """``__setstate__`` of frozen classes with slots."""
    for f, value in zip(dataclasses.fields(self), state, strict=False):
        object.__setattr__(self, f.name, value)  # as in ``__init__``


def replaced(self: Any, /, **changes: Any) -> Any:
    """``__replace__``, which ``copy.replace`` calls (Python 3.13)."""
    return dataclasses.replace(self, **changes)


@functools.cache
def copy_function(owner: type) -> Callable[..., Any]:
    """A function that copies an instance with changed fields; the changes are keyword arguments."""
    given = sorted([f for f in fields_of(owner) if f.init], key=lambda f: bool(f.kw_only))
    this = _self_name(fields_of(owner))
    names = [f.name for f in given]
    parameters = ", ".join([this, *(["*"] if names else []), *[f"{n}=__same__" for n in names]])
    values = ", ".join([
        f"{f'{f.name}=' if f.kw_only else ''}{this}.{f.name} if {f.name} is __same__ else {f.name}"
        for f in given])
    captured = {"__same__": MISSING, "__owner__": owner}
    return _compiled(owner, "replace", parameters, [f"return __owner__({values})"], captured)
