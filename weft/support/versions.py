"""Versions of installed libraries, without importing them."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version


def library_version(name: str) -> str:
    """The version of a distribution; ``absent`` if it is not installed."""
    try:
        return _version(name)
    except PackageNotFoundError:
        return "absent"
