"""Installed packages: their versions, and plug-ins, which register operators, passes and the like.

A package adds an entry to the entry-point group ``weft.plugins``, which refers to a module that
registers things when it is imported, or to a function without parameters. weft loads plug-ins once:
when the first program is parsed or compiled, or an artifact of an unknown kind of target is loaded.
A plug-in that fails to load is reported and skipped.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from weft.support.config import config, report_unknown_variables
from weft.support.dataclass import dataclass
from weft.support.log import logger

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

# Libraries that affect the code that weft generates.
LIBRARIES = ("llvmlite", "numba", "numba_cuda", "numpy", "ml_dtypes", "onnx")
GROUP = "weft.plugins"
_loading = threading.local()


@dataclass(frozen=True, slots=True)
class Plugin:
    """An entry point of the group; ``error`` is the reason why loading it failed."""

    name: str
    value: str
    package: str
    error: str | None = None

    def __str__(self) -> str:
        text = f"{self.name} ({self.package}): {self.value}"
        return text if self.error is None else f"{text}: could not be loaded: {self.error}"


def load_plugins() -> tuple[Plugin, ...]:
    """Load every installed plug-in at the first call; returns all of them, by name.

    Failures are written to standard error once. ``WEFT_NO_PLUGINS=1`` loads none. Every entry into
    the compiler calls this, so it also reports unknown settings.
    """
    report_unknown_variables()
    if config.no_plugins or getattr(_loading, "now", False):
        return ()  # a plug-in that is being loaded parses a program
    return _load_once()


@functools.lru_cache(maxsize=1)
def _load_once() -> tuple[Plugin, ...]:
    _loading.now = True
    try:
        return tuple(_load(entry) for entry in _installed())
    finally:
        _loading.now = False


def _installed() -> Iterator[EntryPoint]:
    """The entry points, in an order that does not depend on ``sys.path``."""
    from importlib.metadata import entry_points  # which programs that start warm do not need

    return iter(sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)))


def _load(entry: EntryPoint) -> Plugin:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else "unknown package"
    try:
        target = entry.load()
        if callable(target):
            target()
    except Exception as error:  # noqa: BLE001 - a user's module may raise anything
        plugin = Plugin(entry.name, entry.value, package, f"{type(error).__name__}: {error}")
        logger("plugins").debug("plug-in %s", entry.name, exc_info=True)
        sys.stderr.write(f"weft: plug-in {plugin}\n")
        return plugin
    return Plugin(entry.name, entry.value, package)


def library_version(name: str) -> str:
    """The version of a distribution; ``absent`` if it is not installed."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"
