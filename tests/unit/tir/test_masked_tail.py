"""Rows that no whole vectors fill: masked tails, and choices in the middle of a row."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.tir import expr as x
from weft.tir.buffer import Buffer, buffer
from weft.tir.eval import evaluate
from weft.tir.expr import BufferLoad, PrimExpr, Var, call, const
from weft.tir.func import PrimFunc
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, IfThenElse, Stmt, seq
from weft.tir.transform.loop_partition import loop_partition
from weft.tir.transform.masked_tail import MASKED_TAIL
from weft.tir.transform.pipeline import lower_prim_func
from weft.tir.transform.vectorize_loop import vectorize_loop
from weft.tir.visitor import all_exprs, post_order_stmts


def likely(condition: PrimExpr) -> PrimExpr:
    return call("bool", "likely", condition)


def vectors(size: int, lanes: int, body, *, masked: bool) -> Stmt:
    """``body(index)`` for ``size`` elements, vectors of ``lanes`` at a time."""
    outer, lane = Var("o"), Var("l")
    index = outer * lanes + lane
    inside = body(index)
    if size % lanes:
        inside = IfThenElse(likely(index < size), inside)
    notes = {MASKED_TAIL: lanes} if masked else {}
    row = For(lane, const(0), const(lanes), ForKind.VECTORIZED, inside, annotations=notes)
    return For(outer, const(0), const(-(-size // lanes)), ForKind.SERIAL, row)


def stores(func: PrimFunc) -> list[BufferStore]:
    return [n for n in post_order_stmts(func.body) if isinstance(n, BufferStore)]


def check(func: PrimFunc, *arrays: np.ndarray) -> PrimFunc:
    """The program means the same once lowered."""
    lowered = lower_prim_func(func, verify=True)
    outputs = []
    for form in (func, lowered):
        output = np.full_like(arrays[-1], -77)
        evaluate(form, *arrays[:-1], output)
        outputs.append(output)
    np.testing.assert_array_equal(*outputs)
    return lowered


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("size", [5, 13, 16, 21, 24, 31])
def test_a_tail_is_one_store(size: int) -> None:
    a, c = buffer("A", (size,)), buffer("C", (size,))
    func = PrimFunc("f", (a, c), vectors(
        size, 8, lambda i: BufferStore(c, a.load(i) * 2.0, (i,)), masked=True))
    done = check(func, numbers(size), numbers(size))
    in_tail = [n for n in stores(done) if n.predicate is not None]
    assert len(in_tail) == int((size % 8).bit_count() > 1)
    assert all(n.value.dtype.lanes == 8 for n in in_tail)


def test_scratch_has_room_for_a_whole_vector() -> None:
    a, c, t = buffer("A", (3, 13)), buffer("C", (3, 13)), Buffer("T", (const(13),), x.float32)
    row = Var("r")
    body = seq([
        vectors(13, 8, lambda i: BufferStore(t, a.load(row, i), (i,)), masked=True),
        vectors(13, 8, lambda i: BufferStore(c, t.load(i) + 1.0, (row, i)), masked=True),
    ])
    func = PrimFunc("f", (a, c), For(row, const(0), const(3), ForKind.SERIAL, Allocate(t, body)))
    done = check(func, numbers(3, 13), numbers(3, 13))
    scratch = [n for n in stores(done) if n.buffer.name == "T"]
    assert scratch
    assert all(n.predicate is None for n in scratch)
    assert not any(isinstance(e, BufferLoad) and e.buffer.name == "T" and e.predicate is not None
                   for e in all_exprs(done.body))


def test_registers_of_several_rows_have_room_for_whole_vectors() -> None:
    """The last lanes of a row are not the first of the next."""
    a, c = buffer("A", (2, 13)), buffer("C", (2, 13))
    t = Buffer("T", (const(2), const(13)), x.float32, "local")

    def rows(body) -> Stmt:
        row, part, lane = Var("r"), Var("p"), Var("l")
        index = part * 8 + lane
        inside = IfThenElse(likely(index < 13), body(row, index))
        vector = For(lane, const(0), const(8), ForKind.VECTORIZED, inside,
                     annotations={MASKED_TAIL: 8})
        parts = For(part, const(0), const(2), ForKind.UNROLLED, vector)
        return For(row, const(0), const(2), ForKind.UNROLLED, parts)

    body = seq([
        rows(lambda r, i: BufferStore(t, a.load(r, i), (r, i))),
        rows(lambda r, i: BufferStore(t, t.load(r, i) * 2.0, (r, i))),
        rows(lambda r, i: BufferStore(c, t.load(r, i), (r, i))),
    ])
    check(PrimFunc("f", (a, c), Allocate(t, body)), numbers(2, 13), numbers(2, 13))


def test_scratch_that_is_updated_keeps_what_lies_beyond() -> None:
    """The lanes beyond a tail are elements that the loop before has written."""
    a, c, t = buffer("A", (16,)), buffer("C", (16,)), Buffer("T", (const(16),), x.float32)
    body = seq([
        vectors(16, 8, lambda i: BufferStore(t, const(1.0, "float32"), (i,)), masked=False),
        vectors(13, 8, lambda i: BufferStore(t, t.load(i) + a.load(i), (i,)), masked=True),
        vectors(16, 8, lambda i: BufferStore(c, t.load(i), (i,)), masked=False),
    ])
    check(PrimFunc("f", (a, c), Allocate(t, body)), numbers(16), numbers(16))


def test_a_choice_in_a_long_row_starts_vectors_anew() -> None:
    """Three elements of the border, then whole vectors of the data, then the border again."""
    a, c = buffer("A", (32,)), buffer("C", (38,))
    zero = const(0.0, "float32")

    def padded(i: PrimExpr) -> Stmt:
        inside = likely(x.all_of(i >= 3, i < 35))
        return BufferStore(c, x.if_then_else(inside, a.load(i - 3), zero), (i,))

    func = PrimFunc("f", (a, c), vectors(38, 8, padded, masked=False))
    done = check(func, numbers(32), numbers(38))
    widths = [n.value.dtype.lanes for n in stores(done) if any(
        isinstance(e, BufferLoad) for e in [n.value])]
    assert widths == [8]


def test_lanes_choose_in_a_short_row_with_masks() -> None:
    a, c = buffer("A", (14,)), buffer("C", (16,))
    zero = const(0.0, "float32")

    def padded(i: PrimExpr) -> Stmt:
        inside = likely(x.all_of(i >= 1, i < 15))
        return BufferStore(c, x.if_then_else(inside, a.load(i - 1), zero), (i,))

    done = check(PrimFunc("f", (a, c), vectors(16, 16, padded, masked=True)),
                 numbers(14), numbers(16))
    [store] = stores(done)
    assert store.value.dtype.lanes == 16


def test_a_row_whose_vectors_keep_registers_is_not_cut_anew() -> None:
    """The lane is an index of its own there: an element cannot move to another vector."""
    a, c = buffer("A", (40,)), buffer("C", (40,))
    outer, lane = Var("o"), Var("l")
    t = Buffer("T", (const(8),), x.float32, "local")
    index = outer * 8 + lane
    chosen = x.if_then_else(likely(index >= 3), a.load(index - 3), const(0.0, "float32"))
    row = seq([
        For(lane, const(0), const(8), ForKind.VECTORIZED, BufferStore(t, chosen, (lane,))),
        For(lane, const(0), const(8), ForKind.VECTORIZED, BufferStore(c, t.load(lane), (index,))),
    ])
    body = For(outer, const(0), const(5), ForKind.SERIAL, Allocate(t, row))
    check(PrimFunc("f", (a, c), body), numbers(40), numbers(40))


@given(st.integers(1, 70), st.integers(0, 9), st.integers(0, 9), st.sampled_from([4, 8, 16]),
       st.booleans())
@settings(max_examples=80, deadline=None)
def test_borders_of_any_size(size: int, before: int, after: int, lanes: int, masked: bool) -> None:
    total = size + before + after
    a, c = buffer("A", (size,)), buffer("C", (total,))
    t = Buffer("T", (const(total),), x.float32)

    def padded(i: PrimExpr) -> Stmt:
        inside = likely(x.all_of(i >= before, i < size + before))
        value = x.if_then_else(inside, a.load(i - before), const(9.0, "float32"))
        return BufferStore(t, value, (i,))

    body = seq([vectors(total, lanes, padded, masked=masked),
                vectors(total, lanes, lambda i: BufferStore(c, t.load(i) * 2.0, (i,)),
                        masked=masked)])
    check(PrimFunc("f", (a, c), Allocate(t, body)), numbers(size), numbers(total))


def test_a_condition_on_the_row_stays_a_branch() -> None:
    """Only what differs by lane is a mask."""
    a, c, r = buffer("A", (4, 8)), buffer("C", (4, 8)), Var("r")

    def chosen(i: PrimExpr) -> Stmt:
        inside = x.all_of(r >= 2, i >= 3)
        value = x.if_then_else(inside, a.load(r, i - 3), const(0.0, "float32"))
        return BufferStore(c, value, (r, i))

    body = For(r, const(0), const(4), ForKind.SERIAL, vectors(8, 8, chosen, masked=True))
    func = PrimFunc("f", (a, c), body)
    check(func, numbers(4, 8), numbers(4, 8))
    after = vectorize_loop(loop_partition(func))
    choices = [e for e in all_exprs(after.body)
               if isinstance(e, x.Call) and e.name == "if_then_else"]
    assert [e.args[0].dtype.lanes for e in choices] == [1]
