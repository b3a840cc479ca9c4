"""The loop nest of one stage, including the stages attached to its loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.support.dataclass import dataclass
from weft.te.cross_thread import CrossThreadNest
from weft.te.domain import overruns
from weft.te.hints import lines_of_box, share_of_next_block
from weft.te.plan import StagePlan
from weft.te.reduce import combined
from weft.te.tensor import REDUCE, IterVar, Tensor
from weft.te.walk import rewrite_body
from weft.tir import Analyzer, Buffer, post_order, substitute
from weft.tir import expr as tir
from weft.tir.expr import BufferLoad, PrimExpr, ProducerLoad, Reduce, Var, const, int_value
from weft.tir.stmt import BufferStore, For, ForKind, IfThenElse, Stmt, seq, store_together
from weft.tir.transform.tensorize_loop import ANNOTATION as TENSORIZE

Inside = Callable[[IterVar, Stmt], Stmt]
Locate = Callable[[Tensor], tuple[Buffer, tuple[PrimExpr, ...]]]


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """A bounds check inside the loop at ``depth`` (-1: outside all loops).

    ``reduces``: the condition depends on a reduction axis, so the initialisation ignores it.
    """

    condition: PrimExpr
    depth: int
    reduces: bool


class NestBuilder:
    """Builds the loops of one compute stage.

    ``locate`` gives the buffer of a tensor and the index of the buffer's first element;
    ``inside`` puts the stages attached to a loop before the loop's body.
    """

    def __init__(self, plan: StagePlan, analyzer: Analyzer, locate: Locate, inside: Inside) -> None:
        self.plan = plan
        self.stage = plan.stage
        self.analyzer = analyzer
        self.locate = locate
        self.inside = inside
        self.leaves = plan.stage.leaf_iter_vars
        self.axes = plan.stage.root_iter_vars
        self.depths = {plan.loop_vars[a]: i for i, a in enumerate(self.leaves)}
        self.body = self._lowered_body()
        self.indices = tuple(
            analyzer.simplify(plan.values[a] + (low - origin))
            for a, low, origin in zip(self.axes, plan.low, plan.origin, strict=False)
        )
        self.guards = self._guards()
        self.cross_thread = CrossThreadNest.of(plan, self.body, self.indices)

    def build(self) -> Stmt:
        """The whole nest: initialisation and update of a reduction, or plain stores."""
        first, reduce = self._first_reduce_loop(), self.plan.body[0]
        update = self._update()
        for depth in reversed(range(len(self.leaves))):
            update = seq([*self._prefetches(self.leaves[depth]), update])
            update = self.inside(self.leaves[depth], update)
            # The guard encloses the attached stages: where it fails, their results are not read.
            update = self._guarded(update, depth)
            update = self._loop(self.leaves[depth], update)
            # The loops outside of the first reduction loop are shared with the initialisation; the
            # data loops inside of it are repeated there.
            if depth == first and self.cross_thread is not None:
                update = self.cross_thread.around(update)
            elif depth == first and isinstance(reduce, Reduce):
                update = seq([self._initialisation(reduce, first), update])
        return self._guarded(update, -1)

    def _prefetches(self, leaf: IterVar) -> list[Stmt]:
        """The hints of all prefetches in loop ``leaf``."""
        var = self.plan.loop_vars[leaf]
        hints = list[Stmt]()
        for ahead in self.plan.prefetches:
            # A loop of one iteration has no variable, and no later iteration to prefetch for.
            if ahead.ahead.axis is leaf and isinstance(var, Var):
                buffer, low = self.locate(ahead.ahead.tensor)
                hints += (lines_of_box(ahead, buffer, low, var) if ahead.ahead.readers is None
                          else share_of_next_block(ahead, self.plan, buffer, low))
        return hints

    def _first_reduce_loop(self) -> int:
        depths = (i for i, a in enumerate(self.leaves) if a.kind == REDUCE)
        return next(depths, len(self.leaves))

    def _loop(self, leaf: IterVar, body: Stmt, var: PrimExpr | None = None,
              kind: ForKind | None = None) -> Stmt:
        is_update, var = var is None, self.plan.loop_vars[leaf] if var is None else var
        if not isinstance(var, Var):
            return body
        kind = self.stage.kinds.get(leaf, ForKind.SERIAL) if kind is None else kind
        extent = self.plan.extents[leaf]
        if int_value(extent) == 0:
            return seq([])
        if kind in (ForKind.VECTORIZED, ForKind.UNROLLED) and int_value(extent) is None:
            raise self.stage.error(f"axis {leaf.name} is {kind.value}, but its extent {extent} "
                                   "is not constant here",
                                   help="split it by a constant factor and use the inner axis")
        return For(var, const(0), extent, kind, body, self.stage.thread_tags.get(leaf),
                   self._annotations(leaf, with_instruction=is_update))

    def _annotations(self, leaf: IterVar, *, with_instruction: bool) -> dict[str, Any]:
        """The pragmas of a loop and the instruction that replaces it and the loops inside."""
        notes = dict(self.stage.pragmas.get(leaf, {}))
        tensorized = self.stage.tensorized
        if with_instruction and tensorized is not None:
            # Loops of one iteration are not emitted: the outermost emitted loop carries the note.
            first = next((a for a in self.leaves[self.stage.leaf_index(tensorized[0]):]
                          if isinstance(self.plan.loop_vars[a], Var)), None)
            if leaf is first:
                notes[TENSORIZE] = tensorized[1].name
        return notes

    def _guarded(self, body: Stmt, depth: int, substitution: dict[Var, PrimExpr] | None = None,
                 *, reductions: bool = True) -> Stmt:
        for guard in reversed(self.guards):
            if guard.depth == depth and (reductions or not guard.reduces):
                condition = guard.condition
                if substitution:
                    condition = substitute(condition, substitution)
                body = IfThenElse(tir.call("bool", "likely", condition), body)
        return body

    def _lowered_body(self) -> tuple[PrimExpr, ...]:
        """The stored values, or the sources of the reduction followed by its condition."""
        plan, body = self.plan, self.plan.body
        values = {a.var: plan.absolute(a, i) for i, a in enumerate(self.axes)}
        first = body[0]
        exprs = (*first.source, first.condition) if isinstance(first, Reduce) else body
        return rewrite_body(exprs, values, self._load)

    def _load(self, e: ProducerLoad) -> PrimExpr:
        buffer, low = self.locate(e.producer)
        indices = tuple(
            self.analyzer.simplify(i if int_value(first) == 0 else i - first)
            for i, first in zip(e.indices, low, strict=True)
        )
        return BufferLoad(buffer, indices)

    def _guards(self) -> list[Guard]:
        plan = self.plan
        conditions = [plan.values[a] < plan.extents[a]
                      for a in overruns(self.stage, plan.extents)]
        for low, size, axis in zip(plan.low, self.stage.tensors[0].shape, self.axes,
                                   strict=False):
            # A region need not be the whole tensor: a box may exceed it at either end, where the
            # body would read its own inputs out of bounds.
            if int_value(low) != 0 or plan.extents[axis] is not size:
                value = low + plan.values[axis]
                conditions += [value >= 0, value < size]
        guards = [self._guard(c) for c in dict.fromkeys(conditions) if not self._holds(c)]
        if isinstance(plan.body[0], Reduce):
            guards += [self._restriction(c) for c in _conjuncts(self.body[-1])
                       if not self._holds(c)]
        return guards

    def _holds(self, condition: PrimExpr) -> bool:
        return condition is tir.TRUE or self.analyzer.can_prove(condition)

    def _guard(self, condition: PrimExpr) -> Guard:
        condition = self.analyzer.simplify(condition)
        # As far out as possible: the condition is known in the innermost loop that it depends on.
        depths = [self.depths[e] for e in post_order(condition)
                  if isinstance(e, Var) and e in self.depths]
        reduces = any(self.leaves[d].kind == REDUCE for d in depths)
        return Guard(condition, self._inside_threads(max(depths, default=-1)), reduces)

    def _inside_threads(self, depth: int) -> int:
        """``depth``, or that of the innermost thread loop if it is among the loops of a block.

        The thread loops of a block are nested directly in each other: their iterations exist
        whether they have work or not. A reduction over threads stays inside the guard of its row.
        """
        threads = [d for d, leaf in enumerate(self.leaves)
                   if leaf.kind != REDUCE
                   and self.stage.thread_tags.get(leaf, "").startswith("threadIdx")]
        return threads[-1] if threads and threads[0] <= depth < threads[-1] else depth

    def _restriction(self, condition: PrimExpr) -> Guard:
        """A guard for the ``where`` condition of a reduction.

        An element whose condition never holds is the identity, so the guard must stay inside the
        first reduction loop, where it does not skip the initialisation.
        """
        guard = self._guard(condition)
        return Guard(guard.condition, max(guard.depth, self._first_reduce_loop()), reduces=True)

    def _initialisation(self, reduce: Reduce, first: int) -> Stmt:
        """Store the identity in every element into which the loops from depth ``first`` reduce."""
        # These loops appear twice, in the initialisation and in the update, so the initialisation
        # gets new variables.
        leaves = [(d, a) for d, a in enumerate(self.leaves[first:], first) if a.kind != REDUCE]
        fresh: dict[Var, PrimExpr] = {}
        for _, leaf in leaves:
            old = self.plan.loop_vars[leaf]
            if isinstance(old, Var):
                new = fresh[old] = Var(f"{leaf.name}.init")
                self.analyzer.bind(new, 0, self.plan.extents[leaf])
        indices = tuple(substitute(i, fresh) for i in self.indices)
        body = seq([
            BufferStore(b, e, indices)
            for b, e in zip(self.plan.buffers, reduce.combiner.identity, strict=True)
        ])
        for depth, leaf in reversed(leaves):
            var = self.plan.loop_vars[leaf]
            body = self._guarded(body, depth, fresh, reductions=False)
            kind = self._initialisation_kind(leaf, leaves)
            body = self._loop(leaf, body, substitute(var, fresh), kind)
        return body

    def _initialisation_kind(
        self, leaf: IterVar, leaves: list[tuple[int, IterVar]]
    ) -> ForKind | None:
        """The innermost initialisation loop is vectorized if an instruction computes its lanes."""
        tensorized = self.stage.tensorized
        if tensorized is None or leaf is not leaves[-1][1]:
            return None
        # ``tensorize`` accepts only loops without a kind. A serial loop would initialise the lanes
        # of the accumulator one by one.
        inside = self.leaves[self.stage.leaf_index(tensorized[0]):]
        is_lane = leaf in inside and int_value(self.plan.extents[leaf]) is not None
        return ForKind.VECTORIZED if is_lane else None

    def _update(self) -> Stmt:
        buffers, first = self.plan.buffers, self.plan.body[0]
        if not isinstance(first, Reduce):
            return self._stores(buffers, self.body)
        if self.cross_thread is not None:
            return self.cross_thread.update()
        old = [BufferLoad(b, self.indices) for b in buffers]
        results = combined(first.combiner, old, self.body)
        return self._stores(buffers, results)

    def _stores(self, buffers: tuple[Buffer, ...], values: tuple[PrimExpr, ...]) -> Stmt:
        return store_together(buffers, values, self.indices)


def _conjuncts(condition: PrimExpr) -> list[PrimExpr]:
    """The operands of a conjunction; each becomes a guard at its own depth."""
    if isinstance(condition, tir.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]
