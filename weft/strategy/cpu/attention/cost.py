"""Tiles and blocks of fused attention, and what it is estimated to take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.strategy.cpu.common.register_tile import RegisterTile, column_cycles, fits_registers
from weft.strategy.cpu.machine_model import machine_model
from weft.target import CpuTarget

# Keys of a block. With fewer the sums are rescaled and stored too often, with more the scores
# leave the first-level cache (measured 64 to 256); so few more are one block still.
BLOCKS, LAST_BLOCK = (64, 128), 256
MAX_VECTORS = 4
SCORE_PASSES = 2  # over scores that are in memory, beside what their packing takes
COPY_WORTH = 1.02  # what a copy of the code has to save, which takes as long to compile again


@dataclass(frozen=True, slots=True)
class AttentionSize:
    """``heads`` counts those of queries in all batches, of which ``group`` share one of keys;
    ``offset`` is the operator's, where keys beyond it need not be read.
    """

    heads: int
    queries: int
    keys: int
    depth: int
    width: int
    offset: int | None = None
    group: int = 1

    @property
    def flops(self) -> int:
        """Multiplications and additions of both products, for the keys that are seen."""
        seen = self.queries * self.keys
        if self.offset is not None:
            ends = (query + self.offset + 1 for query in range(self.queries))
            seen = sum(min(max(end, 0), self.keys) for end in ends)
        return 2 * self.heads * seen * (self.depth + self.width)

    def blocks(self, tile: int, block: int) -> list[int]:
        """How many blocks each tile of ``tile`` queries reads, the last one shorter."""
        whole = -(-self.keys // block)
        tiles = range(tile, self.queries + tile, tile)
        if self.offset is None:
            return [whole for _ in tiles]
        return [min(max(-(-(end + self.offset) // block), 0), whole) for end in tiles]


@dataclass(frozen=True, slots=True)
class AttentionPlan:
    """``vectors`` of ``lanes`` queries a tile; ``block`` keys at a time; register tiles of
    ``key_rows`` keys for the scores and of ``value_rows`` elements of a value for the sums.

    ``tail`` is the plan of the last tile, where it is a narrower one. ``cycles`` is what one core
    takes.
    """

    size: AttentionSize
    lanes: int
    vectors: int
    block: int
    key_rows: int
    value_rows: int
    cycles: float
    tail: AttentionPlan | None = None

    @property
    def tile(self) -> int:
        """Queries of a tile."""
        return self.vectors * self.lanes

    @property
    def copies(self) -> int:
        """How often the code of a block is there: for the last block, and for the last tile."""
        blocks = 1 + (self.size.keys % self.block > 0)
        return blocks * (1 if self.tail is None else 2)

    @property
    def tiles(self) -> int:
        """Tiles of a head; the last one may have fewer queries."""
        return -(-self.size.queries // self.tile)


def plan_attention(size: AttentionSize, target: CpuTarget) -> AttentionPlan:
    """The plan that is estimated to take the least time."""
    lanes = target.lanes("float32")
    blocks = {min(block, size.keys) for block in BLOCKS}
    if size.keys <= LAST_BLOCK:
        blocks.add(size.keys)
    plans = [
        _plan(size, lanes, vectors, block, target)
        for vectors in range(1, MAX_VECTORS + 1)
        for block in sorted(blocks, reverse=True)
        if vectors == 1 or (
            (vectors - 1) * lanes < size.queries
            and _scratch_bytes(size, vectors * lanes, block) <= target.l2_bytes // 2)
    ]
    return min(plans, key=lambda plan: plan.cycles * COPY_WORTH ** plan.copies)


def _scratch_bytes(size: AttentionSize, tile: int, block: int) -> int:
    """What a tile keeps: queries, sums, scores and a mask."""
    return 4 * tile * (size.depth + size.width + 2 * block)


def _plan(
    size: AttentionSize, lanes: int, vectors: int, block: int, target: CpuTarget
) -> AttentionPlan:
    """Tiles of so many vectors, the last one narrower where that saves its code."""
    counts = size.blocks(vectors * lanes, block)
    plan = _of_tiles(size, lanes, vectors, block, target, counts)
    needed = -(-(size.queries % (vectors * lanes)) // lanes)
    if len(counts) == 1 or needed in (0, vectors):
        return plan
    whole = _of_tiles(size, lanes, vectors, block, target, counts[:-1])
    tail = _of_tiles(size, lanes, needed, block, target, counts[-1:])
    narrower = replace(plan, cycles=whole.cycles + tail.cycles, tail=tail)
    worth = COPY_WORTH ** (narrower.copies - plan.copies)
    return narrower if narrower.cycles * worth < plan.cycles else plan


def _of_tiles(
    size: AttentionSize, lanes: int, vectors: int, block: int, target: CpuTarget,
    counts: Sequence[int],
) -> AttentionPlan:
    """Tiles of so many vectors, each of which reads so many blocks."""
    model = machine_model(target)
    key_rows, score_steps = _height(block, vectors, target)
    value_rows, sum_steps = _height(size.width, vectors, target)
    keys = sum(min(count * block, size.keys) for count in counts)
    loads = size.width * vectors * 2 / model.loads_per_cycle
    rescaled = sum(counts) * (loads + model.key_block_cycles)
    products = keys * (score_steps / block * size.depth + sum_steps)
    exponentials = keys * vectors * model.exp_vector_cycles
    turned = (len(counts) * vectors * lanes * (size.depth + size.width)
              * model.transpose_cycles)
    cycles = size.heads * (products + exponentials + rescaled + turned)
    return AttentionPlan(size, lanes, vectors, block, key_rows, value_rows, cycles)


def _height(extent: int, vectors: int, target: CpuTarget) -> tuple[int, float]:
    """Rows of a register tile of so many vectors, and the cycles of a step over ``extent`` rows."""
    model = machine_model(target)
    best: tuple[float, int] = (math.inf, 1)
    for rows in range(1, extent + 1):
        if rows > 1 and not fits_registers(RegisterTile(rows, vectors), target):
            break
        cost = column_cycles(model, extent, rows, vectors)
        cost *= 1 + model.tail_fraction if extent % rows else 1.0
        best = min(best, (cost, rows))
    return best[1], best[0]


def row_cycles(size: AttentionSize, target: CpuTarget) -> float:
    """What one core takes to read keys and values once, with all queries that share them."""
    model, lanes = machine_model(target), target.lanes("float32")
    depth, width = -(-size.depth // lanes), -(-size.width // lanes)
    score = max(depth / model.loads_per_cycle, depth / model.fma_per_cycle)
    score += model.horizontal_sum_cycles
    latency = model.fma_latency * -(-width // 4) / size.group / size.queries
    summed = max(width / model.fma_per_cycle, latency)
    per_key = score + summed + model.exp_vector_cycles / lanes
    return size.heads * size.queries * size.keys * per_key


def unfused_cycles(size: AttentionSize, target: CpuTarget) -> float:
    """What one core takes for the two products and the softmax as kernels of their own.

    Products pack their operands, run on whole vectors of columns, and heads of a group are rows
    of one of them; nothing is passed over.
    """
    model, lanes = machine_model(target), target.lanes("float32")
    keys, width = (-(-n // lanes) for n in (size.keys, size.width))
    products = size.queries * (keys * size.depth + width * size.keys)
    products /= model.fma_per_cycle
    exponentials = size.queries * keys * model.exp_vector_cycles
    scores = size.queries * size.keys
    packed = size.queries * size.depth + scores + size.keys * (size.depth + size.width) / size.group
    cycles = size.heads * (products + exponentials + packed * model.pack_cycles)
    if 4 * size.heads * scores > target.l2_bytes:
        score_bytes = 4 * size.heads * scores
        cycles += SCORE_PASSES * score_bytes / model.beyond_l2_line_bandwidth
    return cycles
