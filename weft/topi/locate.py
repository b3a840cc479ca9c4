"""Reads and writes at positions that other tensors give."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import te
from weft.ir.dtype import DType, int64
from weft.tir import Allocate, Buffer, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.tir.expr import (
    Broadcast,
    PrimExpr,
    Var,
    all_of,
    as_prim,
    const,
    if_then_else,
    int_value,
    maximum,
    minimum,
    not_,
    select,
)
from weft.topi.broadcast import broadcast_index, broadcast_shape
from weft.topi.loop_nest import nest, vector_nest
from weft.topi.sizes import fixed_size
from weft.topi.sort import before


def adv_index(x: te.Tensor, positions: Sequence[te.Tensor]) -> te.Tensor:
    """``x`` at the broadcast ``positions`` along its first axes; negative ones wrap around."""
    shape = broadcast_shape(*(p.shape for p in positions))

    def element(*i: PrimExpr) -> PrimExpr:
        coords = []
        for axis, tensor in enumerate(positions):
            size = x.shape[axis]
            found = tensor[broadcast_index(tensor, i[:len(shape)])].astype(int64)
            found = select(found < 0, found + size, found)
            coords.append(minimum(maximum(found, 0), size - 1))
        return x[(*coords, *i[len(shape):])]

    return te.compute((*shape, *x.shape[len(positions):]), element, name="adv_index")


def unravel_index(indices: te.Tensor, shape: te.Tensor) -> te.Tensor:
    """Coordinate ``k`` of each flat row-major position in a tensor of ``shape``."""
    count = fixed_size(shape.shape[0], "a shape")

    def element(k: PrimExpr, *i: PrimExpr) -> PrimExpr:
        rest, digit = indices[i].astype(int64), const(0, int64)
        for axis in reversed(range(count)):
            size = maximum(shape[as_prim(axis)].astype(int64), 1)
            digit = select(k.equal(axis), rest % size, digit)
            rest = rest // size
        return digit.astype(indices.dtype)

    return te.compute((shape.shape[0], *indices.shape), element, name="unravel_index")


def invert_permutation(x: te.Tensor) -> te.Tensor:
    """The inverse permutation: ``result[x[i]] = i``, zero elsewhere."""

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, target = inputs[0], outputs[0]
        size = source.shape[0]

        def put(i: tuple[PrimExpr, ...]) -> Stmt:
            number = source.load(*i).astype(int64)
            inside = all_of(number >= 0, number < size)
            return IfThenElse(inside, BufferStore(target, i[0].astype(x.dtype), (number,)))

        clear = nest((size,), lambda i: BufferStore(target, const(0, x.dtype), i))
        return seq([clear, nest((size,), put)])

    return te.extern([x.shape], [x], build, [x.dtype], "invert_permutation")[0]


_SEARCH_WORK = 16  # operations that count for one search


def searchsorted(
    sequence: te.Tensor, values: te.Tensor, *, right: bool, dtype: DType
) -> te.Tensor:
    """The insertion position of each value in its sorted row, by binary search."""
    size = int_value(sequence.shape[-1])

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, sought = inputs

        def look(i: tuple[PrimExpr, ...]) -> Stmt:
            taken = sought.load(*i)
            value = Var("value", taken.dtype)

            def goes_before(at: PrimExpr) -> PrimExpr:
                other = source.load(*(i[:source.ndim - 1] if source.ndim > 1 else ()), at)
                return not_(before(value, other)) if right else before(other, value)

            def store(position: PrimExpr) -> Stmt:
                return BufferStore(outputs[0], position.astype(dtype), i)

            found = (_search(source.shape[-1], goes_before, store) if size is None
                     else _search_fixed(size, value.dtype.lanes, goes_before, store))
            return LetStmt(value, taken, found)

        if size is None:
            return nest(sought.shape, look, independent=True, work=_SEARCH_WORK)
        return vector_nest(sought.shape, sought.dtype, look, independent=True, work=_SEARCH_WORK)

    return te.extern([values.shape], [sequence, values], build, [dtype], "searchsorted")[0]


def _search_fixed(
    size: int, lanes: int, goes_before: Callable[[PrimExpr], PrimExpr],
    store: Callable[[PrimExpr], Stmt],
) -> Stmt:
    """Halvings without branches, so that those of consecutive values overlap.

    ``goes_before`` holds for a prefix of the positions; ``store`` takes the length of the prefix.
    """
    lengths, remaining = list[int](), size
    while remaining:
        lengths.append(half := max(remaining // 2, 1))
        remaining -= half
    start: PrimExpr = as_prim(0) if lanes == 1 else Broadcast(as_prim(0), lanes)
    bases = [start, *(Var("base", start.dtype) for _ in lengths)]
    result = store(bases[-1])
    for base, after, half in reversed(list(zip(bases, bases[1:], lengths, strict=False))):
        assert isinstance(after, Var)
        result = LetStmt(after, select(goes_before(base + (half - 1)), base + half, base), result)
    return result


def _search(
    size: PrimExpr, goes_before: Callable[[PrimExpr], PrimExpr], store: Callable[[PrimExpr], Stmt]
) -> Stmt:
    """As ``_search_fixed``, for a size that is known at run time only."""
    zero, one = as_prim(0), as_prim(1)
    bounds = Buffer("bounds", (as_prim(2),), int64)
    low, high = bounds.load(zero), bounds.load(one)
    middle = (low + high) // 2
    halve = IfThenElse(goes_before(middle), BufferStore(bounds, middle + 1, (zero,)),
                       BufferStore(bounds, middle, (one,)))
    # Loops have fixed extents: after so many halvings the interval is empty, and the rest idle.
    loop = For(Var("step", int64), zero, as_prim(64), ForKind.SERIAL, IfThenElse(low < high, halve))
    start = [BufferStore(bounds, zero, (zero,)), BufferStore(bounds, size, (one,))]
    return Allocate(bounds, seq([*start, loop, store(low)]))


def strided_set(
    x: te.Tensor, values: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor
) -> te.Tensor:
    """``x`` with ``values`` stored in the slice, whose bounds are run-time values."""

    def element(*i: PrimExpr) -> PrimExpr:
        coords, inside = [], []
        for axis, p in enumerate(i):
            at, size = as_prim(axis), x.shape[axis]
            step = strides[at].astype(int64)
            back = step < 0
            first = _bound(begin[at].astype(int64), size, back)
            last = _bound(end[at].astype(int64), size, back)
            ahead = select(back, first - p, p - first)
            stride = maximum(select(back, -step, step), 1)
            coord = ahead // stride
            before_end = select(back, p > last, p < last)
            inside += [ahead >= 0, before_end, (ahead % stride).equal(0),
                       coord < values.shape[axis]]
            coords.append(coord)
        return if_then_else(all_of(*inside), values[tuple(coords)], x[i])

    return te.compute(x.shape, element, name="strided_set")


def strided_slice(
    x: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor, axes: Sequence[int]
) -> tuple[te.Tensor, ...]:
    """``x[begin:end:strides]`` at the start of a buffer as large as ``x``, and its sizes along
    ``axes``. A stride of zero selects nothing. Bounds are run-time values.
    """
    cut = {axis: as_prim(n) for n, axis in enumerate(axes)}

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, result, counts = inputs[0], outputs[0], outputs[1]
        first = Buffer("first", (as_prim(max(len(axes), 1)),), int64)
        step = Buffer("step", (as_prim(max(len(axes), 1)),), int64)
        given = [[b.load(n).astype(int64) for b in inputs[1:]] for n in cut.values()]
        start: list[Stmt] = []
        for (axis, n), (low, high, stride) in zip(cut.items(), given, strict=True):
            begins, count = _span(low, high, stride, source.shape[axis])
            start += [BufferStore(first, begins, (n,)), BufferStore(step, stride, (n,)),
                      BufferStore(counts, count, (n,))]

        def take(i: tuple[PrimExpr, ...]) -> Stmt:
            coords = tuple(first.load(cut[a]) + p * step.load(cut[a]) if a in cut else p
                           for a, p in enumerate(i))
            return BufferStore(result, source.load(*coords), i)

        # Extents are known at run time only: the loops cover the slice, not the buffer.
        sizes = [counts.load(cut[a]) if a in cut else s for a, s in enumerate(source.shape)]
        return Allocate(first, Allocate(step, seq([*start, nest(sizes, take)])))

    return te.extern([x.shape, (max(len(axes), 1),)], [x, begin, end, strides], build,
                     [x.dtype, int64], "strided_slice")


def _span(
    begin: PrimExpr, end: PrimExpr, stride: PrimExpr, size: PrimExpr
) -> tuple[PrimExpr, PrimExpr]:
    """The first position of a slice and the number of positions."""
    back = stride < 0
    first, last = _bound(begin, size, back), _bound(end, size, back)
    distance = select(back, first - last, last - first)
    length = maximum(select(back, const(0) - stride, stride), 1)
    count = maximum((distance + length - 1) // length, 0)
    return first, select(stride.equal(0), const(0), count)


def _bound(position: PrimExpr, size: PrimExpr, back: PrimExpr) -> PrimExpr:
    """A slice bound as in Python: negative ones count from the end, then clamped to the axis."""
    found = select(position < 0, position + size, position)
    low, high = select(back, const(-1), const(0)), select(back, size - 1, size)
    return minimum(maximum(found, low), high)
