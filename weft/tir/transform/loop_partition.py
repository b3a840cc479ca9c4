"""Loop partition: splits guarded loops into a main loop without guards and tails.

Guards are the comparisons inside ``likely(...)``, from tiles that do not divide an extent and from
padding. A guard is eliminated at the innermost loop that can be split at a run-time value. Unrolled
and vectorised loops must keep constant extents, so a guard on their variables is eliminated at an
enclosing loop, by its worst case over all inner iterations. A parallel loop is not split into two,
which would launch twice; its body becomes ``if (worst case holds): main, else: tail``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from weft.tir import expr as x
from weft.tir import stmt as s
from weft.tir import visitor
from weft.tir.expr import PrimExpr, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.simplify.linear import Linear
from weft.tir.stmt import ForKind, Stmt
from weft.tir.transform.element_range import element_range
from weft.tir.transform.exact_tail import (
    EXACT_TAIL,
    rows_that_hold,
    tail_versions,
    with_rows,
)
from weft.tir.transform.guard_values import (
    decided,
    replaced,
    with_values,
    without_select_hints,
)
from weft.tir.transform.guards import (
    STATIC,
    Guard,
    Selects,
    guards_in,
    has_masks,
    is_for_a_row,
    is_hint,
    is_static,
    selects_constants,
)
from weft.tir.transform.many_selects import MANY_SELECTS, SelectCut, halves_of
from weft.tir.transform.masked_tail import MASKED_TAIL
from weft.tir.transform.rewriter import RewriterWithAnalyzer

# Splitting duplicates the body. Above this many expressions the guard costs less than the code.
_MAX_NODES = 20000
_MAX_SYMBOLIC_SPLITS = 96


class _Partition(RewriterWithAnalyzer):
    def __init__(self, func: PrimFunc) -> None:
        super().__init__(func)
        self._selects: Selects = {}
        self._done: set[tuple[Var, PrimExpr]] = set()  # guards already handled, by loop
        self._sizes = {p for p in func.params if isinstance(p, Var)}
        # Guards over symbolic sizes may be undecided after each split, so that splits multiply.
        self._is_symbolic = any(isinstance(param, Var) for param in func.params)
        self._splits_left = _MAX_SYMBOLIC_SPLITS if self._is_symbolic else math.inf

    def loop(self, node: s.For) -> Stmt:
        result = self._loop(node)
        self.analyzer.release(node.loop_var)
        return result

    def _loop(self, node: s.For) -> Stmt:
        # All parts of a split loop have the same variable; a part may be empty where the loop is
        # not.
        self.analyzer.release(node.loop_var)
        node = node.replace(min=self.expr(node.min), extent=self.expr(node.extent))
        if int_value(node.extent) == 1 and node.kind is not ForKind.THREAD_BINDING:
            return self.visit(visitor.substitute(node.body, {node.loop_var: node.min}))
        if node.extent is const(0):
            return s.SeqStmt(())
        self._bind(node)
        # A select that changes within a row of vectors: split the row at that element.
        split_row = self._split_row(node)
        if split_row is not None:
            return s.seq([self.visit(loop) for loop in split_row])
        peeled = self._peeled(node) if self._is_symbolic else None
        if peeled is not None:
            return peeled
        middle = self._middle_of_many(node)
        if middle is not None:
            return middle
        for guard, worst in self._pending_guards(node) if self._splits_left > 0 else ():
            if guard.is_select and MASKED_TAIL in node.annotations:
                continue  # the masked vector selects per lane
            if node.kind is not ForKind.PARALLEL:
                # Split the iterations where the worst case changes sign.
                cut = self._cut(node, worst)
                if cut is not None and (not is_static(node) or int_value(cut) is not None):
                    return self._halves(node, guard, worst, cut)
            # No split point (or a parallel loop): test the worst case once per iteration.
            if not is_static(node) and _size(node.body) <= _MAX_NODES:
                return node.replace(body=self._versions(node, node.body, guard, worst))
        # Split off iterations in which a guard never holds, such as those wholly in the padding.
        if node.kind is ForKind.SERIAL and not is_static(node) and self._splits_left > 0:
            for guard in self._never_throughout(node):
                self._done.add((node.loop_var, guard.predicate))
                result = self._mixed_half(node, guard)
                self._done.discard((node.loop_var, guard.predicate))
                return result
        body = self.visit(node.body)
        # Beside an empty loop, the vectors of a tile would not be recognised as one.
        is_empty = isinstance(body, s.SeqStmt) and not body.stmts
        return body if is_empty and node.kind is ForKind.VECTORIZED else node.replace(body=body)

    def _bind(self, node: s.For) -> None:
        """Bind the loop variable, also below each operand of a minimum of symbolic sizes.

        From ``i < min(1, w // 7)`` follows then that ``7*i + 6 < w``.
        """
        self.analyzer.bind(node.loop_var, node.min, node.extent)
        for end in _operands_of_min(node.extent):
            if visitor.vars_of(end) & self._sizes:
                first = node.loop_var - node.min
                self.analyzer.bind_fact(node.loop_var, x.LT(first, end))
                step = int_value(end.b) if isinstance(end, x.FloorDiv) else None
                if isinstance(end, x.FloorDiv) and step is not None:
                    last = first * step + (step - 1)
                    self.analyzer.bind_fact(node.loop_var, x.LT(last, end.a))

    def _split_row(self, node: s.For) -> list[Stmt] | None:
        """The loops before and after the element where a select changes; ``None`` if none does."""
        selects = [g for g in guards_in(node.body, self._selects)
                   if g.is_select and node.loop_var in g.used]
        row = element_range(node, self.analyzer) if selects else None
        if row is None:
            return None
        cuts: list[SelectCut] = []
        for guard in selects:
            total = self.analyzer.nonnegative_form(guard.predicate)
            element = None if total is None else row.threshold(total)
            if total is not None and element is not None and row.start < element < row.stop:
                holds_first = total.terms[node.loop_var] < 0
                cuts.append(SelectCut(guard.predicate, holds_first, element, element))
                if len(selects) <= MANY_SELECTS:
                    break
        if not cuts:
            return None
        element, first, last = halves_of(cuts if len(cuts) > MANY_SELECTS else cuts[:1])
        return [*row.subrange(row.start, element, with_values(node.body, first)),
                *row.subrange(element, row.stop, with_values(node.body, last))]

    def _never_throughout(self, node: s.For) -> Iterator[Guard]:
        """Guards that hold in some iterations, but in no iteration for all inner iterations."""
        for guard in guards_in(node.body, self._selects):
            is_done = (node.loop_var, guard.predicate) in self._done
            if is_done or node.loop_var not in guard.used:
                continue
            if not any(loop.kind in STATIC for loop in guard.inner):
                continue
            best = self._extreme_case(guard, largest=True)
            if best is not None and not self._is_settled(best):
                yield guard

    def _pending_guards(self, node: s.For) -> Iterator[tuple[Guard, Linear]]:
        """Guards to eliminate at this loop, each with its worst case over the inner loops."""
        for guard in guards_in(node.body, self._selects):
            if node.loop_var not in guard.used or (node.loop_var, guard.predicate) in self._done:
                continue
            if guard.inner and not any(loop.kind in STATIC for loop in guard.inner):
                continue
            if self._is_symbolic and is_for_a_row(guard):
                continue  # the loop over the vectors of a row is split instead
            worst = self._extreme_case(guard, largest=False)
            if worst is not None and not self._is_settled(worst):
                yield guard, worst

    def _peeled(self, node: s.For) -> Stmt | None:
        """A loop over masked vectors with several guards as three loops: masked, without guards,
        masked.

        Splitting at one guard after the other would multiply the loops, as the order of symbolic
        cuts is not known. ``None`` for other loops, and if a value selected beyond a guard must be
        computed.
        """
        pending = [found for found in self._pending_guards(node) if has_masks(found[0])]
        if len(pending) < 2 or node.kind is not ForKind.SERIAL or not selects_constants(node.body):
            return None
        low, high = node.min, node.min + node.extent
        stop = high
        for guard, worst in pending:
            best = None if guard.is_select else self._extreme_case(guard, largest=True)
            end = None if best is None else self._cut(node, best)
            if best is not None and end is not None and best.terms[node.loop_var] < 0:
                stop = x.minimum(stop, end)  # beyond it the guard never holds
            cut = self._cut(node, worst)
            if cut is None:
                return None
            if worst.terms[node.loop_var] > 0:
                low = x.maximum(low, cut)
            else:
                high = x.minimum(high, cut)
        self.analyzer.release(node.loop_var)
        low = self.analyzer.simplify(low)
        high = self.analyzer.simplify(x.maximum(low, high))
        stop = self.analyzer.simplify(x.maximum(high, stop))
        if int_value(low) is not None and int_value(high) is not None:
            return None
        main = node.body
        for guard, _ in pending:
            main = decided(main, guard, True)
        found = {(node.loop_var, guard.predicate) for guard, _ in pending} - self._done
        self._done |= found
        first, rest = self._split(node, low)
        middle, rest = self._split(rest, high)
        last, _ = self._split(rest, stop)
        parts = s.seq([self.visit(loop) for loop in (first, middle.replace(body=main), last)])
        self._done -= found
        return parts

    def _middle_of_many(self, node: s.For) -> Stmt | None:
        """A loop over many selections, split at the middle of their cuts; ``None`` for others.

        A concatenation of hundreds of tensors selects by offset. If the loop were split at the
        first of its boundaries each time, the rest of the selections would be copied for each.
        """
        if self._is_symbolic or MASKED_TAIL in node.annotations:
            return None
        if sum(g.is_select for g in guards_in(node.body, self._selects)) <= MANY_SELECTS:
            return None
        cuts = [cut for guard, worst in self._pending_guards(node)
                if (cut := self._select_cut(node, guard, worst)) is not None]
        if len(cuts) <= MANY_SELECTS:
            return None
        if node.kind is ForKind.PARALLEL:
            is_small = not isinstance(node.body, s.SeqStmt | s.Allocate) \
                and _size(node.body) <= _MAX_NODES
            return node.replace(body=self._branches(node, node.body, cuts)) if is_small else None
        middle, first, last = halves_of(cuts)
        before, after = self._split(node, const(middle))
        return s.seq([self.visit(before.replace(body=with_values(node.body, first))),
                      self.visit(after.replace(body=with_values(node.body, last)))])

    def _branches(self, node: s.For, body: Stmt, cuts: Sequence[SelectCut]) -> Stmt:
        """Versions of ``body`` under a tree of tests of the variable of a parallel loop."""
        if len(cuts) <= MANY_SELECTS:
            return self._version(node, body)
        middle, first, last = halves_of(cuts)
        condition = x.LT(node.loop_var, const(middle))
        with self.analyzer.constraint(condition):
            before = self._branches(node, with_values(body, first),
                                    [c for c in cuts if c.predicate not in first])
        with self.analyzer.constraint(x.not_(condition)):
            after = self._branches(node, with_values(body, last),
                                   [c for c in cuts if c.predicate not in last])
        return s.IfThenElse(condition, before, after)

    def _select_cut(self, node: s.For, guard: Guard, worst: Linear) -> SelectCut | None:
        """Where a selection changes along a loop; ``None`` unless at numbers."""
        if not guard.is_select or self._rows(guard) is not None:
            return None
        best = self._extreme_case(guard, largest=True) if guard.inner else worst
        ends = [None if case is None else self._cut(node, case) for case in (worst, best)]
        always, never = (None if end is None else int_value(end) for end in ends)
        if always is None or never is None:
            return None
        return SelectCut(guard.predicate, worst.terms[node.loop_var] < 0, always, never)

    def _halves(self, node: s.For, guard: Guard, worst: Linear, cut: PrimExpr) -> Stmt:
        """The loop split at ``cut`` into two; the guard always holds in one of them."""
        self._splits_left -= 1
        self._done.add((node.loop_var, guard.predicate))
        before, after = self._split(node, cut)
        inside = decided(self._without_rows(node.body, guard), guard, True)
        outside = node.body if guard.inner else decided(node.body, guard, False)
        if worst.terms[node.loop_var] > 0:
            inside, outside = outside, inside
        halves = [before.replace(body=inside), after.replace(body=outside)]
        mixed = 0 if worst.terms[node.loop_var] > 0 else 1
        loops = [
            self._mixed_half(half, guard) if at == mixed and guard.inner else self.visit(half)
            for at, half in enumerate(halves)
        ]
        self._done.discard((node.loop_var, guard.predicate))
        return s.seq(loops)

    def _split(self, node: s.For, cut: PrimExpr) -> tuple[s.For, s.For]:
        """The iterations before ``cut`` and those from it on; both are empty for an empty loop."""
        self.analyzer.release(node.loop_var)
        return (node.replace(extent=self.expr(cut - node.min)),
                node.replace(min=cut, extent=self.expr(node.min + node.extent - cut)))

    def _mixed_half(self, node: s.For, guard: Guard) -> Stmt:
        """The iterations in which the guard does not hold for all inner iterations.

        They are split once more at the point beyond which the guard never holds.
        """
        if node.kind not in STATIC:
            self._bind(node)
            exact = self._exact_tail(node, node.body, guard)
            if exact is not None:
                return node.replace(body=exact)
        best = self._extreme_case(guard, largest=True)
        cut = None if best is None else self._cut(node, best)
        if best is None or cut is None or node.kind in STATIC:
            self.analyzer.release(node.loop_var)  # no fact about the range may simplify the range
            return self.visit(node)
        self._splits_left -= 1
        before, after = self._split(node, cut)
        nowhere = decided(node.body, guard, False)
        if best.terms[node.loop_var] > 0:
            before = before.replace(body=nowhere)
        else:
            after = after.replace(body=nowhere)
        return s.seq([self.visit(before), self.visit(after)])

    def _versions(self, node: s.For, body: Stmt, guard: Guard, worst: Linear) -> Stmt:
        """Two versions of ``body`` under a branch on the worst case, tested once per iteration.

        Only the statements from the first to the last that contain the guard are duplicated. An
        allocation of registers is duplicated as a whole: they cannot be live across the branch.
        """
        match body:
            case s.SeqStmt():
                guarded = [at for at, stmt in enumerate(body.stmts) if self._contains(stmt, guard)]
                first, last = guarded[0], guarded[-1] + 1
                if last - first < len(body.stmts):
                    middle = self._versions(node, s.seq(body.stmts[first:last]), guard, worst)
                    before, after = (self._version(node, s.seq(stmts))
                                     for stmts in (body.stmts[:first], body.stmts[last:]))
                    return s.seq([before, middle, after])
            case s.Allocate() if body.buffer.scope != "local":
                return body.replace(body=self._versions(node, body.body, guard, worst))
        self._splits_left -= 1
        condition = self.analyzer.simplify(x.GE(worst.to_expr(), const(0)))
        self._done.add((node.loop_var, guard.predicate))
        with self.analyzer.constraint(condition):
            main = self._version(node, decided(body, guard, True))
        with self.analyzer.constraint(x.not_(condition)):
            tail = self._exact_tail(node, body, guard)
            if tail is None:
                tail = self._version(node, body if guard.inner else decided(body, guard, False))
        self._done.discard((node.loop_var, guard.predicate))
        return s.IfThenElse(condition, main, tail)

    def _exact_tail(self, node: s.For, body: Stmt, guard: Guard) -> Stmt | None:
        """A version of ``body`` for each number of rows in the tail of a symbolic extent.

        ``None`` unless the guard is that of an unrolled loop with the pragma ``exact_tail``.
        """
        rows = self._rows(guard)
        extent = int_value(guard.inner[0].extent) if rows is not None else None
        if rows is None or extent is None or rows.is_const:
            return None

        plain = without_select_hints(body)
        guards = list(self._guards_of_rows(plain, rows))
        predicates = {other.inner[0].loop_var: other.predicate for other in guards}

        def version(count: int) -> Stmt:
            shortened = with_rows(plain, predicates, count)
            for other in guards:  # those that are not around the whole body of their loop
                is_first = x.LT(other.inner[0].loop_var, const(count))
                shortened = replaced(shortened, other.predicate, is_first)
            return self._version(node, shortened)

        return tail_versions(rows, extent, self.analyzer, version)

    def _without_rows(self, body: Stmt, guard: Guard) -> Stmt:
        """``body`` for full tiles, where the guard always holds, without guards of exact tails."""
        rows = self._rows(guard)
        for other in () if rows is None else list(self._guards_of_rows(body, rows)):
            body = decided(body, other, True)
        return body

    def _guards_of_rows(self, body: Stmt, rows: Linear) -> Iterator[Guard]:
        """The guards of exact tails that let through the same number of rows."""
        for guard in guards_in(body, self._selects):
            found = self._rows(guard)
            if found is not None and found.plus(rows, -1).is_zero:
                yield guard

    def _rows(self, guard: Guard) -> Linear | None:
        """The number of rows of a tile for which the guard holds, for the rows of an exact tail."""
        if len(guard.inner) != 1 or EXACT_TAIL not in guard.inner[0].annotations:
            return None
        loop = guard.inner[0]
        self.analyzer.bind(loop.loop_var, loop.min, loop.extent)
        total = self.analyzer.nonnegative_form(guard.predicate)
        self.analyzer.release(loop.loop_var)
        return None if total is None else rows_that_hold(total, loop)

    def _contains(self, stmt: Stmt, guard: Guard) -> bool:
        return any(found.predicate is guard.predicate for found in guards_in(stmt, self._selects))

    def _version(self, node: s.For, body: Stmt) -> Stmt:
        """Partition part of a loop body; each further guard adds a branch with two versions."""
        pending = self._pending_guards(node.replace(body=body))
        for guard, worst in pending if self._splits_left > 0 else ():
            return self._versions(node, body, guard, worst)
        return self.visit(body)

    def _is_settled(self, worst: Linear) -> bool:
        """Whether the worst case has a known sign: no split of this loop would help the guard."""
        zero = const(0)
        return bool(
            self.analyzer.can_prove(x.GE(worst.to_expr(), zero))
            or self.analyzer.can_prove(x.LT(worst.to_expr(), zero))
        )

    def _extreme_case(self, guard: Guard, *, largest: bool) -> Linear | None:
        """The minimum (or maximum) over the inner loops of the sum that the guard wants >= 0.

        ``None`` if the guard is not linear, or an inner range is unbounded.
        """
        for loop in guard.inner:
            self.analyzer.bind(loop.loop_var, loop.min, loop.extent)
        extreme = self._extreme_of(guard, largest=largest)
        for loop in guard.inner:
            self.analyzer.release(loop.loop_var)
        return extreme

    def _extreme_of(self, guard: Guard, *, largest: bool) -> Linear | None:
        total = self.analyzer.nonnegative_form(guard.predicate)
        if total is None:
            return None
        inner = {loop.loop_var for loop in guard.inner}
        extreme = Linear.of_const(total.const)
        for atom, c in total.terms.items():
            if visitor.mentions(atom, *inner):
                low, high = self.analyzer.int_bounds(atom)
                end = low if (c > 0) is not largest else high
                if end is None:
                    return None
                extreme = extreme.plus(Linear.of_const(end), c)
            else:
                extreme = extreme.plus(Linear.of_atom(atom), c)
        return extreme

    def _cut(self, node: s.For, worst: Linear) -> PrimExpr | None:
        """The first iteration after ``worst >= 0`` changes, clamped to the range of the loop.

        ``None`` unless ``worst`` is linear in the loop variable.
        """
        var = node.loop_var
        c = worst.terms.get(var)
        rest = worst.plus(Linear.of_atom(var), -(c or 0))
        if c is None or any(visitor.mentions(atom, var) for atom in rest.terms):
            return None
        if c < 0:  # holds up to rest // -c
            cut = x.floordiv(rest.to_expr(), const(-c)) + 1
        else:  # holds from ceil(-rest / c)
            cut = x.floordiv(rest.scaled(-1).to_expr() + (c - 1), const(c))
        inside = x.minimum(x.maximum(cut, node.min), node.min + node.extent)
        # Outside of the facts that hold only inside the loop: a loop without iterations has empty
        # halves.
        self.analyzer.release(var)
        cut = self.analyzer.simplify(inside)
        self.analyzer.bind(var, node.min, node.extent)
        return cut


def _operands_of_min(e: PrimExpr) -> Iterator[PrimExpr]:
    if isinstance(e, x.Min):
        yield from _operands_of_min(e.a)
        yield from _operands_of_min(e.b)
    else:
        yield e


def _size(stmt: Stmt) -> int:
    return sum(1 for _ in visitor.all_exprs(stmt))


def loop_partition(func: PrimFunc) -> PrimFunc:
    """Split guarded loops into loops without guards.

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
    if not any(map(is_hint, visitor.all_exprs(func.body))):
        return func
    return visitor.map_body(func, _Partition(func).visit)
