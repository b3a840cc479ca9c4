"""A tensor of any rank as one matrix: its leading axes together are the rows."""

from __future__ import annotations

from collections.abc import Sequence

from weft.tir.expr import PrimExpr, const


def row_count(sizes: Sequence[PrimExpr]) -> PrimExpr:
    """How many rows leading axes of these sizes make."""
    total: PrimExpr = const(1)
    for size in sizes:
        total = total * size
    return total


def ravel(indices: Sequence[PrimExpr], sizes: Sequence[PrimExpr]) -> PrimExpr:
    """The number of the row at ``indices``."""
    flat: PrimExpr = const(0)
    for index, size in zip(indices, sizes, strict=True):
        flat = flat * size + index
    return flat


def unravel(flat: PrimExpr, sizes: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The indices of row number ``flat``."""
    indices: list[PrimExpr] = []
    for size in reversed(sizes[1:]):
        indices.insert(0, flat % size)
        flat = flat // size
    return [flat, *indices] if sizes else []
