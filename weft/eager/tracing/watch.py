"""What a traced function reads of Python values: attributes, globals, closures, containers.

While a function is traced, the classes of the objects that it reaches get a ``__getattribute__``
that notes each attribute the first time it is read, with the value; functions that it reaches are
scanned for globals (``scan.py``), containers are noted with their elements. What was noted becomes
the guards of the program. Classes are restored at the end; other threads that use them meanwhile
are not watched, and traces of several threads run one after the other.

A draw from ``random`` or ``np.random`` is refused: it would be a constant of the program. Other
values that compiled code in C hides (the state of iterators, the time) cannot be noted.
"""

from __future__ import annotations

import functools
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType
from typing import Any, Self

import numpy as np

from weft.eager.cell import MODE, Cell
from weft.eager.tracing.guards import (
    PLAIN,
    Absent,
    Attribute,
    Closure,
    Contents,
    Elements,
    Guard,
    IsZero,
    Item,
    Option,
    Table,
    Values,
    check_of,
)
from weft.eager.tracing.scan import home_of, is_namespace, is_sealed, names_of
from weft.support.errors import InvalidInputError

_TRACING = threading.RLock()
_HEAP, _IMMUTABLE = 1 << 9, 1 << 8  # flags of types whose attributes can be set
_TREE = ("_modules", "_parameters", "_buffers")  # tables whose items are attributes
# Modules of the standard library whose objects hold values of users.
_OPEN = ("argparse", "collections", "types")


