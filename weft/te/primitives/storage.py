"""The memory of a stage: ``set_scope``, ``storage_align``, ``double_buffer``, ``store_in``."""

from __future__ import annotations

from weft.te.state import AttachAt, StageState
from weft.te.tensor import REDUCE, IterVar
from weft.tir.stmt import ForKind

STAGE_SCOPES = ("global", "local", "shared")


def set_scope(self: StageState, scope: str) -> None:
    """Store the stage in ``global`` memory, ``local`` registers or GPU ``shared`` memory.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> C = te.compute((100,), lambda i: B[i] * 2.0, name="C")
    >>> s = te.create_schedule(C)
    >>> s[B].compute_at(s[C], C.op.axis[0])
    >>> print(s)
    B(100): at C.i
      i in 100
    C(100): root
      i in 100
    >>> s[B].set_scope("local")
    >>> print(s)
    B(100): at C.i, local
      i in 100
    C(100): root
      i in 100
    """
    if scope not in STAGE_SCOPES:
        raise self.error(f"unknown scope {scope!r}",
                         help=f"one of {', '.join(STAGE_SCOPES)}")
    if scope != "global":
        self.require_own_memory(f"set_scope {scope!r}")
        self.require_movable(f"set_scope {scope!r}")
    if scope != "global" and (self.is_output or self.is_placeholder):
        what = "an output" if self.is_output else "an input"
        raise self.error(f"set_scope {scope!r} of {what}, which is the caller's memory",
                         help=f"cache_{'write' if self.is_output else 'read'} makes a stage "
                              f"in scope {scope}")
    if scope == "local" and self.is_double_buffered:
        raise self.error("set_scope 'local' of a double buffer: registers cannot be indexed by "
                         "the iteration")
    self.scope = scope


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
