"""Row-major positions: the elements of an array of any rank as those of one axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from weft.tir.expr import PrimExpr, const

Dims: TypeAlias = Sequence[PrimExpr | int]


def element_count(sizes: Iterable[PrimExpr | int]) -> PrimExpr:
    """The product of ``sizes``."""
    total: PrimExpr = const(1)
    for size in sizes:
        total = total * size
    return total


def ravel(indices: Dims, sizes: Dims) -> PrimExpr:
    """The row-major position of ``indices``."""
    flat: PrimExpr = const(0)
    for index, size in zip(indices, sizes, strict=True):
        flat = flat * size + index
    return flat


def unravel(flat: PrimExpr, sizes: Dims) -> tuple[PrimExpr, ...]:
    """The indices of a row-major position, which is below the product of ``sizes``."""
    indices: list[PrimExpr] = []
    for size in reversed(sizes[1:]):
        indices.insert(0, flat % size)
        flat = flat // size
    return (flat, *indices) if sizes else ()
