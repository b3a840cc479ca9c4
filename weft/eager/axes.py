"""Axes of tensors, counted from the start or from the end."""

from __future__ import annotations

from typing import Any

from weft.support.errors import InvalidInputError


def axes_of(dim: Any, rank: int) -> tuple[int, ...] | None:
    """The axes to reduce; ``None`` for all. Raises ``InvalidInputError`` for axes out of range."""
    if dim is None:
        return None
    found = tuple(dim) if isinstance(dim, (tuple, list)) else (dim,)
    return tuple([axis_of(d, rank) for d in found]) or None


def axis_of(dim: int, rank: int) -> int:
    """An axis counted from the start."""
    limit = max(rank, 1)
    if not isinstance(dim, int) or not -limit <= dim < limit:
        raise InvalidInputError("dim is out of range", got=repr(dim),
                                expected=f"-{limit} to {limit - 1}")
    return dim % limit
