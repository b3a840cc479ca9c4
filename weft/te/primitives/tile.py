"""``tile``: split two loops into loops over tiles and loops inside a tile."""

from __future__ import annotations

from weft.te.primitives.reorder import reorder
from weft.te.primitives.split import check_split, split
from weft.te.state import StageState
from weft.te.tensor import IterVar


def tile(
    self: StageState, x: IterVar, y: IterVar, x_factor: int, y_factor: int
) -> tuple[IterVar, IterVar, IterVar, IterVar]:
    """Split two loops and put the inner loops innermost; returns the four loops in order.

    >>> B = te.compute((8, 100), lambda i, j: A[j] * 2.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(8, 100): root
      i in 8
      j in 100
    >>> axes = s[B].tile(*B.op.axis, 4, 50)
    >>> print(s)
    B(8, 100): root
      i.outer in 2
      j.outer in 2
      i.inner in 4
      j.inner in 50
    """
    # All checks come before the first split: a primitive that raises leaves the stage as it was.
    for axis, factor in ((x, x_factor), (y, y_factor)):
        check_split(self, axis, factor, None)
    if x is y:
        raise self.error(f"tile of axis {x.name} with itself")
    x_outer, x_inner = split(self, x, factor=x_factor)
    y_outer, y_inner = split(self, y, factor=y_factor)
    reorder(self, x_outer, y_outer, x_inner, y_inner)
    return x_outer, y_outer, x_inner, y_inner
