"""``storage_align``: pad the buffer of a stage so that an axis has a chosen stride."""

from __future__ import annotations

from weft.te.state import StageState
from weft.te.tensor import REDUCE, IterVar


def storage_align(self: StageState, axis: IterVar, factor: int, offset: int = 0) -> None:
    """Make the stride of ``axis`` equal to ``n * factor + offset`` elements.

    The next axis is padded at its end. Rows whose stride is a power of two map to the same cache
    sets; an offset avoids such conflicts.

    >>> B = te.compute((4, 25), lambda i, j: A[j] + 1.0, name="B")
    >>> C = te.compute((4, 25), lambda i, j: B[i, j] * 2.0, name="C")
    >>> s = te.create_schedule(C)
    >>> print(s)
    B(4, 25): root
      i in 4
      j in 25
    C(4, 25): root
      i in 4
      j in 25
    >>> s[B].storage_align(B.op.axis[0], factor=16, offset=4)
    >>> print(s)
    B(4, 25): root, i apart by 16 * n + 4
      i in 4
      j in 25
    C(4, 25): root
      i in 4
      j in 25
    """
    axes = self.require_compute("storage_align").axis
    self.require_own_memory("storage_align")
    if self.is_output:
        raise self.error("storage_align of an output, which is the caller's memory",
                         help="cache_write makes a stage with a separate buffer")
    if axis.kind == REDUCE or axis not in axes:
        raise self.error(f"storage_align of {axis.name}, which is not a data axis of the stage")
    if axis is axes[-1]:
        raise self.error(f"storage_align of the last axis {axis.name}, whose elements are "
                         "contiguous", help="align an outer axis")
    numbers = all(isinstance(n, int) and not isinstance(n, bool) for n in (factor, offset))
    if not numbers or factor < 1 or not 0 <= offset < factor:
        raise self.error(f"storage_align by {factor!r} with offset {offset!r}: a positive integer "
                         "and an offset below it")
    self.alignments[axis] = (factor, offset)
