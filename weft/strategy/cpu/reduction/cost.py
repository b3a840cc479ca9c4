"""Cost estimates of reduction groups: arithmetic against the bytes that leave L1."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft import te
from weft.strategy.analysis import elements, work_of
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.extents import size_of
from weft.strategy.kept_stages import KeptStages
from weft.target import CpuTarget
from weft.te.walk import loads_of


def fused_cycles(kept: KeptStages, target: CpuTarget) -> float:
    """All stages in one loop nest: intermediate results stay in L1."""
    arithmetic = sum(_arithmetic_cycles(op, target) for op in kept.ops)
    moved = _outer_bytes(kept)
    return max(arithmetic, machine_model(target).transfer_cycles(moved))


def separate_cycles(kept: KeptStages, target: CpuTarget) -> float:
    """One loop nest per stage: intermediate results are stored and loaded again."""
    model, working_set = machine_model(target), _outer_bytes(kept)
    return sum(
        max(_arithmetic_cycles(op, target),
            model.transfer_cycles(_bytes([op.output(0), *_reads(kept, op)]), working_set))
        for op in kept.ops
    )


def _arithmetic_cycles(op: te.ComputeOp, target: CpuTarget) -> float:
    """One vector operation per step of a reduction, or per element of another stage."""
    model, dtype = machine_model(target), op.output(0).dtype
    lanes = max(1, model.vector_bytes // dtype.itemsize)
    steps = work_of(op) if op.reduce_axis else elements(op)
    return steps / (lanes * model.fma_per_cycle)


def _outer_bytes(kept: KeptStages) -> int:
    """Bytes of the operands and results of the whole group."""
    inner = {id(op) for op in kept.ops}
    reads = {t for op in kept.ops for t in _reads(kept, op) if id(t.op) not in inner}
    return _bytes([*reads, kept.output.output(0)])


def _reads(kept: KeptStages, op: te.ComputeOp) -> set[te.Tensor]:
    return {load.producer for load in loads_of(kept.body(op))}


def _bytes(tensors: Iterable[te.Tensor]) -> int:
    return sum(math.prod(map(size_of, t.shape)) * t.dtype.itemsize for t in tensors)
