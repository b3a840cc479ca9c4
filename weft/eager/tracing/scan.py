"""Which names from outside a Python function reads and sets: its globals, and attributes of modules
and classes that serve as namespaces.

Reads of instances are seen while they happen (``watch.py``); those of globals and namespaces cannot
be, so the code says which there may be.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

from weft.support.dataclass import dataclass

_LOADS = frozenset({"LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_STORES = frozenset({"STORE_GLOBAL", "DELETE_GLOBAL"})
# Packages whose globals no user edits: their functions are taken as they are.
_SEALED = frozenset({"weft", "numpy", "ml_dtypes", "scipy", "torch"}) | frozenset(
    sys.stdlib_module_names) - {"__main__", "builtins"}  # as which code without a module counts


@dataclass(frozen=True)
class Names:
    """What a code object reads: ``(name, attributes read from it)``, and the globals it sets."""

    loads: tuple[tuple[str, tuple[str, ...]], ...]
    stores: tuple[str, ...]


@functools.lru_cache(maxsize=4096)
def names_of(code: CodeType) -> Names:
    """The names of a code object and of the functions and comprehensions in it."""
    loads: dict[tuple[str, tuple[str, ...]], None] = {}
    stores: dict[str, None] = {}
    for one in _with_inner(code):
        chain: list[str] = []
        for step in dis.get_instructions(one):
            if step.opname in _ATTRIBUTES and chain:
                chain.append(str(step.argval))
                continue
            if chain:
                loads[chain[0], tuple(chain[1:])] = None
            chain = [str(step.argval)] if step.opname in _LOADS else []
            if step.opname in _STORES:
                stores[str(step.argval)] = None
    return Names(tuple(loads), tuple(stores))


def is_sealed(module: str | None) -> bool:
    """Whether what a module defines belongs to a package whose globals are not watched."""
    return module is not None and module.partition(".")[0] in _SEALED


def is_namespace(value: Any) -> bool:
    """Whether attributes of a value are globals under another name: a user's module or class."""
    if isinstance(value, ModuleType):
        return not is_sealed(value.__name__)
    return isinstance(value, type) and not is_sealed(value.__module__)


def home_of(cls: type, name: str) -> type | None:
    """The class that defines an attribute of ``cls``."""
    return next((one for one in cls.__mro__ if name in one.__dict__), None)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
