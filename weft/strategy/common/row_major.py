"""A tensor of any rank viewed as a matrix whose rows are all leading axes flattened."""

from __future__ import annotations

from collections.abc import Sequence

from weft.tir.expr import PrimExpr, const


def row_count(sizes: Sequence[PrimExpr]) -> PrimExpr:
    """The number of rows: the product of the leading sizes."""
    total: PrimExpr = const(1)
    for size in sizes:
        total = total * size
    return total


def ravel(indices: Sequence[PrimExpr], sizes: Sequence[PrimExpr]) -> PrimExpr:
    """The row-major flat index of ``indices``."""
    flat: PrimExpr = const(0)
    for index, size in zip(indices, sizes, strict=True):
        flat = flat * size + index
    return flat


def unravel(flat: PrimExpr, sizes: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The indices of the row with flat index ``flat``."""
    indices: list[PrimExpr] = []
    for size in reversed(sizes[1:]):
        indices.insert(0, flat % size)
        flat = flat // size
    return [flat, *indices] if sizes else []
