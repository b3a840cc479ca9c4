"""The machine model of CPUs: every rate and cost that estimates use, and formulas over them.

A rate is a measured quantity of the target's machine (``weft.target.machine``), times a factor that
says how much of it a loop of that kind reaches. All rates are per core and in cycles;
``MachineModel.seconds`` converts. Cost files of the operator families read the rates from here and
define none of their own.

Provenance. The quantities of each machine have sources (``weft/target/machines``). The factors are
fitted: chosen so that the estimates rank the tiles, blocks and algorithms of weft's own kernels as
their measured times do, on AMD Zen 4 and Zen 5 cores with AVX-512 (GEMM from 64 to 8192 in M, N and
K; the convolutions and attentions of ``benchmarks/``). Which of the two cores a factor comes from
was not recorded.
"""

from __future__ import annotations

import functools
import math

from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.target.machine import Level, Machine, coarse
from weft.target.machine_tables import machine_of

_LINE = 64  # bytes of a cache line
# Shares of the load rate of a level. Of L2 for packed panels of B, and for loads and stores of
# other data: rows of an unpacked image, whose vectors straddle two lines.
_L2_STREAM, _L2_MIXED = 5 / 8, 3 / 8
# Beyond L2 each page costs latencies besides its bytes, because hardware prefetchers stop at its
# end: one for panels that a GEMM reads once, two for loads and stores (transform domain of a
# Winograd convolution, changes of layout).
_STREAM_LATENCIES, _MIXED_LATENCIES = 1, 2
# One layer's share of L3: between two calls the data of the others pass through it.
_L3_SHARES = 8
# Cache lines that a loop of multiply-adds has in flight where the hardware does not prefetch.
_LINES_IN_FLIGHT = 7
# The share of a latency beyond L2 that starting a sequential run adds to one step of a GEMM.
_RUN_START = 1 / 56
# Scalar operations that two cores save together in one cycle of a fork and join, for one lane.
_FORK_JOIN_OPERATIONS = 2.05
# Instructions or latencies of one unit of work; the machine's ports and latencies give the cycles.
_EXP_INSTRUCTIONS = 20
_PACK_LOADS, _TRANSPOSE_CYCLES = 8.96, 6.4  # of one vector of float32
# Of a machine whose values are unknown: vector instructions, and a division, in multiply-adds; an
# element that is inserted into a vector, in loads; instructions that wait at a time.
_VECTOR_OPS, _DIVISION, _GATHERED, _WINDOW = 1.65, 5.0, 2.0, 224
_USUAL_WAYS = 8  # of an L2 whose ways a measured machine does not know
_TILE_START_LATENCIES, _KEY_BLOCK_LATENCIES = 6, 25


@dataclass(frozen=True, slots=True)
class WinogradTransforms:
    """Cycles of the input and output transforms of one tile, for one vector of channels."""

    input_cycles: float
    output_cycles: float


