"""Registries of strategies by kind of target.

They import the module that the back end of a kind names (``Backend.strategies``) when the kind is
first asked for, so that a program for CPUs never imports the strategies for GPUs.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from typing import TypeVar

import weft.op  # noqa: F401 - makes the operators known
from weft.codegen import BACKENDS
from weft.ir import OPS, Family
from weft.support.errors import RegistryError
from weft.support.interpreter import interrupts_held
from weft.support.registry import Origin, Registry
from weft.support.suggestion import did_you_mean
from weft.target import TARGET_KINDS

V = TypeVar("V")


def check_operator(what: str | Family, target: str) -> None:
    """Raise ``RegistryError`` for an unknown operator or target kind."""
    if isinstance(what, str) and what not in OPS:
        OPS.get(what)  # raises the error
    check_kind(target)


def check_kind(target: str) -> None:
    """Raise ``RegistryError`` for an unknown target kind."""
    if target not in TARGET_KINDS:
        raise RegistryError(f"unknown kind of target {target!r}", expected=", ".join(TARGET_KINDS),
                            help=did_you_mean(target, TARGET_KINDS))


def load_strategies(kind: str) -> None:
    """Import the strategies of a kind of target, if its back end names any."""
    backend = BACKENDS.find(kind)
    package = None if backend is None else backend.strategies
    if package in sys.modules:
        importlib.import_module(package)  # another thread may still import it
    elif package is not None:
        with interrupts_held():
            importlib.import_module(package)


def has_strategies(kind: str) -> bool:
    """Whether strategies of a kind of target are imported, as they are before a user adds some."""
    backend = BACKENDS.find(kind)
    return backend is None or backend.strategies is None or backend.strategies in sys.modules


def is_registered_by_weft() -> bool:
    """Whether the module that is being imported is of weft: then the others of its back end need
    not be imported before, because their entries do not collide.
    """
    return Origin.of_caller().module.startswith("weft.strategy.")


def key_of(what: str | Family, kind: str) -> str:
    """The key of an operator, by name, or of a family of operators for a kind of target."""
    return f"{kind}:{what}" if isinstance(what, str) else f"{kind}:family {what.value}"


class StrategyRegistry(Registry[V]):
    """A registry whose keys are ``kind``, ``kind:operator`` or those of families (``key_of``)."""

    def register(self, name: str, value: V) -> V:
        """Register after the entries of the back end, with which ``name`` might collide."""
        if not is_registered_by_weft():
            load_strategies(name.partition(":")[0])
        return super().register(name, value)

    def known(self, name: str) -> V | None:
        """The entry of ``name`` if its module is imported."""
        return self._entries.get(name)

    def find(self, name: str) -> V | None:
        load_strategies(name.partition(":")[0])
        return super().find(name)

    def of_operator(self, op_name: str, kind: str) -> V | None:
        """The entry of an operator for a kind of target, or else that of its family."""
        found = self.find(f"{kind}:{op_name}")
        if found is None and op_name in OPS:
            family = OPS.get(op_name).traits.family
            found = None if family is Family.NONE else self.find(key_of(family, kind))
        return found

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.find(name) is not None

    def of_kind(self, kind: str) -> Iterator[tuple[str, V]]:
        """Operator names and entries of a kind."""
        load_strategies(kind)
        for name in self.loaded():
            if name.startswith(f"{kind}:"):
                yield name.partition(":")[2], self.get(name)
