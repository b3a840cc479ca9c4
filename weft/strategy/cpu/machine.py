"""Register tiles: what fits the register file, and how many cycles a tile takes."""

from __future__ import annotations

from dataclasses import dataclass

from weft.ir.dtype import DType
from weft.strategy.cpu.machine_model import MachineModel, machine_model
from weft.target import CpuTarget


def has_masks(target: CpuTarget) -> bool:
    """Whether loads and stores of some lanes of a vector cost no more than those of all."""
    return target.has("avx512vl") and target.has("avx512bw")


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
        ``vector_cycles`` is how long one vector operand takes to arrive, where it is not packed: it
        comes from beyond the first-level cache, and from two lines of it, as it is not aligned.
        """
        arithmetic = self.accumulators / model.fma_per_cycle
        loads = (self.mr + self.nr_vectors * (2 if vector_cycles else 1)) / model.loads_per_cycle
        arrival = self.nr_vectors * vector_cycles
        return max(arithmetic, loads, arrival, model.fma_latency) + model.load_contention * loads


def fits_registers(tile: RegisterTile, target: CpuTarget) -> bool:
    """Accumulators, one vector operand each, and a broadcast must fit the register file."""
    return tile.accumulators + tile.nr_vectors + 1 <= target.vector_registers


def tail_cost(
    model: MachineModel, extent: int, rows: int, vectors: int, vector_cycles: float = 0.0
) -> float:
    """Step cycles to cover ``extent`` rows by full tiles and one shorter tile."""
    full, rest = divmod(extent, rows)
    cost = full * RegisterTile(rows, vectors).step_cycles(model, vector_cycles)
    if not rest:
        return cost
    return cost + RegisterTile(rest, vectors).step_cycles(model, vector_cycles)


def choose_tile(
    rows: int, columns: int, target: CpuTarget, dtype: DType, *, column_step: int = 1,
    vector_cycles: float = 0.0,
) -> RegisterTile:
    """The register tile that covers ``rows`` x ``columns`` outputs in the fewest cycles.

    ``columns`` counts vectors; tiles are ``column_step`` vectors times a whole number wide. Ties
    go to fewer, wider rows: their operand loads are vector loads.
    """
    del dtype  # the width is in ``columns`` already; kept for models that weigh narrow types
    model = machine_model(target)
    best: tuple[float, int, RegisterTile] | None = None
    for vectors in range(column_step, min(columns, 8) + 1, column_step):
        for height in range(1, min(rows, 32) + 1):
            tile = RegisterTile(height, vectors)
            if not fits_registers(tile, target):
                break
            cost = cover_cost(model, rows, columns, tile, vector_cycles)
            key = (cost, -tile.accumulators)
            if best is None or key < best[:2]:
                best = (*key, tile)
    return best[2] if best else RegisterTile(1, min(columns, column_step))


def cover_cost(
    model: MachineModel, rows: int, columns: int, tile: RegisterTile, vector_cycles: float = 0.0
) -> float:
    """Cycles of one reduction step of ``rows`` x ``columns`` outputs, tile by tile."""
    full, rest = divmod(columns, tile.nr_vectors)
    cost = full * tail_cost(model, rows, tile.mr, tile.nr_vectors, vector_cycles)
    if rest:
        cost += tail_cost(model, rows, tile.mr, rest, vector_cycles)
    # A tail is code of its own, and its loop starts cold: charge it a little.
    tails = bool(rows % tile.mr) + bool(rest)
    return cost * (1 + model.tail_fraction * tails)
