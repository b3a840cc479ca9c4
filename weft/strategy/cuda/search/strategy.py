"""Strategies of ``argwhere`` and ``unique``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from weft import te
from weft.ir import Attrs, Call, Shape, TensorType, int64, typical_size
from weft.op.transform.search import UniqueAttrs
from weft.strategy.cuda.common.block_program import elements
from weft.strategy.cuda.default import schedule_computes
from weft.strategy.cuda.machine_model import GpuModel, machine_model
from weft.strategy.cuda.scan.strategy import scan
from weft.strategy.cuda.sort.strategy import sort_seconds, sorted_positions
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import strategy
from weft.support.errors import InternalError
from weft.target import CudaTarget
from weft.tir import Buffer, PrimExpr, any_of, as_prim, const, if_then_else, maximum, select
from weft.tir.row_major import element_count, unravel
from weft.tir.stmt import BufferStore, IfThenElse, Stmt, seq
from weft.topi.sort import before

THREADS = 256
_ZERO, _ONE = const(0), const(1)


def nonzero_positions(x: te.Tensor, model: GpuModel) -> tuple[te.Tensor, ...]:
    """As ``topi.argwhere``: rows of indices, and their number."""
    total = element_count(x.shape)

    def mark(k: PrimExpr) -> PrimExpr:
        value = x[unravel(k, x.shape)]
        is_set = value if value.dtype.is_bool else value.not_equal(const(0, value.dtype))
        return select(is_set, _ONE, _ZERO)

    marks = te.compute((total,), mark, name="marks")
    ends = _running_sum(marks, model)

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        marked, end = inputs

        def write(i: tuple[PrimExpr, ...]) -> Stmt:
            row = end.load(*i) - 1
            stores = [BufferStore(outputs[0], p, (row, as_prim(axis)))
                      for axis, p in enumerate(unravel(i[0], x.shape))]
            return IfThenElse(marked.load(*i).equal(1), seq(stores))

        return seq([elements((total,), THREADS, write), _count(end, total, outputs[1])])

    return te.extern([(total, x.ndim), (1,)], [marks, ends], build, [int64, int64], "argwhere")


def unique_values(x: te.Tensor, *, is_sorted: bool, model: GpuModel) -> tuple[te.Tensor, ...]:
    """As ``topi.unique``, for a fixed size: values, first positions, inverse, counts, number."""
    size = x.shape[0]
    order = sorted_positions(x, 0, is_ascend=True)

    def is_new(k: PrimExpr) -> PrimExpr:
        earlier, own = x[order[maximum(k - 1, 0)]], x[order[k]]
        return select(any_of(k.equal(0), before(earlier, own)), _ONE, _ZERO)

    heads = te.compute((size,), is_new, name="heads")
    ends = _running_sum(heads, model)
    starts, first, inverse = te.extern([(size,)] * 3, [order, heads, ends], _groups,
                                       [int64] * 3, "unique_groups")
    if is_sorted:
        return _results(x, ends, starts, first, inverse)
    # Unsorted, the values are in the order of their first positions.
    marks = te.compute((size,), lambda p: select(first[inverse[p]].equal(p), _ONE, _ZERO),
                       name="first_marks")
    places = _running_sum(marks, model)
    return _by_appearance(_results(x, ends, starts, first, inverse), places)


def _running_sum(marks: te.Tensor, model: GpuModel) -> te.Tensor:
    return scan(marks, 0, int64, combine="add", exclusive=False, reverse=False, model=model)


def _count(ends: Buffer, total: PrimExpr, target: Buffer) -> Stmt:
    """The last running sum is the number of results; 0 for no elements."""
    last = if_then_else(total > 0, ends.load(maximum(total - 1, 0)), _ZERO)
    return elements((_ONE,), 32, lambda i: BufferStore(target, last, i))


def _groups(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
    """Ranks at which groups start, first positions of groups, and the group of each position."""
    order, heads, ends = inputs
    starts, first, inverse = outputs

    def rank(i: tuple[PrimExpr, ...]) -> Stmt:
        group, position = ends.load(*i) - 1, order.load(*i)
        # The sort is stable: the first rank of a group has its first position.
        opened = seq([BufferStore(starts, i[0], (group,)), BufferStore(first, position, (group,))])
        return seq([BufferStore(inverse, group, (position,)),
                    IfThenElse(heads.load(*i).equal(1), opened)])

    return elements(order.shape, THREADS, rank)


def _results(x: te.Tensor, ends: te.Tensor, *groups: te.Tensor) -> tuple[te.Tensor, ...]:
    """Values and counts of the groups, in order of their values."""
    size = x.shape[0]

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, end, starts, first, inverse = inputs
        values, firsts, places, counts, number = outputs
        found = if_then_else(size > 0, end.load(maximum(size - 1, 0)), _ZERO)

        def group(i: tuple[PrimExpr, ...]) -> Stmt:
            following = if_then_else(i[0] + 1 < found, starts.load(i[0] + 1), size)
            return seq([BufferStore(places, inverse.load(*i), i), IfThenElse(i[0] < found, seq([
                BufferStore(values, source.load(first.load(*i)), i),
                BufferStore(firsts, first.load(*i), i),
                BufferStore(counts, following - starts.load(*i), i)]))])

        return seq([elements((size,), THREADS, group), _count(end, size, number)])

    return te.extern([x.shape, x.shape, x.shape, x.shape, (1,)], [x, ends, *groups], build,
                     [x.dtype, int64, int64, int64, int64], "unique")


def _by_appearance(found: Sequence[te.Tensor], places: te.Tensor) -> tuple[te.Tensor, ...]:
    """The groups in order of their first positions; ``places`` counts these up to a position."""
    size = found[0].shape[0]

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        values, first, inverse, counts, number, place = inputs
        new_values, new_first, new_inverse, new_counts, new_number = outputs

        def position(i: tuple[PrimExpr, ...]) -> Stmt:
            group = inverse.load(*i)
            new = place.load(first.load(group)) - 1
            opened = seq([BufferStore(new_values, values.load(group), (new,)),
                          BufferStore(new_first, i[0], (new,)),
                          BufferStore(new_counts, counts.load(group), (new,))])
            return seq([BufferStore(new_inverse, new, i),
                        IfThenElse(first.load(group).equal(i[0]), opened)])

        copied = elements((_ONE,), 32, lambda i: BufferStore(new_number, number.load(*i), i))
        return seq([elements((size,), THREADS, position), copied])

    return te.extern([t.shape for t in found], [*found, places], build,
                     [t.dtype for t in found], "unique_unsorted")


@strategy("argwhere", target="cuda", complete=True)
def argwhere(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    model, shape = machine_model(target), _shape(call)

    def compute(x: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
        return nonzero_positions(x, model)

    moved = math.prod(map(typical_size, shape)) * 8.0 * (3 + len(shape))
    yield Implementation("argwhere.cuda.scan", schedule_computes, compute=compute,
                         seconds=4 * model.launch_seconds + moved / model.bandwidth)


@strategy("unique", target="cuda", complete=True)
def unique(call: Call, target: CudaTarget) -> Iterator[Implementation]:
    model, (size,) = machine_model(target), _shape(call)
    is_sorted = attrs_of(call, UniqueAttrs).is_sorted

    def compute(x: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
        return unique_values(x, is_sorted=is_sorted, model=model)

    if not isinstance(size, int) or not size:
        # The launches of a sort depend on the size: one thread sorts a row of a symbolic one.
        yield Implementation("unique.cuda.serial", lambda _: None)
        return
    seconds = sort_seconds(1, size, 8, size, model) + 6 * model.launch_seconds
    yield Implementation("unique.cuda.sort", schedule_computes, compute=compute, seconds=seconds)


def _shape(call: Call) -> Shape:
    source = call.args[0].checked_type
    if not isinstance(source, TensorType):
        raise InternalError("a search in something that is no tensor", got=str(source))
    return source.shape
