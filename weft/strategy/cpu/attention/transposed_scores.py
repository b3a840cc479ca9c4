"""Scores of a tile of rows with as many keys as there are lanes; the lanes run over the keys.

The keys are transposed in registers first, which pays from a few rows on: a score is then a chain
of multiply-adds with a broadcast element of the query, and no lanes are added up.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import float32
from weft.strategy.cpu.attention.decode_loops import unrolled
from weft.strategy.cpu.attention.fused_tile import in_tiles, loop
from weft.tir import Allocate, Buffer, BufferStore, For, ForKind, PrimExpr, Stmt, const, seq
from weft.tir.transform.transpose_tile import ANNOTATION as TRANSPOSE
from weft.tir.transform.transpose_tile import ANY_COLUMNS

TILE_ROWS = 16  # of a register tile: an accumulator each
# From this number of rows on, the transpose costs less than one horizontal sum per row and key.
MIN_ROWS = 10


def transposed_keys(depth: int, lanes: int) -> Buffer:
    """Scratch memory for ``lanes`` keys, element by element: [depth, lanes]."""
    return Buffer("across", (const(-(-depth // lanes) * lanes), const(lanes)), float32)


def transpose_keys(
    across: Buffer, key: Callable[[PrimExpr, PrimExpr], PrimExpr], sizes: tuple[int, int]
) -> Stmt:
    """``across[d, lane] = key(lane, d)``, a square of lanes at a time; ``sizes``: depth, lanes.

    ``key`` reads consecutive elements for consecutive ``d``.
    """
    depth, lanes = sizes

    def square(first: PrimExpr, count: int) -> Stmt:
        rows = unrolled(count, lambda d: loop("lane", lanes, lambda lane: BufferStore(
            across, key(lane, first + d), (first + d, lane)), ForKind.VECTORIZED))
        assert isinstance(rows, For)
        return rows.replace(annotations={TRANSPOSE: ANY_COLUMNS})

    return in_tiles(depth, lanes, square)


def scores_of_tile(
    queries: Buffer, across: Buffer, scores: Buffer, at: tuple[PrimExpr, PrimExpr],
    sizes: tuple[int, int, int],
) -> Stmt:
    """``scores[row, key]`` of some rows from ``at`` on; ``sizes``: rows, depth and lanes."""
    (first, n), (height, depth, lanes) = at, sizes
    acc = Buffer("acc", (const(height), const(lanes)), float32, "local")

    def every(body: Callable[[PrimExpr, PrimExpr], Stmt]) -> Stmt:
        return unrolled(height, lambda row: loop(
            "lane", lanes, lambda lane: body(row, lane), ForKind.VECTORIZED))

    def step(d: PrimExpr) -> Stmt:
        return every(lambda row, lane: BufferStore(
            acc, acc.load(row, lane) + queries.load(first + row, d) * across.load(d, lane),
            (row, lane)))

    return Allocate(acc, seq([
        every(lambda row, lane: BufferStore(acc, const(0, float32), (row, lane))),
        loop("d", depth, step),
        every(lambda row, lane: BufferStore(
            scores, acc.load(row, lane), (first + row, n + lane))),
    ]))
