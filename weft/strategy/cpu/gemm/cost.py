"""Estimates of the algorithms for matrix multiplication, in cycles of one core.

A GEMM is a loop over register tiles; each takes the tightest of arithmetic, loads, latency and the
bandwidth of the cache that holds its B panel, K times over. Packing is charged by the element.
"""

from __future__ import annotations

from weft.ir.dtype import DType
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.strategy.cpu.machine_model import MachineModel, machine_model
from weft.support.dataclass import dataclass
from weft.target import CpuTarget


@dataclass(frozen=True, slots=True)
class GemmShape:
    """``C[m, n] = A[m, k] * B[k, n]``, accumulated in ``dtype``.

    ``symbolic`` names those of M, N and K that only run time knows: their numbers are typical
    ones. ``samples`` are sizes that a symbolic M may have, by which tiles are ranked.
    """

    m: int
    n: int
    k: int
    dtype: DType
    symbolic: tuple[str, ...] = ()
    samples: tuple[int, ...] = ()

    @property
    def assumptions(self) -> str:
        """``M = 64, K = 64``: the numbers that estimates take for symbolic sizes."""
        sizes = {"M": self.m, "N": self.n, "K": self.k}
        return ", ".join(f"{name} = {sizes[name]}" for name in self.symbolic)

    @property
    def a_bytes(self) -> int:
        return self.m * self.k * self.dtype.itemsize

    @property
    def b_bytes(self) -> int:
        return self.k * self.n * self.dtype.itemsize


def gemm_step_cycles(
    shape: GemmShape, tile: RegisterTile, vectors: int, target: CpuTarget
) -> float:
    """One step of K for the whole of C, which is ``vectors`` vectors wide."""
    operands = _Operands.of(shape, target)
    full, rest = divmod(vectors, tile.nr_vectors)
    cycles = full * operands.panel_cycles(shape.m, tile)
    if rest:
        cycles += operands.panel_cycles(shape.m, RegisterTile(tile.mr, rest))
    tails = bool(shape.m % tile.mr) + bool(rest)
    return cycles * (1 + operands.model.gemm_tail_fraction * tails)


@dataclass(frozen=True, slots=True)
class _Operands:
    """Which cache level the operands of a tile come from."""

    model: MachineModel
    vector_bytes: int
    is_b_beyond_l2: bool
    broadcast_cycles: float

    @staticmethod
    def of(shape: GemmShape, target: CpuTarget) -> _Operands:
        model = machine_model(target)
        is_a_beyond_l2 = shape.a_bytes > target.l2_bytes // 2  # B takes the other half
        return _Operands(
            model,
            target.lanes(str(shape.dtype)) * shape.dtype.itemsize,
            shape.b_bytes > target.l2_bytes,
            model.broadcast_beyond_l2_cycles if is_a_beyond_l2 else model.broadcast_l2_cycles,
        )

    def panel_cycles(self, m: int, tile: RegisterTile) -> float:
        """One step of K for all tiles of a B panel, the first of which waits for the panel."""
        full, rest = divmod(m, tile.mr)
        cycles = full * self.tile_cycles(tile)
        if rest:
            cycles += self.tile_cycles(RegisterTile(rest, tile.nr_vectors))
        if not self.is_b_beyond_l2:
            return cycles
        transfer = tile.nr_vectors * self.vector_bytes / self.model.beyond_l2_stream_bandwidth
        arrival = self.model.beyond_l2_run_cycles + transfer
        return cycles + max(0.0, arrival - self.tile_cycles(tile))

    def tile_cycles(self, tile: RegisterTile) -> float:
        """One step of K for one tile: the tightest of arithmetic, loads, latency and L2."""
        model = self.model
        bound = max(tile.accumulators / model.fma_per_cycle,
                    (tile.mr + tile.nr_vectors) / model.loads_per_cycle,
                    model.fma_latency,
                    tile.nr_vectors * self.vector_bytes / model.l2_stream_bandwidth)
        # Loads cost a little even behind another bound: that separates tiles with the same bound.
        return bound + model.vector_load_cycles * tile.nr_vectors + self.broadcast_cycles * tile.mr


def packing_cycles(model: MachineModel, elements: int, *, is_transposed: bool = False) -> float:
    """Packing an operand into panels; ``is_transposed`` if its rows become columns of panels."""
    return elements * (model.transpose_cycles if is_transposed else model.pack_cycles)


def generic_cycles(
    shape: GemmShape, target: CpuTarget, *, b_itemsize: int, are_rows_along_k: bool,
    converts_a: bool,
) -> float:
    """The generic reduction schedule, without register blocking.

    Where the rows of A and of B both lie along K, each element of C is a vectorised sum, bound by
    the loads of B. Otherwise how the schedule vectorises depends on the shape: it is at best a GEMM
    with tiles of one vector, and typically not vectorised at all. An A that ``converts_a`` to the
    accumulator dtype is converted as it is read.
    """
    model, elements = machine_model(target), shape.m * shape.n
    lanes = target.lanes(str(shape.dtype))
    if not are_rows_along_k:
        vectors = -(-shape.n // lanes)
        step = max(gemm_step_cycles(shape, RegisterTile(1, 1), vectors, target),
                   elements * model.unblocked_fma_cycles)
        conversion = packing_cycles(model, shape.m * shape.k) if converts_a else 0.0
        return shape.k * step + elements * model.fma_latency + conversion
    is_beyond_l2 = shape.k * shape.n * b_itemsize > target.l2_bytes
    bandwidth = (model.beyond_l2_stream_bandwidth if is_beyond_l2
                 else model.l2_bandwidth)
    # One multiply-add loads a vector of A and one of B; no accumulator tile reuses either.
    vector_cycles = max(2 / model.loads_per_cycle, lanes * b_itemsize / bandwidth)
    return elements * (-(-shape.k // lanes) * vector_cycles + model.fma_latency)
