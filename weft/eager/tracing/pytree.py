"""Nested containers of tensors and other values: tuples, lists, dicts, dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

# A structure is nested tuples, hashable and equal for equal containers: ("leaf",), or the type of
# the container, what it has beside its items, and the structures of the items.
Structure = tuple[Any, ...]
LEAF: Structure = ("leaf",)


def flatten(value: Any, leaves: list[Any] | None = None) -> tuple[list[Any], Structure]:
    """The leaves of nested containers in order, and the structure that ``unflatten`` takes."""
    found: list[Any] = [] if leaves is None else leaves
    parts = _parts(value)
    if parts is None:
        found.append(value)
        return found, LEAF
    kind, names, items = parts
    return found, (kind, names, tuple([flatten(item, found)[1] for item in items]))


def _parts(value: Any) -> tuple[type, Any, list[Any]] | None:
    kind = type(value)
    if kind in (tuple, list):
        return kind, len(value), list(value)
    if isinstance(value, dict):
        return kind, tuple(value), list(value.values())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return kind, None, list(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = tuple([field.name for field in dataclasses.fields(value)])
        return kind, names, [getattr(value, name) for name in names]
    return None


def unflatten(structure: Structure, leaves: list[Any]) -> Any:
    """Containers of a structure with these leaves."""
    rest = iter(leaves)
    return _rebuilt(structure, lambda: next(rest))


def _rebuilt(structure: Structure, take: Callable[[], Any]) -> Any:
    if structure is LEAF or structure == LEAF:
        return take()
    kind, names, parts = structure
    items = [_rebuilt(part, take) for part in parts]
    if kind in (tuple, list):
        return kind(items)
    if names is None:
        return kind(*items)
    if issubclass(kind, dict):
        return kind(zip(names, items, strict=True))
    return kind(**dict(zip(names, items, strict=True)))


def names_of(value: Any, prefix: str) -> list[str]:
    """A name for each leaf: ``x``, ``x.0``, ``batch.image``."""
    parts = _parts(value)
    if parts is None:
        return [prefix]
    _, names, items = parts
    labels = names if isinstance(names, tuple) else range(len(items))
    return [name for label, item in zip(labels, items, strict=True)
            for name in names_of(item, f"{prefix}.{label}")]
