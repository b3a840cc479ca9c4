"""Loops whose body is guarded are split where the guard becomes true, so that no guard is hot.

Guards are the orders inside ``likely(...)``. A guard is settled at the innermost loop that can
be cut at a run-time value; where it also depends on unrolled or vectorised loops, whose extents
must stay constant, it is settled outside them. A parallel loop is never cut in two: its body
becomes ``if (all of this iteration is inside): main, else: tail``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir.expr import Call, PrimExpr, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.simplify.linear import Linear
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.element_range import element_range
from weft.tir.transform.interleave_tile import ANNOTATION as INTERLEAVE
from weft.tir.transform.masked_tail import MASKED_TAIL
from weft.tir.transform.rewriter import RewriterWithAnalyzer
from weft.tir.transform.tensorize_loop import ANNOTATION as TENSORIZE
from weft.tir.visitor import (
    all_exprs,
    exprs_of,
    map_body,
    mentions,
    post_order,
    substitute,
    transform_expr,
    transform_stmt,
    vars_of,
)

# Kinds whose extent must be a constant.
_STATIC = (ForKind.UNROLLED, ForKind.VECTORIZED)
# Splitting doubles what is inside; beyond this many expressions a guard costs less than the code.
_MAX_NODES = 20000


def _is_static(loop: s.For) -> bool:
    """Whether the extent of a loop must stay constant."""
    return loop.kind in _STATIC or any(note in loop.annotations for note in (TENSORIZE, INTERLEAVE))


def comparisons_in(condition: PrimExpr, hinted: bool = False) -> Iterator[PrimExpr]:
    """The comparisons that all hold where ``condition`` does and that are marked likely."""
    if type(condition) is x.And:
        yield from comparisons_in(condition.a, hinted)
        yield from comparisons_in(condition.b, hinted)
    elif type(condition) is Call and condition.name == "likely":
        yield from comparisons_in(condition.args[0], True)
    elif hinted and isinstance(condition, x.Compare):
        yield condition


def _is_hint(e: PrimExpr) -> bool:
    return type(e) is Call and e.name == "likely"


class _Guard:
    """An order inside a loop, and the loops between; ``chooses`` between two values."""

    def __init__(self, order: PrimExpr, inner: tuple[s.For, ...], *, chooses: bool) -> None:
        self.order = order
        self.chooses = chooses
        self.used = vars_of(order)
        self.inner = tuple(loop for loop in inner if loop.loop_var in self.used)


# The orders that choose inside an expression, kept for one function: loops are looked at often.
_Choices: TypeAlias = "dict[PrimExpr, tuple[PrimExpr, ...]]"


def _guards(node: Stmt, choices: _Choices, inner: tuple[s.For, ...] = ()) -> Iterator[_Guard]:
    if isinstance(node, s.IfThenElse):
        yield from (_Guard(order, inner, chooses=False) for order in comparisons_in(node.condition))
    for root in exprs_of(node):
        orders = choices.get(root)
        if orders is None:
            orders = choices[root] = tuple(_choice_predicates(root))
        yield from (_Guard(order, inner, chooses=True) for order in orders)
    match node:
        case s.For():
            keeps_extent = _is_static(node) or any(TENSORIZE in n.annotations for n in inner)
            kind = ForKind.UNROLLED if keeps_extent else node.kind
            yield from _guards(node.body, choices, (*inner, node.replace(kind=kind)))
        case s.Allocate() | s.LetStmt() | s.AttrStmt():
            yield from _guards(node.body, choices, inner)
        case s.IfThenElse():
            yield from _guards(node.then_case, choices, inner)
            if node.else_case is not None:
                yield from _guards(node.else_case, choices, inner)
        case s.SeqStmt():
            for stmt in node.stmts:
                yield from _guards(stmt, choices, inner)


def _choice_predicates(root: PrimExpr) -> Iterator[PrimExpr]:
    for e in post_order(root):
        if type(e) is Call and e.name == "if_then_else":
            yield from comparisons_in(e.args[0])


class _Partition(RewriterWithAnalyzer):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        self._choices: _Choices = {}
        self._done: set[tuple[Var, PrimExpr]] = set()  # loops that need not be cut for a guard

    def loop(self, node: s.For) -> Stmt:
        result = self._loop(node)
        self.analyzer.release(node.loop_var)
        return result

    def _loop(self, node: s.For) -> Stmt:
        node = node.replace(min=self.expr(node.min), extent=self.expr(node.extent))
        if int_value(node.extent) == 1 and node.kind is not ForKind.THREAD_BINDING:
            return self.visit(substitute(node.body, {node.loop_var: node.min}))
        if node.extent is const(0):
            return s.SeqStmt(())
        self.analyzer.bind(node.loop_var, node.min, node.extent)
        parts = self._row_parts(node)
        if parts is not None:
            return s.seq([self.visit(part) for part in parts])
        for guard, worst in self._open_guards(node):
            if guard.chooses and MASKED_TAIL in node.annotations:
                continue  # lanes choose
            if node.kind is not ForKind.PARALLEL:
                cut = self._cut(node, worst)
                if cut is not None and (not _is_static(node) or int_value(cut) is not None):
                    return self._halves(node, guard, worst, cut)
            if not _is_static(node) and _size(node.body) <= _MAX_NODES:
                return node.replace(body=self._versions(node, node.body, guard, worst))
        if node.kind is ForKind.SERIAL and not _is_static(node):
            for guard in self._never_whole(node):
                self._done.add((node.loop_var, guard.order))
                result = self._mixed_half(node, guard)
                self._done.discard((node.loop_var, guard.order))
                return result
        return node.replace(body=self.visit(node.body))

    def _row_parts(self, node: s.For) -> list[Stmt] | None:
        """The vectors before and after an element where a choice changes, if there is one."""
        chosen = [g for g in _guards(node.body, self._choices)
                  if g.chooses and node.loop_var in g.used]
        row = element_range(node, self.analyzer) if chosen else None
        if row is None:
            return None
        for guard in chosen:
            order = self.analyzer.not_negative_form(guard.order)
            place = None if order is None else row.place_of(order)
            if order is None or place is None or not row.start < place < row.stop:
                continue
            holds_first = order.terms[node.loop_var] < 0
            before, after = (_decided(node.body, guard, holds) for holds in
                             (holds_first, not holds_first))
            return [*row.piece(row.start, place, before), *row.piece(place, row.stop, after)]
        return None

    def _never_whole(self, node: s.For) -> Iterator[_Guard]:
        """Guards that hold for all inner values in no iteration, and for some in a few only."""
        for guard in _guards(node.body, self._choices):
            known = node.loop_var not in guard.used or (node.loop_var, guard.order) in self._done
            if known or not any(loop.kind in _STATIC for loop in guard.inner):
                continue
            best = self._extreme_case(guard, largest=True)
            if best is not None and not self._is_settled(best):
                yield guard

    def _open_guards(self, node: s.For) -> Iterator[tuple[_Guard, Linear]]:
        """Guards to settle at this loop, each with its worst case over the loops inside."""
        for guard in _guards(node.body, self._choices):
            if node.loop_var not in guard.used or (node.loop_var, guard.order) in self._done:
                continue
            if guard.inner and not any(loop.kind in _STATIC for loop in guard.inner):
                continue
            worst = self._extreme_case(guard, largest=False)
            if worst is not None and not self._is_settled(worst):
                yield guard, worst

    def _halves(self, node: s.For, guard: _Guard, worst: Linear, cut: PrimExpr) -> Stmt:
        """The loop cut in two, the guard true in one of them."""
        self._done.add((node.loop_var, guard.order))
        before = node.replace(extent=self.expr(cut - node.min))
        after = node.replace(min=cut, extent=self.expr(node.min + node.extent - cut))
        inside = _decided(node.body, guard, True)
        outside = node.body if guard.inner else _decided(node.body, guard, False)
        if worst.terms[node.loop_var] > 0:
            inside, outside = outside, inside
        halves = [before.replace(body=inside), after.replace(body=outside)]
        mixed = 0 if worst.terms[node.loop_var] > 0 else 1
        parts = [
            self._mixed_half(half, guard) if at == mixed and guard.inner else self.visit(half)
            for at, half in enumerate(halves)
        ]
        self._done.discard((node.loop_var, guard.order))
        return s.seq(parts)

    def _mixed_half(self, node: s.For, guard: _Guard) -> Stmt:
        """Iterations in which the guard does not hold throughout, without those where it never
        holds: cut once more, where the best case of the loops inside fails too.
        """
        best = self._extreme_case(guard, largest=True)
        cut = None if best is None else self._cut(node, best)
        if best is None or cut is None or node.kind in _STATIC:
            return self.visit(node)
        before = node.replace(extent=self.expr(cut - node.min))
        after = node.replace(min=cut, extent=self.expr(node.min + node.extent - cut))
        nowhere = _decided(node.body, guard, False)
        if best.terms[node.loop_var] > 0:
            before = before.replace(body=nowhere)
        else:
            after = after.replace(body=nowhere)
        return s.seq([self.visit(before), self.visit(after)])

    def _versions(self, node: s.For, body: Stmt, guard: _Guard, worst: Linear) -> Stmt:
        """Two forms of ``body``, under a condition that is tested once an iteration.

        Statements beside those that hold the guard stay one. What shares registers stays together:
        they would have to outlive the branch.
        """
        match body:
            case s.SeqStmt():
                held = [at for at, stmt in enumerate(body.stmts) if self._holds(stmt, guard)]
                first, last = held[0], held[-1] + 1
                if last - first < len(body.stmts):
                    middle = self._versions(node, s.seq(body.stmts[first:last]), guard, worst)
                    before, after = (self._version(node, s.seq(part))
                                     for part in (body.stmts[:first], body.stmts[last:]))
                    return s.seq([before, middle, after])
            case s.Allocate() if body.buffer.scope != "local":
                return body.replace(body=self._versions(node, body.body, guard, worst))
        condition = self.analyzer.simplify(x.GE(worst.to_expr(), const(0)))
        self._done.add((node.loop_var, guard.order))
        with self.analyzer.constraint(condition):
            main = self._version(node, _decided(body, guard, True))
        with self.analyzer.constraint(x.not_(condition)):
            tail = self._version(node, body if guard.inner else _decided(body, guard, False))
        self._done.discard((node.loop_var, guard.order))
        return s.IfThenElse(condition, main, tail)

    def _holds(self, stmt: Stmt, guard: _Guard) -> bool:
        return any(found.order is guard.order for found in _guards(stmt, self._choices))

    def _version(self, node: s.For, body: Stmt) -> Stmt:
        """A part of a loop's body under what is known now; further guards make further versions."""
        for guard, worst in self._open_guards(node.replace(body=body)):
            return self._versions(node, body, guard, worst)
        return self.visit(body)

    def _is_settled(self, worst: Linear) -> bool:
        """Whether the guard is already known to hold, or never to hold for all inner values."""
        zero = const(0)
        return bool(
            self.analyzer.can_prove(x.GE(worst.to_expr(), zero))
            or self.analyzer.can_prove(x.LT(worst.to_expr(), zero))
        )

    def _extreme_case(self, guard: _Guard, *, largest: bool) -> Linear | None:
        """The smallest (or largest) value over the inner loops of the sum that the guard wants
        not negative.
        """
        for loop in guard.inner:
            self.analyzer.bind(loop.loop_var, loop.min, loop.extent)
        extreme = self._extreme_of(guard, largest=largest)
        for loop in guard.inner:
            self.analyzer.release(loop.loop_var)
        return extreme

    def _extreme_of(self, guard: _Guard, *, largest: bool) -> Linear | None:
        total = self.analyzer.not_negative_form(guard.order)
        if total is None:
            return None
        inner = {loop.loop_var for loop in guard.inner}
        extreme = Linear.of_const(total.const)
        for atom, c in total.terms.items():
            if mentions(atom, *inner):
                low, high = self.analyzer.int_bounds(atom)
                end = low if (c > 0) is not largest else high
                if end is None:
                    return None
                extreme = extreme.plus(Linear.of_const(end), c)
            else:
                extreme = extreme.plus(Linear.of_atom(atom), c)
        return extreme

    def _cut(self, node: s.For, worst: Linear) -> PrimExpr | None:
        """Where along the loop ``worst >= 0`` changes, within the loop's range."""
        var = node.loop_var
        c = worst.terms.get(var)
        rest = worst.plus(Linear.of_atom(var), -(c or 0))
        if c is None or any(mentions(atom, var) for atom in rest.terms):
            return None
        if c < 0:  # holds up to rest // -c
            cut = x.floordiv(rest.to_expr(), const(-c)) + 1
        else:  # holds from ceil(-rest / c)
            cut = x.floordiv(rest.scaled(-1).to_expr() + (c - 1), const(c))
        inside = x.minimum(x.maximum(cut, node.min), node.min + node.extent)
        return self.analyzer.simplify(inside)


def _decided(body: Stmt, guard: _Guard, holds: bool) -> Stmt:
    """``body`` with the guard replaced by its outcome."""
    memo: dict[PrimExpr, PrimExpr] = {guard.order: x.TRUE if holds else x.FALSE}
    return transform_stmt(body, None, lambda e: transform_expr(e, lambda node: node, memo))


def _size(stmt: Stmt) -> int:
    return sum(1 for _ in all_exprs(stmt))


def loop_partition(func: PrimFunc) -> PrimFunc:
    """Split guarded loops into parts without a guard.

    for i in range(5):
        for j in vectorized(16):
            if likely(i * 16 + j < 70):
                A[i * 16 + j] = 1.0
    =>
    for i in range(4):
        for j in vectorized(16):
            A[i * 16 + j] = 1.0
    for j in vectorized(6):
        A[j + 64] = 1.0
    """
    if not any(map(_is_hint, all_exprs(func.body))):
        return func
    return map_body(func, _Partition(func).visit)
