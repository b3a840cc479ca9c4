"""Register tiles: which fit the register file, what they cost, and the search for the best one.

A register tile is the block of accumulators of a microkernel. GEMM and convolutions of all layouts
search among the same tiles and differ in what a step of the reduction costs them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

from weft.strategy.cpu.machine_model import MachineModel, machine_model
from weft.support.dataclass import dataclass
from weft.target import CpuTarget

MAX_VECTORS, MAX_ROWS = 8, 32  # of the tiles that ``choose_tile`` considers
# Vector multiply-adds in all versions of the tail of a symbolic extent; LLVM takes 50 ms for them.
MAX_TAIL_MULTIPLY_ADDS = 112


@dataclass(frozen=True, slots=True)
class RegisterTile:
    """The accumulators of a microkernel: ``mr`` broadcast operands by ``nr_vectors`` vectors.

    ``mr`` and ``nr`` are the names of BLIS; ``nr`` is ``nr_vectors`` times the lanes of a register.
    """

    mr: int
    nr_vectors: int

    @property
    def accumulators(self) -> int:
        return self.mr * self.nr_vectors

    def step_cycles(self, model: MachineModel, vector_cycles: float = 0.0) -> float:
        """Cycles of one reduction step: the tightest of arithmetic, loads and latency.

        Loads also cost a little where they are not the tightest: they compete for the caches
        behind the first one, so of two tiles at the arithmetic limit the squarer is faster.
        ``vector_cycles`` is how long one vector operand takes to arrive if it is not packed: it
        then comes from beyond L1, and from two cache lines, as it is not aligned.
        """
        arithmetic = self.accumulators / model.fma_per_cycle
        loads = (self.mr + self.nr_vectors * (2 if vector_cycles else 1)) / model.loads_per_cycle
        arrival = self.nr_vectors * vector_cycles
        return max(arithmetic, loads, arrival, model.fma_latency) + model.load_contention * loads


def fits_registers(tile: RegisterTile, target: CpuTarget) -> bool:
    """Whether the accumulators, a row of vector operands and one broadcast fit the registers."""
    return tile.accumulators + tile.nr_vectors + 1 <= target.vector_registers


def has_short_tail(tile: RegisterTile, copies: int = 1) -> bool:
    """Whether ``copies`` of the versions of the tail for 1 to ``mr - 1`` rows are little code."""
    return copies * tile.nr_vectors * tile.mr * (tile.mr - 1) // 2 <= MAX_TAIL_MULTIPLY_ADDS


def tiles_that_fit(
    max_rows: int, vector_counts: Iterable[int], target: CpuTarget
) -> Iterator[RegisterTile]:
    """Every tile of up to ``max_rows`` rows by one of ``vector_counts`` that fits the registers."""
    free = target.vector_registers - 1
    for vectors in vector_counts:
        for rows in range(1, min(max_rows, free // vectors - 1) + 1):
            yield RegisterTile(rows, vectors)


def fastest_first(
    tiles: Iterable[RegisterTile], cycles: Callable[[RegisterTile], float]
) -> list[RegisterTile]:
    """The tiles by ``cycles``, of equals the one with most accumulators first."""
    return sorted(tiles, key=lambda tile: (cycles(tile), -tile.accumulators))


@functools.lru_cache(maxsize=4096)
def choose_tile(
    rows: int, vectors: int, target: CpuTarget, *, vector_step: int = 1, vector_cycles: float = 0.0
) -> RegisterTile:
    """The register tile that covers ``rows`` x ``vectors`` of outputs in the fewest cycles.

    Tiles are a multiple of ``vector_step`` vectors wide. Of equals the first has the most
    accumulators, and is the narrower one.
    """
    model = machine_model(target)
    counts = range(vector_step, min(vectors, MAX_VECTORS) + 1, vector_step)
    tiles = fastest_first(
        tiles_that_fit(min(rows, MAX_ROWS), counts, target),
        lambda tile: cover_cycles(model, rows, vectors, tile, vector_cycles))
    return tiles[0] if tiles else RegisterTile(1, min(vectors, vector_step))


def cover_cycles(
    model: MachineModel, rows: int, vectors: int, tile: RegisterTile, vector_cycles: float = 0.0
) -> float:
    """Cycles of one reduction step of ``rows`` x ``vectors`` of outputs, tile by tile."""
    full, rest = divmod(vectors, tile.nr_vectors)
    cycles = full * column_cycles(model, rows, tile.mr, tile.nr_vectors, vector_cycles)
    if rest:
        cycles += column_cycles(model, rows, tile.mr, rest, vector_cycles)
    # The tail is a separate loop, which starts cold.
    tails = bool(rows % tile.mr) + bool(rest)
    return cycles * (1 + model.tail_fraction * tails)


def column_cycles(
    model: MachineModel, rows: int, mr: int, vectors: int, vector_cycles: float = 0.0
) -> float:
    """Cycles of one reduction step of ``rows`` by tiles of ``mr`` rows and one shorter tile."""
    full, rest = divmod(rows, mr)
    cycles = full * RegisterTile(mr, vectors).step_cycles(model, vector_cycles)
    if not rest:
        return cycles
    return cycles + RegisterTile(rest, vectors).step_cycles(model, vector_cycles)
