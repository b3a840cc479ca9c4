"""Elements by index: filled tensors, take, gather and scatter."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft import te
from weft.ir import DType, int32, int64
from weft.support.errors import LoweringError
from weft.tir import (
    Buffer,
    BufferStore,
    IfThenElse,
    PrimExpr,
    Stmt,
    all_of,
    as_prim,
    const,
    int_value,
    maximum,
    minimum,
    select,
    seq,
)
from weft.tir.row_major import element_count
from weft.topi.loop_nest import copy, nest, vector_nest
from weft.topi.nn.window import window_count
from weft.topi.transform import Dims, reshape


def take(x: te.Tensor, indices: te.Tensor, axis: int | None, mode: str) -> te.Tensor:
    """``x`` at ``indices`` along ``axis`` (``None``: along the flattened tensor).

    Positions outside the axis are clamped (``clip``) or taken modulo its size (``wrap``: -1 is the
    last element).
    """
    if axis is None:
        return take(reshape(x, (element_count(x.shape),), "flat"), indices, 0, mode)
    size = x.shape[axis]
    after = axis + indices.ndim
    known = int_value(size)
    # Clamped as they are, positions of int32 stay so in a gather.
    is_narrow = mode == "clip" and indices.dtype == int32 and known is not None and known < 2**31

    def element(*index: PrimExpr) -> PrimExpr:
        position = indices[index[axis:after]]
        if not is_narrow:
            position = position.astype(int64)
        found = position % size if mode == "wrap" else minimum(
            maximum(position, const(0, position.dtype)), (size - 1).astype(position.dtype))
        found = found.astype(int64)
        return x[(*index[:axis], found, *index[after:])]

    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1:])
    return te.compute(shape, element, name="take")


def full(shape: Dims, value: PrimExpr, name: str = "full") -> te.Tensor:
    """A tensor with all elements equal to one value."""
    return te.compute(shape, lambda *_: value, name=name)


def repeat(x: te.Tensor, repeats: PrimExpr | int, axis: int) -> te.Tensor:
    """Element ``i`` along ``axis`` is element ``i // repeats``."""
    shape = (*x.shape[:axis], x.shape[axis] * repeats, *x.shape[axis + 1:])
    divisor = maximum(repeats, 1)  # no element is computed where it is 0
    return te.compute(
        shape, lambda *i: x[(*i[:axis], i[axis] // divisor, *i[axis + 1:])],
        name="repeat",
    )


def sliding_window(
    x: te.Tensor, axis: int, window: Sequence[int], strides: Sequence[int]
) -> te.Tensor:
    """Sliding windows: axes of window positions from ``axis`` on, then the axes of a window."""
    count = len(window)
    positions = [window_count(x.shape[axis + n], w, s)
              for n, (w, s) in enumerate(zip(window, strides, strict=True))]

    def element(*i: PrimExpr) -> PrimExpr:
        coord, inside = i[axis:axis + count], i[axis + count:]
        seen = [p * s + k for p, s, k in zip(coord, strides, inside, strict=True)]
        return x[(*i[:axis], *seen)]

    shape = (*x.shape[:axis], *positions, *(const(w) for w in window))
    return te.compute(shape, element, name="sliding_window")


def reverse_sequence(x: te.Tensor, lengths: te.Tensor, seq: int, batch: int) -> te.Tensor:
    """``x`` with the first ``lengths[b]`` elements along ``seq`` reversed."""

    def element(*i: PrimExpr) -> PrimExpr:
        length = minimum(lengths[i[batch]].astype(int64), x.shape[seq])
        coord = select(i[seq] < length, length - 1 - i[seq], i[seq])
        return x[(*i[:seq], coord, *i[seq + 1:])]

    return te.compute(x.shape, element, name="reverse_sequence")


def shape_of(x: te.Tensor, dtype: DType) -> te.Tensor:
    """The shape of ``x`` as a 1-D tensor."""

    def element(i: PrimExpr) -> PrimExpr:
        return _choose(i, [s.astype(dtype) for s in x.shape])

    return te.compute((x.ndim,), element, name="shape_of")


def _choose(index: PrimExpr, values: Sequence[PrimExpr]) -> PrimExpr:
    chosen = values[-1] if values else as_prim(0)
    for k in reversed(range(len(values) - 1)):
        chosen = select(index.equal(k), values[k], chosen)
    return chosen


def within(position: PrimExpr, size: PrimExpr) -> PrimExpr:
    """``position`` as int64, clamped to the axis."""
    return minimum(maximum(position.astype(int64), 0), size - 1)


def gather(x: te.Tensor, indices: te.Tensor, axis: int) -> te.Tensor:
    """``x[i, …, indices[i, …, j, …], …]``: the index of ``axis`` is looked up."""

    def element(*i: PrimExpr) -> PrimExpr:
        return x[(*i[:axis], within(indices[i], x.shape[axis]), *i[axis + 1:])]

    return te.compute(indices.shape, element, name="gather")


def fixed_length(indices: te.Tensor) -> int:
    """The length of an index tuple: the size of axis 0, which must be fixed."""
    length = int_value(indices.shape[0])
    if length is None:
        raise LoweringError("the number of indexed axes must be fixed", got=indices.shape[0])
    return length


def gather_nd(x: te.Tensor, indices: te.Tensor, batch_dims: int) -> te.Tensor:
    """The slices of ``x`` at the index tuples stored along axis 0 of ``indices``."""
    length = fixed_length(indices)
    outer = indices.shape[1:]
    first = batch_dims + length

    def element(*i: PrimExpr) -> PrimExpr:
        coord = i[:len(outer)]
        looked_up = tuple(
            within(indices[(k, *coord)], x.shape[batch_dims + k]) for k in range(length)
        )
        return x[(*i[:batch_dims], *looked_up, *i[len(outer):])]

    return te.compute((*outer, *x.shape[first:]), element, name="gather_nd")


Combine = Callable[[PrimExpr, PrimExpr], PrimExpr]
COMBINE: Mapping[str, Combine] = {
    "update": lambda _, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": minimum,
    "max": maximum,
}


def _where_inside(
    target: Buffer, looked_up: Sequence[tuple[int, PrimExpr]], stmt: Stmt
) -> Stmt:
    """``stmt``, skipped if a coordinate, given with its axis, is out of range."""
    inside = [c for axis, at in looked_up for c in (at >= 0, at < target.shape[axis])]
    return IfThenElse(all_of(*inside), stmt) if inside else stmt


def scatter_elements(
    x: te.Tensor, indices: te.Tensor, updates: te.Tensor, axis: int, reduction: str
) -> te.Tensor:
    """``x`` with ``updates[i]`` at ``i`` with the coordinate along ``axis`` from ``indices``.

    Updates are applied in row-major order; those out of range are dropped.
    """

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, index, values = inputs

        def update(i: tuple[PrimExpr, ...]) -> Stmt:
            found = index.load(*i).astype(int64)
            position = (*i[:axis], found, *i[axis + 1:])
            new = COMBINE[reduction](outputs[0].load(*position), values.load(*i))
            return _where_inside(outputs[0], [(axis, found)],
                                 BufferStore(outputs[0], new, position))

        # Serial: two updates may meet in one element, and their order decides.
        return seq([copy(source, outputs[0]), nest(index.shape, update)])

    return te.extern([x.shape], [x, indices, updates], build, [x.dtype], "scatter_elements")[0]


def scatter_nd(
    x: te.Tensor, indices: te.Tensor, updates: te.Tensor, reduction: str
) -> te.Tensor:
    """``x`` with slices of ``updates`` at the index tuples stored along axis 0 of ``indices``."""
    length = fixed_length(indices)
    outer = indices.ndim - 1

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source, index, values = inputs

        def update(i: tuple[PrimExpr, ...]) -> Stmt:
            found = tuple(
                index.load(as_prim(k), *i[:outer]).astype(int64) for k in range(length)
            )

            def element(j: tuple[PrimExpr, ...]) -> Stmt:
                position = (*found, *j)
                new = COMBINE[reduction](outputs[0].load(*position), values.load(*i, *j))
                return BufferStore(outputs[0], new, position)

            return _where_inside(outputs[0], list(enumerate(found)),
                                 vector_nest(values.shape[outer:], x.dtype, element))

        # Serial, as in ``scatter_elements``.
        return seq([copy(source, outputs[0]), nest(values.shape[:outer], update)])

    return te.extern([x.shape], [x, indices, updates], build, [x.dtype], "scatter_nd")[0]
