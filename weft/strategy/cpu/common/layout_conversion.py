"""What a change of layout costs."""

from __future__ import annotations

import math

from weft.ir.types import TensorType
from weft.strategy.cpu.machine_model import machine_model
from weft.target import CpuTarget, Target


def layout_conversion_seconds(type_: TensorType, target: Target) -> float:
    """Seconds to read a tensor of fixed sizes and to store it in another layout.

    0 for other kinds of targets than CPUs, which this cost model does not cover.
    """
    if not isinstance(target, CpuTarget):
        return 0.0
    model = machine_model(target)
    cycles = model.conversion_cycles(type_.dtype.itemsize) * math.prod(type_.concrete_shape)
    return model.seconds(cycles)
