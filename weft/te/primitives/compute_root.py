"""``compute_root``: a stage is computed in full, before its consumers."""

from __future__ import annotations

from weft.te.state import ROOT, StageState


def compute_root(self: StageState) -> None:
    """Compute the whole stage in a separate loop nest: the default attach point.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> C = te.compute((100,), lambda i: B[i] * 2.0, name="C")
    >>> s = te.create_schedule(C)
    >>> s[B].compute_inline()
    >>> print(s)
    B(100): inline
    C(100): root
      i in 100
    >>> s[B].compute_root()
    >>> print(s)
    B(100): root
      i in 100
    C(100): root
      i in 100
    """
    self.attach = ROOT
