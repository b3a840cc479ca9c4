"""Scatters: writes at positions given by another tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weft import te
from weft.ir.dtype import int64
from weft.tir.buffer import Buffer
from weft.tir.expr import PrimExpr, all_of, as_prim, maximum, minimum
from weft.tir.stmt import BufferStore, IfThenElse, Stmt, seq
from weft.topi.gather import fixed_length
from weft.topi.loop_nest import copy, nest

Combine = Callable[[PrimExpr, PrimExpr], PrimExpr]
COMBINE: Mapping[str, Combine] = {
    "update": lambda _, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": minimum,
    "max": maximum,
}


def _store(
    target: Buffer, position: tuple[PrimExpr, ...], looked_up: tuple[int, ...], value: PrimExpr,
    combine: Combine,
) -> Stmt:
    """``target[position]`` combined with ``value``; skipped if a position is out of range."""
    inside = [
        c for axis in looked_up
        for c in (position[axis] >= 0, position[axis] < target.shape[axis])
    ]
    store = BufferStore(target, combine(target.load(*position), value), position)
    return IfThenElse(all_of(*inside), store) if inside else store


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
            return _store(outputs[0], position, (axis,), values.load(*i), COMBINE[reduction])

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
            position = (*found, *i[outer:])
            return _store(outputs[0], position, tuple(range(length)), values.load(*i),
                          COMBINE[reduction])

        # Serial, as in ``scatter_elements``.
        return seq([copy(source, outputs[0]), nest(values.shape, update)])

    return te.extern([x.shape], [x, indices, updates], build, [x.dtype], "scatter_nd")[0]
