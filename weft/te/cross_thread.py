"""The nest of a reduction with an axis bound to threads.

Each thread reduces its own terms into registers; then the threads of the block combine their
partial results (``weft.tir.transform.gpu.cross_thread_reduce``).
"""

from __future__ import annotations

from weft.support.dataclass import dataclass
from weft.te.plan import StagePlan
from weft.te.reduce import combined
from weft.te.tensor import REDUCE
from weft.tir import Allocate, AttrStmt, Buffer, BufferLoad, PrimExpr, Reduce, Stmt, Var, const, seq
from weft.tir.cross_thread import CROSS_THREAD_REDUCE, CrossThreadReduce
from weft.tir.stmt import store_together

_ELEMENT = (const(0),)


@dataclass(frozen=True, slots=True)
class CrossThreadNest:
    """The statements of such a nest; ``terms`` are the values that an iteration adds."""

    plan: StagePlan
    reduce: Reduce
    terms: tuple[PrimExpr, ...]
    indices: tuple[PrimExpr, ...]
    partial: tuple[Buffer, ...]
    tags: tuple[str, ...]

    @staticmethod
    def of(plan: StagePlan, terms: tuple[PrimExpr, ...], indices: tuple[PrimExpr, ...]
           ) -> CrossThreadNest | None:
        """``None`` if no reduction axis of the stage is bound to threads.

        Raises ``ScheduleError`` for a data axis inside of the reduction: a thread has one
        accumulator.
        """
        stage, reduce = plan.stage, plan.body[0]
        if not isinstance(reduce, Reduce):
            return None
        leaves = stage.leaf_iter_vars
        bound = [leaf for leaf in leaves if leaf.kind == REDUCE and leaf in stage.thread_tags]
        tags = tuple(stage.thread_tags[leaf] for leaf in bound
                     if isinstance(plan.loop_vars[leaf], Var))
        if not tags:
            return None
        first = next(i for i, leaf in enumerate(leaves) if leaf.kind == REDUCE)
        for leaf in leaves[first:]:
            if leaf.kind != REDUCE and isinstance(plan.loop_vars[leaf], Var):
                raise stage.error(f"data axis {leaf.name} inside a reduction over threads",
                                  help="reorder it outside of the reduction axes")
        partial = tuple(Buffer(f"{b.name}.partial", (const(1),), b.dtype, "local")
                        for b in plan.buffers)
        return CrossThreadNest(plan, reduce, terms, indices, partial, tags)

    def update(self) -> Stmt:
        """Add the terms of one iteration to the accumulators of the thread."""
        old = [BufferLoad(b, _ELEMENT) for b in self.partial]
        return store_together(self.partial, combined(self.reduce.combiner, old, self.terms),
                              _ELEMENT)

    def around(self, loops: Stmt) -> Stmt:
        """The whole reduction of one element, given the loops of the updates."""
        combiner = self.reduce.combiner
        results = tuple(BufferLoad(b, _ELEMENT) for b in self.partial)
        record = CrossThreadReduce(combiner, self.partial, self.tags)
        start = seq([store_together((b,), (e,), _ELEMENT)
                     for b, e in zip(self.partial, combiner.identity, strict=True)])
        end = AttrStmt(CROSS_THREAD_REDUCE, record,
                       store_together(self.plan.buffers, results, self.indices))
        body = seq([start, loops, end])
        for buffer in reversed(self.partial):
            body = Allocate(buffer, body)
        return body
