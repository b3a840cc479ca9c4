"""``pragma``: an annotation of a loop for later passes."""

from __future__ import annotations

from weft.te.state import StageState
from weft.te.tensor import IterVar


def pragma(self: StageState, axis: IterVar, key: str, value: object = True) -> None:
    """Annotate loop ``axis`` with ``key`` and ``value``; computed values do not change.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(100): root
      i in 100
    >>> s[B].pragma(B.op.axis[0], "unroll_max_step", 4)
    >>> print(s)
    B(100): root
      i in 100: unroll_max_step=4
    """
    self.require_compute("pragma")
    self.leaf_index(axis)
    self.pragmas.setdefault(axis, {})[key] = value
