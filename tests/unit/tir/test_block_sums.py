"""Long sums are cut into blocks, of blocks if need be, and every term is added once."""

from __future__ import annotations

import numpy as np
import pytest

from weft import te
from weft.ir.dtype import float32
from weft.tir.buffer import Buffer
from weft.tir.eval import evaluate
from weft.tir.expr import Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.stmt import BufferStore, For, ForKind, seq
from weft.tir.transform.block_sums import SHORT_BLOCK, block_sums
from weft.tir.visitor import post_order_stmts


def row_sums(rows: int, *extents: int, dtype: str = "float32") -> PrimFunc:
    """Sums over all axes but the first."""
    x = te.placeholder((rows, *extents), dtype, "x")
    over = [te.reduce_axis(extent, name=f"k{n}") for n, extent in enumerate(extents)]
    y = te.compute((rows,), lambda i: te.sum(x[(i, *(k.var for k in over))], over), name="y")
    return te.lower(te.create_schedule(y), [x, y])


def longest_chain(func: PrimFunc) -> int:
    """The most additions that a loop makes to one element one after another."""
    extents = [n.extent for n in post_order_stmts(func.body) if isinstance(n, For)
               and "k" in n.loop_var.name]
    return max(int_value(e) or 0 for e in extents)


@pytest.mark.parametrize("extents", [(64,), (67,), (5000,), (3, 40), (40, 3), (7, 11, 13), (5, 1)])
def test_all_terms_are_added_once(extents: tuple[int, ...]) -> None:
    func = row_sums(2, *extents)
    x = np.random.default_rng(0).integers(-9, 9, (2, *extents)).astype(np.float32)
    found = np.empty(2, np.float32)
    evaluate(block_sums(func), x, found)
    np.testing.assert_array_equal(found, x.reshape(2, -1).sum(1))


def test_blocks_of_blocks_are_short() -> None:
    func = row_sums(1, 4096)
    assert longest_chain(func) == 4096
    assert longest_chain(block_sums(func)) <= SHORT_BLOCK


@pytest.mark.parametrize("func", [
    row_sums(1, SHORT_BLOCK), row_sums(1, 4, SHORT_BLOCK // 4), row_sums(1, 500, dtype="int32")],
    ids=["one block", "one block in two loops", "integers"])
def test_others_stay(func: PrimFunc) -> None:
    assert longest_chain(block_sums(func)) == longest_chain(func)


def test_a_sum_that_is_read_on_the_way_stays() -> None:
    total, seen = (Buffer(name, (const(100),), float32) for name in ("total", "seen"))
    k = Var("k")
    body = seq([BufferStore(total, total.load(const(0)) + seen.load(k), (const(0),)),
                BufferStore(seen, total.load(const(0)), (k,))])
    func = PrimFunc("f", (total, seen),
                    For(k, const(0), const(100), ForKind.SERIAL, body), {"num_outputs": 2})
    assert longest_chain(block_sums(func)) == 100


def test_tiles_at_the_edge_add_in_the_order_of_whole_tiles() -> None:
    """Equal rows have equal sums, to the bit, whatever tile they are in."""
    terms, rows = 500, (12, 4)
    x = Buffer("x", (const(terms),), float32)
    total = Buffer("total", (const(sum(rows)),), float32)

    def tile(first: int, count: int) -> For:
        k = Var("k")
        adds = [BufferStore(total, total.load(const(i)) + x.load(k), (const(i),))
                for i in range(first, first + count)]
        return For(k, const(0), const(terms), ForKind.SERIAL, seq(adds))

    clear = [BufferStore(total, const(0.0, "float32"), (const(i),)) for i in range(sum(rows))]
    body = seq([*clear, tile(0, rows[0]), tile(rows[0], rows[1])])
    func = block_sums(PrimFunc("f", (x, total), body, {"num_outputs": 1}))
    for seed in range(8):
        values = np.random.default_rng(seed).uniform(1, 2, terms).astype(np.float32)
        found = np.empty(sum(rows), np.float32)
        evaluate(func, values, found)
        assert np.unique(found).size == 1
