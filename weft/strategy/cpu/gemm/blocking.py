"""How a GEMM is blocked for registers and caches: mr, nr, mc and kc, named as in BLIS.

The loops are: blocks of mc rows of A, panels of nr columns of B, tiles of mr rows; in the
microkernel all of K runs with the mr x nr accumulators in registers. A packed B panel stays in L2
while the tiles of a block of rows use it one after the other, and the block of A in a share of L3.
Only where a panel would exceed L2 is K cut into blocks of kc (Goto and van de Geijn, "Anatomy of
High-Performance Matrix Multiplication", 2008): partial sums then travel through memory once for
each block, which costs a few percent. nc, the columns of B that share an A block, is all of N.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from enum import StrEnum

from weft.op.nn.dense import WeightPanels
from weft.strategy.cpu.common.register_tile import (
    RegisterTile,
    fastest_first,
    has_short_tail,
    tiles_that_fit,
)
from weft.strategy.cpu.elementwise.schedule import MIN_PARALLEL_EXTENT
from weft.strategy.cpu.gemm.cost import GemmShape, gemm_step_cycles
from weft.strategy.cpu.machine_model import (
    has_masks,
    imbalance,
    machine_model,
    parallel_threshold,
)
from weft.support.dataclass import dataclass
from weft.target import CpuTarget

MAX_VECTORS = 8
# The block of A is this share of L3, which other cores use too.
A_BLOCKS_IN_L3 = 8
# A B panel is loaded again for each block of rows: with fewer rows, that is most of the traffic.
MIN_MC = 384
# Reading a large B in place costs each tile of rows about a tenth of packing it.
TILES_WORTH_PACKING = 10
FEW_TILES = 2  # tiles of rows that use a B panel: packing it, or keeping it in L2, gains nothing
# Split-K: a fixed number of chunks of K for threads to share, and the least K of a chunk.
SPLIT_K_WAYS, MIN_SPLIT_K_DEPTH = 16, 64
# The rows of a register tile where tasks are counted before the tile is chosen.
ROWS_OF_TASKS = 8
# The load imbalance of common thread counts up to which a task is all tiles of a B panel.
ACCEPTABLE_IMBALANCE = 1.1


@dataclass(frozen=True, slots=True)
class GemmBlocking:
    """Register and cache blocking. ``mc`` rows of A use a B panel while it is in L2.

    ``lanes`` is the width of the vectors. ``mc`` is ``None`` where all rows of A use a panel one
    after the other, because their number is symbolic; ``kc`` is ``None`` where K is not cut.
    """

    tile: RegisterTile
    lanes: int
    mc: int | None
    kc: int | None

    @property
    def mr(self) -> int:
        """Rows of the microkernel."""
        return self.tile.mr

    @property
    def nr(self) -> int:
        """Columns of the microkernel, and of a packed B panel."""
        return self.tile.nr_vectors * self.lanes


class GemmLoops(StrEnum):
    """The loops around the microkernel; the value names the task that threads share."""

    TILES = "tile"
    """One register tile, with all of K."""
    B_PANELS = "B panel"
    """All tiles of rows for one B panel, which the task packs itself just before use."""
    K_BLOCKS = "K-blocked B panel"
    """A block of rows for one B panel: sums in memory, to which one block of K after another is
    added."""
    SPLIT_K = "split-K chunk"
    """One chunk of K of one tile: there are too few tiles. The chunks are added at the end."""


@dataclass(frozen=True, slots=True)
class GemmPlan:
    """How one call runs as a GEMM: what the compute packs and the loops that the schedule makes.

    ``panels`` is the layout of a weight that is packed at compile time; ``packs_a`` and ``packs_b``
    pack an operand at run time. With ``prefetches`` the tiles of rows that use one of ``panels``
    load the next one into L2. ``rows_first``: a thread takes the panels of one tile of rows after
    each other. An iteration computes ``unroll`` steps of K. ``assumes`` says which numbers the
    estimates take for symbolic sizes.
    """

    blocking: GemmBlocking
    loops: GemmLoops
    is_parallel: bool
    panels: WeightPanels | None = None
    packs_a: bool = False
    packs_b: bool = False
    prefetches: bool = False
    rows_first: bool = False
    unroll: int = 1
    assumes: str = ""

    def __str__(self) -> str:
        blocking = self.blocking
        facts = [f"mr {blocking.mr}, nr {blocking.nr}"]
        if blocking.mc is not None:
            facts.append(f"mc {blocking.mc}")
        if blocking.kc is not None:
            facts.append(f"kc {blocking.kc}")
        if self.panels is not None:
            facts.append(f"weight {self.panels.layout}")
        if self.packs_a:
            facts.append("packs A")
        if self.packs_b:
            facts.append("packs B")
        if self.prefetches:
            facts.append("prefetches the next panel")
        if self.rows_first:
            facts.append("rows outside of panels")
        if self.unroll > 1:
            facts.append(f"{self.unroll} steps of K unrolled")
        facts.append(f"a task per {self.loops}")
        if self.assumes:
            facts.append(f"assumes {self.assumes}")
        return ", ".join(facts)


@functools.lru_cache(maxsize=1024)
def block_gemm(shape: GemmShape, target: CpuTarget, *, panel: int = 0) -> GemmBlocking:
    """The blocking with the fewest estimated cycles.

    nr is a multiple of ``panel`` if B is already packed in panels of that many columns.
    """
    return blocking_of_tile(shape, target, rank_tiles(shape, target, panel)[0], panel=panel)


def blocking_of_tile(
    shape: GemmShape, target: CpuTarget, tile: RegisterTile, *, panel: int = 0
) -> GemmBlocking:
    """The cache blocking that follows from a register tile."""
    if shape.symbolic:
        return GemmBlocking(tile, _lanes(shape, target, panel), None, None)
    lanes = _lanes(shape, target, panel)
    step_bytes = tile.nr_vectors * lanes * shape.dtype.itemsize  # of a B panel, for one step of K
    tiles = -(-shape.m // tile.mr)
    # A B panel may fill three quarters of L2; A and C pass through the rest. Few tiles of rows
    # hardly use a panel again, so it need not stay there.
    kc = None
    if tiles > FEW_TILES and shape.k * step_bytes > machine_model(target).l2_resident_bytes:
        k_blocks = math.ceil(shape.k * step_bytes / (target.l2_bytes // 4))
        # Blocks of nearly equal depth: a short one would load and store the sums for little
        # arithmetic.
        kc = -(-shape.k // k_blocks)
    a_block_bytes = target.l3_bytes // A_BLOCKS_IN_L3
    rows = max(MIN_MC, a_block_bytes // (shape.k * shape.dtype.itemsize))
    if kc is not None:  # the partial sums stay in L2
        rows = min(rows, target.l2_bytes // (4 * step_bytes))
    # Blocks of nearly equal height: a short one would load all B panels for few rows.
    blocks = math.ceil(shape.m / rows)
    return GemmBlocking(tile, lanes, -(-tiles // blocks) * tile.mr, kc)


def vector_lanes(shape: GemmShape, target: CpuTarget) -> int:
    """The lanes of a register; for fewer columns the power of two that holds them."""
    lanes = target.lanes(str(shape.dtype))
    return min(lanes, 1 << max(0, shape.n - 1).bit_length())


def _lanes(shape: GemmShape, target: CpuTarget, panel: int) -> int:
    """Registers that fill a panel; the panel itself if none do."""
    if not panel:
        return vector_lanes(shape, target)
    lanes = target.lanes(str(shape.dtype))
    return lanes if panel % lanes == 0 else panel


def rank_tiles(shape: GemmShape, target: CpuTarget, panel: int = 0) -> list[RegisterTile]:
    """Register tiles by the cycles in which threads cover C with them, the best first."""
    lanes = _lanes(shape, target, panel)
    step = max(1, panel // lanes)
    vectors = -(-shape.n // lanes)
    if shape.symbolic:
        return rank_symbolic_tiles(shape, target, lanes=lanes, step=step)

    def cycles(tile: RegisterTile) -> float:
        tasks = -(-shape.m // tile.mr) * -(-vectors // tile.nr_vectors)
        return gemm_step_cycles(shape, tile, vectors, target) * imbalance(tasks)

    # Tiles are whole panels wide, and no wider than C needs.
    counts = [n for n in range(step, max(MAX_VECTORS, step) + 1, step) if n < vectors + step]
    tiles = tiles_that_fit(min(shape.m, _rows_in_l1_set(shape, target)), counts, target)
    # A single panel may be too wide for the registers; it has to run nevertheless.
    return fastest_first(tiles, cycles) or [RegisterTile(1, step)]


def rank_symbolic_tiles(
    shape: GemmShape, target: CpuTarget, *, lanes: int, step: int
) -> list[RegisterTile]:
    """Register tiles for a GEMM with symbolic sizes, by the cycles of several M, the best first.

    The tail of M has a version for each number of rows, so tiles with many rows would be much code.
    """
    vectors = -(-shape.n // lanes)
    sizes = shape.samples or (shape.m,)

    def cycles(tile: RegisterTile) -> float:
        panels = -(-vectors // tile.nr_vectors)
        total = 0.0
        for m in sizes:
            step_cycles = gemm_step_cycles(dataclasses.replace(shape, m=m), tile,
                                           panels * tile.nr_vectors, target)
            # Tiles of few rows would give more tasks, but the threads wait for memory then.
            total += math.log(step_cycles * imbalance(-(-m // ROWS_OF_TASKS) * panels))
        return total

    counts = [n for n in range(step, max(MAX_VECTORS, step) + 1, step) if n < vectors + step]
    tiles = tiles_that_fit(min(max(sizes), _rows_in_l1_set(shape, target)), counts, target)
    # A symbolic N doubles the versions: the last panel has masks.
    copies = 2 if "N" in shape.symbolic else 1
    short = [tile for tile in tiles if has_short_tail(tile, copies)]
    return fastest_first(short, cycles) or [RegisterTile(1, step)]


def _rows_in_l1_set(shape: GemmShape, target: CpuTarget) -> int:
    """How many rows of an A that is read in place stay in L1 without evicting each other.

    Rows whose distance is a multiple of the page size share a set of L1.
    """
    model = machine_model(target)
    if "K" in shape.symbolic:  # the distance may be any
        shape = dataclasses.replace(shape, k=model.page_bytes)
    # The offset in a page selects the set, so L1 has as many ways as it has pages. A row falls into
    # the set of another one after ``page // gcd(stride, page)`` rows.
    page, ways = model.page_bytes, max(1, target.l1_bytes // model.page_bytes)
    stride = max(1, shape.k * shape.dtype.itemsize)
    return max(1, int(ways * model.l1_set_share)) * (page // math.gcd(stride, page))


def worth_packing_b(shape: GemmShape, blocking: GemmBlocking, target: CpuTarget) -> bool:
    """Whether to pack a B that is stored (K, N).

    B in L2 is read in place at the same speed, if whole vectors fill its rows; packing pads them.
    Beyond L2 packing pays if many tiles of rows read the panels.
    """
    tiles = -(-shape.m // blocking.mr)
    is_whole = shape.n % blocking.lanes == 0
    # Packing reads and writes all of B, which so few tiles of rows do not repay. It only pays where
    # a tail would be loaded lane by lane.
    if tiles <= FEW_TILES:
        return not (is_whole or _loads_with_masks(target))
    if not is_whole:
        return True
    return shape.b_bytes > machine_model(target).l2_resident_bytes and tiles > TILES_WORTH_PACKING


def _loads_with_masks(target: CpuTarget) -> bool:
    """Whether a load of some lanes is one instruction; elsewhere it is a branch for each lane."""
    return has_masks(target) or target.has("avx2")


def loops_of(
    shape: GemmShape, blocking: GemmBlocking, target: CpuTarget, *, matrices: int, packs: bool
) -> tuple[GemmLoops, bool]:
    """What a task is, and whether tasks run in parallel.

    ``shape.n`` counts the columns of whole vectors or panels; ``packs``: an operand is packed or
    converted at run time.
    """
    tiles, panels = -(-shape.m // blocking.mr), -(-shape.n // blocking.nr)
    work = matrices * shape.m * shape.n * shape.k
    is_deep = shape.k >= SPLIT_K_WAYS * MIN_SPLIT_K_DEPTH and not shape.symbolic
    if (matrices * tiles * panels < MIN_PARALLEL_EXTENT and is_deep
            and work >= SPLIT_K_WAYS * parallel_threshold(target)):
        return GemmLoops.SPLIT_K, True
    if blocking.kc is not None:
        return GemmLoops.K_BLOCKS, True
    is_parallel = work >= parallel_threshold(target)
    keeps_threads_busy = not is_parallel or imbalance(matrices * panels) < ACCEPTABLE_IMBALANCE
    # A single block of rows: with several, each of them would pack every panel again.
    fits_l3 = blocking.mc is None or tiles * blocking.mr <= blocking.mc
    by_panels = packs and fits_l3 and keeps_threads_busy
    return GemmLoops.B_PANELS if by_panels else GemmLoops.TILES, is_parallel
