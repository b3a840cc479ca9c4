"""Where a stage is computed: ``compute_at``, ``compute_inline``, ``compute_root``."""

from __future__ import annotations

from weft.te.state import INLINE, ROOT, AttachAt, StageState
from weft.te.tensor import ExternOp, IterVar
from weft.tir.stmt import ForKind


def compute_at(self: StageState, stage: StageState, axis: IterVar) -> None:
    """Compute this stage in each iteration of loop ``axis`` of ``stage``.

    Each iteration computes the bounding box of the elements that it reads. All consumers of this
    stage must be inside that loop, which lowering checks.

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
    >>> s[B].compute_at(s[C], C.op.axis[0])
    >>> print(s)
    B(4, 25): at C.i
      i in 4
      j in 25
    C(4, 25): root
      i in 4
      j in 25
    """
    if self.is_placeholder:
        raise self.error("compute_at of an input: it is computed by the caller")
    self.require_movable("compute_at")
    if self.is_output:
        raise self.error("compute_at of an output: all of it must be written")
    if self is stage or not self.schedule.reads_through(self, stage):
        raise self.error(f"compute_at {stage.name}, which does not read it",
                         help="compute it at one of its consumers")
    if stage.attach == INLINE:
        raise self.error(f"compute_at {stage.name}, which is inlined")
    stage.require_no_instruction(axis, f"compute_at {stage.name}: use")
    # ``check_attachments`` repeats this at lowering, for loops outside of ``axis`` as well, which
    # may be vectorized later.
    if stage.kinds.get(axis) is ForKind.VECTORIZED:
        raise self.error(f"compute_at the vectorized axis {axis.name} of {stage.name}",
                         help="compute it at an outer loop")
    self.attach = AttachAt(stage, axis)


def compute_inline(self: StageState) -> None:
    """Compute each element where it is read, without a buffer.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> C = te.compute((100,), lambda i: B[i] * 2.0, name="C")
    >>> s = te.create_schedule(C)
    >>> print(s)
    B(100): root
      i in 100
    C(100): root
      i in 100
    >>> s[B].compute_inline()
    >>> print(s)
    B(100): inline
    C(100): root
      i in 100
    """
    self.require_compute("compute_inline")
    self.require_movable("compute_inline")
    if self.is_output:
        raise self.error("compute_inline of an output: it must be written")
    if self.is_reduction:
        raise self.error("compute_inline of a reduction: it needs loops",
                         help="compute_at the loop of a consumer")
    for other in self.schedule.consumers(self):
        if isinstance(other.op, ExternOp):
            raise self.error(f"compute_inline into {other.name}, whose body reads memory")
    for other in self.schedule.stages:
        if isinstance(other.attach, AttachAt) and other.attach.stage is self:
            raise self.error(f"compute_inline while {other.name} is computed at one of its loops")
    self.attach = INLINE


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
