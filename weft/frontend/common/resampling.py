"""In which order the axes of a tensor are resampled, one after the other."""

from __future__ import annotations

from collections.abc import Mapping


def resampling_order(growth: Mapping[int, float]) -> list[int]:
    """The axes of ``growth`` (by how many times each grows), what shrinks before what grows.

    Elements of the innermost axis are picked one by one, those of others row by row, so that it
    comes where there are fewest: before the others grow, after they have shrunk.
    """
    shrinking = sorted(axis for axis in growth if growth[axis] <= 1)
    return shrinking + sorted((axis for axis in growth if growth[axis] > 1), reverse=True)
