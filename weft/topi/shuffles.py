"""Shuffles of vector lanes that programs of several operators write."""

from __future__ import annotations

from weft.tir import PrimExpr, Shuffle


def exchange_quadrants(one: PrimExpr, other: PrimExpr, distance: int
                       ) -> tuple[PrimExpr, PrimExpr]:
    """Two rows of a square after its off-diagonal quadrants at ``distance`` are exchanged.

    Done at each scale, for rows as far apart as the lanes, it transposes the square (Eklundh, "A
    fast computer method for matrix transposing", 1972).
    """
    lanes = one.dtype.lanes
    low = tuple(i if not i & distance else lanes + (i ^ distance) for i in range(lanes))
    high = tuple(i ^ distance if not i & distance else lanes + i for i in range(lanes))
    return Shuffle((one, other), low), Shuffle((one, other), high)
