"""Quotients and remainders of a loop variable by run-time sizes, as counters.

A loop over fused axes of symbolic extents recovers their indices by division, which takes 10 to 20
cycles. Here a loop divides once, before its first iteration; then the remainder counts up, and
where it reaches the divisor it starts again and the quotient counts. A task of a parallel loop thus
divides once for all its iterations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from weft.codegen.ir_text.emit.state import FunctionState, emit, is_nonnegative
from weft.codegen.ir_text.types import value_type
from weft.codegen.uses import collect_uses
from weft.ir import int64
from weft.support.dataclass import dataclass
from weft.tir import BufferLoad, FloorDiv, FloorMod, PrimExpr, Stmt, Var, int_value
from weft.tir.visitor import all_exprs, post_order, substitute


@dataclass(frozen=True, slots=True)
class Division:
    """``dividend // divisor`` and ``dividend % divisor`` of a loop body.

    The dividend is the loop variable, or a quotient of it by numbers, or the quotient of another
    ``Division``, so it grows by 0 or 1 in each iteration.
    """

    dividend: PrimExpr
    divisor: PrimExpr

    @property
    def quotient(self) -> PrimExpr:
        return FloorDiv(self.dividend, self.divisor)

    @property
    def remainder(self) -> PrimExpr:
        return FloorMod(self.dividend, self.divisor)


def divisions_by_sizes(var: Var, body: Stmt) -> tuple[Division, ...]:
    """The divisions of ``var`` in ``body`` by values that do not change in the loop.

    A division of another one's quotient follows it.
    """
    found: dict[Division, None] = {}
    bound: set[object] | None = None
    for e in all_exprs(body):
        if not isinstance(e, FloorDiv | FloorMod) or int_value(e.b) is not None:
            continue
        if e.dtype is not var.dtype or not _is_quotient_of(e.a, var):
            continue
        if bound is None:
            bound = {var, *collect_uses(body).bound}
        if all(_is_fixed(b, bound) for b in _divisors(e)):
            found.update(dict.fromkeys(_chain(e)))
    return tuple(found)


def _is_quotient_of(e: PrimExpr, var: Var) -> bool:
    """Whether ``e`` is ``var`` divided by numbers and then by run-time values."""
    while isinstance(e, FloorDiv) and int_value(e.b) is None:
        e = e.a
    while isinstance(e, FloorDiv) and int_value(e.b) is not None:
        e = e.a
    return e is var


def _divisors(e: PrimExpr) -> Iterator[PrimExpr]:
    while isinstance(e, FloorDiv | FloorMod):
        yield e.b
        e = e.a


def _is_fixed(divisor: PrimExpr, bound: set[object]) -> bool:
    return not any(e in bound or isinstance(e, BufferLoad) for e in post_order(divisor))


def _chain(e: PrimExpr) -> Iterator[Division]:
    """The divisions by run-time values in a chain of quotients, the innermost first."""
    if isinstance(e, FloorDiv | FloorMod):
        yield from _chain(e.a)
        if int_value(e.b) is None:
            yield Division(e.a, e.b)


@dataclass(frozen=True, slots=True)
class _Start:
    """Operands before the loop: quotient, remainder, divisor, and the step 1 (0 by zero)."""

    quotient: str
    remainder: str
    divisor: str
    step: str


class Counters:
    """The counters of one loop: ``start`` before it, ``header`` and ``latch`` in its blocks."""

    def __init__(self, state: FunctionState, var: Var, body: Stmt) -> None:
        self.state = state
        self.var = var
        is_usable = state.kernel.has_sizes and var.dtype is int64 and is_nonnegative(state, var)
        divisions = divisions_by_sizes(var, body) if is_usable else ()
        self.divisions = tuple(d for d in divisions if is_nonnegative(state, d.divisor))
        self._starts: list[_Start] = []

    def start(self, begin: str) -> None:
        """Divide the first value of the loop variable."""
        if not self.divisions:
            return
        state, out = self.state, self.state.out
        with state.memo.scope():
            state.memo.bind(self.var, begin)
            for division in self.divisions:
                quotient = emit(state, division.quotient)
                remainder = emit(state, division.remainder)
                size = emit(state, division.divisor)
                # Quotient and remainder by zero are 0 throughout, as those of a division.
                is_zero = out.emit(f"icmp eq i64 {size}, 0")
                divisor = out.emit(f"select i1 {is_zero}, i64 -1, i64 {size}")
                step = out.emit(f"select i1 {is_zero}, i64 0, i64 1")
                self._starts.append(_Start(quotient, remainder, divisor, step))

    def header(self, label: str, before: str) -> None:
        """The phi nodes, as the values of the quotients and remainders in the body."""
        for number, (division, first) in enumerate(zip(self.divisions, self._starts, strict=True)):
            for name, node, value in (("q", division.quotient, first.quotient),
                                      ("r", division.remainder, first.remainder)):
                phi = f"%{label}.{name}{number}"
                self.state.out.do(f"{phi} = phi i64 [ {value}, %{before} ], "
                                  f"[ {phi}.next, %{label}.latch ]")
                self.state.memo.add(node, phi)

    def latch(self, label: str, following: str) -> None:
        """Count; ``following`` is the next value of the loop variable."""
        out, wrapped = self.state.out, dict[PrimExpr, str]()
        for number, (division, first) in enumerate(zip(self.divisions, self._starts, strict=True)):
            step = wrapped.get(division.dividend)
            if step is None:
                step = self._step(division.dividend, f"%{label}.i", following)
            q, r = f"%{label}.q{number}", f"%{label}.r{number}"
            counts = out.emit(f"and i64 {step}, {first.step}")
            after = out.emit(f"add nsw i64 {r}, {counts}")
            is_end = out.emit(f"icmp eq i64 {after}, {first.divisor}")
            carry = wrapped[division.quotient] = out.emit(f"zext i1 {is_end} to i64")
            out.do(f"{r}.next = select i1 {is_end}, i64 0, i64 {after}")
            out.do(f"{q}.next = add nsw i64 {q}, {carry}")

    def _step(self, dividend: PrimExpr, now: str, following: str) -> str:
        """By how much a dividend grows: 1 for the loop variable itself."""
        if dividend is self.var:
            return "1"
        values = []
        for value in (now, following):
            other = Var(self.var.name)
            with self.state.memo.scope():
                self.state.memo.bind(other, value)
                self.state.note_range(other, nonnegative=True)
                values.append(emit(self.state, substitute(dividend, {self.var: other})))
        return self.state.out.emit(f"sub nsw i64 {values[1]}, {values[0]}")


NO_UNROLL = "llvm.loop.unroll.disable"
NO_VECTORIZE = '!{!"llvm.loop.vectorize.enable", i1 false}'


def loop_metadata(state: FunctionState) -> str:
    """The suffix of a loop's branch: no unrolling and vectorisation, which tir has already done."""
    if state.kernel.unrolls:
        return ""
    module = state.kernel.module
    unroll = module.metadata(f'!{{!"{NO_UNROLL}"}}')
    vectorize = module.metadata(NO_VECTORIZE)
    return f", !llvm.loop {module.metadata(f'distinct !{{!N, {unroll}, {vectorize}}}')}"


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
    out.do(f"br i1 {more}, label %{label}, label %{label}.exit{loop_metadata(state)}")
    out.start_block(f"{label}.exit")
