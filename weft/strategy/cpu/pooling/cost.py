"""Cost estimates of pooling: loads of taps, and bytes moved."""

from __future__ import annotations

import math

from weft.ir import Call, TensorType, typical_size
from weft.op.nn.pool import PoolAttrs
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.implementation import attrs_of
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.tir import const
from weft.topi.layout import Layout
from weft.topi.nn.pool import axis_windows

# A load with a bounds check, in loads: the comparison and the selection take as long again. Not
# measured; it decides only for small images with few channels.
GUARDED_LOADS = 2


@dataclass(frozen=True, slots=True)
class PoolShape:
    """The sizes of a pooling; a symbolic dimension counts as its typical size.

    A window has ``rows`` x ``taps`` elements, ``taps`` of them along W. ``columns`` counts the
    reductions over rows that separate windows share; ``lanes_along_width`` says that W is the
    contiguous axis, so that a stride makes the loads of taps along W strided. ``is_guarded``: W is
    padded. ``padded_bytes`` is the size of the padded copy of the data that the window algorithm
    reads, 0 without one.
    """

    results: int
    columns: int
    rows: int
    taps: int
    stride: int
    lanes_along_width: bool
    is_guarded: bool
    itemsize: int
    moved_bytes: int
    padded_bytes: int


def pool_shape(call: Call) -> PoolShape:
    """The sizes of a call of ``nn.max_pool*d`` or ``nn.avg_pool*d``."""
    attrs = attrs_of(call, PoolAttrs)
    *others, last = axis_windows(attrs.window)
    data, result = _sizes(call.args[0]), _sizes(call)
    layout = Layout.parse(attrs.layout)
    width = layout.index_of("W")
    itemsize = _itemsize(call)
    padded_width = data[width] + last.before + last.after + last.overhang(const(data[width]))
    results, along_width = math.prod(result), width == len(data) - 1
    pads_lanes = along_width and padded_width > data[width]
    padded = math.prod(data) // data[width] * padded_width if pads_lanes else 0
    return PoolShape(
        results, results // result[width] * padded_width, math.prod(a.taps for a in others),
        last.taps, last.stride, along_width, last.before > 0, itemsize,
        moved_bytes=(math.prod(data) + results) * itemsize,
        padded_bytes=2 * padded * itemsize,  # written once, read once
    )


def _sizes(expr: Call | object) -> list[int]:
    type_ = getattr(expr, "checked_type", None)
    shape = type_.shape if isinstance(type_, TensorType) else ()
    return [max(1, typical_size(dim)) for dim in shape]


def _itemsize(call: Call) -> int:
    type_ = call.checked_type
    return type_.dtype.itemsize if isinstance(type_, TensorType) else 4


def window_cycles(shape: PoolShape, target: CpuTarget) -> float:
    """Every tap of every window is loaded, under a bounds check if W is padded."""
    loads = shape.results * shape.rows * shape.taps * (GUARDED_LOADS if shape.is_guarded else 1)
    moved = shape.moved_bytes + shape.padded_bytes
    return _cycles(shape, target, contiguous=0, along_width=loads, moved=moved)


def separable_cycles(shape: PoolShape, target: CpuTarget) -> float:
    """Columns first, then their windows along W; the columns stay in L1."""
    return _cycles(shape, target, contiguous=shape.columns * shape.rows,
                   along_width=shape.results * shape.taps, moved=shape.moved_bytes)


def _cycles(
    shape: PoolShape, target: CpuTarget, *, contiguous: int, along_width: int, moved: int
) -> float:
    """The longer of loads and transfers; ``along_width`` loads are strided if W is vectorized."""
    model = machine_model(target)
    lanes = max(1, model.vector_bytes // shape.itemsize)
    is_strided = shape.lanes_along_width and shape.stride > 1
    factor = model.fma_strided_load_cycles if is_strided else 1 / model.loads_per_cycle
    loads = contiguous / model.loads_per_cycle + along_width * factor
    return max(loads / lanes, model.transfer_cycles(moved))
