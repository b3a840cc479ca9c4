"""``rfactor``: a reduction computes partial results, which are then combined."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from weft.te.domain import axis_values, loop_extents, overruns
from weft.te.state import ScheduleState, StageState
from weft.te.tensor import REDUCE, ComputeOp, IterVar, Tensor, data_axis, reduction_axis
from weft.te.walk import rewrite_body
from weft.tir import PrimExpr, Reduce, Var
from weft.tir import expr as tir


def rfactor(
    self: ScheduleState, tensor: Tensor, axis: IterVar, factor_axis: int = 0
) -> Tensor | tuple[Tensor, ...]:
    """Make reduction loop ``axis`` a data axis of a new stage of partial results.

    Returns the partial results, whose axis number ``factor_axis`` it is; ``tensor`` then reduces
    over that axis alone. Vectorizing the new axis gives one accumulator per lane. The reduction
    is reassociated, so floating-point sums round differently.

    >>> k = te.reduce_axis(100, name="k")
    >>> B = te.compute((4,), lambda i: te.sum(A[k], axis=k), name="B")
    >>> s = te.create_schedule(B)
    >>> outer, inner = s[B].split(k, factor=16)
    >>> print(s)
    B(4): root
      i in 4
      k.outer in 7: reduce
      k.inner in 16: reduce
    >>> partial = s.rfactor(B, inner)
    >>> print(s)
    B.rf(16, 4): root
      k.inner in 16
      i in 4
      k.outer in 7: reduce
    B(4): root
      i in 4
      k.inner.v in 16: reduce
    """
    stage = self.stage_of(tensor)
    op = stage.require_compute("rfactor")
    stage.leaf_index(axis)
    if axis.kind != REDUCE:
        raise stage.error(f"rfactor of axis {axis.name}, which is not a reduction axis")
    for leaf in stage.leaf_iter_vars:
        if leaf.kind == REDUCE:
            stage.require_unused(leaf, "rfactor")
    position = factor_axis + len(op.axis) + 1 if factor_axis < 0 else factor_axis
    if not 0 <= position <= len(op.axis):
        raise stage.error(f"rfactor with factor_axis={factor_axis}: the result has only "
                          f"{len(op.axis) + 1} axes")
    partial = _partial_op(stage, op, axis, position)
    self.stages.insert(self.stages.index(stage), self.make_stage(partial, partial.outputs))
    _combine_partials(stage, op, axis, position, partial.outputs)
    return partial.outputs if len(partial.outputs) > 1 else partial.outputs[0]


def _partial_op(stage: StageState, op: ComputeOp, axis: IterVar, position: int) -> ComputeOp:
    """The reduction over all loops but ``axis``, which becomes a data axis of the result."""
    data = tuple(data_axis(a.name, a.extent) for a in op.axis)
    kept = data_axis(axis.name, axis.extent)
    reduce = {a: reduction_axis(a.name, a.extent)
              for a in stage.leaf_iter_vars if a.kind == REDUCE and a is not axis}
    extents = loop_extents(stage, {a: a.extent for a in stage.root_iter_vars})
    leaves: dict[IterVar, PrimExpr] = {a: b.var for a, b in reduce.items()}
    leaves[axis] = kept.var
    relations = [r for r in stage.relations if _is_reduce(r)]
    values = axis_values(relations, leaves, extents)
    # An inexact split overruns its axis. A guard of the loop nest would skip these elements; in the
    # new stage the condition of the reduction has to.
    checks = tuple(values[a] < extents[a] for a in overruns(stage, extents) if a.kind == REDUCE)
    mapping: dict[Var, PrimExpr] = {a.var: a.min + values[a] for a in op.reduce_axis}
    mapping.update({a.var: b.var for a, b in zip(op.axis, data, strict=True)})
    body = _partial_body(op.body, mapping, checks, tuple(reduce.values()))
    axes = (*data[:position], kept, *data[position:])
    return ComputeOp(f"{op.name}.rf", axes, tuple(reduce.values()), body)


def _is_reduce(relation: Any) -> bool:
    return relation.inner.kind == REDUCE


def _partial_body(body: tuple[PrimExpr, ...], mapping: dict[Var, PrimExpr],
                  checks: tuple[PrimExpr, ...], axes: tuple[IterVar, ...]) -> tuple[PrimExpr, ...]:
    """The reduction over ``axes``, or guarded elements if ``axes`` is empty."""
    first = body[0]
    if not isinstance(first, Reduce):
        return body
    *source, condition = rewrite_body((*first.source, first.condition), mapping)
    condition = tir.all_of(condition, *checks)
    if axes:
        return tuple(
            Reduce(first.combiner, tuple(source), axes, condition, i) for i in range(len(body))
        )
    identity = first.combiner.identity
    return tuple(tir.if_then_else(condition, e, n) for e, n in zip(source, identity, strict=True))


def _combine_partials(
    stage: StageState, op: ComputeOp, axis: IterVar, position: int, partials: Sequence[Tensor]
) -> None:
    """Make ``stage`` the reduction of the partial results."""
    lanes = reduction_axis(f"{axis.name}.v", axis.extent)
    indices: list[Var] = [a.var for a in op.axis]
    indices.insert(position, lanes.var)
    first = op.body[0]
    if isinstance(first, Reduce):
        source = tuple(t[tuple(indices)] for t in partials)
        body = tuple(Reduce(first.combiner, source, (lanes,), tir.TRUE, i)
                     for i in range(len(op.body)))
        stage.op = dataclasses.replace(op, reduce_axis=(lanes,), body=body)
    leaves = stage.leaf_iter_vars
    # The loop over the partial results replaces all reduction loops, at the outermost position of
    # these. Their splits belong to the partial results now.
    first_reduce = next(i for i, a in enumerate(leaves) if a.kind == REDUCE)
    leaves[first_reduce] = lanes
    stage.leaf_iter_vars = [a for a in leaves if a is lanes or a.kind != REDUCE]
    stage.relations = [r for r in stage.relations if not _is_reduce(r)]
