"""Registries of strategies by kind of target, which import weft's own when a kind is first asked.

A program for CPUs never imports the strategies for GPUs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import TypeVar

from weft.support.interrupts import interrupts_held
from weft.support.registry import Registry

V = TypeVar("V")

# Kind of target -> the package that registers weft's strategies for it.
PACKAGES = {"cpu": "weft.strategy.cpu", "cuda": "weft.strategy.cuda"}


def load_strategies(kind: str) -> None:
    """Import weft's strategies for a kind of target, if it has any."""
    package = PACKAGES.get(kind)
    if package in sys.modules:
        importlib.import_module(package)  # another thread may still import it
    elif package is not None:
        with interrupts_held():
            importlib.import_module(package)


class StrategyRegistry(Registry[V]):
    """A registry whose keys are ``kind`` or ``kind:operator``."""

    def register(self, name: str, value: V) -> V:
        """Register after weft's own entries, with which ``name`` might collide."""
        load_strategies(name.partition(":")[0])
        return super().register(name, value)

    def find(self, name: str) -> V | None:
        load_strategies(name.partition(":")[0])
        return super().find(name)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def of_kind(self, kind: str) -> Iterator[tuple[str, V]]:
        """Operator names and entries of a kind."""
        load_strategies(kind)
        for name in self.loaded():
            if name.startswith(f"{kind}:"):
                yield name.partition(":")[2], self.get(name)
