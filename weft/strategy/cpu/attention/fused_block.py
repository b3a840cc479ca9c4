"""One block of keys and values for a tile of queries: scores, exponentials, weighted sums."""

from __future__ import annotations

from weft.ir import float32, int32
from weft.strategy.cpu.attention.fused_tile import Tile, TileIndex, in_tiles, loop
from weft.te import exp
from weft.tir import Allocate, Buffer, BufferStore, PrimExpr, Stmt, const, select, seq


def accumulate_block(tile: Tile, start: PrimExpr, count: int) -> Stmt:
    """Accumulate ``count`` keys and values from index ``start`` into the sums of the tile."""
    x = tile.x
    return seq([
        _transpose_mask(tile, start, count) if tile.transposes_mask else None,
        # ``factor`` holds the old maximum until ``_exponentials`` makes it a scale factor.
        tile.lanes(lambda j: BufferStore(x.factor, x.top.load(j), (j,))),
        in_tiles(count, tile.plan.key_rows,
                 lambda row, rows: _score_tile(tile, start, row, rows)),
        _exponentials(tile, count),
        in_tiles(tile.plan.shape.width, tile.plan.value_rows,
                 lambda row, rows: _sum_tile(tile, start, count, row, rows)),
    ])


def _transpose_mask(tile: Tile, start: PrimExpr, count: int) -> Stmt:
    """Copy the block of the mask transposed: keys by queries, with queries along the lanes."""
    return tile.transpose(count, lambda n, j: BufferStore(
        tile.x.mask, tile.mask_at(tile.first + j, start + n), (n, j)), into_lanes=True)


def _score_tile(tile: Tile, start: PrimExpr, row: PrimExpr, rows: int) -> Stmt:
    """The scores of one register tile of keys, and the running maxima."""
    x, acc, top = tile.x, tile.register_tile("acc", rows), tile.register_tile("new_top", 1)

    def step(d: PrimExpr) -> Stmt:
        return tile.registers(rows, lambda i, j: BufferStore(
            acc, acc.load(*i) + tile.key(start + row + i[0], d) * x.queries.load(d, j), i))

    def finish(i: TileIndex, j: PrimExpr) -> Stmt:
        score, highest = acc.load(*i), (const(0), *i[1:])
        so_far = top.load(*highest)
        return seq([
            BufferStore(acc, _masked(tile, score, start, row + i[0], j), i),
            BufferStore(x.scores, score, (row + i[0], j)),
            # A NaN score does not change the maximum; it reaches the sums as NaN.
            BufferStore(top, select(score > so_far, score, so_far), highest),
        ])

    # The running maximum is loaded after the products: it occupies no registers during them.
    return Allocate(acc, Allocate(top, seq([
        tile.registers(rows, lambda i, _: BufferStore(acc, const(0, float32), i)),
        loop("d", tile.plan.shape.depth, step),
        _read(tile, top, x.top),
        tile.registers(rows, finish),
        _write(tile, top, x.top),
    ])))


def _masked(
    tile: Tile, score: PrimExpr, start: PrimExpr, row: PrimExpr, j: PrimExpr
) -> PrimExpr:
    """The score of query ``j`` with key ``row`` of the block, after the mask and causality."""
    unseen = const(tile.attrs.unseen, float32)
    if tile.mask is not None:
        mask = (tile.x.mask.load(row, j) if tile.transposes_mask
                else tile.mask_at(const(0), start + row))
        score = select(mask < const(0, float32), unseen, score) if tile.mask_hides else score + mask
    if tile.attrs.causal:
        score = select((start + row).astype(int32) <= tile.x.last.load(j), score, unseen)
    return score


def _exponentials(tile: Tile, count: int) -> Stmt:
    """Replace scores by exp(score - maximum); ``factor`` rescales the sums of earlier blocks."""
    x = tile.x
    top, total = tile.register_tile("top", 1), tile.register_tile("total", 1)

    def start(i: TileIndex, j: PrimExpr) -> Stmt:
        return seq([
            BufferStore(top, x.top.load(j), i),
            # In the first block the old maximum is LOWEST: the factor is finite and the sums that
            # it scales are zero. Minus infinity could give NaN here.
            BufferStore(x.factor, exp(x.factor.load(j) - top.load(*i)), (j,)),
            BufferStore(total, const(0, float32), i),
        ])

    def row(n: PrimExpr) -> Stmt:
        return tile.registers(1, lambda i, j: seq([
            BufferStore(x.scores, exp(x.scores.load(n, j) - top.load(*i)), (n, j)),
            BufferStore(total, total.load(*i) + x.scores.load(n, j), i),
        ]))

    return Allocate(top, Allocate(total, seq([
        tile.registers(1, start), loop("n", count, row),
        tile.registers(1, lambda i, j: BufferStore(
            x.total, x.total.load(j) * x.factor.load(j) + total.load(*i), (j,))),
    ])))


def _sum_tile(tile: Tile, start: PrimExpr, count: int, row: PrimExpr, rows: int) -> Stmt:
    """Add the weighted values of one register tile to the rescaled sums."""
    x, acc = tile.x, tile.register_tile("acc", rows)

    def step(n: PrimExpr) -> Stmt:
        return tile.registers(rows, lambda i, j: BufferStore(
            acc, acc.load(*i) + tile.value(start + n, row + i[0]) * x.scores.load(n, j), i))

    def added(i: TileIndex, j: PrimExpr) -> Stmt:
        # Earlier sums are rescaled in the pass that adds the block.
        here = (row + i[0], j)
        return BufferStore(x.sums, x.sums.load(*here) * x.factor.load(j) + acc.load(*i), here)

    # Each block starts from zero: a sum over many keys is one of short sums.
    return Allocate(acc, seq([
        tile.registers(rows, lambda i, _: BufferStore(acc, const(0, float32), i)),
        loop("n", count, step), tile.registers(rows, added),
    ]))


def _read(tile: Tile, registers: Buffer, memory: Buffer) -> Stmt:
    return tile.registers(1, lambda i, j: BufferStore(registers, memory.load(j), i))


def _write(tile: Tile, registers: Buffer, memory: Buffer) -> Stmt:
    return tile.registers(1, lambda i, j: BufferStore(memory, registers.load(*i), (j,)))
