"""Facts about a group of computes that schedules need: order, consumers, sizes, access patterns."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from weft import te
from weft.strategy.extents import size_of
from weft.support.dataclass import dataclass
from weft.te.walk import input_tensors, loads_of, rewrite_body
from weft.tir import PrimExpr, ProducerLoad, Reduce, Var, const, mentions, vars_of


def computes_below(outputs: Sequence[te.Tensor]) -> list[te.ComputeOp]:
    """The computes that ``outputs`` depend on, themselves included, producers before consumers."""
    order: list[te.ComputeOp] = []
    done: set[int] = set()
    pending = [(t.op, False) for t in reversed(outputs)]
    while pending:
        op, expanded = pending.pop()
        if id(op) in done or not isinstance(op, te.ComputeOp):
            continue
        if expanded:
            done.add(id(op))
            order.append(op)
            continue
        pending.append((op, True))
        pending.extend((t.op, False) for t in reversed(input_tensors(op)))
    return order


def consumers_of(ops: Sequence[te.ComputeOp]) -> dict[int, list[te.ComputeOp]]:
    """The computes of ``ops`` that read each compute, by its ``id``."""
    readers: dict[int, list[te.ComputeOp]] = {id(op): [] for op in ops}
    for op in ops:
        for tensor in input_tensors(op):
            if id(tensor.op) in readers:
                readers[id(tensor.op)].append(op)
    return readers


def is_reduction(op: te.ComputeOp) -> bool:
    """Whether the body reduces over the compute's reduction axes."""
    return isinstance(op.body[0], Reduce)


def elements(op: te.ComputeOp) -> int:
    """Elements of the result; symbolic sizes count as their typical size."""
    return math.prod(size_of(axis.extent) for axis in op.axis)


def work_of(op: te.ComputeOp) -> int:
    """Elements of the result times the iterations of the reduction."""
    return elements(op) * math.prod(size_of(axis.extent) for axis in op.reduce_axis)


def inlined_body(
    op: te.ComputeOp, is_inlined: Callable[[te.ComputeOp], bool]
) -> tuple[PrimExpr, ...]:
    """The body of ``op`` after its inlined producers are substituted into it.

    Each distinct load is expanded once, so the cost is linear in the loads, not in the number of
    paths that lead to them.
    """
    known: dict[ProducerLoad, PrimExpr] = {}
    pending: list[tuple[ProducerLoad | None, tuple[PrimExpr, ...]]] = [(None, op.body)]
    while True:
        load, body = pending[-1]
        result, missing = _substituted(body, known, is_inlined)
        if missing:
            pending.extend((e, (load_body(e),)) for e in missing)
            continue
        pending.pop()
        if load is None:
            return result
        known[load] = result[0]


def _substituted(
    body: tuple[PrimExpr, ...], known: Mapping[ProducerLoad, PrimExpr],
    is_inlined: Callable[[te.ComputeOp], bool],
) -> tuple[tuple[PrimExpr, ...], list[ProducerLoad]]:
    """``body`` with the ``known`` loads substituted, and the loads that must be expanded next.

    A load whose indices contain unexpanded loads is reported only after these are known.
    """
    missing: dict[ProducerLoad, None] = {}

    def on_load(e: ProducerLoad) -> PrimExpr:
        found = known.get(e)
        if found is not None:
            return found
        if _expands(e, is_inlined) and not any(
                _expands(inner, is_inlined) for inner in loads_of(e.indices)):
            missing[e] = None
        return e

    return rewrite_body(body, {}, on_load), list(missing)


def _expands(load: ProducerLoad, is_inlined: Callable[[te.ComputeOp], bool]) -> bool:
    producer = load.producer.op
    return isinstance(producer, te.ComputeOp) and is_inlined(producer)


def load_body(load: ProducerLoad) -> PrimExpr:
    """The body of the compute that ``load`` reads, with the load's indices for its axes."""
    producer = load.producer.op
    values = {axis.var: index for axis, index in zip(producer.axis, load.indices, strict=True)}
    return rewrite_body((producer.body[load.producer.value_index],), values)[0]


@dataclass(frozen=True, slots=True)
class _AxisUse:
    """One load is indexed by an axis alone, in dimension ``position`` of its tensor."""

    tensor: te.Tensor
    position: int


def coalesce_axes(
    axes: Sequence[te.IterVar], body: tuple[PrimExpr, ...]
) -> list[list[te.IterVar]]:
    """Groups of adjacent axes that can be fused without div/mod in any index.

    Two axes are in one group if each load either ignores both (a broadcast) or is indexed by
    exactly them in two adjacent dimensions, over the whole extent of the inner one.
    """
    loads = loads_of(body)
    outside = _variables_outside_loads(body)
    groups: list[list[te.IterVar]] = []
    for axis in axes:
        if groups and _can_fuse(groups[-1][-1], axis, loads, outside):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    return groups


def _variables_outside_loads(body: tuple[PrimExpr, ...]) -> set[Var]:
    stripped = rewrite_body(body, {}, lambda load: const(1, load.dtype))
    return set().union(*map(vars_of, stripped))


def _can_fuse(
    outer: te.IterVar, inner: te.IterVar, loads: Sequence[ProducerLoad], outside: set[Var]
) -> bool:
    if outer.var in outside or inner.var in outside:
        return False
    for load in loads:
        first, second = _use(load, outer.var), _use(load, inner.var)
        if first is None and second is None:
            continue
        if not isinstance(first, _AxisUse) or not isinstance(second, _AxisUse):
            return False
        covers = load.producer.shape[second.position] is inner.extent
        if second.position != first.position + 1 or not covers:
            return False
    return True


def _use(load: ProducerLoad, var: Var) -> _AxisUse | str | None:
    """How ``var`` indexes a load: alone in one dimension, not at all (``None``), or ``"mixed"``."""
    found: _AxisUse | None = None
    for position, index in enumerate(load.indices):
        if index is var and found is None:
            found = _AxisUse(load.producer, position)
        elif mentions(index, var):
            return "mixed"
    return found
