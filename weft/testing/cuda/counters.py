"""What a launch did: instructions by kind, memory transactions, bank conflicts, divergence."""

from __future__ import annotations

import json
from dataclasses import asdict, field

import numpy as np

from weft.support.dataclass import dataclass
from weft.testing.cuda.compiled import CompiledBlock, LaunchShape, Program
from weft.testing.cuda.device_memory import Region
from weft.testing.cuda.ptx.module import Instruction

SECTOR_BYTES = 32
BANKS, BANK_BYTES = 32, 4


@dataclass(slots=True)
class MemoryCounts:
    """One static memory instruction. A request is one execution by one warp.

    ``transactions`` are 32-byte sectors of global memory, or passes over the banks of shared
    memory; ``conflicts`` are the passes beyond those that the bytes need.
    """

    instruction: str
    ptx_line: int
    source: str
    space: str
    requests: int = 0
    transactions: int = 0
    bytes_used: int = 0
    bytes_moved: int = 0
    conflicts: int = 0


@dataclass(slots=True)
class LaunchCounts:
    """The counts of one launch. ``warp_instructions`` are executions by warps, by kind."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    warp_instructions: dict[str, int] = field(default_factory=dict)
    thread_instructions: int = 0
    divergent_branches: int = 0
    mma_flops: int = 0
    fma_flops: int = 0
    memory: list[MemoryCounts] = field(default_factory=list)

    def total(self, what: str, space: str = "global") -> int:
        """The sum of a field of ``MemoryCounts`` over the instructions of a space."""
        return sum(getattr(item, what) for item in self.memory if item.space == space)

    def to_json(self) -> str:
        """All counts as JSON text."""
        return json.dumps(asdict(self), indent=1)

    def table(self) -> str:
        """The counts as text: a line per memory instruction."""
        lines = [f"kernel {self.kernel}, grid {self.grid}, block {self.block}",
                 "  " + ", ".join(f"{kind} {count}" for kind, count in
                                  sorted(self.warp_instructions.items()))]
        lines.append(f"  {'source':>14} {'PTX':>5} {'instruction':24} {'requests':>9} "
                     f"{'trans.':>9} {'per req.':>8} {'used':>6} {'conflicts':>9}")
        for item in self.memory:
            share = item.bytes_used / item.bytes_moved if item.bytes_moved else 1.0
            per = item.transactions / item.requests if item.requests else 0.0
            lines.append(
                f"  {item.source:>14} {item.ptx_line:>5} {item.instruction:24} "
                f"{item.requests:>9} {item.transactions:>9} {per:>8.2f} {share:>6.0%} "
                f"{item.conflicts:>9}")
        return "\n".join(lines)


class Counters:
    """Collects the counts of a launch over its batches."""

    def __init__(self, program: Program, shape: LaunchShape) -> None:
        self.program = program
        self.counts = LaunchCounts(
            program.function.name, shape.grid, shape.block,
            program.static_shared_bytes + shape.dynamic_shared_bytes)
        self.sites: dict[int, MemoryCounts] = {}

    def result(self) -> LaunchCounts:
        """The counts, memory instructions in the order of the PTX text."""
        self.counts.memory = sorted(self.sites.values(), key=lambda item: item.ptx_line)
        return self.counts

    def block(self, block: CompiledBlock, slots: np.ndarray) -> None:
        """A basic block ran on ``slots``."""
        warps = int(np.unique(slots // 32).shape[0])
        counts = self.counts
        for kind, number in block.kinds.items():
            counts.warp_instructions[kind] = counts.warp_instructions.get(kind, 0) + number * warps
        counts.thread_instructions += block.instructions * slots.shape[0]
        counts.fma_flops += 2 * block.kinds.get("fma", 0) * slots.shape[0]

    def divergence(self, _site: int, yes: np.ndarray, no: np.ndarray) -> None:
        """A branch sent lanes both ways."""
        both = np.intersect1d(yes // 32, no // 32)
        self.counts.divergent_branches += int(both.shape[0])

    def access(
        self, site: int, space: str, region: Region, offset: np.ndarray, nbytes: int,
        slots: np.ndarray, shared_stride: int,
    ) -> None:
        """A memory instruction ran: ``nbytes`` at each ``offset`` of ``region``."""
        if space == "generic":
            space = "global"
        counts = self.sites.get(site)
        if counts is None:
            instruction = self.program.names.sites[site]
            counts = self.sites[site] = MemoryCounts(
                instruction.name, instruction.line, str(instruction.source or ""), space)
        offset = np.broadcast_to(offset, slots.shape)
        warps = slots // 32
        counts.requests += int(np.unique(warps).shape[0])
        counts.bytes_used += nbytes * slots.shape[0]
        if space == "shared":
            self._shared(counts, offset, nbytes, warps, shared_stride)
        elif space == "global":
            self._global(counts, offset + (region.base % SECTOR_BYTES), nbytes, warps)

    def bulk(self, site: int, nbytes: int, slots: np.ndarray) -> None:
        """A bulk copy between global and shared memory ran on each of ``slots``."""
        counts = self.sites.get(site)
        if counts is None:
            instruction = self.program.names.sites[site]
            counts = self.sites[site] = MemoryCounts(
                instruction.name, instruction.line, str(instruction.source or ""), "global")
        number = slots.shape[0]
        counts.requests += number
        counts.transactions += number * -(-nbytes // SECTOR_BYTES)
        counts.bytes_used += number * nbytes
        counts.bytes_moved += number * nbytes

    @staticmethod
    def _global(counts: MemoryCounts, offset: np.ndarray, nbytes: int, warps: np.ndarray) -> None:
        sectors = _spread(offset // SECTOR_BYTES, (offset + nbytes - 1) // SECTOR_BYTES)
        keys = np.unique(np.repeat(warps, sectors.shape[1]) * (1 << 40) + sectors.ravel())
        counts.transactions += keys.shape[0]
        counts.bytes_moved += SECTOR_BYTES * keys.shape[0]

    @staticmethod
    def _shared(
        counts: MemoryCounts, offset: np.ndarray, nbytes: int, warps: np.ndarray, stride: int
    ) -> None:
        """Passes: the largest number of distinct words in one bank, per group of lanes.

        Accesses of 8 and 16 bytes are served for half warps and quarter warps.
        """
        parts = max(1, nbytes // BANK_BYTES)
        lane = np.arange(offset.shape[0]) if warps.shape[0] % 32 else None
        position = (lane if lane is not None else np.arange(offset.shape[0])) % 32
        group = warps * parts + position // (32 // parts)
        words = (offset % stride) // BANK_BYTES
        all_words = (words[:, None] + np.arange(parts)).ravel()
        keys = np.unique(np.repeat(group, parts) * (1 << 20) + all_words)
        banks = (keys >> 20) * BANKS + keys % BANKS
        _, sizes = np.unique(banks, return_counts=True)
        owners = np.unique(banks) // BANKS
        order = np.argsort(owners, kind="stable")
        owners, sizes = owners[order], sizes[order]
        starts = np.flatnonzero(np.r_[True, owners[1:] != owners[:-1]])
        passes = np.maximum.reduceat(sizes, starts)
        counts.transactions += int(passes.sum())
        counts.conflicts += int((passes - 1).sum())
        counts.bytes_moved += 128 * int(passes.sum())


def _spread(first: np.ndarray, last: np.ndarray) -> np.ndarray:
    """All numbers from ``first`` to ``last`` for each row; rows repeat their last one."""
    width = int((last - first).max()) + 1
    return np.minimum(first[:, None] + np.arange(width), last[:, None])


_LOADS_STORES = frozenset(("ld", "ldu", "st", "ldmatrix", "stmatrix"))
_SYNC = frozenset(("bar", "barrier", "mbarrier", "membar", "fence", "wgmma.fence"))
_CONTROL = frozenset(("bra", "brx", "ret", "exit", "call"))
_FLOATS = frozenset(("f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "f32x2"))
_SPECIAL = frozenset(("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"))


def kind_of(instruction: Instruction) -> str:
    """fma, float, special, mma, integer, convert, ldst, async, atomic, sync, warp or control."""
    opcode, modifiers = instruction.opcode, instruction.modifiers
    if opcode in {"mma", "wgmma"}:
        return "mma" if opcode == "mma" or modifiers[0] == "mma_async" else "sync"
    if opcode in _LOADS_STORES:
        return "ldst"
    if opcode == "cp":
        return "async"
    if opcode in {"atom", "red"}:
        return "atomic"
    if opcode in _SYNC:
        return "sync"
    if opcode in _CONTROL:
        return "control"
    if opcode in {"shfl", "vote", "match", "redux", "elect", "activemask"}:
        return "warp"
    if opcode == "fma":
        return "fma"
    if opcode in _SPECIAL:
        return "special"
    if opcode == "cvt":
        return "convert"
    return "float" if modifiers and modifiers[-1] in _FLOATS else "integer"