class Watch:
    """Notes the reads of one trace, inside ``with``."""

    def __init__(self) -> None:
        self.guards: dict[tuple[Any, ...], Guard] = {}
        self.paths: dict[int, str] = {}
        self.objects: list[Any] = []  # keeps what was reached alive, so that ids are unique
        self.written: dict[tuple[int, str], Any] = {}
        self._seen: set[tuple[int, str]] = set()
        self._classes: set[type] = set()
        self._restore: list[tuple[type, str, Any]] = []
        self._streams: list[tuple[str, Callable[[], Any], str]] = [
            ("random", random.getstate, str(random.getstate())),
            ("np.random", np.random.get_state, str(np.random.get_state()))]  # noqa: NPY002

    def __enter__(self) -> Self:
        _TRACING.acquire()
        return self

    def __exit__(self, *_error: object) -> None:
        for cls, name, own in reversed(self._restore):
            if own is None:
                delattr(cls, name)
            else:
                setattr(cls, name, own)
        self._restore.clear()
        _TRACING.release()

    def check_streams(self) -> None:
        """Raise ``InvalidInputError`` if the function drew random numbers that weft did not."""
        for name, state, before in self._streams:
            if str(state()) != before:
                raise InvalidInputError(
                    f"a compiled function draws from {name}, once, while it is traced",
                    help="use weft.rand and the like, or pass the numbers as arguments")

    def changed(self) -> list[Guard]:
        """The places that have another value now than when they were read first."""
        guards = list(self.guards.values())
        return [] if check_of(guards)() else [g for g in guards if not check_of([g])()]

    def effects(self) -> list[tuple[Any, str, Any]]:
        """Attributes that the function sets: owner, name, value at the end."""
        found = []
        for (_, name), owner in self.written.items():
            table = _table(owner)
            if table is not None and name in table:
                found.append((owner, name, table[name]))
        return found

    # -- values --------------------------------------------------------------------------------

    def note(self, value: Any, path: str) -> None:
        """Watch a value that the function reaches under the name ``path``."""
        if value is None or isinstance(value, PLAIN) or id(value) in self.paths:
            return
        self.paths[id(value)] = path
        self.objects.append(value)
        if isinstance(value, Cell):  # its value is an input; attributes that the user gave it
            self._add(Table(vars(value), "", tuple(vars(value).items()), path))
        elif isinstance(value, FunctionType):
            self._function(value, path)
        elif isinstance(value, MethodType):
            self.note(value.__self__, path.rpartition(".")[0] or "self")
            self.note(value.__func__, path)
        elif isinstance(value, functools.partial):
            for part in (value.func, value.args, value.keywords):
                self.note(part, path)
        elif isinstance(value, np.random.Generator):
            stream = value.bit_generator
            self._streams.append((path, lambda: stream.state, str(stream.state)))
        elif isinstance(value, np.ndarray):
            self._add(Elements(value, "", value.copy(), path))
        elif not isinstance(value, (type, BuiltinFunctionType)):
            self._container(value, path, path + "[{}]")
            self._instance(value)

    def _container(self, value: Any, path: str, element: str) -> None:
        """Note the elements of a container; ``element`` is the form of their paths."""
        if isinstance(value, dict) and not hasattr(type(value), "_watches_itself"):
            self._add(Table(value, "", tuple(value.items()), path))
            for key, one in tuple(value.items()):
                self.note(key, path)
                self.note(one, element.format(_label(key, element)))
        elif isinstance(value, (tuple, list, set, frozenset, deque)):
            elements = tuple(value)
            if not isinstance(value, (tuple, frozenset)):
                self._add(Contents(value, "", elements, path))
            for i, one in enumerate(elements):
                self.note(one, element.format(i))

    def _add(self, guard: Guard) -> None:
        self.guards.setdefault((type(guard), id(guard.owner), guard.key), guard)
        if isinstance(guard, (Item, Option, Attribute, Closure)):
            self.note(guard.value, guard.path)

    # -- functions -----------------------------------------------------------------------------

    def _function(self, function: FunctionType, path: str) -> None:
        names = names_of(function.__code__)
        spaces: dict[str, Any] = {}
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (),
                              strict=True):
            try:
                spaces[name] = cell.cell_contents
            except ValueError:
                continue
            self._add(Closure(cell, "", spaces[name], name))
        for given in (function.__defaults__, function.__kwdefaults__):
            self.note(given, path)
        if not is_sealed(function.__module__):
            outside = function.__globals__
            for name, _ in names.loads:
                if name in outside and name not in spaces:
                    spaces[name] = outside[name]
                    self._add(Item(outside, name, spaces[name], name))
            for name in names.stores:
                self.guards.setdefault((Item, id(outside), name), Item(
                    outside, name, outside.get(name), name))
        inner = getattr(function, "__wrapped__", None)
        self.note(inner, path)
        for name, chain in names.loads:
            if chain and is_namespace(spaces.get(name)):
                self._namespace(spaces[name], name, chain)

    def _namespace(self, space: Any, path: str, chain: tuple[str, ...]) -> None:
        """Note the attributes that are read from a module or a class."""
        for name in chain:
            home = home_of(space, name) if isinstance(space, type) else space
            if home is None or name not in vars(home):
                return
            path, value = f"{path}.{name}", vars(home)[name]
            self._add(Item(vars(home), name, value, path))
            if not is_namespace(value):
                return
            space = value

    # -- instances -----------------------------------------------------------------------------

    def _instance(self, value: Any) -> None:
        cls = type(value)
        wrapped = (_table(value) or {}).get("__wrapped__")
        if wrapped is not None:
            self.note(wrapped, self.paths[id(value)])
        if not _is_watched(cls):
            if not cls.__flags__ & _HEAP and cls.__module__ in _OPEN:  # SimpleNamespace
                self.note(_table(value), self.paths[id(value)])
            return
        if cls in self._classes:
            return
        self._classes.add(cls)
        for one in cls.__mro__:
            if not is_sealed(one.__module__):
                for name, found in tuple(vars(one).items()):
                    if name[:2] == "__" and isinstance(found, FunctionType):
                        self.note(found, f"{cls.__name__}.{name}")
        if getattr(cls.__getattribute__, "_watch", None) is self:
            return
        for name, wrapper in (("__getattribute__", self._reading), ("__setattr__", self._writing)):
            own = cls.__dict__.get(name)
            hook = wrapper(getattr(cls, name))
            hook._watch = self  # type: ignore[attr-defined]  # noqa: SLF001
            setattr(cls, name, hook)
            self._restore.append((cls, name, own))

    def _reading(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def get(owner: Any, name: str) -> Any:
            if getattr(MODE.trace, "watch", None) is not self:
                return original(owner, name)
            try:
                value = original(owner, name)
            except AttributeError:
                self._missing(owner, name)
                raise
            if (id(owner), name) not in self._seen:
                self._read(owner, name, value)
            return value

        return get

    def _writing(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def put(owner: Any, name: str, value: Any) -> None:
            if getattr(MODE.trace, "watch", None) is self:
                self.written[id(owner), name] = owner
                self._seen.add((id(owner), name))
                self.objects.append(owner)
            original(owner, name, value)

        return put

    def _read(self, owner: Any, name: str, value: Any) -> None:
        self._seen.add((id(owner), name))
        self.objects.append(owner)
        cls, table = type(owner), _table(owner)
        path = f"{self.path(owner)}.{name}"
        if name in getattr(cls, "_not_watched", ()):
            return
        if name[:2] == "__":
            if name == "__dict__" and not hasattr(cls, "_not_watched"):
                self.note(table, path)
            return
        home = home_of(cls, name)
        kept = None if home is None else vars(home)[name]
        if table is not None and name in table and not isinstance(kept, property):
            if name in _TREE and value.__class__ is dict and id(value) not in self.paths:
                self.paths[id(value)] = path
                self.objects.append(value)
                self._container(value, path, self.path(owner) + ".{}")
            self._add(Item(table, name, value, path))
        elif home is not None:
            self._of_class(owner, name, value, home, path)

    def _of_class(self, owner: Any, name: str, value: Any, home: type, path: str) -> None:
        """A method, a property, a slot or another attribute that the class defines."""
        table, kept = _table(owner), vars(home)[name]
        if isinstance(kept, MemberDescriptorType):
            self._add(Attribute(owner, name, value, path))
            return
        if isinstance(kept, property):
            self.note(kept.fget, path)
        elif table is not None and not (name[:1] == "_" and is_sealed(home.__module__)):
            self._add(Absent(table, name, False, path))
        if not is_sealed(home.__module__):
            self._add(Item(vars(home), name, kept, f"{home.__name__}.{name}"))
            self.note(getattr(kept, "__func__", kept), path)

    def _missing(self, owner: Any, name: str) -> None:
        table = _table(owner)
        if table is not None and name[:2] != "__":
            self._add(Absent(table, name, False, f"{self.path(owner)}.{name}"))

    # -- what classes of weft tell themselves --------------------------------------------------

    def item(self, owner: Any, table: Mapping[str, Any], name: str) -> None:
        """``table[name]`` of an object was read as its attribute ``name``."""
        path = f"{self.path(owner)}.{name}"
        self._add(Item(table, name, table[name], path))
        if isinstance(table[name], Cell):  # rather than as a parameter of an optimiser
            self.paths[id(table[name])] = path

    def option(self, table: dict[str, Any], name: str) -> None:
        """An option of a dict that tells its reads itself was read."""
        value = dict.__getitem__(table, name)
        self._add(Option(table, name, value, f"{self.path(table)}[{name!r}]"))

    def is_zero(self, table: dict[str, Any], name: str, answer: bool) -> None:
        """It was asked whether an option is zero."""
        self._add(IsZero(table, name, answer, f"{self.path(table)}[{name!r}] == 0"))

    def state(self, optimizer: Any, parameter: Any, state: dict[str, Any]) -> None:
        """The state of a parameter was read; what matters is what it holds after the trace, which
        may have made it.
        """
        path, whole = f"{self.path(optimizer)}.state", optimizer.state
        for guard in (Item(optimizer.__dict__, "state", whole, path),
                      Values(whole, "", tuple(whole.values()), path),
                      Table(state, "", tuple(state.items()), f"{path}[{self.path(parameter)}]")):
            self.guards[type(guard), id(guard.owner), guard.key] = guard

    def path(self, owner: Any) -> str:
        """The name of an object, as the user would write it."""
        return self.paths.get(id(owner)) or type(owner).__name__


def _label(key: Any, element: str) -> str:
    """A key of a dict in a path: as the name of an attribute, or as the user writes it."""
    if not isinstance(key, PLAIN):
        return ".."
    return repr(key) if element.endswith("]") else str(key)


def _table(value: Any) -> dict[str, Any] | None:
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def _is_watched(cls: type) -> bool:
    """Whether instances hold values of users, and the class can be changed for the trace."""
    if not cls.__flags__ & _HEAP or cls.__flags__ & _IMMUTABLE or issubclass(cls, (Cell, type)):
        return False
    if issubclass(cls, BaseException) or hasattr(cls, "_watches_itself"):
        return False
    return hasattr(cls, "_not_watched") or cls.__module__ in _OPEN \
        or not is_sealed(cls.__module__)
