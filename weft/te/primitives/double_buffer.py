"""``double_buffer``: a stage is computed one iteration ahead of its use."""

from __future__ import annotations

from weft.te.state import AttachAt, StageState
from weft.tir.stmt import ForKind


def double_buffer(self: StageState) -> None:
    """Compute what the next iteration needs while this one runs, in memory for two iterations.

    The stage must be attached to a serial loop of a consumer and must not read a stage attached to
    the same loop. If a guard makes its iterations differ, lowering keeps a single buffer.

    >>> B = te.compute((4, 25), lambda i, j: A[j] + 1.0, name="B")
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
    >>> s[B].double_buffer()
    >>> print(s)
    B(4, 25): at C.i, double buffer
      i in 4
      j in 25
    C(4, 25): root
      i in 4
      j in 25
    """
    if len(self.require_compute("double_buffer").body) > 1:
        raise self.error("double_buffer of a computation with several outputs")
    self.require_own_memory("double_buffer")
    at = self.attach
    if not isinstance(at, AttachAt):
        raise self.error("double_buffer of a stage that is computed once",
                         help="compute_at a loop of its consumer first")
    kind = at.stage.kinds.get(at.axis, ForKind.SERIAL)
    if kind is not ForKind.SERIAL:
        raise self.error(f"double_buffer inside loop {at.axis.name} of {at.stage.name}, which is "
                         f"{kind.value}: only a serial loop has a next iteration")
    if self.scope == "local":
        raise self.error("double_buffer of registers: their index cannot depend on the iteration",
                         help='set_scope("global") or "shared"')
    for other in self.schedule.stages:
        if other is not self and other.attach == at and self.schedule.reads_through(other, self):
            raise self.error(f"double_buffer of a stage that reads {other.name}, which is computed "
                             "in the same iteration")
    self.is_double_buffered = True