@dataclass(frozen=True, slots=True)
class MachineModel:
    """Rates of one CPU core. Bandwidths are bytes per cycle, latencies and costs are cycles.

    "Beyond L2" means L3, or memory on a machine without L3; data that exceeds L3 is counted at
    ``memory_bandwidth`` where an estimate distinguishes it. The four cache and vector sizes come
    from the target, ``machine`` holds the measured quantities.
    """

    machine: Machine
    vector_bytes: int
    vector_registers: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    # The lines of a set of L2.
    l2_ways: int

    # Nominal clock in Hz.
    frequency: float
    # Execution ports, for vectors of the target's width, and latencies.
    fma_per_cycle: float
    fma_latency: float
    loads_per_cycle: float
    stores_per_cycle: float
    # The same for at most half of a vector, of which some cores execute twice as many.
    narrow_loads_per_cycle: float
    narrow_stores_per_cycle: float
    # Vector instructions of all kinds, of which no more than these are multiply-adds or shuffles.
    vector_ops_per_cycle: float
    shuffles_per_cycle: float
    divide_cycles: float
    # For each element of a vector that is gathered, each from its own address.
    gather_cycles: float
    # The reorder window: how many instructions are in flight at once.
    reorder_window: float

    # Sequential vector loads from L1.
    l1_bandwidth: float
    # Sequential vector loads from L2, of packed panels of B.
    l2_stream_bandwidth: float
    # Vector loads and stores through L2 outside of packed panels.
    l2_bandwidth: float
    # Sequential vector loads beyond L2, of panels that a GEMM reads once.
    beyond_l2_stream_bandwidth: float
    # Sequential loads and stores beyond L2.
    beyond_l2_load_store_bandwidth: float
    # Single cache lines beyond L2, which the hardware does not prefetch.
    beyond_l2_line_bandwidth: float
    # Sequential vector loads from memory.
    memory_bandwidth: float
    # The first line of a sequential run beyond L2, before the hardware prefetches.
    beyond_l2_run_cycles: float

    # What one load adds to a GEMM loop that is bound by arithmetic. For a vector of a packed panel,
    # and for a broadcast element resident in L2 or beyond it:
    vector_load_cycles: float
    broadcast_l2_cycles: float
    broadcast_beyond_l2_cycles: float

    # From the start of a register tile to its first sums.
    tile_start_cycles: float
    # Starting the loops over one block of keys in attention.
    key_block_cycles: float
    # One vector of exponentials, with the running maximum and sum of attention; measured 13 on Zen
    # 5 for exp over 16 KiB. Other expensive elementwise operators are counted as this.
    exp_vector_cycles: float
    # One element that is packed or stored in transposed order.
    transpose_cycles: float
    # One element that is packed into panels.
    pack_cycles: float

    # One vector multiply-add of a depthwise convolution. Neighbouring positions share the load of
    # the vector operand:
    fma_shared_load_cycles: float
    # The vector operand straddles two cache lines:
    fma_unaligned_load_cycles: float
    # Two loads and a shuffle give the vector operand (stride 2):
    fma_strided_load_cycles: float
    # The vector operand is gathered (larger strides):
    fma_gather_cycles: float

    # Winograd transforms F(2x2, 3x3) and F(4x4, 3x3): loads, additions and stores of one tile and
    # one vector of channels, counted as instructions on the ports of multiply-adds.
    winograd_f2: WinogradTransforms
    winograd_f4: WinogradTransforms

    # One parallel region of weft's thread pool with all workers spinning. No estimate counts it:
    # all are for one core, and ``parallel_threshold`` keeps small regions serial.
    fork_join_seconds: float
    # Scalar operations below which a fork and join costs more than a second core saves.
    parallel_threshold: int
    # How far ahead of its use data beyond L2 should be fetched; 0 if the hardware does it well.
    prefetch_distance_bytes: int

    # Lines whose addresses differ by a multiple of a page fall into one set of L1.
    page_bytes: int
    huge_page_bytes: int

    # The fraction of transfers beyond L2 that arithmetic does not hide, where weights are read
    # again for every tile of a convolution.
    unhidden_fraction: float = 0.06
    # The share of the ways of an L1 set that the rows of one GEMM operand may fill; the rest
    # serves the other operand.
    l1_set_share: float = 2 / 3
    # What a load adds to the register tiles of other families, as a fraction of its issue.
    load_contention: float = 0.1
    # Relative cost of a shorter tail tile, whose code is separate and whose loop starts cold: in a
    # GEMM, and in the register tiles of other families. With either value for both, the model ranks
    # some tiles of the benchmarks otherwise.
    gemm_tail_fraction: float = 0.01
    tail_fraction: float = 0.02
    # The share of L2 that data may fill which loops read again; the rest is for what passes by.
    l2_resident_share: float = 0.75
    # A register tile that does not divide its range and guards its bounds.
    guarded_tile_factor: float = 1.15
    # One multiply-add of a contraction by the default schedule, which loads every operand for each.
    # Measured 0.11 on Zen 5 if both operands are contiguous along the summed axis, 0.9 to 2 if one
    # is not, and 7.5 for a convolution with padding.
    unblocked_fma_cycles: float = 1.0
    # One element of a horizontal sum, where a tree adds several vectors at once.
    horizontal_sum_cycles: float = 1.0
    # One vector of elements that is dequantised in registers from a block. Measured on Zen 5, with
    # its multiply-add: 2 for Q4_0 and 2.6 for Q4_K.
    dequantize_vector_cycles: float = 2.5

    def seconds(self, cycles: float) -> float:
        """``cycles`` of one core as seconds at the nominal clock."""
        return cycles / self.frequency

    @property
    def l2_resident_bytes(self) -> int:
        """The bytes that stay in L2 while other data pass through it."""
        return int(self.l2_bytes * self.l2_resident_share)

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

    @property
    def stream_prefetch_bytes(self) -> int:
        """How far ahead to fetch what streams from memory at its full rate: a power of two.

        By Little's law, the bytes transferred within a latency; twice as many cover its variance.
        """
        memory = self.machine.memory
        ahead = 2 * memory.latency_cycles * memory.load_bytes_per_cycle
        return 1 << max(6, math.ceil(math.log2(ahead)))

    def weight_cycles(self, nbytes: float) -> float:
        """Cycles to read weights that exceed L2, once in a call, in runs of a few pages.

        They come from L3 if they fill a small share of it. Those that fill more of it were evicted
        since the last call, by the data of other layers.
        """
        rate = self.beyond_l2_line_bandwidth
        if nbytes > self.l3_bytes // _L3_SHARES:
            rate = min(rate, self.memory_bandwidth)
        return nbytes / rate

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
    """The model of the CPU that ``target`` describes."""
    machine, vector_bytes = machine_of(target.machine), target.vector_bits // 8
    beyond = machine.memory if machine.l3 is None else machine.l3
    fma = machine.fma_rate(target.vector_bits)
    (loads, stores), (narrow_loads, narrow_stores) = (
        (min(machine.loads_per_cycle, machine.l1.load_bytes_per_cycle / width),
         min(machine.stores_per_cycle, machine.l1.store_bytes_per_cycle / width))
        for width in (vector_bytes, vector_bytes / 2))
    lanes = vector_bytes // 4
    line_rate = _LINE * _LINES_IN_FLIGHT / beyond.latency_cycles
    return MachineModel(
        machine, vector_bytes, target.vector_registers, target.l1_bytes, target.l2_bytes,
        target.l3_bytes,
        l2_ways=machine.l2.ways or _USUAL_WAYS,
        frequency=machine.frequency, fma_per_cycle=fma, fma_latency=machine.fma_latency,
        loads_per_cycle=loads, stores_per_cycle=stores,
        narrow_loads_per_cycle=narrow_loads, narrow_stores_per_cycle=narrow_stores,
        vector_ops_per_cycle=max(fma, machine.vector_ops_per_cycle or _VECTOR_OPS * fma),
        shuffles_per_cycle=machine.shuffles_per_cycle or fma,
        divide_cycles=machine.divide_cycles or _DIVISION / fma,
        gather_cycles=machine.gather_cycles or _GATHERED / loads,
        reorder_window=machine.reorder_window or _WINDOW,
        l1_bandwidth=loads * vector_bytes,
        l2_stream_bandwidth=machine.l2.load_bytes_per_cycle * _L2_STREAM,
        l2_bandwidth=machine.l2.load_bytes_per_cycle * _L2_MIXED,
        beyond_l2_stream_bandwidth=_paged_rate(machine, beyond, _STREAM_LATENCIES),
        beyond_l2_load_store_bandwidth=_paged_rate(machine, beyond, _MIXED_LATENCIES),
        beyond_l2_line_bandwidth=min(line_rate, beyond.load_bytes_per_cycle),
        memory_bandwidth=machine.memory.load_bytes_per_cycle,
        beyond_l2_run_cycles=beyond.latency_cycles * _RUN_START,
        vector_load_cycles=0.2 / loads, broadcast_l2_cycles=0.05 / loads,
        broadcast_beyond_l2_cycles=0.14 / loads,
        tile_start_cycles=_TILE_START_LATENCIES * machine.fma_latency,
        key_block_cycles=_KEY_BLOCK_LATENCIES * machine.fma_latency,
        exp_vector_cycles=_EXP_INSTRUCTIONS / fma,
        transpose_cycles=_TRANSPOSE_CYCLES / lanes, pack_cycles=_PACK_LOADS / loads / lanes,
        fma_shared_load_cycles=1.1 / fma, fma_unaligned_load_cycles=2.3 / loads,
        fma_strided_load_cycles=4.8 / loads, fma_gather_cycles=2 * lanes / loads,
        winograd_f2=WinogradTransforms(80 / fma, 50 / fma),
        winograd_f4=WinogradTransforms(260 / fma, 160 / fma),
        fork_join_seconds=machine.fork_join_seconds,
        parallel_threshold=_one_digit(
            machine.fork_join_seconds * machine.frequency * _FORK_JOIN_OPERATIONS * lanes),
        prefetch_distance_bytes=machine.prefetch_distance_bytes,
        page_bytes=machine.page_bytes, huge_page_bytes=machine.huge_page_bytes)


def _paged_rate(machine: Machine, level: Level, latencies: int) -> float:
    """Bytes per cycle of a run through a level that waits ``latencies`` times in every page."""
    cycles = machine.page_bytes / level.load_bytes_per_cycle + latencies * level.latency_cycles
    return coarse(machine.page_bytes / cycles)


def parallel_threshold(target: CpuTarget) -> int:
    """Scalar operations below which a fork and join costs more than a second core saves."""
    return machine_model(target).parallel_threshold


def has_masks(target: CpuTarget) -> bool:
    """Whether loads and stores of some lanes of a vector cost no more than those of all."""
    return target.has("avx512vl") and target.has("avx512bw")


def imbalance(tasks: int) -> float:
    """How much longer equal tasks take than perfectly shared ones, averaged over 1 to 8 threads.

    The thread count is not known when code is generated, and must not change results.
    """
    counts = (1, 2, 4, 8)
    return sum(-(-tasks // n) * n / tasks for n in counts) / len(counts)


def _one_digit(value: float) -> int:
    """``value`` rounded to one significant decimal digit."""
    return int(round(value, -math.floor(math.log10(value))))
