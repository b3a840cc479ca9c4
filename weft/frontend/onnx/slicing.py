"""Indices that Slice selects along an axis."""

from __future__ import annotations


def sliced_positions(size: int, start: int, stop: int, step: int) -> range:
    """Return the selected indices, as Python slicing does except for one case.

    For a negative step and a start before the first element, ONNX clamps the start to index 0 and
    selects that element; Python selects none.
    """
    if size == 0:
        return range(0)
    first, last, _ = slice(start, stop, step).indices(size)
    return range(max(first, 0), last, step)
