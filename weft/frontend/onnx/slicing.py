"""Which elements a Slice takes of an axis."""

from __future__ import annotations


def sliced_positions(size: int, start: int, stop: int, step: int) -> range:
    """Python's rule, except for a negative step whose start lies before the first element.

    ONNX clamps such a start to the first element, which is then taken; Python takes none.
    """
    if size == 0:
        return range(0)
    first, last, _ = slice(start, stop, step).indices(size)
    return range(max(first, 0), last, step)
