"""A named table whose mistakes are errors with a suggestion."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Generic, TypeVar

from weft.support.errors import RegistryError

V = TypeVar("V")


class Registry(Generic[V]):
    """Maps names to values; a duplicate or an unknown name raises ``RegistryError``."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, V] = {}

    def register(self, name: str, value: V) -> V:
        if name in self._entries:
            raise RegistryError(
                f"{self.kind} {name!r} is registered twice",
                help="choose another name, or remove the other definition first",
            )
        self._entries[name] = value
        return value

    def remove(self, name: str) -> None:
        self.get(name)
        del self._entries[name]

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
