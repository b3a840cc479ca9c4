"""How a convolution by minimal filtering is cut into tasks and register tiles, and what it costs.

The estimate is in cycles of one core and has three parts: the products, at the rate of their
register tile; the transforms, a fixed number of vector instructions for each tile and channel
vector; and the traffic from beyond the second-level cache.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

from weft.strategy.cpu.common.blocking import registers
from weft.strategy.cpu.common.register_tile import RegisterTile, fits_registers
from weft.strategy.cpu.machine_model import imbalance, machine_model
from weft.target import CpuTarget
from weft.topi.nn.winograd import TAPS


@dataclass(frozen=True, slots=True)
class WinogradSize:
    """A convolution in tiles of ``tile`` x ``tile`` outputs; channels come in blocks."""

    tile: int
    batch: int
    tall: int
    wide: int
    channels: int
    blocks: int
    block: int

    @property
    def points(self) -> int:
        return (self.tile + TAPS - 1) ** 2

    @property
    def outputs(self) -> int:
        return self.blocks * self.block


@dataclass(frozen=True, slots=True)
class WinogradPlan:
    """A task is ``band`` tile rows by one of ``parts`` of the channels.

    Register tiles are ``tile_rows`` x ``tile_columns`` tile positions by ``vectors`` channel
    blocks. ``by_slice``: the products of so many blocks are interpolated before the next are
    begun, and stay near; else all of a task are computed first, and each point's weights are read
    once for the whole band. ``work`` is the estimate of all tasks one after another, ``cycles``
    that on several threads.
    """

    band: int
    parts: int
    tile_rows: int
    tile_columns: int
    vectors: int
    by_slice: bool
    work: float
    cycles: float


@functools.lru_cache(maxsize=256)
def plan_winograd(size: WinogradSize, target: CpuTarget) -> WinogradPlan:
    """The cheapest plan; of equals the one with the tallest bands and fewest parts."""
    return min(
        (
            plan
            for band in sorted({-(-size.tall // bands) for bands in range(1, size.tall + 1)})
            for parts in _divisors(size.blocks)
            for plan in _plans(size, band, parts, target)
        ),
        key=lambda plan: (plan.cycles, -plan.band, plan.parts),
    )


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, min(number, 8) + 1) if number % d == 0]


def _plans(
    size: WinogradSize, band: int, parts: int, target: CpuTarget
) -> Iterator[WinogradPlan]:
    model = machine_model(target)
    tile, rate = _register_tile(size, band, size.blocks // parts, target)
    bands = -(-size.tall // band)
    lanes = target.lanes("float32")
    tiles = size.batch * bands * band * size.wide
    products = size.points * tiles * size.channels * size.outputs
    products /= model.fma_per_cycle * lanes
    transform = model.winograd_transforms(size.tile)
    transforms = tiles * (parts * size.channels * transform.input_cycles
                          + size.outputs * transform.output_cycles) / lanes
    for by_slice in (True, False):
        far = _far_bytes(size, band, parts, tile.vectors, target, by_slice=by_slice)
        transfer = size.batch * bands * far / model.beyond_l2_load_store_bandwidth
        cycles = products * rate + transforms + transfer
        balanced = cycles * imbalance(size.batch * bands * parts)
        yield WinogradPlan(band, parts, tile.rows, tile.columns, tile.vectors, by_slice,
                           cycles, balanced)


def _far_bytes(size: WinogradSize, band: int, parts: int, vectors: int, target: CpuTarget, *,
               by_slice: bool) -> float:
    """Bytes that one band moves from and to beyond the second-level cache.

    The data at the points and the products stay there if they leave a quarter of it; the weights
    too, from band to band, if all fit together.
    """
    near = target.l2_bytes * 3 // 4
    positions = 4 * size.points * band * size.wide
    weights = 4 * size.points * size.channels * size.outputs
    data, results = positions * size.channels, positions * size.outputs // parts
    if by_slice:
        slices = -(-size.blocks // (parts * vectors))
        resident = data + positions * vectors * size.block
        moved = data * (1 + slices)
    else:
        resident = data + results
        moved = 2 * (data + results)
    far = parts * moved if resident > near else 0.0
    return far + (weights if resident + weights // parts > target.l2_bytes else 0.0)


@dataclass(frozen=True, slots=True)
class _Tile:
    rows: int
    columns: int
    vectors: int


def _register_tile(
    size: WinogradSize, band: int, blocks: int, target: CpuTarget
) -> tuple[_Tile, float]:
    """The register tile that covers a band and its channels fastest, and its cycles per ideal one.

    Tile positions of one row come first, then whole rows: these are neighbours in memory.
    """
    model, step = machine_model(target), registers(size.block, target.lanes("float32"))
    best: tuple[float, _Tile] | None = None
    for vectors in range(1, min(blocks, 8) + 1):
        most = (target.vector_registers - 1) // (vectors * step)
        for columns in range(1, min(size.wide, most) + 1):
            for rows in range(1, min(band, most) + 1 if columns == size.wide else 2):
                tile = RegisterTile(rows * columns, vectors * step)
                if not fits_registers(tile, target):
                    break
                covers = -(-band // rows) * -(-size.wide // columns) * -(-blocks // vectors)
                start = (model.tile_start_cycles + tile.accumulators) / size.channels
                uneven = band % rows or size.wide % columns or blocks % vectors
                cycles = covers * (tile.step_cycles(model) + start)
                cycles *= model.guarded_tile_factor if uneven else 1.0
                if best is None or cycles < best[0]:
                    best = cycles, _Tile(rows, columns, vectors)
    if best is None:
        best = float(band * size.wide * blocks * step), _Tile(1, 1, 1)
    ideal = band * size.wide * blocks * size.block / target.lanes("float32") / model.fma_per_cycle
    return best[1], best[0] / ideal
