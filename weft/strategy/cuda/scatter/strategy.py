"""``scatter_elements`` and ``scatter_nd``, with the same result in each run.

Updates of one element are applied in their order, as the operators define. Atomics would apply them
in any order: "the last update wins" would be undefined, and floating-point sums would differ from
run to run.

``by_lines``: updates along an axis write only to the line of their other indices, so each line has
a thread. ``SortedUpdates``: a slot is the flat index of a slice of the result that one update
writes. Three launches: the slot of each update; the update numbers sorted by slot (``sort``, which
is stable, so equal slots keep their order); one thread per update and element, of which the first
of a run of equal slots applies the whole run. No two threads write one element.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Iterator

from weft import te
from weft.ir import Call, TensorType, int64, typical_size
from weft.op.transform.scatter import ScatterElementsAttrs, ScatterNDAttrs
from weft.strategy.cuda.common.block_program import (
    Index,
    allocated,
    elements,
    loop,
    unrolled,
)
from weft.strategy.cuda.default import schedule_computes
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.cuda.sort.strategy import sort_seconds, sorted_positions
from weft.strategy.decision import Candidate, Decision, Rejected, choose, decides
from weft.strategy.implementation import Implementation
from weft.strategy.registry import strategy
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.target import CudaTarget
from weft.tir import Buffer, BufferStore, IfThenElse, LetStmt, Stmt, Var, const, seq
from weft.tir.expr import PrimExpr, all_of, any_of, floordiv, if_then_else, int_value, maximum
from weft.tir.row_major import element_count, ravel, unravel
from weft.topi.indexing import COMBINE

THREADS = 256
Combine = Callable[[PrimExpr, PrimExpr], PrimExpr]


def copy(source: Buffer, target: Buffer) -> Stmt:
    """Copy all elements of ``source`` to ``target``, which has the same shape."""
    return elements(source.shape, THREADS, lambda i: BufferStore(target, source.load(*i), i))


def by_lines(index: Buffer, updates: Buffer, target: Buffer, axis: int,
             combine: Combine) -> Stmt:
    """One thread for each line of ``index`` along ``axis``, update after update."""
    lines = (*index.shape[:axis], *index.shape[axis + 1:])

    def line(i: Index) -> Stmt:
        def update(k: PrimExpr) -> Stmt:
            own = (*i[:axis], k, *i[axis:])
            found = Var("found", int64)
            at = (*i[:axis], found, *i[axis:])
            write = BufferStore(target, combine(target.load(*at), updates.load(*own)), at)
            inside = all_of(found >= 0, found < target.shape[axis])
            return LetStmt(found, index.load(*own).astype(int64), IfThenElse(inside, write))

        return loop("k", index.shape[axis], update)

    return elements(lines, THREADS // 2, line)


@dataclass(frozen=True, slots=True)
class SortedUpdates:
    """Updates in the order of the slots that they write.

    ``slots`` (M,) has the slot of each update, ``num_slots`` for one that is dropped; ``order``
    (M,) sorts them. ``target_at(slot, j)`` and ``update_at(number, j)`` are the indices of element
    ``j`` of a slice of shape ``inner``.
    """

    slots: Buffer
    order: Buffer
    updates: Buffer
    target: Buffer
    num_slots: PrimExpr
    inner: tuple[PrimExpr, ...]
    target_at: Callable[[PrimExpr, Index], Index]
    update_at: Callable[[PrimExpr, Index], Index]
    combine: Combine

    def loops(self, count: int) -> Stmt:
        """Apply ``count`` updates."""

        def element(index: Index) -> Stmt:
            rank, *j = index
            slot = Var("slot", int64)
            before = self.slots.load(self.order.load(maximum(rank - 1, 0)))
            is_first = any_of(rank.equal(0), before.not_equal(slot))
            apply = IfThenElse(all_of(slot < self.num_slots, is_first),
                               self._run(rank, slot, tuple(j), count))
            return LetStmt(slot, self.slots.load(self.order.load(rank)), apply)

        return elements((const(count), *self.inner), THREADS, element)

    def _run(self, rank: PrimExpr, slot: PrimExpr, j: Index, count: int) -> Stmt:
        """Apply the updates of one slot, which start at ``rank`` of the sorted order."""
        bounds = Buffer("bounds", (const(2),), int64, "local")
        value = Buffer("value", (const(1),), self.target.dtype, "local")
        low, high = bounds.load(const(0)), bounds.load(const(1))
        at = self.target_at(slot, j)

        def halve(_: PrimExpr) -> Stmt:
            """One step of the search for the end of the run, in which ``low`` stays inside."""
            middle = Var("middle", int64)
            same = self.slots.load(self.order.load(middle)).equal(slot)
            step = IfThenElse(same, BufferStore(bounds, middle, (const(0),)),
                              BufferStore(bounds, middle, (const(1),)))
            return IfThenElse(low + 1 < high, LetStmt(middle, floordiv(low + high, const(2)), step))

        def update(k: PrimExpr) -> Stmt:
            number = self.order.load(rank + k)
            new = self.combine(value.load(const(0)), self.updates.load(*self.update_at(number, j)))
            return BufferStore(value, new, (const(0),))

        return allocated([bounds, value], seq([
            BufferStore(bounds, rank, (const(0),)), BufferStore(bounds, const(count), (const(1),)),
            unrolled("halving", count.bit_length(), halve),
            BufferStore(value, self.target.load(*at), (const(0),)),
            loop("k", high - rank, update),
            BufferStore(self.target, value.load(const(0)), at)]))


class ScatterAlgorithm(enum.StrEnum):
    """The threads that apply the updates; both give the same result in each run."""

    LINES = "lines"  # a thread for each line along the axis
    SORTED = "sorted"  # updates sorted by the element that they write
    SERIAL = "serial"  # in order, with the elements of a slice in parallel


def decide_scatter(call: Call, target: CudaTarget) -> Decision[None]:
    """The algorithm by estimated seconds; symbolic sizes count as typical ones."""
    types = [arg.checked_type for arg in call.args]
    index = types[1]
    if not isinstance(index, TensorType) or not all(isinstance(t, TensorType) for t in types):
        raise InternalError("a scatter of something that is no tensor", got=str(index))
    model, fixed = machine_model(target), all(
        isinstance(d, int) and d > 0 for t in types if isinstance(t, TensorType) for d in t.shape)
    shape = [typical_size(d) for d in index.shape]
    candidates, rejected = list[Candidate[None]](), list[Rejected]()
    if isinstance(call.attrs, ScatterElementsAttrs):
        count = math.prod(shape)
        length = shape[call.attrs.axis % len(shape)]
        lines = max(1, count // max(1, length))
        # A line reads, adds and writes one element after the other.
        candidates.append(Candidate(ScatterAlgorithm.LINES, model.launch_seconds * 2 + max(
            length * model.dram_latency, model.memory_seconds(count * 32.0, lines)), None))
    else:
        count = math.prod(shape[1:])
        candidates.append(Candidate(ScatterAlgorithm.SERIAL, count * model.dram_latency, None))
    if fixed and count:
        updates = types[2]
        moved = 3.0 * math.prod(map(typical_size, updates.shape)) * 4 \
            if isinstance(updates, TensorType) else 0.0
        candidates.append(Candidate(ScatterAlgorithm.SORTED, _sorted_seconds(count, moved, model),
                                    None))
    else:
        rejected.append(Rejected(ScatterAlgorithm.SORTED, "the number of updates is not fixed"))
    return choose(candidates, rejected)


def _sorted_seconds(count: int, moved: float, model: GpuModel) -> float:
    """The sort, then a launch in which each slot has a thread.

    Runs of equal slots are assumed to be short; one long run is applied by one thread.
    """
    return sort_seconds(1, count, 8, count, model) + 3 * model.launch_seconds \
        + model.memory_seconds(moved, count)


def _elements_by_lines(x: te.Tensor, indices: te.Tensor, updates: te.Tensor,
                       attrs: ScatterElementsAttrs) -> te.Tensor:
    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, index, values = inputs
        return seq([copy(source, outputs[0]), by_lines(
            index, values, outputs[0], attrs.axis % x.ndim, COMBINE[attrs.reduction])])

    return te.extern([x.shape], [x, indices, updates], build, [x.dtype], "scatter_elements")[0]


def _elements_sorted(x: te.Tensor, indices: te.Tensor, updates: te.Tensor,
                     attrs: ScatterElementsAttrs) -> te.Tensor:
    axis, shape = attrs.axis % x.ndim, indices.shape

    def slot(number: PrimExpr) -> PrimExpr:
        i = unravel(number, shape)
        found = indices[i].astype(int64)
        inside = all_of(found >= 0, found < x.shape[axis])
        return if_then_else(inside, ravel((*i[:axis], found, *i[axis + 1:]), x.shape),
                            element_count(x.shape))

    return _sorted(x, updates, slot, element_count(shape), (), attrs.reduction,
                   lambda number, _: unravel(number, shape))


def _nd_sorted(x: te.Tensor, indices: te.Tensor, updates: te.Tensor, attrs: ScatterNDAttrs
               ) -> te.Tensor:
    length, outer = int_value(indices.shape[0]) or 0, indices.shape[1:]

    def slot(number: PrimExpr) -> PrimExpr:
        i = unravel(number, outer)
        found = tuple(indices[(const(k), *i)].astype(int64) for k in range(length))
        inside = all_of(*(c for p, size in zip(found, x.shape, strict=False)
                          for c in (p >= 0, p < size)))
        return if_then_else(inside, ravel(found, x.shape[:length]), element_count(x.shape[:length]))

    return _sorted(x, updates, slot, element_count(outer), x.shape[length:], attrs.mode,
                   lambda number, j: (*unravel(number, outer), *j))


def _sorted(
    x: te.Tensor, updates: te.Tensor, slot: Callable[[PrimExpr], PrimExpr], count: PrimExpr,
    inner: tuple[PrimExpr, ...], mode: str, update_at: Callable[[PrimExpr, Index], Index],
) -> te.Tensor:
    """Slots of all updates, their order, and the launch that applies runs of equal slots.

    An update out of bounds has the slot ``element_count(rows)``: it sorts last and is dropped.
    """
    slots = te.compute((count,), slot, name="slots")
    order = sorted_positions(slots, 0, is_ascend=True)
    rows = x.shape[:x.ndim - len(inner)]

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, own, by_slot, values = inputs

        def target_at(at: PrimExpr, j: Index) -> Index:
            return (*unravel(at, rows), *j)

        apply = SortedUpdates(own, by_slot, values, outputs[0], element_count(rows), inner,
                              target_at, update_at, COMBINE[mode])
        return seq([copy(source, outputs[0]), apply.loops(int_value(count) or 0)])

    return te.extern([x.shape], [x, slots, order, updates], build, [x.dtype], "scatter_sorted")[0]


_COMPUTES = {
    ("scatter_elements", ScatterAlgorithm.LINES): _elements_by_lines,
    ("scatter_elements", ScatterAlgorithm.SORTED): _elements_sorted,
    ("scatter_nd", ScatterAlgorithm.SORTED): _nd_sorted,
}


def _implementations(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    name, decision = getattr(call.op, "name", ""), decide_scatter(call, target)
    algorithm = ScatterAlgorithm(decision.algorithm)
    yield Implementation(f"{name}.cuda.{algorithm}", schedule_computes,
                         compute=_COMPUTES.get((name, algorithm)), seconds=decision.seconds)


for _name in ("scatter_elements", "scatter_nd"):
    strategy(_name, target="cuda", complete=True)(_implementations)
    decides(_name, target="cuda")(decide_scatter)
