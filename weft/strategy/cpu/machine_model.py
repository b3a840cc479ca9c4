"""The machine model of CPUs: every constant that cost estimates use, and formulas over them.

All rates are per core and in cycles; ``MachineModel.seconds`` converts. Cost files of the operator
families read the constants from here and define none of their own.

Provenance. "Measured" means: on one core of an AMD EPYC 9005 (Zen 5, AVX-512, 48 KiB L1, 1 MiB L2,
32 MiB L3, about 3.3 GHz), by loops of 512-bit loads and stores over buffers of 16 KiB, 384 KiB,
8 MiB and 256 MiB. "Fitted" means: chosen so that the estimates rank the tiles, blocks and
algorithms of weft's own kernels as their measured times do, on AMD Zen 4 and Zen 5 cores with
AVX-512 (GEMM from 64 to 8192 in M, N and K; the convolutions and attentions of ``benchmarks/``).
Which of the two cores a fitted value comes from was not recorded. Other CPUs use the same values:
they scale with the vector width and the cache sizes of the target, but not with its ports.
"""

from __future__ import annotations

import functools

from weft.support.dataclass import dataclass
from weft.target import CpuTarget

# Scalar operations below which a fork and join costs more than a second core saves. Fitted.
PARALLEL_THRESHOLD = 20_000


@dataclass(frozen=True, slots=True)
class WinogradTransforms:
    """Cycles of the input and output transforms of one tile, for one vector of channels."""

    input_cycles: float
    output_cycles: float


