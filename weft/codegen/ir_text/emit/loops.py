"""Counted loops in LLVM's canonical form: rotated, with one induction variable."""

from __future__ import annotations

from collections.abc import Callable

from weft.codegen.ir_text.emit.counters import Counters
from weft.codegen.ir_text.emit.state import FunctionState
from weft.codegen.ir_text.types import value_type
from weft.tir import Stmt, Var

NO_UNROLL = "llvm.loop.unroll.disable"
NO_VECTORIZE = '!{!"llvm.loop.vectorize.enable", i1 false}'


def loop_metadata(state: FunctionState) -> str:
    """Metadata that disables LLVM's unrolling and vectorisation, which tir has already done."""
    module = state.kernel.module
    unroll = module.metadata(f'!{{!"{NO_UNROLL}"}}')
    vectorize = module.metadata(NO_VECTORIZE)
    return module.metadata(f"distinct !{{!N, {unroll}, {vectorize}}}")


def emit_loop(
    state: FunctionState,
    var: Var,
    begin: str,
    end: str,
    body: Stmt,
    emit_stmt: Callable[[FunctionState, Stmt], None],
    *,
    runs_at_least_once: bool,
) -> None:
    """``for var in range(begin, end)``, with the test at the bottom (a rotated loop).

    Unless ``runs_at_least_once``, a guard before the loop skips it if the range is empty.
    """
    out, counters, kind = state.out, Counters(state, var, body), value_type(var.dtype)
    label = out.fresh("loop")
    if not runs_at_least_once:
        runs = out.emit(f"icmp slt {kind} {begin}, {end}")
        out.do(f"br i1 {runs}, label %{label}.enter, label %{label}.exit")
        out.start_block(f"{label}.enter")
    counters.start(begin)
    before, counter, following = out.block, f"%{label}.i", f"%{label}.next"
    out.branch(label)
    out.start_block(label)
    out.do(f"{counter} = phi {kind} [ {begin}, %{before} ], [ {following}, %{label}.latch ]")
    with state.memo.scope():
        state.memo.bind(var, counter)
        counters.header(label, before)
        emit_stmt(state, body)
    out.branch(f"{label}.latch")
    out.start_block(f"{label}.latch")
    out.do(f"{following} = add nsw {kind} {counter}, 1")
    counters.latch(label, following)
    more = out.emit(f"icmp slt {kind} {following}, {end}")
    out.do(f"br i1 {more}, label %{label}, label %{label}.exit, !llvm.loop {loop_metadata(state)}")
    out.start_block(f"{label}.exit")
