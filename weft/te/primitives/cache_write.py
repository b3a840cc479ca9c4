"""``cache_write``: a stage is computed into a separate buffer and then copied."""

from __future__ import annotations

import dataclasses

from weft.te.state import ScheduleState
from weft.te.tensor import ComputeOp, Tensor, data_axis
from weft.te.walk import rewrite_body


def cache_write(
    self: ScheduleState, tensor: Tensor, scope: str
) -> Tensor | tuple[Tensor, ...]:
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
    new.set_scope(scope)  # type: ignore[attr-defined]
    indices = tuple(a.var for a in op.axis)
    # The role describes the computation, which is that of the new stage now; this one copies.
    stage.op = dataclasses.replace(op, reduce_axis=(), role=None,
                                   body=tuple(t[indices] for t in cached.outputs))
    stage.leaf_iter_vars = list(op.axis)
    self.stages.insert(self.stages.index(stage), new)
    return cached.outputs if len(cached.outputs) > 1 else cached.outputs[0]
