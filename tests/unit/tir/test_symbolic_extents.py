"""Loops over symbolic extents: fused indices, and exact tails of register tiles."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.tir.buffer import Buffer, buffer
from weft.tir.eval import evaluate
from weft.tir.expr import PrimExpr, Var, call, const, floordiv, floormod, maximum, minimum
from weft.tir.func import PrimFunc
from weft.tir.simplify import Analyzer
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, IfThenElse, Stmt, seq
from weft.tir.transform.exact_tail import EXACT_TAIL
from weft.tir.transform.loop_partition import loop_partition
from weft.tir.transform.masked_tail import MASKED_TAIL
from weft.tir.transform.pipeline import lower_prim_func
from weft.tir.visitor import all_exprs, post_order_stmts, substitute

ROWS, SEQ, F, WITHIN = Var("rows"), Var("seq"), Var("f"), Var("i")


def fused(inner: PrimExpr, outer: PrimExpr | int) -> Analyzer:
    """``f`` runs over ``outer`` times ``inner`` iterations."""
    analyzer = Analyzer()
    for size in (ROWS, SEQ):
        analyzer.bind(size, 0, None)
    analyzer.bind(F, 0, outer * inner)
    return analyzer


def test_a_quotient_of_a_fused_loop_is_less_than_the_outer_extent() -> None:
    tiles = floordiv(ROWS + 5, const(6))
    analyzer = fused(tiles, 12)
    assert analyzer.can_prove(F // tiles < 12)
    assert not analyzer.can_prove(F // tiles < 11)
    assert analyzer.can_prove(F % tiles < tiles)
    assert analyzer.can_prove(F % tiles * 6 < ROWS)
    assert not analyzer.can_prove(F % tiles * 6 < ROWS - 1)
    assert fused(tiles, SEQ).can_prove(F // tiles < SEQ)


def test_nothing_is_known_of_a_quotient_by_another_size() -> None:
    tiles = floordiv(ROWS + 5, const(6))
    assert not fused(tiles, 12).can_prove(F // SEQ < 12)
    assert not fused(tiles, 12).can_prove(F % SEQ < SEQ)


@pytest.mark.parametrize(("before", "after"), [
    (F // SEQ * SEQ + F % SEQ, F),
    ((F + 3) // SEQ * SEQ * 8 + (F + 3) % SEQ * 8 + WITHIN, F * 8 + WITHIN + 24),
    (F // (SEQ + 1) * (SEQ + 1) + F % (SEQ + 1), F),
    (F // SEQ * SEQ * ROWS + F % SEQ * ROWS, F * ROWS),
])
def test_quotient_and_remainder_join(before: PrimExpr, after: PrimExpr) -> None:
    analyzer = fused(SEQ, ROWS)
    assert analyzer.simplify(before) is analyzer.simplify(after)


@pytest.mark.parametrize("kept", [F // SEQ * SEQ + F % SEQ * 2, F // SEQ * SEQ * 2 + F % SEQ,
                                  F // SEQ * SEQ + F % ROWS])
def test_other_sums_of_quotient_and_remainder_stay(kept: PrimExpr) -> None:
    assert "%" in str(fused(SEQ, ROWS).simplify(kept))


@given(st.integers(0, 4), st.integers(1, 7), st.integers(0, 5), st.integers(-3, 3),
       st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_joined_digits_keep_their_value(
    outer: int, seq_size: int, rows: int, shift: int, factor: int
) -> None:
    divisor = SEQ + (shift + 3)
    before = ((F + shift) // divisor * divisor * factor * ROWS
              + (F + shift) % divisor * ROWS * factor)
    after = fused(SEQ, ROWS).simplify(before)
    for e in (before, after):
        out = buffer("out", (1,), "int64")
        values = {F: const(outer), SEQ: const(seq_size), ROWS: const(rows)}
        array = np.zeros(1, np.int64)
        evaluate(PrimFunc("f", (out,), BufferStore(out, substitute(e, values), (const(0),))), array)
        assert array[0] == (outer + shift) * factor * rows


def tile(rows_axis: PrimExpr, mr: int, *, fuse: bool) -> PrimFunc:
    """Doubles a matrix of ``rows`` x 4 in tiles of ``mr`` rows by way of registers."""
    x, y = (Buffer(n, (rows_axis, const(4)), buffer("t", (1,)).dtype) for n in "xy")
    registers = Buffer("r", (const(mr), const(4)), x.dtype, "local")
    tiles = floordiv(rows_axis + (mr - 1), const(mr))
    task, column = Var("task"), Var("column")
    base = floormod(task, tiles) * mr if fuse else task * mr

    def rows(body) -> Stmt:
        row, lane = Var("row"), Var("lane")
        guarded = IfThenElse(call("bool", "likely", base + row < rows_axis), For(
            lane, const(0), const(4), ForKind.VECTORIZED, body(row, lane)))
        return For(row, const(0), const(mr), ForKind.UNROLLED, guarded,
                   annotations={EXACT_TAIL: 1})

    body = seq([rows(lambda r, c: BufferStore(registers, x.load(base + r, c), (r, c))),
                For(column, const(0), const(3), ForKind.SERIAL, rows(
                    lambda r, c: BufferStore(registers, registers.load(r, c) * 2.0, (r, c)))),
                rows(lambda r, c: BufferStore(y, registers.load(r, c), (base + r, c)))])
    kind = ForKind.PARALLEL if fuse else ForKind.SERIAL
    loop = For(task, const(0), tiles * (2 if fuse else 1), kind, Allocate(registers, body))
    return PrimFunc("double", (x, y, rows_axis), loop, {"num_outputs": 1})


@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("mr", [1, 3, 5])
def test_tails_are_exact(mr: int, fuse: bool) -> None:
    size = Var("n")
    func = tile(size, mr, fuse=fuse)
    done = loop_partition(func)
    guards = [e for e in all_exprs(done.body) if getattr(e, "name", "") == "likely"]
    assert not guards
    heights = {n.extent.value for n in post_order_stmts(done.body)
               if isinstance(n, For) and EXACT_TAIL in n.annotations}
    assert heights == set(range(2, mr + 1))
    for count in range(2 * mr + 2):
        given_rows = np.random.default_rng(count).standard_normal((count, 4)).astype(np.float32)
        found = np.full_like(given_rows, -1)
        evaluate(done, given_rows, found, count)
        np.testing.assert_array_equal(found, given_rows * 8)


@settings(max_examples=30, deadline=None)
@given(size=st.integers(0, 40))
def test_parts_of_an_empty_loop_are_empty(size: int) -> None:
    """A loop over ``n // 4`` vectors may be empty: its split at 1 must not run the first."""
    n, v, lane = Var("n"), Var("v"), Var("lane")
    source, result = buffer("a", [n]), buffer("b", [n])
    at = v * 4 + lane
    value = call("float32", "if_then_else", call("bool", "likely", at >= 1),
                 source.load(at - 1), const(0.0, "float32"))
    guarded = IfThenElse(call("bool", "likely", at < n), BufferStore(result, value, (at,)))
    body = For(v, const(0), floordiv(n + 3, const(4)), ForKind.SERIAL,
               For(lane, const(0), const(4), ForKind.VECTORIZED, guarded))
    func = loop_partition(PrimFunc("f", (source, result, n), body))
    values = np.arange(size, dtype=np.float32) + 1
    found = np.full(size, np.nan, np.float32)
    evaluate(func, values, found, size)
    np.testing.assert_array_equal(found, np.concatenate([[0], values])[:size])


