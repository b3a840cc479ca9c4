"""Tables of converters: by operator, and by the version from which a converter holds."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Generic, TypeVar

C = TypeVar("C")


class ConverterTable(Generic[C]):
    """The converters of one front end, by operator name and first version."""

    def __init__(self) -> None:
        self.entries: dict[str, dict[int, C]] = {}

    def register(self, op: str, converter: C, since: int = 1) -> None:
        """Register a converter, in place of one of the same version."""
        versions = {**self.entries.get(op, {}), since: converter}
        self.entries[op] = dict(sorted(versions.items()))

    def find(self, op: str, version: int | None = None) -> C | None:
        """The newest converter of ``op``, of those that are not newer than ``version``."""
        found = None
        for since, converter in self.entries.get(op, {}).items():
            if version is None or since <= version:
                found = converter
        return found

    def names(self) -> tuple[str, ...]:
        """All operators with a converter, sorted."""
        return tuple(sorted(self.entries))

    def versions(self, op: str) -> tuple[C, ...]:
        """The converters of ``op``, oldest first."""
        return tuple(self.entries.get(op, {}).values())

    def of_users(self) -> tuple[str, ...]:
        """The operators with a converter that a user registered."""
        return tuple(op for op in self.names() if not all(
            _module_of(c).startswith("weft.") for c in self.versions(op)))


def _module_of(converter: object) -> str:
    function = getattr(converter, "convert", converter)
    return getattr(function, "__module__", None) or ""  # None where code has no module


def import_converters(*packages: str) -> None:
    """Import all modules of ``packages``, which register their converters."""
    for package in packages:
        folder = importlib.import_module(package).__path__
        for found in pkgutil.iter_modules(folder):
            importlib.import_module(f"{package}.{found.name}")
