"""Reads at positions given by another tensor, and tensors without inputs."""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.ir.dtype import DType, int64
from weft.tir.expr import PrimExpr, as_prim, const, maximum, minimum, select
from weft.topi.nn.window import window_count
from weft.topi.transform import Dims, reshape


def take(x: te.Tensor, indices: te.Tensor, axis: int | None, mode: str) -> te.Tensor:
    """``x`` at ``indices`` along ``axis`` (``None``: along the flattened tensor).

    Positions outside the axis are clamped (``clip``) or taken modulo its size (``wrap``: -1 is the
    last element).
    """
    if axis is None:
        total: PrimExpr = const(1)
        for extent in x.shape:
            total = total * extent
        return take(reshape(x, (total,), "flat"), indices, 0, mode)
    size = x.shape[axis]
    after = axis + indices.ndim

    def element(*index: PrimExpr) -> PrimExpr:
        position = indices[index[axis:after]].astype(int64)
        found = position % size if mode == "wrap" else minimum(maximum(position, 0), size - 1)
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
