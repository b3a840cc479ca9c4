"""How a matrix product is laid over registers and caches.

The loops are: blocks of rows, panels of columns, tiles of rows; inside a tile the whole depth runs
with the sums in registers. A panel of the right operand stays in the second-level cache while the
tiles of a block of rows use it, one after the other, and the block of the left operand in a part
of the third level. Only where a panel would be larger than that cache is the depth cut into slices
(Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008): partial sums
then travel through memory once for each slice, which costs a few percent.

The numbers are from measurements of products from 64 to 8192 on a core with 512-bit vectors.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

from weft.ir.dtype import DType
from weft.strategy.cpu.common.register_tile import RegisterTile, fits_registers
from weft.strategy.cpu.machine_model import MachineModel, has_masks, imbalance, machine_model
from weft.target import CpuTarget

MAX_VECTORS = 8
# The block of the left operand is so much of the third level, which other cores use too.
PARTS_OF_L3 = 8
# A panel is loaded again for each block of rows: with fewer, that is most of the traffic.
MIN_BLOCK_ROWS = 384
# Reading a large right operand as it is costs a tile of rows about a tenth of a copy.
TILES_WORTH_A_COPY = 10
MEASURED_TILES = 6  # how many of the best tiles `weft tune` looks at
FEW_TILES = 2


@dataclass(frozen=True, slots=True)
class GemmShape:
    """``C[m, n] = A[m, k] * B[k, n]``, accumulated in ``dtype``."""

    m: int
    n: int
    k: int
    dtype: DType

    def a_bytes(self) -> int:
        return self.m * self.k * self.dtype.itemsize

    def b_bytes(self) -> int:
        return self.k * self.n * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class GemmBlocking:
    """``block`` tiles of rows use a panel while it is near; ``kc`` is summed at once.

    ``lanes`` is the vector axis; ``kc`` is ``None`` where the depth is not cut.
    """

    tile: RegisterTile
    lanes: int
    block: int
    kc: int | None

    @property
    def width(self) -> int:
        """Columns of a panel."""
        return self.tile.nr_vectors * self.lanes


@functools.lru_cache(maxsize=1024)
def plan_gemm(size: GemmShape, target: CpuTarget, *, panel: int = 0) -> GemmBlocking:
    """The plan for one product, whose tiles are as wide as some panels where there are any."""
    return blocking_of_tile(size, target, rank_tiles(size, target, panel)[0], panel=panel)


def other_plans(size: GemmShape, target: CpuTarget, *, panel: int = 0) -> Iterator[GemmBlocking]:
    """The next best plans, for whoever has time to measure them."""
    for tile in rank_tiles(size, target, panel)[1:MEASURED_TILES]:
        yield blocking_of_tile(size, target, tile, panel=panel)


def blocking_of_tile(
    size: GemmShape, target: CpuTarget, tile: RegisterTile, *, panel: int = 0
) -> GemmBlocking:
    """How blocks and slices follow from a register tile."""
    lanes = _lanes(size, target, panel)
    step_bytes = tile.nr_vectors * lanes * size.dtype.itemsize  # of a panel, for one depth
    tiles = -(-size.m // tile.mr)
    is_reused = tiles > FEW_TILES
    kc = None
    if is_reused and size.k * step_bytes > target.l2_bytes * 3 // 4:
        slices = math.ceil(size.k * step_bytes / (target.l2_bytes // 4))
        kc = -(-size.k // slices)
    rows = max(MIN_BLOCK_ROWS, target.l3_bytes // (PARTS_OF_L3 * size.k * size.dtype.itemsize))
    if kc is not None:  # partial sums stay in the second-level cache
        rows = min(rows, target.l2_bytes // (4 * step_bytes))
    blocks = math.ceil(size.m / rows)
    return GemmBlocking(tile, lanes, -(-tiles // blocks), kc)


def vector_lanes(size: GemmShape, target: CpuTarget) -> int:
    """The register width; for fewer columns the power of two that holds them."""
    lanes = target.lanes(str(size.dtype))
    return min(lanes, 1 << max(0, size.n - 1).bit_length())


def _lanes(size: GemmShape, target: CpuTarget, panel: int) -> int:
    """Registers that fill a panel where there are panels, or the panel itself where none do."""
    if not panel:
        return vector_lanes(size, target)
    lanes = target.lanes(str(size.dtype))
    return lanes if panel % lanes == 0 else panel


def _loads_with_masks(target: CpuTarget) -> bool:
    """Whether a load of some lanes is one instruction; elsewhere it is a branch for each lane."""
    return has_masks(target) or target.has("avx2")


def packs_b(size: GemmShape, plan: GemmBlocking, target: CpuTarget) -> bool:
    """Whether a right operand that lies in rows is worth copying into panels.

    What is in the second-level cache is as fast where it is, if whole vectors fill its rows: the
    copy fills them up. What is further away pays where many tiles of rows read it.
    """
    tiles = -(-size.m // plan.tile.mr)
    is_whole = size.n % plan.lanes == 0
    if tiles <= FEW_TILES:
        return not (is_whole or _loads_with_masks(target))
    if not is_whole:
        return True
    return size.b_bytes() > target.l2_bytes * 3 // 4 and tiles > TILES_WORTH_A_COPY


def rank_tiles(size: GemmShape, target: CpuTarget, panel: int = 0) -> list[RegisterTile]:
    """Register tiles by the cycles in which they cover the result, the best first."""
    lanes = _lanes(size, target, panel)
    column_step = max(1, panel // lanes)
    columns = -(-size.n // lanes)
    max_rows = min(size.m, _rows_that_share_a_set(size, target))
    tiles = [
        RegisterTile(height, vectors)
        for vectors in range(column_step, max(MAX_VECTORS, column_step) + 1, column_step)
        if vectors < columns + column_step
        for height in range(1, max_rows + 1)
        if fits_registers(RegisterTile(height, vectors), target)
    ]
    tiles.sort(key=lambda tile: (_cycles(size, tile, columns, target), -tile.accumulators))
    return tiles or [RegisterTile(1, column_step)]


def _rows_that_share_a_set(size: GemmShape, target: CpuTarget) -> int:
    """How tall a tile may be whose rows are read where they are, without pushing each other out."""
    model = machine_model(target)
    page, ways = model.page_bytes, max(1, target.l1_bytes // model.page_bytes)
    stride = max(1, size.k * size.dtype.itemsize)
    return max(1, int(ways * model.l1_set_share)) * (page // math.gcd(stride, page))


def _cycles(size: GemmShape, tile: RegisterTile, columns: int, target: CpuTarget) -> float:
    """Cycles for one depth of the whole result."""
    loads = _Loads.of(size, target)
    full, rest = divmod(columns, tile.nr_vectors)
    total = full * loads.panel_cycles(size.m, tile)
    if rest:
        total += loads.panel_cycles(size.m, RegisterTile(tile.mr, rest))
    tails = bool(size.m % tile.mr) + bool(rest)
    tasks = -(-size.m // tile.mr) * -(-columns // tile.nr_vectors)
    return total * (1 + machine_model(target).gemm_tail_fraction * tails) * imbalance(tasks)


@dataclass(frozen=True, slots=True)
class _Loads:
    """Where the operands of a tile come from."""

    model: MachineModel
    vector_bytes: int
    is_right_far: bool
    broadcast_cost: float

    @staticmethod
    def of(size: GemmShape, target: CpuTarget) -> _Loads:
        model = machine_model(target)
        is_left_far = size.a_bytes() > target.l2_bytes // 2
        return _Loads(
            model,
            target.lanes(str(size.dtype)) * size.dtype.itemsize,
            size.b_bytes() > target.l2_bytes,
            model.broadcast_beyond_l2_cycles if is_left_far else model.broadcast_l2_cycles,
        )

    def panel_cycles(self, rows: int, tile: RegisterTile) -> float:
        """One depth of a panel: of tiles of rows, of which the first waits for the panel."""
        full, rest = divmod(rows, tile.mr)
        cycles = full * self.step_cycles(tile)
        if rest:
            cycles += self.step_cycles(RegisterTile(rest, tile.nr_vectors))
        if not self.is_right_far:
            return cycles
        transfer = tile.nr_vectors * self.vector_bytes / self.model.beyond_l2_stream_bandwidth
        arrival = self.model.beyond_l2_run_cycles + transfer
        return cycles + max(0.0, arrival - self.step_cycles(tile))

    def step_cycles(self, tile: RegisterTile) -> float:
        """One depth of one tile: the tightest of arithmetic, loads, latency and the near cache."""
        model = self.model
        bound = max(tile.accumulators / model.fma_per_cycle,
                    (tile.mr + tile.nr_vectors) / model.loads_per_cycle,
                    model.fma_latency,
                    tile.nr_vectors * self.vector_bytes / model.l2_stream_bandwidth)
        return bound + model.vector_load_cycles * tile.nr_vectors + self.broadcast_cost * tile.mr
