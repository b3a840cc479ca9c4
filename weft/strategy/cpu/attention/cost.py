"""Cost estimates of the attention algorithms, and the search for tiles and blocks.

Cycles of one core; ``decide`` converts them to seconds.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace

from weft.strategy.cpu.common.register_tile import RegisterTile, column_cycles, fits_registers
from weft.strategy.cpu.machine_model import machine_model
from weft.support.dataclass import dataclass
from weft.target import CpuTarget

# Bytes of L1 for each key of the smallest blocks. Smaller blocks rescale and store the sums too
# often; with larger ones the scores leave L1 (measured 64 to 256 keys with an L1 of 48 KiB).
L1_BYTES_PER_KEY = 768
MAX_VECTORS = 4  # vectors of queries per tile
SCORE_PASSES = 2  # passes of softmax over scores in memory, in addition to packing them
GENERIC_STAGES = 5  # scores, maximum, exponentials, sum and result
MIN_COPY_SPEEDUP = 1.02  # what one more copy of the code must save: it is compiled separately


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """The sizes of one call: queries (heads, queries, depth), keys (keys, depth), values (keys,
    width).

    ``heads`` counts the query heads of all batches; ``group`` of them share one head of keys. With
    an ``offset``, query ``i`` sees the keys up to ``i + offset`` and the others need not be read.
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
        """Multiplications and additions of both products, for visible keys alone."""
        seen = self.queries * self.keys
        if self.offset is not None:
            ends = (query + self.offset + 1 for query in range(self.queries))
            seen = sum(min(max(end, 0), self.keys) for end in ends)
        return 2 * self.heads * seen * (self.depth + self.width)

    def blocks(self, tile: int, block: int) -> list[int]:
        """The number of key blocks that each tile of ``tile`` queries reads."""
        whole = -(-self.keys // block)
        tiles = range(tile, self.queries + tile, tile)
        if self.offset is None:
            return [whole for _ in tiles]
        return [min(max(-(-(end + self.offset) // block), 0), whole) for end in tiles]


@dataclass(frozen=True, slots=True)
class TilePlan:
    """The blocking of fused attention, with its estimate in cycles of one core.

    A tile has ``vectors`` vectors of ``lanes`` queries and reads ``block`` keys at a time.
    Register tiles hold ``key_rows`` keys for the scores and ``value_rows`` elements of a value for
    the sums. ``tail`` is the plan of the last tile if it is narrower.
    """

    shape: AttentionShape
    lanes: int
    vectors: int
    block: int
    key_rows: int
    value_rows: int
    cycles: float
    tail: TilePlan | None = None

    @property
    def tile(self) -> int:
        """Queries of a tile."""
        return self.vectors * self.lanes

    @property
    def copies(self) -> int:
        """Copies of the code of a block: full and partial blocks, full and tail tiles."""
        blocks = 1 + (self.shape.keys % self.block > 0)
        return blocks * (1 if self.tail is None else 2)

    @property
    def tiles(self) -> int:
        """Tiles of a head; the last one may have fewer queries."""
        return -(-self.shape.queries // self.tile)


@functools.lru_cache(maxsize=256)
def plan_tiles(shape: AttentionShape, target: CpuTarget) -> TilePlan:
    """The fastest plan by the estimates, weighed by the copies of code that it needs."""
    lanes = target.lanes("float32")
    small = smallest_block(target)
    blocks = {min(block, shape.keys) for block in (small, 2 * small)}
    if shape.keys <= 4 * small:  # one block holds all of them
        blocks.add(shape.keys)
    plans = [
        plan_of(shape, lanes, vectors, block, target)
        for vectors in range(1, MAX_VECTORS + 1)
        for block in sorted(blocks, reverse=True)
        if vectors == 1 or (
            (vectors - 1) * lanes < shape.queries
            and fits_l2(shape, vectors * lanes, block, target))
    ]
    return min(plans, key=lambda plan: plan.cycles * MIN_COPY_SPEEDUP ** plan.copies)


def smallest_block(target: CpuTarget) -> int:
    """Keys of the smallest blocks that are tried: a power of two."""
    return 1 << max(1, target.l1_bytes // L1_BYTES_PER_KEY).bit_length() - 1


def fits_l2(shape: AttentionShape, tile: int, block: int, target: CpuTarget) -> bool:
    """Whether the scratch buffers of a tile fit: queries, sums, scores and a mask."""
    return 4 * tile * (shape.depth + shape.width + 2 * block) <= target.l2_bytes // 2


def plan_of(
    shape: AttentionShape, lanes: int, vectors: int, block: int, target: CpuTarget
) -> TilePlan:
    """The plan with ``vectors`` per tile; the last tile is narrower if that pays for its code."""
    counts = shape.blocks(vectors * lanes, block)
    plan = _of_tiles(shape, lanes, vectors, block, target, counts)
    needed = -(-(shape.queries % (vectors * lanes)) // lanes)
    if len(counts) == 1 or needed in (0, vectors):
        return plan
    whole = _of_tiles(shape, lanes, vectors, block, target, counts[:-1])
    tail = _of_tiles(shape, lanes, needed, block, target, counts[-1:])
    narrower = replace(plan, cycles=whole.cycles + tail.cycles, tail=tail)
    required = MIN_COPY_SPEEDUP ** (narrower.copies - plan.copies)
    return narrower if narrower.cycles * required < plan.cycles else plan


def _of_tiles(
    shape: AttentionShape, lanes: int, vectors: int, block: int, target: CpuTarget,
    counts: Sequence[int],
) -> TilePlan:
    """The plan of tiles with ``vectors`` each, of which tile ``i`` reads ``counts[i]`` blocks."""
    model = machine_model(target)
    key_rows, score_steps = _height(block, vectors, target)
    value_rows, sum_steps = _height(shape.width, vectors, target)
    keys = sum(min(count * block, shape.keys) for count in counts)
    # A block loads and stores all sums; a store is counted as a load.
    loads = shape.width * vectors * 2 / model.loads_per_cycle
    rescaling = sum(counts) * (loads + model.key_block_cycles)
    products = keys * (score_steps / block * shape.depth + sum_steps)
    exponentials = keys * vectors * model.exp_vector_cycles
    transposes = (len(counts) * vectors * lanes * (shape.depth + shape.width)
                  * model.transpose_cycles)
    cycles = shape.heads * (products + exponentials + rescaling + transposes)
    return TilePlan(shape, lanes, vectors, block, key_rows, value_rows, cycles)


def _height(extent: int, vectors: int, target: CpuTarget) -> tuple[int, float]:
    """The best register tile's rows, and cycles of one reduction step over ``extent`` rows."""
    model = machine_model(target)
    best: tuple[float, int] = (math.inf, 1)
    for rows in range(1, extent + 1):
        if rows > 1 and not fits_registers(RegisterTile(rows, vectors), target):
            break
        cost = column_cycles(model, extent, rows, vectors)
        cost *= 1 + model.tail_fraction if extent % rows else 1.0
        best = min(best, (cost, rows))
    return best[1], best[0]


def decode_cycles(shape: AttentionShape, target: CpuTarget) -> float:
    """Decode attention: keys and values are read once for all queries that share them."""
    model, lanes = machine_model(target), target.lanes("float32")
    depth, width = -(-shape.depth // lanes), -(-shape.width // lanes)
    score = max(depth / model.loads_per_cycle, depth / model.fma_per_cycle)
    score += model.horizontal_sum_cycles
    # The sums of four vectors (SUM_VECTORS of the loops) are four chains of additions; further
    # queries fill the time in which these wait.
    latency = model.fma_latency * -(-width // 4) / shape.group / shape.queries
    summed = max(width / model.fma_per_cycle, latency)
    per_key = score + summed + model.exp_vector_cycles / lanes
    return shape.heads * shape.queries * shape.keys * per_key


def streamed_cycles(shape: AttentionShape, target: CpuTarget) -> float:
    """Streamed attention: the products of decode attention for any number of rows."""
    model, lanes = machine_model(target), target.lanes("float32")
    depth, width = -(-shape.depth // lanes), -(-shape.width // lanes)
    per_key = (depth + width) / model.fma_per_cycle + model.horizontal_sum_cycles
    per_key += model.exp_vector_cycles / lanes
    return shape.heads * shape.queries * shape.keys * per_key


def unfused_cycles(shape: AttentionShape, target: CpuTarget) -> float:
    """Two matmuls and a softmax as separate kernels.

    The products pack their operands and compute whole vectors of columns; the heads of a group
    are rows of one product; causality skips no keys.
    """
    model, lanes = machine_model(target), target.lanes("float32")
    keys, width = (-(-n // lanes) for n in (shape.keys, shape.width))
    products = shape.queries * (keys * shape.depth + width * shape.keys)
    products /= model.fma_per_cycle
    exponentials = shape.queries * keys * model.exp_vector_cycles
    scores = shape.queries * shape.keys
    packed = shape.queries * shape.depth + scores
    packed += shape.keys * (shape.depth + shape.width) / shape.group
    cycles = shape.heads * (products + exponentials + packed * model.pack_cycles)
    if 4 * shape.heads * scores > target.l2_bytes:
        score_bytes = 4 * shape.heads * scores
        cycles += SCORE_PASSES * score_bytes / model.beyond_l2_line_bandwidth
    return cycles


def backward_cycles(shape: AttentionShape, target: CpuTarget) -> float:
    """The blocked gradient: four products over the depth, two over the width, two exponentials.

    The scores are computed twice: once for their sums, once for the weights.
    """
    model, lanes = machine_model(target), target.lanes("float32")
    depth, width = -(-shape.depth // lanes), -(-shape.width // lanes)
    per_key = (4 * depth + 2 * width) / model.fma_per_cycle
    per_key += 2 * model.exp_vector_cycles / lanes
    return shape.heads * shape.queries * shape.keys * per_key


def generic_cycles(shape: AttentionShape, target: CpuTarget) -> float:
    """The operator's compute under the default schedule, which blocks neither product.

    Each of its stages (scores, maximum, exponentials, sum, result) starts once per query.
    """
    model, lanes = machine_model(target), target.lanes("float32")
    rows = shape.heads * shape.queries
    multiply_adds = rows * shape.keys * (shape.depth + shape.width)
    exponentials = rows * -(-shape.keys // lanes) * model.exp_vector_cycles
    starts = GENERIC_STAGES * rows * model.tile_start_cycles
    return multiply_adds * model.unblocked_fma_cycles + exponentials + starts
