"""A named table whose mistakes are errors with a suggestion.

Most entries are made while modules are imported. An import that is cut short (by Ctrl-C, say) is
run again by the next ``import`` of the module, which registers the same names once more: those
entries take the place of the earlier ones. Two definitions of one name are an error all the same.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from weft.support.errors import RegistryError

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Origin:
    """The import that a registration is part of; ``spec`` is another object for each import."""

    module: str
    spec: Any

    @staticmethod
    def of_caller() -> Origin:
        """The innermost module whose top level is being executed."""
        frame: Any = sys._getframe(1)  # noqa: SLF001 - what the interpreter has for this
        while frame.f_back is not None and frame.f_code.co_name != "<module>":
            frame = frame.f_back
        names = frame.f_globals
        return Origin(str(names.get("__name__")), names.get("__spec__"))

    def repeats(self, other: Origin) -> bool:
        """Whether this is a later import of the module that ``other`` is an import of."""
        return self.module == other.module and self.spec is not other.spec


class Registry(Generic[V]):
    """Maps names to values; a duplicate or an unknown name raises ``RegistryError``."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, V] = {}
        self._origins: dict[str, Origin] = {}

    def register(self, name: str, value: V) -> V:
        origin = Origin.of_caller()
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
        del self._entries[name], self._origins[name]

    def get(self, name: str) -> V:
        try:
            return self._entries[name]
        except KeyError:
            close = difflib.get_close_matches(name, self._entries, n=3)
            raise RegistryError(
                f"unknown {self.kind} {name!r}",
                help=f"did you mean {' or '.join(map(repr, close))}?" if close else None,
            ) from None

    def find(self, name: str) -> V | None:
        return self._entries.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def __len__(self) -> int:
        return len(self._entries)
