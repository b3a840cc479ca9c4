"""The implementations of operators whose indices come from lookup tables."""

from __future__ import annotations

from collections.abc import Iterator

from weft.ir.expr import Call
from weft.strategy.cpu.estimate import roofline_seconds
from weft.strategy.cpu.resampling.schedule import schedule_resampling
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.target import CpuTarget

RESAMPLING_OPS = (
    "image.crop_and_resize", "image.grid_sample", "image.resize1d", "image.resize2d",
    "image.resize3d", "nn.deformable_conv2d", "nn.upsampling", "nn.upsampling3d",
)  # fmt: skip


def resampling(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Lookup tables first, then one materialized stage per axis."""
    yield Implementation(f"{call.op}.cpu.resampling", schedule_resampling,
                         seconds=roofline_seconds(call, target))


for _name in RESAMPLING_OPS:
    strategy(_name, target="cpu", complete=True)(resampling)
