"""The state of the thread blocks that run together."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weft.testing.cuda.async_state import AsyncState
from weft.testing.cuda.compiled import LaunchShape, Program
from weft.testing.cuda.counters import Counters
from weft.testing.cuda.device_memory import SHARED_START, DeviceMemory, Region
from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.races import (
    BLOCK_SHIFT,
    CLOCK_LIMIT,
    CLOCK_SHIFT,
    SITE_BITS,
    Accessor,
)

if TYPE_CHECKING:
    from weft.testing.cuda.ptx.module import Instruction

Array = np.ndarray
WARP = 32


class Batch:
    """Blocks ``blocks`` (linear numbers) of a launch, padded to whole warps.

    Lane ``b * slots_per_block + t`` is thread t of the b-th block. ``live`` is None while every
    lane runs; otherwise it marks the threads that exist and have not exited.
    """

    def __init__(
        self, program: Program, shape: LaunchShape, blocks: Array, memory: DeviceMemory,
        parameters: Region, symbols: dict[str, int], random: np.random.Generator,
        check_races: bool, counters: Counters | None,
    ) -> None:
        self.program = program
        self.names = program.names
        self.shape = shape
        self.blocks = blocks
        self.memory = memory
        self.parameters = parameters
        self.symbols = symbols
        self.random = random
        self.check_races = check_races
        self.counters = counters
        self.has_clusters = max(shape.cluster) > 1
        self.slots_per_block = -(-shape.threads // WARP) * WARP
        self.lanes = self.slots_per_block * blocks.shape[0]
        self.every_slot = np.arange(self.lanes)
        self.live: Array | None = None
        self.live_slots = self.every_slot
        if self.slots_per_block != shape.threads:
            self.set_live(self.every_slot % self.slots_per_block < shape.threads)
        self._special: dict[str, Array] = {}
        self.tracked: list[Region] = []
        self._place_memory()
        self.fenced = np.zeros(blocks.shape[0], dtype=bool)
        self.now = 1  # the time: each barrier that threads pass is a tick
        self.floor = 1  # the last barrier of the thread that passed its last one first
        self.clock = np.ones(self.lanes, dtype=np.int64)
        self.base = np.ones(self.lanes, dtype=np.int64)
        self._identity = ((blocks[self.every_slot // self.slots_per_block] + 1) << BLOCK_SHIFT) | (
            (self.every_slot % self.slots_per_block) << SITE_BITS)
        self._words: Array | None = None
        self.warp_clocks = False
        self.pending = AsyncState(self.lanes)

    def _place_memory(self) -> None:
        program, shape = self.program, self.shape
        dynamic = program.static_shared_bytes + SHARED_START
        alignment = max(program.dynamic_alignment, 16)
        dynamic = -(-dynamic // alignment) * alignment
        if program.dynamic_shared and alignment < 1024 and dynamic % (2 * alignment) == 0:
            dynamic += alignment  # more than the declared alignment is no promise
        self.dynamic_start = dynamic
        extra = dynamic - SHARED_START if program.dynamic_shared else program.static_shared_bytes
        self.shared_bytes = extra + shape.dynamic_shared_bytes
        self.shared_stride = -(-max(self.shared_bytes, 1) // 128) * 128
        self.shared = Region("shared memory", self.shared_stride * self.blocks.shape[0])
        self.local_bytes = program.local_bytes
        self.local_stride = -(-max(self.local_bytes, 1) // 16) * 16
        self.local = Region("local memory", self.local_stride * self.lanes
                            if self.local_bytes else 1)

    def set_live(self, live: Array) -> None:
        """Mark the lanes that still run."""
        self.live = live
        self.live_slots = np.flatnonzero(live)

    # values

    def symbol_address(self, name: str) -> int:
        """The address of a variable in its own space."""
        program = self.program
        if name in program.shared:
            return program.shared[name]
        if name in program.dynamic_shared:
            return self.dynamic_start
        if name in program.local:
            return program.local[name]
        if name in self.symbols:
            return self.symbols[name]
        for parameter in program.function.parameters:
            if parameter.name == name:
                return parameter.offset
        raise CudaEmulationError(f"undefined symbol: {name}", where=program.function.name)

    def parameter(self, name: str, offset: int, dtype: str) -> Array:
        """A scalar of the kernel parameters."""
        start = next((item.offset for item in self.program.function.parameters
                      if item.name == name), None)
        if start is None:
            raise CudaEmulationError(f"undefined parameter: {name}",
                                     where=self.program.function.name)
        width = int(dtype[1])
        return self.parameters.data[start + offset : start + offset + width].view(dtype)

    def special(self, name: str) -> Array:
        """A special register of all lanes, or one element if all share its value."""
        if name not in self._special:
            self._special[name] = self._make_special(name)
        return self._special[name]

    def _make_special(self, name: str) -> Array:
        stem, _, axis = name[1:].partition(".")
        at = "xyz".find(axis) if axis else 0
        grid, block, cluster = self.shape.grid, self.shape.block, self.shape.cluster
        thread = self.every_slot % self.slots_per_block
        number = self.blocks[self.every_slot // self.slots_per_block]
        if stem in {"ntid", "nctaid", "cluster_nctaid", "nclusterid"}:
            sizes = {"ntid": block, "nctaid": grid, "cluster_nctaid": cluster,
                     "nclusterid": tuple(g // c for g, c in zip(grid, cluster, strict=True))}
            return _one(sizes[stem][at])
        ctaid = _coordinate(number, grid, at)
        match stem:
            case "tid":
                value = _coordinate(thread, block, at)
            case "ctaid":
                value = ctaid
            case "cluster_ctaid":
                value = ctaid % cluster[at]
            case "clusterid":
                value = ctaid // cluster[at]
            case "cluster_ctarank":
                value = self.cluster_rank(number)
            case "laneid":
                value = thread % WARP
            case "warpid":
                value = thread // WARP
            case "smid":
                value = number % 132
            case _:
                return self._constant_special(stem, thread)
        if stem in {"ctaid", "clusterid", "cluster_ctaid"} and grid[at] == 1:
            return _one(0)
        return value.astype(np.uint32)

    def _constant_special(self, stem: str, thread: Array) -> Array:
        lane = (thread % WARP).astype(np.uint64)
        one = np.uint64(1)
        cluster = self.shape.cluster
        masks = {
            "lanemask_eq": one << lane,
            "lanemask_lt": (one << lane) - one,
            "lanemask_le": (one << (lane + one)) - one,
        }
        masks["lanemask_gt"] = ~masks["lanemask_le"]
        masks["lanemask_ge"] = ~masks["lanemask_lt"]
        if stem in masks:
            return masks[stem].astype(np.uint32)
        values = {
            "nwarpid": 64, "nsmid": 132, "cluster_nctarank": cluster[0] * cluster[1] * cluster[2],
            "dynamic_smem_size": self.shape.dynamic_shared_bytes,
            "total_smem_size": self.shared_bytes, "is_explicit_cluster": 0, "gridid": 1,
            "clock": 0, "clock64": 0, "clock_hi": 0, "globaltimer": 0, "globaltimer_lo": 0,
        }
        if stem not in values:
            raise CudaEmulationError(f"unknown special register %{stem}",
                                     where=self.program.function.name)
        return _one(values[stem])

    def cluster_rank(self, block: Array) -> Array:
        """The rank of blocks (linear numbers) in their clusters."""
        grid, cluster = self.shape.grid, self.shape.cluster
        x, y, z = (_coordinate(block, grid, at) % cluster[at] for at in range(3))
        return x + cluster[0] * (y + cluster[1] * z)

    def cluster_block(self, position: Array, rank: Array) -> Array:
        """The position in the batch of the block with ``rank`` in the cluster of ``position``."""
        grid, cluster = self.shape.grid, self.shape.cluster
        number = self.blocks[position]
        corner = [_coordinate(number, grid, at) // cluster[at] * cluster[at] for at in range(3)]
        x = corner[0] + rank % cluster[0]
        y = corner[1] + rank // cluster[0] % cluster[1]
        z = corner[2] + rank // (cluster[0] * cluster[1])
        wanted = x + grid[0] * (y + grid[1] * z)
        order = np.argsort(self.blocks)
        return order[np.searchsorted(self.blocks, wanted, sorter=order)]

    # order of accesses

    def accessor(self, slots: Array | None) -> Accessor:
        """Who the lanes are, for the race check."""
        if self._words is None:
            if self.now > CLOCK_LIMIT:
                self._restart_clocks()
            self._words = self._identity | (self.clock << CLOCK_SHIFT)
        fenced = None
        if self.fenced.any():
            fenced = self.fenced[(self.every_slot if slots is None else slots)
                                 // self.slots_per_block]
        if slots is None:
            return Accessor(self._words, self.base, fenced, self.warp_clocks, self.now,
                            self.floor)
        return Accessor(self._words[slots], self.base[slots], fenced, self.warp_clocks,
                        self.now, self.floor)

    def _restart_clocks(self) -> None:
        for region in self.tracked:
            region.shadow = None
        self.tracked.clear()
        self.now = self.floor = 1
        self.clock = np.ones(self.lanes, dtype=np.int64)
        self.base = np.ones(self.lanes, dtype=np.int64)

    def synchronise(self, slots: Array | None) -> None:
        """These lanes passed a barrier: what they did before is ordered with what follows."""
        self._words = None
        self.now += 1
        now = self.now
        if slots is None:
            self.clock = np.full(self.lanes, now)
            self.base = np.full(self.lanes, now)
            self.floor = now
            return
        self.clock, self.base = self.clock.copy(), self.base.copy()
        self.clock[slots] = now
        self.base[slots] = now
        self.floor = int(self.base[self.live_slots].min()) if self.live_slots.shape[0] else now

    def synchronise_warps(self, warps: Array) -> None:
        """These warps passed a barrier of the warp: it orders the accesses of their threads."""
        slots = (warps[:, None] * WARP + np.arange(WARP)[None, :]).reshape(-1)
        self._words = None
        self.clock = self.clock.copy()
        self.now += 1
        self.clock[slots] = self.now
        self.warp_clocks = True

    def count_mma(self, flops: int) -> None:
        """Count the floating-point operations of a matrix product."""
        if self.counters is not None:
            self.counters.counts.mma_flops += flops

    def count_bulk(self, site: int, nbytes: int, slots: Array) -> None:
        """Count a bulk copy, which moves whole sectors."""
        if self.counters is not None:
            self.counters.bulk(site, nbytes, slots)

    def count_access(
        self, site: int, space: str, region: Region, offset: Array, nbytes: int, slots: Array
    ) -> None:
        """Count the transactions of an access."""
        if self.counters is not None:
            self.counters.access(site, "shared" if region is self.shared else space, region, offset,
                                 nbytes, slots, self.shared_stride)

    # places

    def slot_of(self, block: int, thread: int) -> int:
        """The lane of a thread of a block of the launch, 0 if the batch does not hold it."""
        found = np.flatnonzero(self.blocks == block)
        return int(found[0]) * self.slots_per_block + thread if found.shape[0] else 0

    def place(self, instruction: Instruction, slot: int) -> str:
        """Kernel, source line, PTX line, block and thread."""
        thread = slot % self.slots_per_block
        block = int(self.blocks[slot // self.slots_per_block])
        parts = [self.program.function.name]
        if instruction.source is not None:
            parts.append(f"source line {instruction.source}")
        parts.append(f"PTX line {instruction.line}")
        parts.append(f"block {_text(block, self.shape.grid)}")
        parts.append(f"thread {_text(thread, self.shape.block)}")
        return ", ".join(parts)


def _coordinate(number: Array, sizes: tuple[int, ...], axis: int) -> Array:
    if axis == 0:
        return number % sizes[0]
    if axis == 1:
        return number // sizes[0] % sizes[1]
    return number // (sizes[0] * sizes[1])


def _text(number: int, sizes: tuple[int, ...]) -> str:
    x, rest = number % sizes[0], number // sizes[0]
    return f"({x}, {rest % sizes[1]}, {rest // sizes[1]})"


def _one(value: int) -> Array:
    return np.array([value], dtype=np.uint32)
