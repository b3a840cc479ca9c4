"""Operands of a row that several stages read: copied to shared memory once.

A norm reads its row for the mean, for the variance and for the result. With a copy the row crosses
from memory to the SM once, however many blocks share the L1 of the SM.
"""

from __future__ import annotations

import math

from weft import te
from weft.strategy.cuda.reduction.partials import BlockShape
from weft.strategy.cuda.reduction.shared_axes import SharedAxes
from weft.strategy.extents import is_fixed, size_of
from weft.strategy.kept_stages import KeptStages
from weft.support.dataclass import dataclass
from weft.te import PlaceholderOp, input_tensors, loads_of
from weft.tir import ProducerLoad

# Shared memory of all copies of a block, for four blocks on an SM of sm_80; and of copies and rows
# of stages together, below the 48 KiB that every block has without opting in.
COPIES_BYTES = 24 * 1024
BLOCK_BYTES = 44 * 1024


@dataclass(frozen=True, slots=True)
class RowCopy:
    """An operand with one part for each row; ``row`` is its axis of a block's rows, if any."""

    tensor: te.Tensor
    row: int


def rows_to_copy(kept: KeptStages, shared: SharedAxes, row_axis: int, shape: BlockShape
                 ) -> list[RowCopy]:
    """The operands that at least two stages read at their own row, as far as they fit."""
    loads: dict[te.Tensor, list[tuple[te.ComputeOp, ProducerLoad]]] = {}
    for op in kept.ops:
        for load in loads_of(kept.body(op)):
            if isinstance(load.producer.op, PlaceholderOp):
                loads.setdefault(load.producer, []).append((op, load))
    kept_bytes = shape.rows * sum(
        shared.elements_of_row(op) * t.dtype.itemsize for op in kept.ops[:-1] for t in op.outputs)
    found, room = list[RowCopy](), min(COPIES_BYTES, BLOCK_BYTES - kept_bytes)
    for tensor, reads in loads.items():
        axes = {_row_axes(op, load, shared) for op, load in reads}
        readers = {id(op) for op, _ in reads}
        if len(readers) < 2 or len(axes) != 1 or not all(map(is_fixed, tensor.shape)):
            continue
        (own,) = axes
        if own is None:
            continue
        length = math.prod(size_of(n) for i, n in enumerate(tensor.shape) if i not in own)
        needed = length * shape.rows * tensor.dtype.itemsize
        if length >= shape.lanes * shape.vector and needed <= room:
            room -= needed
            found.append(RowCopy(tensor, own[row_axis]))
    return found


def _row_axes(op: te.ComputeOp, load: ProducerLoad, shared: SharedAxes) -> tuple[int, ...] | None:
    """For each shared axis the axis of the operand that it indexes; ``None`` without one."""
    positions = []
    for axis in shared.axes_of(op):
        at = [i for i, index in enumerate(load.indices) if index is axis.var]
        if len(at) != 1:
            return None
        positions.append(at[0])
    return tuple(positions)


def copy_rows(s: te.Schedule, copy: RowCopy) -> te.Stage:
    """The stage of the copy, which all readers of the operand read instead."""
    readers = [stage.op for stage in s.stages if copy.tensor in input_tensors(stage.op)]
    return s[s.cache_read(copy.tensor, "shared", readers)]
