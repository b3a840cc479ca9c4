"""Scatters: writes at positions given by another tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from weft import te
from weft.ir.dtype import int64
from weft.tir import Buffer, PrimExpr, all_of, as_prim, maximum, minimum
from weft.tir.stmt import BufferStore, IfThenElse, Stmt, seq
from weft.topi.gather import fixed_length
from weft.topi.loop_nest import copy, nest, vector_nest

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
