"""Bytes that the stages of a fused group read and write, at typical sizes."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft import te
from weft.strategy.extents import size_of
from weft.strategy.kept_stages import KeptStages
from weft.te import loads_of


def group_bytes(kept: KeptStages) -> int:
    """Bytes of the operands and the result of the whole group, each once."""
    inner = {id(op) for op in kept.ops}
    reads = {t for op in kept.ops for t in _reads(kept, op) if id(t.op) not in inner}
    return _bytes([*reads, kept.output.output(0)])


def stage_bytes(kept: KeptStages, op: te.ComputeOp) -> int:
    """Bytes of the operands and the result of a stage that is a loop nest or launch by itself."""
    return _bytes([op.output(0), *_reads(kept, op)])


def _reads(kept: KeptStages, op: te.ComputeOp) -> set[te.Tensor]:
    return {load.producer for load in loads_of(kept.body(op))}


def _bytes(tensors: Iterable[te.Tensor]) -> int:
    return sum(math.prod(map(size_of, t.shape)) * t.dtype.itemsize for t in tensors)
