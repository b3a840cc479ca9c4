"""``store_in``: a stage aliases the buffer of the consumer that overwrites it."""

from __future__ import annotations

from weft.te.state import AttachAt, StageState


def store_in(self: StageState, consumer: StageState) -> None:
    """Store this stage in the buffer of ``consumer``, which overwrites each of its elements.

    ``consumer`` is an output of the same shape and dtype that reads this stage elementwise. This
    stage and all its other readers must be attached to the same loop of ``consumer``. Lowering
    raises ``ScheduleError`` for a loop whose iterations write other elements than they read. The
    stage then needs no scratch buffer: it uses memory that is written anyway.

    >>> B = te.compute((4, 25), lambda i, j: A[i * 25 + j] + 1.0, name="B")
    >>> C = te.compute((4, 25), lambda i, j: B[i, j] * 2.0, name="C")
    >>> s = te.create_schedule(C)
    >>> s[B].compute_at(s[C], C.op.axis[0])
    >>> print(s)
    B(4, 25): at C.i
      i in 4
      j in 25
    C(4, 25): root
      i in 4
      j in 25
    >>> s[B].store_in(s[C])
    >>> print(s)
    B(4, 25): at C.i, in C
      i in 4
      j in 25
    C(4, 25): root
      i in 4
      j in 25
    """
    mine, other = self.require_compute("store_in"), consumer.require_compute("store_in")
    if self.is_output or self.scope != "global" or self.alignments or self.is_double_buffered:
        raise self.error("store_in of an output or of a stage with a scope, an alignment or a "
                         "double buffer")
    # A reduction initialises its buffer, which would overwrite the stored values.
    if not consumer.is_output or other.reduce_axis or len(mine.body) + len(other.body) > 2:
        raise self.error(f"store_in {consumer.name}, which is not an elementwise output")
    same = len(mine.axis) == len(other.axis) and all(
        a.extent is b.extent for a, b in zip(mine.axis, other.axis, strict=True))
    if not same or self.tensors[0].dtype != consumer.tensors[0].dtype:
        raise self.error(f"store_in {consumer.name}, which has another shape or dtype")
    if not isinstance(self.attach, AttachAt) or self.attach.stage is not consumer:
        raise self.error(f"store_in {consumer.name}, but it is not computed at one of its loops",
                         help=f"compute_at a loop of {consumer.name} first")
    if any(s.stored_in is consumer for s in self.schedule.stages if s is not self):
        raise self.error(f"store_in {consumer.name}, in which another stage is stored")
    self.stored_in = consumer
