"""The machine model of NVIDIA GPUs: every constant that cost estimates use, and formulas over them.

Estimates are seconds of one kernel on one GPU: the launch, then the longest of memory, arithmetic
and latency. Cost files of the operator families define no constants of their own.

Provenance. "Datasheet" and "whitepaper" mean NVIDIA's product datasheets and architecture
whitepapers (A100, H100, H200, L40S, RTX A6000, RTX 5090, B200); dense rates without sparsity, at
the boost clock. "Guide" means the compute-capability tables of the CUDA C++ Programming Guide.
"Microbenchmark" means published measurements (Jia et al. 2018, arXiv:1804.06826; Luo et al. 2024,
arXiv:2402.13499). The rest is "assumed". weft has measured none of them on a GPU: they rank
schedules; they do not predict times.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from weft.support.dataclass import dataclass
from weft.support.errors import TargetError
from weft.target import CudaTarget

WARP = 32
SECTOR = 32  # bytes of one transaction of global memory (guide)
VECTOR_BYTES = 16  # of the widest load and store of one thread (PTX ISA: ld.global.v4.f32)

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Blocks and warps of a kernel that one SM holds at a time, and the resource that limits it."""

    blocks: int
    warps: int
    fraction: float
    limit: str


@dataclass(frozen=True, slots=True)
class GpuModel:
    """Rates and sizes of one GPU. Rates are per second and of the whole GPU unless said otherwise.

    ``tensor_flops`` are by operand type: ``f16`` (and bf16), ``tf32`` and ``s8``; a multiply-add
    counts as two.
    """

    name: str
    sms: int
    clock: float  # Hz, boost
    dram_bandwidth: float  # bytes per second
    l2_bytes: int
    l2_bandwidth: float  # bytes per second, reads that hit
    shared_per_sm: int  # bytes
    shared_per_block: int  # bytes, with the opt-in above 48 KiB
    threads_per_sm: int
    blocks_per_sm: int
    fp32_flops: float
    tensor_flops: Mapping[str, float]
    fp64_flops: float

    registers_per_sm: int = 65536  # 32-bit; guide, the same from sm_80 to sm_120
    max_registers: int = 255  # of one thread; guide
    max_threads: int = 1024  # of one block; guide
    # From one kernel's end to the next one's first instruction in one stream. Microbenchmarks give
    # 1 to 3 microseconds without graphs and about 1 with them. Assumed.
    launch_seconds: float = 2.0e-6
    # Share of the datasheet's memory bandwidth that a copy reaches. Published copies reach 0.90 to
    # 0.94 on A100 and H100. Assumed 0.92.
    copy_efficiency: float = 0.92
    # A load that misses L2, under load. Microbenchmark: 470 to 680 ns unloaded.
    dram_latency: float = 650e-9
    # An exchange through shared memory with its barrier, in cycles. Microbenchmark: 20 to 30 for
    # shared memory and 20 to 40 for bar.sync.
    exchange_cycles: float = 60.0
    # Registers are given to a warp in units of 256, and each block has 1 KiB of shared memory for
    # the system (guide, sm_80 and later).
    register_unit: int = 256
    reserved_shared: int = _KIB

    @property
    def bandwidth(self) -> float:
        """Bytes per second that a kernel reaches with all SMs and enough loads in flight."""
        return self.dram_bandwidth * self.copy_efficiency

    @property
    def resident_threads(self) -> int:
        """Threads that the GPU holds at a time."""
        return self.sms * self.threads_per_sm

    def occupancy(self, threads: int, registers: int = 32, shared_bytes: int = 0) -> Occupancy:
        """What one SM holds of blocks of ``threads`` with ``registers`` per thread.

        The formulas of NVIDIA's occupancy calculator. No blocks (0) for a block that does not fit.
        """
        warps = -(-threads // WARP)
        per_warp = _rounded_up(registers * WARP, self.register_unit)
        shared = shared_bytes + self.reserved_shared
        limits = {
            "threads": self.threads_per_sm // WARP // warps,
            "blocks": self.blocks_per_sm,
            "registers": self.registers_per_sm // per_warp // warps,
            "shared memory": (self.shared_per_sm // shared
                              if shared_bytes <= self.shared_per_block else 0),
        }
        limit = min(limits, key=lambda name: limits[name])
        blocks = limits[limit]
        most = self.threads_per_sm // WARP
        return Occupancy(blocks, blocks * warps, blocks * warps / most, limit)

    def memory_seconds(self, moved: float, threads: float, in_flight: float = 64.0,
                       working_set: float | None = None) -> float:
        """Seconds to move ``moved`` bytes by ``threads`` that keep ``in_flight`` bytes each.

        Little's law bounds the rate of few threads: the bytes in flight over the latency. Bytes
        whose ``working_set`` fits in half of L2 move at its bandwidth.
        """
        fits = working_set is not None and 2 * working_set <= self.l2_bytes
        peak = self.l2_bandwidth if fits else self.bandwidth
        active = max(1.0, min(threads, float(self.resident_threads)))
        rate = min(peak, active * in_flight / self.dram_latency)
        return moved / rate

    def arithmetic_seconds(self, operations: float, threads: float, *, wide: bool = False) -> float:
        """Seconds of ``operations`` of FP32 (FP64 if ``wide``), an FMA being two, by ``threads``.

        A thread issues at most one FMA per cycle, and an SM needs about 128 of them.
        """
        peak = self.fp64_flops if wide else self.fp32_flops
        rate = min(peak, max(1.0, threads) * 2 * self.clock)
        return operations / rate

    def cycles_seconds(self, cycles: float) -> float:
        """Seconds of ``cycles`` of an SM's clock."""
        return cycles / self.clock

    def waves(self, blocks: int, threads: int, registers: int = 32, shared_bytes: int = 0) -> float:
        """Rounds in which the GPU runs ``blocks``, rounded up; infinite if a block does not fit."""
        resident = self.occupancy(threads, registers, shared_bytes).blocks * self.sms
        return math.ceil(blocks / resident) if resident else math.inf

    def kernel_seconds(self, moved: float, operations: float, threads: float,
                       in_flight: float = 64.0) -> float:
        """The roofline of one kernel with its launch."""
        return self.launch_seconds + max(self.memory_seconds(moved, threads, in_flight),
                                         self.arithmetic_seconds(operations, threads))


def _rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _tensor(f16: float, tf32: float, s8: float) -> Mapping[str, float]:
    return MappingProxyType({"f16": f16, "tf32": tf32, "s8": s8})


A100 = GpuModel(
    name="A100 SXM 80 GB",
    # Datasheet and whitepaper. L2: 5120 bytes per clock (whitepaper).
    sms=108, clock=1.41e9, dram_bandwidth=2.039e12, l2_bytes=40 * _MIB, l2_bandwidth=7.2e12,
    shared_per_sm=164 * _KIB, shared_per_block=163 * _KIB, threads_per_sm=2048, blocks_per_sm=32,
    fp32_flops=19.5e12, tensor_flops=_tensor(312e12, 156e12, 624e12), fp64_flops=9.7e12,
)
RTX_A6000 = GpuModel(
    name="RTX A6000",
    # Datasheet. L2 bandwidth assumed from that of A100 by the number of memory partitions.
    sms=84, clock=1.80e9, dram_bandwidth=768e9, l2_bytes=6 * _MIB, l2_bandwidth=2.8e12,
    shared_per_sm=100 * _KIB, shared_per_block=99 * _KIB, threads_per_sm=1536, blocks_per_sm=16,
    fp32_flops=38.7e12, tensor_flops=_tensor(154.8e12, 77.4e12, 309.7e12), fp64_flops=0.605e12,
)
L40S = GpuModel(
    name="L40S",
    # Datasheet. L2 bandwidth: microbenchmark of AD102, about 5 TB/s.
    sms=142, clock=2.52e9, dram_bandwidth=864e9, l2_bytes=96 * _MIB, l2_bandwidth=5.0e12,
    shared_per_sm=100 * _KIB, shared_per_block=99 * _KIB, threads_per_sm=1536, blocks_per_sm=24,
    fp32_flops=91.6e12, tensor_flops=_tensor(362e12, 183e12, 733e12), fp64_flops=1.43e12,
)
H100 = GpuModel(
    name="H100 SXM",
    # Datasheet. L2 bandwidth: microbenchmark, 5.5 to 7 TB/s.
    sms=132, clock=1.98e9, dram_bandwidth=3.35e12, l2_bytes=50 * _MIB, l2_bandwidth=5.5e12,
    shared_per_sm=228 * _KIB, shared_per_block=227 * _KIB, threads_per_sm=2048, blocks_per_sm=32,
    fp32_flops=67e12, tensor_flops=_tensor(989e12, 494e12, 1979e12), fp64_flops=34e12,
)
# Datasheet: the GPU of H100 with other memory.
H200 = replace(H100, name="H200 SXM", dram_bandwidth=4.8e12)
B200 = GpuModel(
    name="B200",
    # Datasheet of HGX B200, an eighth each. L2 bandwidth assumed from H100, by SMs and clock.
    sms=148, clock=1.965e9, dram_bandwidth=8.0e12, l2_bytes=126 * _MIB, l2_bandwidth=10e12,
    shared_per_sm=228 * _KIB, shared_per_block=227 * _KIB, threads_per_sm=2048, blocks_per_sm=32,
    fp32_flops=75e12, tensor_flops=_tensor(2250e12, 1125e12, 4500e12), fp64_flops=37e12,
)
RTX_5090 = GpuModel(
    name="RTX 5090",
    # Datasheet and whitepaper. L2 bandwidth assumed from that of L40S by SMs and clock.
    sms=170, clock=2.41e9, dram_bandwidth=1.792e12, l2_bytes=96 * _MIB, l2_bandwidth=6.0e12,
    shared_per_sm=100 * _KIB, shared_per_block=99 * _KIB, threads_per_sm=1536, blocks_per_sm=24,
    fp32_flops=104.8e12, tensor_flops=_tensor(209.5e12, 104.8e12, 838e12), fp64_flops=1.64e12,
)

# The GPU that estimates assume for an architecture: that of data centres, else the largest.
_BY_ARCH: Mapping[str, GpuModel] = MappingProxyType({
    "sm_80": A100, "sm_86": RTX_A6000, "sm_89": L40S, "sm_90": H100, "sm_90a": H100,
    "sm_100": B200, "sm_100a": B200, "sm_120": RTX_5090, "sm_120a": RTX_5090,
})
MODELS: tuple[GpuModel, ...] = (A100, RTX_A6000, L40S, H100, H200, B200, RTX_5090)


def machine_model(target: CudaTarget) -> GpuModel:
    """The GPU that estimates assume for a target."""
    return model_of(target.arch)


@functools.cache
def model_of(arch: str) -> GpuModel:
    """The GPU that estimates assume for an architecture, such as ``sm_90a``."""
    if arch not in _BY_ARCH:
        raise TargetError(f"no machine model for {arch!r}", expected=", ".join(_BY_ARCH))
    return _BY_ARCH[arch]
