"""Selections between values by position."""

from __future__ import annotations

from weft import te
from weft.ir.dtype import int64
from weft.tir.expr import PrimExpr, all_of, as_prim, const, if_then_else, maximum, minimum, select


def one_hot(
    indices: te.Tensor, on_value: te.Tensor, off_value: te.Tensor, depth: PrimExpr | int, axis: int
) -> te.Tensor:
    """``on_value`` where the position along ``axis`` equals the index at the other axes."""
    shape = (*indices.shape[:axis], as_prim(depth), *indices.shape[axis:])

    def element(*i: PrimExpr) -> PrimExpr:
        index = indices[(*i[:axis], *i[axis + 1:])].astype(int64)
        return select(index.equal(i[axis]), on_value[()], off_value[()])

    return te.compute(shape, element, name="one_hot")


def trilu(x: te.Tensor, k: te.Tensor, *, upper: bool) -> te.Tensor:
    """``x`` where column - row >= k (``upper``) or <= k (lower), else zero."""

    def element(*i: PrimExpr) -> PrimExpr:
        distance, diagonal = i[-1] - i[-2], k[()].astype(int64)
        kept = distance >= diagonal if upper else distance <= diagonal
        return select(kept, x[i], const(0, x.dtype))

    return te.compute(x.shape, element, name="trilu")


def sequence_mask(x: te.Tensor, lengths: te.Tensor, value: float, axis: int) -> te.Tensor:
    """``x`` where the position along ``axis`` is below the sequence length, else the mask value."""

    def element(*i: PrimExpr) -> PrimExpr:
        valid = i[axis] < lengths[i[1 - axis]].astype(int64)
        return select(valid, x[i], const(value if x.dtype.is_float else int(value), x.dtype))

    return te.compute(x.shape, element, name="sequence_mask")


def matrix_set_diag(
    x: te.Tensor, diagonal: te.Tensor, k1: int, k2: int, upper_right: bool, lower_right: bool
) -> te.Tensor:
    """Diagonal ``k`` of a matrix is row ``k2 - k`` of ``diagonal``, aligned left or right."""
    rows, columns = x.shape[-2:]
    longest = diagonal.shape[-1]

    def element(*i: PrimExpr) -> PrimExpr:
        row, column = i[-2:]
        k = column - row
        length = minimum(rows + minimum(k, 0), columns - maximum(k, 0))
        along = minimum(row, column)
        upper = along + (longest - length if upper_right else 0)
        lower = along + (longest - length if lower_right else 0)
        position = select(k >= 0, upper, lower)
        line = () if k1 == k2 else (k2 - k,)
        inside = all_of(k >= k1, k <= k2)
        return if_then_else(inside, diagonal[(*i[:-2], *line, position)], x[i])

    return te.compute(x.shape, element, name="matrix_set_diag")
