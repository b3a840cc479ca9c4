"""Tables of named values, with suggestions in the errors for unknown names.

Most entries are made while modules are imported. If an import is interrupted (Ctrl-C), the next
``import`` of the module runs it again and registers the same names again: the new entries replace
those of the earlier import. Registering one name from two definitions is an error.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

from weft.support.dataclass import dataclass
from weft.support.errors import RegistryError
from weft.support.interpreter import interrupts_held
from weft.support.suggestion import did_you_mean

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Origin:
    """The import that a registration is part of; each import has its own ``spec`` object."""

    module: str
    spec: Any

    @staticmethod
    def of_caller() -> Origin:
        """The innermost module whose top level is being run."""
        frame: Any = sys._getframe(1)  # noqa: SLF001 - the interpreter's own interface
        while frame.f_back is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        names = frame.f_globals
        return Origin(str(names.get("__name__")), names.get("__spec__"))

    def repeats(self, other: Origin) -> bool:
        """Whether this is another import of the module of ``other``."""
        return self.module == other.module and self.spec is not other.spec


class Registry(Generic[V]):
    """A table from names to values, iterated in the order of names.

    A duplicate or unknown name raises ``RegistryError``. Entries of an index are known by name; the
    module that makes one is imported when the entry is looked up.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, V] = {}
        self._origins: dict[str, Origin] = {}
        self._index: dict[str, str] = {}

    def add_index(self, modules: Mapping[str, str]) -> None:
        """Module -> the names that it registers, parted by spaces."""
        self._index |= {n: module for module, names in modules.items() for n in names.split()}

    def forget_index(self) -> None:
        """Forget the modules of ``add_index``, for one that makes indexes anew."""
        self._index.clear()

    def indexed_module(self, name: str) -> str | None:
        """The module that registers ``name`` according to the index, or ``None``."""
        return self._index.get(name)

    def register(self, name: str, value: V) -> V:
        origin = Origin.of_caller()
        if self._index.get(name, origin.module) != origin.module:
            self.find(name)  # of another module, so the name is taken
        if name in self._entries and not origin.repeats(self._origins[name]):
            raise RegistryError(
                f"{self.kind} {name!r} is registered twice",
                help="choose another name, or remove the other definition first",
            )
        self._origins[name] = origin
        self._entries[name] = value
        return value

    def remove(self, name: str) -> None:
        self.get(name)
        self._index.pop(name, None)
        del self._entries[name], self._origins[name]

    def get(self, name: str) -> V:
        found = self._entries.get(name)
        if found is None:
            found = self.find(name)
        if found is None and name not in self._entries:
            raise RegistryError(f"unknown {self.kind} {name!r}",
                                help=did_you_mean(str(name), self))
        return found  # type: ignore[return-value]  # a registry may hold None

    def find(self, name: str) -> V | None:
        if name not in self._entries and name in self._index:
            with interrupts_held():
                importlib.import_module(self._index[name])
        return self._entries.get(name)

    def origin_of(self, name: str) -> Origin:
        """The import that registered ``name``."""
        self.get(name)
        return self._origins[name]

    def loaded(self) -> list[str]:
        """The names whose modules are imported, in order."""
        return sorted(self._entries)

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._index

    def __iter__(self) -> Iterator[str]:
        return iter(sorted({*self._entries, *self._index}))

    def __len__(self) -> int:
        return len({*self._entries, *self._index})
