"""The loops of fused attention: tiles of queries by blocks of keys, scores that never leave L1.

After Dao et al., "FlashAttention" (2022), and Dao, "FlashAttention-2" (2023), with the lanes of
vectors along the queries. A tile of queries is packed transposed, ``[depth, queries]``; scores and
sums are transposed too. Keys and values then are read as they are stored, an element for all
lanes, and each lane keeps the largest score and the sum of its own query: nothing is ever reduced
across lanes, and neither keys nor values are packed.

For each block of keys: scores by register tiles, and the running maximum; exponentials in place;
what earlier blocks have summed scaled down to the new maximum, and the weighted values added.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.ir.dtype import float32, int32
from weft.op.nn.attention import AttentionAttrs
from weft.strategy.cpu.attention.block import take_block
from weft.strategy.cpu.attention.cost import AttentionPlan
from weft.strategy.cpu.attention.tile import LOWEST, Place, Scratch, Tile, defined, loop
from weft.strategy.cpu.elementwise.flat_rows import row_count, unravel
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, const, maximum, minimum
from weft.tir.stmt import Allocate, BufferStore, ForKind, IfThenElse, Stmt, seq


@dataclass(frozen=True, slots=True)
class AttentionLoops:
    """Builds the program over ``(q, k, v[, mask])`` and ``(out,)``.

    Keys, values and mask are float32. With ``mask_hides`` the mask is negative where a query does
    not see a key; else it is added.
    """

    plan: AttentionPlan
    attrs: AttentionAttrs
    mask_hides: bool

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        q, k, v, *rest = inputs
        mask = rest[0] if rest else None
        heads, tiles = q.shape[:-2], self.plan.tiles
        whole, rest_of_queries = divmod(self.plan.size.queries, self.plan.tile)

        def task(index: PrimExpr) -> Stmt:
            at, number = tuple(unravel(index // tiles, heads)), index % tiles

            def tile(plan: AttentionPlan, count: int | None) -> Stmt:
                first = number * self.plan.tile
                return _all_of(Tile(plan, self.attrs, q, k, v, mask, outputs[0], at, first, count,
                                    self.mask_hides, Scratch.of(plan)))

            tail = self.plan.tail
            if tail is None:
                return tile(self.plan, None)
            return IfThenElse(number < whole, tile(self.plan, self.plan.tile),
                              tile(tail, rest_of_queries))

        return loop("task", row_count(heads) * tiles, task, ForKind.PARALLEL)


def _all_of(tile: Tile) -> Stmt:
    """One tile from its queries to its results."""
    body = seq([_pack(tile), _start(tile), *_blocks(tile), _divide(tile), _write(tile)])
    for buffer in tile.x.buffers():
        body = Allocate(buffer, body)
    return body


def _pack(tile: Tile) -> Stmt:
    """``queries[d, j] = scale * q[first + j, d]``; zero for those that are not there."""
    size, target = tile.plan.size, tile.x.queries
    scale = const(tile.attrs.scale, float32)

    def element(d: PrimExpr, j: PrimExpr) -> Stmt:
        value = tile.q.load(*tile.at, tile.first + j, d).astype(float32)
        return BufferStore(target, value * scale, (d, j))

    clear = None if tile.is_whole else tile.fill(target, size.depth, const(0, float32))
    return seq([clear, tile.turn(size.depth, element, into_lanes=True)])


def _start(tile: Tile) -> Stmt:
    x, size = tile.x, tile.plan.size

    def lane(j: PrimExpr) -> Stmt:
        last = (tile.first + (j + tile.attrs.offset)).astype(int32)
        return seq([
            BufferStore(x.top, const(LOWEST, float32), (j,)),
            BufferStore(x.total, const(0, float32), (j,)),
            BufferStore(x.last, last, (j,)) if tile.attrs.causal else None,
        ])

    # Lanes without a query take part in the arithmetic.
    is_partial = tile.turns_mask and not tile.is_whole
    return seq([
        tile.lanes(lane), tile.fill(x.sums, size.width, const(0, float32)),
        tile.fill(x.mask, tile.plan.block, const(0, float32)) if is_partial else None,
    ])


def _blocks(tile: Tile) -> list[Stmt]:
    """All keys, or those that a query of the tile sees."""
    size, keys = tile.plan.size, tile.plan.block
    full, rest = divmod(size.keys, keys)
    parts: list[Stmt] = []
    seen = None if size.offset is None else tile.first + (tile.plan.tile + size.offset)
    if full:
        count: PrimExpr = const(full)
        if seen is not None:
            count = maximum(minimum((seen + (keys - 1)) // keys, count), 0)
        parts.append(loop("block", count, lambda b: take_block(tile, b * keys, keys)))
    if rest:
        last = take_block(tile, const(full * keys), rest)
        parts.append(last if seen is None else IfThenElse(seen > full * keys, last))
    return parts


def _divide(tile: Tile) -> Stmt:
    """The sums by their totals."""
    x = tile.x
    inverse = tile.register_tile("inverse", 1)

    def invert(i: Place, j: PrimExpr) -> Stmt:
        return BufferStore(inverse, const(1, float32) / x.total.load(j), i)

    def result(e: PrimExpr, i: Place, j: PrimExpr) -> Stmt:
        value = x.sums.load(e, j) * inverse.load(*i)
        value = defined(tile.attrs, value, x.total.load(j))
        return BufferStore(x.sums, value, (e, j))

    return Allocate(inverse, seq([
        tile.registers(1, invert),
        loop("e", tile.plan.size.width,
             lambda e: tile.registers(1, lambda i, j: result(e, i, j))),
    ]))


def _write(tile: Tile) -> Stmt:
    def element(e: PrimExpr, j: PrimExpr) -> Stmt:
        value = tile.x.sums.load(e, j).astype(tile.out.dtype)
        return BufferStore(tile.out, value, (*tile.at, tile.first + j, e))

    return tile.turn(tile.plan.size.width, element, into_lanes=False)
