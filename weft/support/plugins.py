"""Installed packages: their versions, and plug-ins, which register operators, passes and the like.

A package adds an entry to the entry-point group ``weft.plugins``, which refers to a module that
registers things when it is imported, or to a function without parameters. weft loads plug-ins once:
when the first program is parsed or compiled, or an artifact of an unknown kind of target is loaded.
A plug-in that fails to load is reported and skipped.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from importlib.machinery import PathFinder
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
    found = _distributions(tuple(sys.path))
    if found is not None and not any(_names_group(folder) for folder in found.folders):
        return iter(())
    from importlib.metadata import entry_points

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
    found = _distributions(tuple(sys.path))
    known = None if found is None else found.versions.get(_normalized(name), "absent")
    if known is not None:
        return known
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return "absent"


# ``importlib.metadata`` imports a parser of e-mails, and reads each package with it: a tenth of
# the time in which a small model is ready.
@dataclass(frozen=True, slots=True)
class _Distributions:
    """The folders with the metadata of installed distributions, and their versions by name.

    The version of a distribution of an older form, which is in a file, is ``None``.
    """

    folders: tuple[str, ...]
    versions: Mapping[str, str | None]


@functools.lru_cache(maxsize=1)
def _distributions(paths: tuple[str, ...]) -> _Distributions | None:
    """The distributions in ``paths``; ``None`` where only ``importlib.metadata`` can tell."""
    if any(hasattr(finder, "find_distributions") and finder is not PathFinder
           for finder in sys.meta_path):
        return None
    folders: list[str] = []
    versions: dict[str, str | None] = {}
    for path in dict.fromkeys(paths):
        if path.endswith(".egg"):
            return None
        try:
            names = os.listdir(path or ".")  # noqa: PTH208 - a third of the time of pathlib
        except NotADirectoryError:
            return None  # an archive
        except OSError:
            continue
        for name in names:
            stem, _, kind = name.rpartition(".")
            if kind in ("dist-info", "egg-info"):
                package, _, version = stem.partition("-")
                is_older = kind == "egg-info"
                versions.setdefault(_normalized(package), None if is_older else version)
                folders.append(f"{path}/{name}")
    return _Distributions(tuple(folders), versions)


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()


def _names_group(folder: str) -> bool:
    """Whether a distribution may have entry points of the group."""
    try:
        with open(f"{folder}/entry_points.txt", "rb") as file:  # noqa: PTH123
            return GROUP.encode() in file.read()
    except OSError:
        return False
