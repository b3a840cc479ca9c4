"""The order in which the axes of a tensor are resampled."""

from __future__ import annotations

from collections.abc import Mapping


def resampling_order(growth: Mapping[int, float]) -> list[int]:
    """The axes of ``growth`` (factor by axis): shrinking axes first, then growing ones.

    Resampling the innermost axis picks single elements, other axes whole rows. So the innermost
    axis is resampled while the tensor is smallest: last of those that shrink, first of those that
    grow.
    """
    shrinking = sorted(axis for axis in growth if growth[axis] <= 1)
    return shrinking + sorted((axis for axis in growth if growth[axis] > 1), reverse=True)
