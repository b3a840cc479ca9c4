"""Whether a kernel has enough work for several threads."""

from __future__ import annotations

import math
from collections.abc import Iterable

from weft import te
from weft.strategy.cpu.machine_model import parallel_threshold
from weft.strategy.extents import highest_size
from weft.target import CpuTarget


def pays_in_parallel(
    ops: Iterable[te.ComputeOp], target: CpuTarget, *, reduced: bool = True
) -> bool:
    """Whether the computes together may have the work that a fork and join pays for.

    Symbolic extents count as the largest size of their range: threads matter where there is much
    work. Reduction axes count unless ``reduced`` is false.
    """
    total = 0.0
    for op in ops:
        axes = (*op.axis, *op.reduce_axis) if reduced else op.axis
        highest = [highest_size(axis.extent) for axis in axes]
        total += math.prod(math.inf if size is None else max(size, 1) for size in highest)
    return total >= parallel_threshold(target)