@dataclass(frozen=True, slots=True)
class MachineModel:
    """Rates of one CPU core. Bandwidths are bytes per cycle, latencies and costs are cycles.

    "Beyond L2" means the shared L3; data that exceeds L3 is counted at ``memory_bandwidth`` where
    an estimate distinguishes it. The four cache and vector sizes come from the target.
    """

    vector_bytes: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int

    # Nominal clock in Hz. Measured 3.2 to 3.3 GHz by a chain of dependent additions; Zen 4 cores
    # reach 3.6. All estimates scale by it, so it changes no choice between two of them.
    frequency: float = 3.3e9

    # Execution ports: the vendors' numbers for Zen 5 and for Intel cores with two 512-bit FMA
    # units. Zen 4 splits 512-bit operations and issues half as many.
    fma_per_cycle: int = 2
    loads_per_cycle: int = 2
    fma_latency: int = 4

    # Sequential vector loads from L1. Measured 126 to 130.
    l1_bandwidth: float = 128.0
    # Sequential vector loads from L2, of packed panels of B. Fitted (measured 47 for loads alone).
    l2_stream_bandwidth: float = 40.0
    # Vector loads and stores through L2 outside of packed panels: rows of an unpacked image, whose
    # vectors straddle two cache lines; the data of a depthwise convolution. Fitted.
    l2_bandwidth: float = 24.0
    # Sequential vector loads beyond L2, of panels that a GEMM reads once. Fitted (measured 25 from
    # L3).
    beyond_l2_stream_bandwidth: float = 20.0
    # Sequential loads and stores beyond L2 (transform domain of a Winograd convolution, changes of
    # layout). Fitted (measured 25 for a copy within L3, 9 within memory).
    beyond_l2_load_store_bandwidth: float = 16.0
    # Single cache lines beyond L2, which the hardware does not prefetch. Fitted.
    beyond_l2_line_bandwidth: float = 8.0
    # Sequential vector loads from memory. Measured 10 to 11.
    memory_bandwidth: float = 10.0
    # The first line of a sequential run beyond L2, before the hardware prefetches. Fitted.
    beyond_l2_run_cycles: float = 1.0
    # The fraction of transfers beyond L2 that arithmetic does not hide, where weights are read
    # again for every tile of a convolution. Fitted.
    unhidden_fraction: float = 0.06

    # Lines whose addresses differ by a multiple of a page fall into one set of L1.
    page_bytes: int = 4096
    # The share of the ways of an L1 set that the rows of one GEMM operand may fill; the rest
    # serves the other operand. Fitted.
    l1_set_share: float = 2 / 3

    # What one load adds to a GEMM loop that is bound by arithmetic. Fitted. For a vector of a
    # packed panel, and for a broadcast element resident in L2 or beyond it:
    vector_load_cycles: float = 0.1
    broadcast_l2_cycles: float = 0.025
    broadcast_beyond_l2_cycles: float = 0.07
    # The same for the register tiles of other families, as a fraction of a load's issue. Fitted.
    load_contention: float = 0.1

    # Relative cost of a shorter tail tile, whose code is separate and whose loop starts cold: in a
    # GEMM, and in the register tiles of other families. Fitted; with either value for both, the
    # model ranks some tiles of the benchmarks otherwise.
    gemm_tail_fraction: float = 0.01
    tail_fraction: float = 0.02
    # A register tile that does not divide its range and guards its bounds. Fitted.
    guarded_tile_factor: float = 1.15
    # From the start of a register tile to its first sums. Fitted.
    tile_start_cycles: float = 24
    # Starting the loops over one block of keys in attention. Fitted.
    key_block_cycles: float = 100.0

    # One multiply-add of a contraction by the default schedule, which loads every operand for each.
    # Measured 0.11 if both operands are contiguous along the summed axis, 0.9 to 2 if one is not,
    # and 7.5 for a convolution with padding.
    unblocked_fma_cycles: float = 1.0

    # One vector of exponentials, with the running maximum and sum of attention. Fitted; measured 13
    # for exp over 16 KiB. Other expensive elementwise operators are counted as this.
    exp_vector_cycles: float = 10.0
    # One element of a horizontal sum, where a tree adds several vectors at once. Fitted.
    horizontal_sum_cycles: float = 1.0
    # One element that is packed or stored in transposed order. Fitted.
    transpose_cycles: float = 0.4
    # One element that is packed into panels. Fitted.
    pack_cycles: float = 0.28

    # One vector multiply-add of a depthwise convolution. Fitted. Neighbouring positions share the
    # load of the vector operand:
    fma_shared_load_cycles: float = 0.55
    # The vector operand straddles two cache lines:
    fma_unaligned_load_cycles: float = 1.15
    # Two loads and a shuffle give the vector operand (stride 2):
    fma_strided_load_cycles: float = 2.4
    # The vector operand is gathered (larger strides):
    fma_gather_cycles: float = 16.0

    # Winograd transforms F(2x2, 3x3) and F(4x4, 3x3): loads, additions and stores of one tile and
    # one vector of channels, counted at two instructions per cycle.
    winograd_f2: WinogradTransforms = WinogradTransforms(40, 25)
    winograd_f4: WinogradTransforms = WinogradTransforms(130, 80)

    # One parallel region of weft's thread pool with all workers spinning. Measured 0.17 us. No
    # estimate counts it: all are for one core, and PARALLEL_THRESHOLD keeps small regions serial.
    fork_join_seconds: float = 0.17e-6

    def seconds(self, cycles: float) -> float:
        """``cycles`` of one core as seconds at the nominal clock."""
        return cycles / self.frequency

    def winograd_transforms(self, tile: int) -> WinogradTransforms:
        """The transforms with ``tile`` x ``tile`` outputs; raises ``KeyError`` for other tiles."""
        return {2: self.winograd_f2, 4: self.winograd_f4}[tile]

    def conversion_cycles(self, itemsize: int) -> float:
        """Cycles to change the layout of one element: it is read once and stored once."""
        return 2 * itemsize / self.beyond_l2_load_store_bandwidth

    def transfer_cycles(self, moved_bytes: float, working_set: float | None = None) -> float:
        """Cycles to move bytes through the level of the memory hierarchy that holds them.

        ``working_set`` is the size in bytes that decides the level, ``moved_bytes`` by default.
        """
        held = moved_bytes if working_set is None else working_set
        if held <= self.l1_bytes:
            return moved_bytes / self.l1_bandwidth
        if held <= self.l2_bytes:
            return moved_bytes / self.l2_bandwidth
        if held <= self.l3_bytes:
            return moved_bytes / self.beyond_l2_load_store_bandwidth
        return moved_bytes / self.memory_bandwidth

    def roofline_cycles(
        self, operations: float, itemsize: int, moved_bytes: float, *, vectorized: bool = True
    ) -> float:
        """The longer of arithmetic and transfers (Williams et al., "Roofline", 2009), in cycles.

        ``operations`` counts a multiply-add as two, on elements of ``itemsize`` bytes; scalar code
        (``vectorized=False``) does one operation at a time, without overlap of their latencies.
        """
        lanes = max(1, self.vector_bytes // max(1, itemsize))
        per_cycle = 2 * self.fma_per_cycle * lanes if vectorized else 2 / self.fma_latency
        return max(operations / per_cycle, self.transfer_cycles(moved_bytes))


@functools.lru_cache(maxsize=64)
def machine_model(target: CpuTarget) -> MachineModel:
    """The model of the CPU that ``target`` names."""
    return MachineModel(target.vector_bits // 8, target.l1_bytes, target.l2_bytes, target.l3_bytes)


def has_masks(target: CpuTarget) -> bool:
    """Whether loads and stores of some lanes of a vector cost no more than those of all."""
    return target.has("avx512vl") and target.has("avx512bw")


def imbalance(tasks: int) -> float:
    """How much longer equal tasks take than perfectly shared ones, averaged over 1 to 8 threads.

    The thread count is not known when code is generated, and must not change results.
    """
    counts = (1, 2, 4, 8)
    return sum(-(-tasks // n) * n / tasks for n in counts) / len(counts)
