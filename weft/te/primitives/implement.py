"""``implement``: hand-written loops compute tensors of a schedule."""

from __future__ import annotations

from collections.abc import Sequence

from weft.te.state import ScheduleState, StageState
from weft.te.tensor import ExternBody, ExternOp, PlaceholderOp, Tensor
from weft.te.walk import input_tensors


def implement(self: ScheduleState, inputs: Sequence[Tensor], body: ExternBody, name: str,
              outputs: Sequence[Tensor] | None = None) -> None:
    """Let the loops that ``body(input_buffers, output_buffers)`` returns compute ``outputs``.

    ``inputs`` are placeholders. ``outputs=None`` stands for the outputs of the schedule. Stages
    whose results nothing else reads are removed. The loops must compute what the stages define.
    Raises ``ScheduleError`` for other inputs.

    >>> from weft.tir import ForKind
    >>> from weft.tir.expr import Var, const
    >>> from weft.tir.stmt import BufferStore, For
    >>> def loops(inputs, outputs):
    ...     i = Var("i")
    ...     store = BufferStore(outputs[0], inputs[0].load(i) + 1.0, (i,))
    ...     return For(i, const(0), const(100), ForKind.SERIAL, store)
    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(100): root
      i in 100
    >>> s.implement([A], loops, "one_more")
    >>> print(s)
    one_more(100): root
    """
    for tensor in inputs:
        if not isinstance(tensor.op, PlaceholderOp):
            raise self.stage_of(tensor).error("hand-written loops read the inputs of a schedule")
    made = tuple(self.outputs if outputs is None else outputs)
    replaced = [self.stage_of(t) for t in made]
    types = tuple((t.shape, t.dtype) for t in made)
    stage = self.make_stage(ExternOp(name, tuple(inputs), types, body), made)
    stage.is_output = any(t in self.outputs for t in made)
    last = max(map(self.stages.index, replaced))
    self.stages[last] = stage
    self.stages = [s for s in self.stages if s not in replaced]
    needed = _needed(self)
    self.stages = [s for s in self.stages if s.is_placeholder or s in needed]


def _needed(schedule: ScheduleState) -> list[StageState]:
    """The stages that the outputs depend on."""
    owners = {t: s for s in schedule.stages for t in s.tensors}
    found = [owners[t] for t in schedule.outputs]
    # The list grows while the loop walks it.
    for stage in found:
        found.extend(owner for t in input_tensors(stage.op)
                     if (owner := owners[t]) not in found)
    return found
