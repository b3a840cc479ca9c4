"""How a GEMM runs: the algorithm, its tiles and split-K, and their estimates.

Estimates are seconds of the whole GPU from the machine model: the slowest of the arithmetic of the
busiest multiprocessor, the traffic of L2 and that of memory, then filling the pipeline and the
launches.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from typing import ClassVar

from weft.strategy.cuda.gemm.gemv import GemvTile
from weft.strategy.cuda.gemm.simt import SimtTile
from weft.strategy.cuda.gemm.tensor_core import MmaTile
from weft.strategy.cuda.gemm.warp_specialized import BK, WgmmaTile
from weft.strategy.cuda.machine_model import GpuModel
from weft.support.dataclass import dataclass

DP4A_THREADS = 16  # along rows and along columns


@dataclass(frozen=True, slots=True)
class DotTile:
    """Each of 16 x 16 threads sums ``per_thread`` x ``per_thread`` elements; ``bk`` of K a time."""

    threads: ClassVar[int] = DP4A_THREADS**2

    per_thread: int = 4
    bk: int = 64

    @property
    def size(self) -> int:
        """Rows, and columns, of a block."""
        return DP4A_THREADS * self.per_thread

    def __str__(self) -> str:
        return f"{self.size}x{self.size}x{self.bk} in {DP4A_THREADS**2} threads"


# Shares of the peak that the inner loops reach on data in shared memory. Assumed from CUTLASS's
# published profiles (A100: 0.92 of the tensor peak at 128x256 tiles, 0.93 of FP32 SIMT at 128x128;
# H100: 0.80 of the tensor peak, which power limits, by warp-specialised kernels).
SIMT_SHARE, MMA_SHARE, WGMMA_SHARE = 0.85, 0.90, 0.80
# A thread loads 8 registers for 16 instructions, between two barriers per tile. Assumed.
DP4A_SHARE = 0.4
# mma.sync on sm_90 and sm_100 runs at about 0.62 of the rate of wgmma (Luo et al. 2024, table 9).
MMA_SHARE_OF_WGMMA = 0.62
# Cycles from a barrier to the first finished product of a stage: the barrier, ldmatrix (about 30)
# and a dependent mma (about 33; Luo et al. 2024). A block alone on its SM waits so long per stage.
STAGE_CYCLES = 100.0
# Of the times that the longest one hides, so much shows. Assumed; it ranks tiles of equal bounds.
HIDDEN_SHARE = 0.1
# A block with K divided stores its sums, and another kernel reads them.
PARTIAL_BYTES = 4
MAX_SPLITS = 32
MIN_K_TILES = 4  # of each split, to fill the pipeline


class GemmAlgorithm(enum.StrEnum):
    """The kernels of a GEMM."""

    WGMMA = "wgmma"  # tensor cores of sm_90a, copies by TMA
    MMA = "mma"  # tensor cores, mma.sync
    DP4A = "dp4a"  # bytes on the CUDA cores, four products per instruction
    SIMT = "simt"  # register tiles on the CUDA cores
    GEMV = "gemv"  # a warp per column, for few rows
    GENERIC = "generic"  # the compute under the default schedule


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """``tile`` is ``None`` for ``GENERIC``; K is divided among ``splits`` blocks."""

    tile: WgmmaTile | MmaTile | DotTile | SimtTile | GemvTile | None = None
    splits: int = 1

    def __str__(self) -> str:
        split = f", split-K by {self.splits}" if self.splits > 1 else ""
        return f"{self.tile}{split}" if self.tile is not None else ""


@dataclass(frozen=True, slots=True)
class GemmShape:
    """The sizes of a GEMM (typical ones for symbols), and its bytes per element."""

    batch: int
    m: int
    n: int
    k: int
    a_bytes: int
    b_bytes: int
    c_bytes: int

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k

    @property
    def moved(self) -> int:
        """Bytes of operands and result, each once."""
        return self.batch * (self.m * self.k * self.a_bytes + self.k * self.n * self.b_bytes
                             + self.m * self.n * self.c_bytes)


MMA_TILES = (
    MmaTile(2, 4, 64, 64, stages=3), MmaTile(4, 2, 64, 64, stages=3),
    MmaTile(2, 2, 64, 64), MmaTile(2, 4, 64, 32), MmaTile(2, 2, 64, 32), MmaTile(2, 2, 32, 64),
    MmaTile(2, 2, 32, 32), MmaTile(2, 2, 32, 16), MmaTile(2, 2, 16, 32), MmaTile(1, 4, 32, 32),
    MmaTile(1, 4, 16, 32), MmaTile(1, 4, 16, 16), MmaTile(4, 1, 16, 16), MmaTile(1, 1, 16, 16),
)
WGMMA_TILES = (WgmmaTile(256, 4), WgmmaTile(192, 5), WgmmaTile(128, 6), WgmmaTile(64, 8))
SIMT_TILES = (
    SimtTile(4, 2, 8, 8), SimtTile(2, 2, 8, 8), SimtTile(2, 2, 8, 4), SimtTile(2, 2, 4, 4),
    SimtTile(1, 2, 4, 4), SimtTile(2, 1, 4, 4), SimtTile(1, 1, 4, 4), SimtTile(1, 4, 4, 4),
)


def splits_of(k_tiles: int) -> Iterator[int]:
    """The split-K factors that are tried."""
    count = 1
    while count <= MAX_SPLITS and (count == 1 or k_tiles // count >= MIN_K_TILES):
        yield count
        count *= 2


def mma_seconds(shape: GemmShape, tile: MmaTile, splits: int, rate: float,
                model: GpuModel, prefetched: int = 0) -> float:
    """Seconds on tensor cores with a peak of ``rate`` FLOP/s; infinite if a block does not fit.

    ``prefetched`` registers of a thread carry the elements that no asynchronous copy can move.
    """
    share = MMA_SHARE * (1.0 if model.l2_bytes < 50 << 20 else MMA_SHARE_OF_WGMMA)
    bk = tile.bk(shape.a_bytes)
    registers = tile.registers + prefetched
    if registers > model.max_registers:
        return math.inf
    occupancy = model.occupancy(tile.threads, registers, tile.shared_bytes).blocks
    return _tiled_seconds(shape, (tile.bm, tile.bn, bk), splits, rate * share, occupancy, model,
                          tile.stages - 1)


def wgmma_seconds(shape: GemmShape, tile: WgmmaTile, splits: int, rate: float,
                  model: GpuModel) -> float:
    """Seconds on the tensor cores of sm_90a with a peak of ``rate`` FLOP/s."""
    occupancy = model.occupancy(tile.threads, 168, tile.shared_bytes).blocks
    return _tiled_seconds(shape, (tile.bm, tile.bn, BK), splits, rate * WGMMA_SHARE, occupancy,
                          model, tile.stages - 1)


def simt_seconds(shape: GemmShape, tile: SimtTile, splits: int, itemsize: int,
                 model: GpuModel) -> float:
    """Seconds on the CUDA cores."""
    loads = (tile.tm + tile.tn) / 4  # 128-bit loads from shared memory for tm * tn additions
    share = SIMT_SHARE * tile.tm * tile.tn / (tile.tm * tile.tn + 2.5 * loads)
    rate = model.fp64_flops if itemsize == 8 else model.fp32_flops
    registers = tile.tm * tile.tn * max(1, itemsize // 4) + 60
    if registers > model.max_registers:
        return math.inf
    occupancy = model.occupancy(tile.threads, registers, tile.shared_bytes(itemsize)).blocks
    return _tiled_seconds(shape, (tile.bm, tile.bn, tile.bk), splits, rate * share, occupancy,
                          model)


def _tiled_seconds(shape: GemmShape, tile: tuple[int, int, int], splits: int, rate: float,
                   occupancy: int, model: GpuModel, ahead: int = 1) -> float:
    """Seconds of a tiled GEMM whose blocks keep ``ahead`` k-tiles in flight."""
    if not occupancy:
        return math.inf
    bm, bn, bk = tile
    tiles = shape.batch * -(-shape.m // bm) * -(-shape.n // bn)
    k_tiles = -(-shape.k // bk)
    blocks, k_tiles_of_block = tiles * splits, -(-k_tiles // splits)
    work = 2 * bm * bn * bk / (rate / model.sms / model.clock)  # cycles of an SM per stage
    on_one = -(-blocks // model.sms)
    together = min(occupancy, on_one)
    cycles = on_one * k_tiles_of_block * max(work, STAGE_CYCLES / together)
    read = tiles * k_tiles * bk * (bm * shape.a_bytes + bn * shape.b_bytes)
    # Little's law: the bytes in flight over the latency.
    tile_bytes = bk * (bm * shape.a_bytes + bn * shape.b_bytes)
    in_flight = ahead * tile_bytes * min(blocks, occupancy * model.sms)
    times = (model.cycles_seconds(cycles), read / model.l2_bandwidth,
             shape.moved / min(model.bandwidth, in_flight / model.dram_latency))
    bound = max(times) + HIDDEN_SHARE * (sum(times) - max(times))
    seconds = model.launch_seconds + 2 * model.dram_latency + bound
    if splits > 1:
        sums = shape.batch * shape.m * shape.n * splits * PARTIAL_BYTES
        seconds += model.launch_seconds + 2 * sums / model.l2_bandwidth
    return seconds


def dp4a_seconds(shape: GemmShape, tile: DotTile, model: GpuModel) -> float:
    """Seconds on the CUDA cores; ``dp4a`` has half the rate of an FMA, for four products."""
    occupancy = model.occupancy(DotTile.threads, 64, 2 * tile.size * (tile.bk + 4)).blocks
    return _tiled_seconds(shape, (tile.size, tile.size, tile.bk), 1,
                          2 * model.fp32_flops * DP4A_SHARE, occupancy, model)


def gemv_seconds(shape: GemmShape, tile: GemvTile, model: GpuModel) -> float:
    """Seconds of the GEMV kernel: memory traffic, and the latency of the loads in flight."""
    warps = shape.batch * -(-shape.n // tile.n)
    blocks = -(-warps // tile.warps)
    occupancy = model.occupancy(tile.threads, 64, 0)
    waves = -(-blocks // (occupancy.blocks * model.sms))
    latency = waves * -(-shape.k // tile.bk) * model.dram_latency / tile.in_flight
    cached = shape.batch * shape.n * shape.k * shape.a_bytes * shape.m / tile.n
    return model.launch_seconds + model.dram_latency + max(
        shape.moved / model.bandwidth, latency, cached / model.l2_bandwidth,
        shape.flops / (model.fp32_flops * 0.3))


def generic_seconds(shape: GemmShape, model: GpuModel) -> float:
    """Seconds of a thread per element that reads its row and column from the caches."""
    threads = shape.batch * shape.m * shape.n
    loads = threads * shape.k * (shape.a_bytes + shape.b_bytes)
    latency = shape.k * 30 / model.clock * max(1.0, threads / model.resident_threads)
    return model.launch_seconds + model.dram_latency + max(
        shape.moved / model.bandwidth, latency, loads / (4 * model.l2_bandwidth))
