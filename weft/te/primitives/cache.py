"""Stages that copy a tensor to or from another buffer: ``cache_read``, ``cache_write``."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from weft.te.primitives.storage import set_scope
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
    set_scope(new, scope)
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


def cache_write(self: ScheduleState, tensor: Tensor, scope: str) -> Tensor | tuple[Tensor, ...]:
    """Compute ``tensor`` in a new stage in ``scope`` and copy it; returns the new tensor.

    The new stage takes over the reduction axes. Call it before scheduling ``tensor``. All outputs
    of a compute with several are cached together and returned as a tuple.

    >>> k = te.reduce_axis(100, name="k")
    >>> B = te.compute((4,), lambda i: te.sum(A[k], axis=k), name="B")
    >>> s = te.create_schedule(B)
    >>> print(s)
    B(4): root
      i in 4
      k in 100: reduce
    >>> L = s.cache_write(B, "local")
    >>> print(s)
    B.local(4): root, local
      i.c in 4
      k in 100: reduce
    B(4): root
      i in 4
    """
    stage = self.stage_of(tensor)
    op = stage.require_compute("cache_write")
    for axis in stage.leaf_iter_vars:
        stage.require_unused(axis, "cache_write")
    if stage.relations:
        raise stage.error("cache_write of a stage whose loops were already changed",
                          help="cache_write first, then schedule both stages")
    axes = tuple(data_axis(f"{a.name}.c", a.extent) for a in op.axis)
    values = {a.var: b.var for a, b in zip(op.axis, axes, strict=True)}
    cached = ComputeOp(f"{op.name}.{scope}", axes, op.reduce_axis,
                       rewrite_body(op.body, values), op.role)
    new = self.make_stage(cached, cached.outputs)
    set_scope(new, scope)
    indices = tuple(a.var for a in op.axis)
    # The new stage does the computation that the role describes; this one copies.
    stage.op = dataclasses.replace(op, reduce_axis=(), role=None,
                                   body=tuple(t[indices] for t in cached.outputs))
    stage.leaf_iter_vars = list(op.axis)
    self.stages.insert(self.stages.index(stage), new)
    return cached.outputs if len(cached.outputs) > 1 else cached.outputs[0]
