"""The contexts of new nodes: name scopes, control dependencies, devices, colocation.

A ``Scope`` is an immutable record in a context variable of the graph, so each thread and
asynchronous task that builds the graph has its own contexts, as in TensorFlow.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from weft.compat.graph.node import Node
from weft.compat.graphdef.definitions import NodeDef
from weft.compat.graphdef.names import check_node_name
from weft.support.dataclass import dataclass

DeviceLike: TypeAlias = "str | Callable[[NodeDef], str | None] | None"


@dataclass(frozen=True, slots=True)
class Scope:
    """``name`` is the prefix of names, empty or with a slash at its end."""

    name: str = ""
    control: tuple[Node, ...] = ()
    devices: tuple[Callable[[NodeDef], str | None] | str, ...] = ()
    colocated: tuple[Node, ...] = ()


ROOT = Scope()


class ScopeStack:
    """The current scope of a graph, and the context managers that change it."""

    def __init__(self) -> None:
        self._current: ContextVar[Scope | None] = ContextVar("graph_scope", default=None)
        self._used: dict[str, int] = {}

    @property
    def current(self) -> Scope:
        return self._current.get() or ROOT

    @contextmanager
    def enter(self, scope: Scope) -> Iterator[Scope]:
        token = self._current.set(scope)
        try:
            yield scope
        finally:
            self._current.reset(token)

    @contextmanager
    def named(self, name: str | None, is_taken: Callable[[str], bool]) -> Iterator[str]:
        """Prefix names with ``name``, made unique; see ``Graph.name_scope``."""
        scope = self.current
        if not name:
            prefix = ""
        elif name.endswith("/"):
            check_node_name(name[:-1])
            prefix = name
        else:
            check_node_name(name)
            prefix = self.unique(scope.name + name, is_taken) + "/"
        with self.enter(dataclasses.replace(scope, name=prefix)):
            yield prefix

    def unique(self, name: str, is_taken: Callable[[str], bool]) -> str:
        """``name``, or ``name`` with the first number that neither a node nor a scope has."""
        found = name
        while found in self._used or is_taken(found):
            number = self._used[name] = self._used.get(name, 0) + 1
            found = f"{name}_{number}"
        self._used.setdefault(found, 0)
        return found

    def marks(self) -> dict[str, int]:
        """The names of scopes, to be restored if an operation on the graph fails."""
        return dict(self._used)

    def restore(self, marks: dict[str, int]) -> None:
        self._used = dict(marks)

    @contextmanager
    def controlled(self, nodes: Sequence[Node] | None) -> Iterator[None]:
        """New nodes run after ``nodes``; ``None`` lifts the outer dependencies."""
        scope = self.current
        control = () if nodes is None else (*scope.control, *nodes)
        with self.enter(dataclasses.replace(scope, control=tuple(dict.fromkeys(control)))):
            yield

    @contextmanager
    def on_device(self, device: DeviceLike) -> Iterator[None]:
        """New nodes run on ``device``; ``None`` lifts the outer devices."""
        scope = self.current
        devices = () if device is None else (*scope.devices, device)
        with self.enter(dataclasses.replace(scope, devices=devices)):
            yield

    @contextmanager
    def colocated(self, node: Node | None, *, ignore_existing: bool) -> Iterator[None]:
        """New nodes share the device of ``node``; ``None`` lifts the outer colocation."""
        scope = self.current
        outer = () if ignore_existing or node is None else scope.colocated
        inner = () if node is None else (node,)
        with self.enter(dataclasses.replace(scope, colocated=(*outer, *inner), devices=())):
            yield
