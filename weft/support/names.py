"""Names that are not taken yet."""

from __future__ import annotations

from collections.abc import Container


def unused(name: str, taken: Container[str]) -> str:
    """``name``, with as many underscores behind it as ``taken`` requires."""
    while name in taken:
        name += "_"
    return name


def numbered(name: str, taken: Container[str]) -> str:
    """``name``, or the first of ``name_2``, ``name_3``, … that is not in ``taken``."""
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def claim(name: str, taken: set[str]) -> str:
    """``numbered``, and ``taken`` from now on."""
    found = numbered(name, taken)
    taken.add(found)
    return found
