"""When the windows of a pooling are worth reducing axis by axis."""

from __future__ import annotations

import math

from weft.op.nn.pool import PoolAttrs
from weft.topi.layout import Layout
from weft.topi.nn.pool import axis_windows

UNROLLED_TAPS = 16  # windows of up to so many taps are unrolled


def why_not_separable(attrs: PoolAttrs) -> str | None:
    """Why the columns of windows are not worth an intermediate result; ``None`` if they are."""
    *others, last = axis_windows(attrs.window)
    rows = math.prod(a.taps for a in others)
    if rows < 2 or last.taps < 2:
        return "the window extends along one axis only"
    if Layout.parse(attrs.layout).index_of("W") == 0:
        return f"W is the outermost axis of layout {attrs.layout}"
    if last.taps > last.stride or rows * last.taps >= UNROLLED_TAPS or last.before > 0:
        return None
    return "small windows without padding that do not overlap along W"
