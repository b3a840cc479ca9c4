"""The loops of fused attention: tiles of queries by blocks of keys; scores never leave L1.

After Dao et al., "FlashAttention" (2022), and Dao, "FlashAttention-2" (2023), with vector lanes
along the queries. A tile of queries is packed transposed, ``[depth, queries]``; scores and sums are
transposed too. Keys and values are then read in their original layout, one element broadcast to
all lanes, and each lane keeps the maximum and the sum of its query: no reduction crosses lanes,
and neither keys nor values are packed.

For each block of keys: scores by register tiles with the running maximum; exponentials in place;
the sums of earlier blocks rescaled to the new maximum, and the weighted values added.
"""

from __future__ import annotations

from weft.ir import float32, int32
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.common.attention import LOWEST, defined
from weft.strategy.cpu.attention.cost import TilePlan
from weft.strategy.cpu.attention.fused_block import accumulate_block
from weft.strategy.cpu.attention.fused_tile import Scratch, Tile, TileIndex, loop
from weft.support.dataclass import dataclass
from weft.tir import Allocate, Buffer, BufferStore, ForKind, IfThenElse, Stmt, seq
from weft.tir.expr import PrimExpr, const, maximum, minimum
from weft.tir.row_major import element_count, unravel


@dataclass(frozen=True, slots=True)
class FusedLoops:
    """Builds the statement over buffers ``(q, k, v[, mask])`` and ``(out,)``.

    ``q`` and ``out`` have any float dtype up to 32 bits; keys, values and mask are float32. With
    ``mask_hides`` a negative mask element hides a key from a query; otherwise the mask is added to
    the scores.
    """

    plan: TilePlan
    attrs: AttentionAttrs
    mask_hides: bool

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        q, k, v, *rest = inputs
        mask = rest[0] if rest else None
        heads, tiles = q.shape[:-2], self.plan.tiles
        full_tiles, tail_queries = divmod(self.plan.shape.queries, self.plan.tile)

        def task(index: PrimExpr) -> Stmt:
            # Consecutive tasks are tiles of one head, which read the same keys and values.
            at, number = unravel(index // tiles, heads), index % tiles

            def tile(plan: TilePlan, count: int | None) -> Stmt:
                first = number * self.plan.tile
                return _tile_body(Tile(plan, self.attrs, q, k, v, mask, outputs[0], at, first,
                                       count, self.mask_hides, Scratch.of(plan)))

            tail = self.plan.tail
            if tail is None:
                return tile(self.plan, None)
            return IfThenElse(number < full_tiles, tile(self.plan, self.plan.tile),
                              tile(tail, tail_queries))

        return loop("task", element_count(heads) * tiles, task, ForKind.PARALLEL)


def _tile_body(tile: Tile) -> Stmt:
    """One tile of queries, from packing them to storing their results."""
    body = seq([_pack(tile), _start(tile), *_blocks(tile), _divide(tile), _write(tile)])
    for buffer in tile.x.buffers():
        body = Allocate(buffer, body)
    return body


def _pack(tile: Tile) -> Stmt:
    """``queries[d, j] = scale * q[first + j, d]``; zero for lanes beyond the last query."""
    shape, target = tile.plan.shape, tile.x.queries
    scale = const(tile.attrs.scale, float32)

    def element(d: PrimExpr, j: PrimExpr) -> Stmt:
        value = tile.q.load(*tile.at, tile.first + j, d).astype(float32)
        return BufferStore(target, value * scale, (d, j))

    # Lanes without a query are computed too: zeros give them defined scores.
    clear = None if tile.is_whole else tile.fill(target, shape.depth, const(0, float32))
    return seq([clear, tile.transpose(shape.depth, element, into_lanes=True)])


def _start(tile: Tile) -> Stmt:
    """Initialise maxima, sums and, if causal, the last visible key of each query."""
    x, shape = tile.x, tile.plan.shape

    def lane(j: PrimExpr) -> Stmt:
        last = (tile.first + (j + tile.attrs.offset)).astype(int32)
        return seq([
            BufferStore(x.top, const(LOWEST, float32), (j,)),
            BufferStore(x.total, const(0, float32), (j,)),
            BufferStore(x.last, last, (j,)) if tile.attrs.causal else None,
        ])

    # Lanes beyond the last query take part in the arithmetic: their mask must be defined.
    is_partial = tile.transposes_mask and not tile.is_whole
    return seq([
        tile.lanes(lane), tile.fill(x.sums, shape.width, const(0, float32)),
        tile.fill(x.mask, tile.plan.block, const(0, float32)) if is_partial else None,
    ])


def _blocks(tile: Tile) -> list[Stmt]:
    """The blocks of all keys, or of those that some query of the tile sees."""
    shape, keys = tile.plan.shape, tile.plan.block
    full, rest = divmod(shape.keys, keys)
    blocks: list[Stmt] = []
    seen = None if shape.offset is None else tile.first + (tile.plan.tile + shape.offset)
    if full:
        count: PrimExpr = const(full)
        if seen is not None:
            count = maximum(minimum((seen + (keys - 1)) // keys, count), 0)
        blocks.append(loop("block", count, lambda b: accumulate_block(tile, b * keys, keys)))
    if rest:
        last = accumulate_block(tile, const(full * keys), rest)
        blocks.append(last if seen is None else IfThenElse(seen > full * keys, last))
    return blocks


def _divide(tile: Tile) -> Stmt:
    """Divide the weighted sums by the sums of exponentials."""
    x = tile.x
    # One division per query; the elements of its result are multiplied.
    inverse = tile.register_tile("inverse", 1)

    def invert(i: TileIndex, j: PrimExpr) -> Stmt:
        return BufferStore(inverse, const(1, float32) / x.total.load(j), i)

    def result(e: PrimExpr, i: TileIndex, j: PrimExpr) -> Stmt:
        value = x.sums.load(e, j) * inverse.load(*i)
        value = defined(tile.attrs, value, x.total.load(j))
        return BufferStore(x.sums, value, (e, j))

    return Allocate(inverse, seq([
        tile.registers(1, invert),
        loop("e", tile.plan.shape.width,
             lambda e: tile.registers(1, lambda i, j: result(e, i, j))),
    ]))


def _write(tile: Tile) -> Stmt:
    def element(e: PrimExpr, j: PrimExpr) -> Stmt:
        value = tile.x.sums.load(e, j).astype(tile.out.dtype)
        return BufferStore(tile.out, value, (*tile.at, tile.first + j, e))

    return tile.transpose(tile.plan.shape.width, element, into_lanes=False)
