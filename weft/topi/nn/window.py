"""Output sizes of operators that slide a window over data: convolution, pooling, correlation.

The functions take every kind of size: integers, dimensions of types, and index expressions. Type
relations, computes and cost models use the same formula.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from weft.ir.shape import Dim
from weft.tir.expr import PrimExpr

# Each kind is closed under +, - and // with integers, which the type checker cannot see.
Size = TypeVar("Size", int, Dim, PrimExpr)


def window_span(taps: Size, dilation: int) -> Size:
    """Elements from the first tap to the last, both included, for taps ``dilation`` apart."""
    return (taps - 1) * dilation + 1  # type: ignore[bad-return]


def window_count(size: Size, span: Size | int, stride: int) -> Size:
    """The number of windows of ``span`` elements, ``stride`` apart, in ``size`` elements.

    ``size`` includes the padding.
    """
    return (size - span) // stride + 1  # type: ignore[bad-return]


def window_count_up(size: Size, span: Size | int, stride: int) -> Size:
    """``window_count`` with a last window that may reach over the end (ceil mode)."""
    return (size - span + (stride - 1)) // stride + 1  # type: ignore[bad-return]


def whole_window_padding(shape: Sequence[int], window: Mapping[str, Any]
                         ) -> tuple[tuple[int, int], ...]:
    """The padding of all axes with which every window of a pooling is whole.

    ``window`` has the attributes of a pooling over the last axes, with equal padding at both ends.
    """
    axes = len(window["pool_size"])
    pads = [(0, 0)] * (len(shape) - axes)
    for size, taps, step, before in zip(shape[-axes:], window["pool_size"], window["strides"],
                                        window["padding"], strict=False):
        up = step - 1 if window["ceil_mode"] else 0
        count = (size + 2 * before - taps + up) // step + 1
        if window["ceil_mode"]:  # the last window starts before the padding at the end
            count = min(count, (size + before - 1) // step + 1)
        pads.append((before, max((count - 1) * step + taps - size - before, 0)))
    return tuple(pads)
