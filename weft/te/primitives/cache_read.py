"""``cache_read``: some consumers of a tensor read a copy of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.te.state import ScheduleState, StageState
from weft.te.tensor import ComputeOp, ExternOp, Operation, Tensor, data_axis
from weft.te.walk import input_tensors, rewrite_body
from weft.tir.expr import PrimExpr, ProducerLoad


def cache_read(
    self: ScheduleState, tensor: Tensor, scope: str, readers: Sequence[Tensor | Operation]
) -> Tensor:
    """Copy ``tensor`` into ``scope`` and let ``readers`` read the copy; returns the copy.

    >>> B = te.compute((100,), lambda i: A[i] + 1.0, name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(100): root
      i in 100
    >>> copy = s.cache_read(A, "local", [B])
    >>> print(s)
    A.local(100): root, local
      i0 in 100
    B(100): root
      i in 100
    """
    stage = self.stage_of(tensor)
    reading = [self.stage_of(r) for r in readers]
    for reader in reading:
        if tensor not in input_tensors(reader.op):
            raise stage.error(f"cache_read for {reader.name}, which does not read it")
    axes = tuple(data_axis(f"i{n}", extent) for n, extent in enumerate(tensor.shape))
    copy = ComputeOp(f"{tensor.name}.{scope}", axes, (), (tensor[tuple(a.var for a in axes)],))
    new = self.make_stage(copy, copy.outputs)
    new.set_scope(scope)  # type: ignore[attr-defined]
    for reader in reading:
        _redirect(reader, tensor, copy.outputs[0])
    # ``stages`` keeps producers before consumers.
    self.stages.insert(self.stages.index(stage) + 1, new)
    return copy.outputs[0]


def _redirect(stage: StageState, old: Tensor, new: Tensor) -> None:
    def on_load(e: ProducerLoad) -> PrimExpr:
        return ProducerLoad(new, e.indices) if e.producer is old else e

    op = stage.op
    if isinstance(op, ComputeOp):
        stage.op = dataclasses.replace(op, body=rewrite_body(op.body, {}, on_load))
    elif isinstance(op, ExternOp):
        inputs = tuple(new if t is old else t for t in op.inputs)
        stage.op = dataclasses.replace(op, inputs=inputs)
