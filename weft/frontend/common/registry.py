"""Tables of converters: by operator, and by the version from which a converter holds."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from weft.support.interpreter import interrupts_held

C = TypeVar("C")


class ConverterTable(Generic[C]):
    """The converters of one front end, by operator name and first version."""

    def __init__(self) -> None:
        self._entries: dict[str, dict[int, C]] = {}
        self._modules: dict[str, str] = {}  # by operator
        self._imported: set[str] = set()

    @property
    def entries(self) -> dict[str, dict[int, C]]:
        """All converters."""
        for op in self._modules:
            self._of(op)
        return self._entries

    @entries.setter
    def entries(self, entries: dict[str, dict[int, C]]) -> None:
        self._entries = entries

    def load_lazily(self, modules: Mapping[str, str]) -> None:
        """Import a module when one of its operators is asked for.

        ``modules`` maps each to the operators that it registers converters of, parted by spaces.
        """
        for module, names in modules.items():
            self._modules |= dict.fromkeys(names.split(), module)

    def register(self, op: str, converter: C, since: int = 1) -> None:
        """Register a converter, in place of one of the same version."""
        versions = {**self._of(op), since: converter}
        self._entries[op] = dict(sorted(versions.items()))

    def converts(self, *ops: str) -> Callable[[C], C]:
        """Register the decorated function as the converter of ``ops``."""
        def wrap(converter: C) -> C:
            for op in ops:
                self.register(op, converter)
            return converter

        return wrap

    def find(self, op: str, version: int | None = None) -> C | None:
        """The newest converter of ``op``, of those that are not newer than ``version``."""
        found = None
        for since, converter in self._of(op).items():
            if version is None or since <= version:
                found = converter
        return found

    def names(self) -> tuple[str, ...]:
        """All operators with a converter, sorted."""
        return tuple(sorted({*self._entries, *self._modules}))

    def versions(self, op: str) -> tuple[C, ...]:
        """The converters of ``op``, oldest first."""
        return tuple(self._of(op).values())

    def of_users(self) -> tuple[str, ...]:
        """The operators with a converter that a user registered."""
        return tuple(op for op in sorted(self._entries) if not all(
            _module_of(c).startswith("weft.") for c in self._entries[op].values()))

    def _of(self, op: str) -> Mapping[int, C]:
        module = self._modules.get(op)
        if module is not None and module not in sys.modules:
            with interrupts_held():
                importlib.import_module(module)
            self._imported.add(module)
        elif module is not None and module not in self._imported:
            importlib.import_module(module)  # another thread may still import it, or this one
        return self._entries.get(op, {})


def _module_of(converter: object) -> str:
    function = getattr(converter, "convert", converter)
    return getattr(function, "__module__", None) or ""  # None where code has no module


def import_converters(*packages: str) -> None:
    """Import all modules of ``packages``, which register their converters."""
    for package in packages:
        folder = importlib.import_module(package).__path__
        for found in pkgutil.iter_modules(folder):
            importlib.import_module(f"{package}.{found.name}")