def test_a_nested_quotient_is_less_than_the_outer_extent() -> None:
    tiles = floordiv(SEQ + 15, const(16))
    analyzer = fused(tiles, ROWS * 4)
    assert analyzer.can_prove(F // tiles // 4 < ROWS)
    assert analyzer.can_prove(F // tiles // 4 >= 0)
    assert not analyzer.can_prove(F // tiles // 4 < ROWS - 1)
    assert not analyzer.can_prove(F // tiles // 3 < ROWS)


def test_a_scaled_quotient_and_remainder_join() -> None:
    analyzer = fused(SEQ, ROWS)
    split = F // SEQ // 16 * SEQ * 16 + F // SEQ % 16 * SEQ + F % SEQ
    assert analyzer.simplify(split) is F


@pytest.mark.parametrize("fact", [
    (SEQ + 30) // 32 - SEQ // 32 <= 1,
    (SEQ + 30) // 32 >= SEQ // 32,
    maximum(maximum(SEQ // 16, 1), SEQ // 16 + 1) - maximum(SEQ // 16, 1) <= 1,
    minimum(SEQ // 16 + 2, ROWS + 3) >= minimum(SEQ // 16, ROWS) + 2,
], ids=["one tail", "monotone", "after the first", "minima"])
def test_quotients_and_extrema_are_integers(fact: PrimExpr) -> None:
    assert fused(SEQ, ROWS).can_prove(fact)


@pytest.mark.parametrize("claim", [
    (SEQ + 33) // 32 - SEQ // 32 <= 1,
    SEQ // 32 > (SEQ - 1) // 32,
    minimum(SEQ, ROWS) >= SEQ,
    maximum(SEQ, ROWS) <= SEQ,
], ids=["two tails", "same quotient", "minimum", "maximum"])
def test_false_claims_are_not_proved(claim: PrimExpr) -> None:
    assert not fused(SEQ, ROWS).can_prove(claim)


@pytest.mark.parametrize("columns", [1, 15, 16, 17, 30, 31, 33, 62])
def test_the_tail_of_a_row_is_a_branch(columns: int) -> None:
    """Its masks are those of the row, so that the loop over rows does not compute them again."""
    rows, size = Var("rows"), Var("size")
    width = size // 2
    source, target = buffer("source", [rows, width]), buffer("target", [rows, width])
    row, vector, lane = Var("row"), Var("vector"), Var("lane")
    at = (row, vector * 16 + lane)
    guard = call("bool", "likely", vector * 16 + lane < width)
    body: Stmt = IfThenElse(guard, BufferStore(target, source.load(*at), at))
    body = For(lane, const(0), const(16), ForKind.VECTORIZED, body, {MASKED_TAIL: 16})
    body = For(vector, const(0), (width + 15) // 16, ForKind.SERIAL, body)
    body = For(row, const(0), rows, ForKind.SERIAL, body)
    func = lower_prim_func(PrimFunc("copy", (source, target, rows, size), body,
                                    {"num_outputs": 1}))
    assert len([s for s in post_order_stmts(func.body) if isinstance(s, For)]) == 2
    values = np.random.default_rng(0).random((3, columns // 2), np.float32)
    found = np.zeros_like(values)
    evaluate(func, values.reshape(-1), found.reshape(-1), 3, columns)
    np.testing.assert_array_equal(found, values)
