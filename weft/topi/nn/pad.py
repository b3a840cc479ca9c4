"""Padding as a separate stage, which a schedule can inline or compute at a consumer's loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from weft import te
from weft.tir.expr import PrimExpr, all_of, as_prim, if_then_else, maximum, minimum, select
from weft.topi import elementwise

Width: TypeAlias = "PrimExpr | int"
Pads: TypeAlias = Sequence[tuple[Width, Width]]
Source = Callable[[PrimExpr, PrimExpr], PrimExpr]


def pad(x: te.Tensor, widths: Pads, value: PrimExpr, name: str = "pad") -> te.Tensor:
    """``x`` with ``widths[axis] = (before, after)`` elements of ``value`` around it.

    Unpadded axes are not guarded; returns ``x`` itself if no axis is padded.
    """
    if not any(_is_padded(before) or _is_padded(after) for before, after in widths):
        return x

    def element(*index: PrimExpr) -> PrimExpr:
        inside: list[PrimExpr] = []
        source: list[PrimExpr] = []
        for i, size, (before, after) in zip(index, x.shape, widths, strict=True):
            if _is_padded(before):
                inside.append(i >= before)
            if _is_padded(after):
                inside.append(i < size + before)
            source.append(i - before)
        # Loop partitioning splits off the interior, whose copy has no guard.
        return if_then_else(te.likely(all_of(*inside)), x[tuple(source)], value)

    return te.compute(padded_shape(x, widths), element, name=name, role=te.StageRole.PADDING)


def _is_padded(width: Width) -> bool:
    return not isinstance(width, int) or width > 0


def constant_pad(x: te.Tensor, widths: Pads, value: PrimExpr) -> te.Tensor:
    """As ``pad``, but always a new tensor."""
    padded = pad(x, widths, value)
    return elementwise.identity(x) if padded is x else padded


def padded_shape(x: te.Tensor, widths: Pads) -> tuple[PrimExpr, ...]:
    """The shape of ``x`` with padding ``widths`` per axis."""
    return tuple(s + (b + a) for s, (b, a) in zip(x.shape, widths, strict=True))


def edge_pad(x: te.Tensor, widths: Pads) -> te.Tensor:
    """``x`` padded by repeating its border elements."""
    return _from_source(x, widths, lambda i, size: minimum(maximum(i, 0), size - 1))


def reflect_pad(x: te.Tensor, widths: Pads) -> te.Tensor:
    """``x`` padded by reflection at its border elements, which are not repeated."""

    def mirror(i: PrimExpr, size: PrimExpr) -> PrimExpr:
        positive = select(i < 0, as_prim(0) - i, i)
        return select(positive >= size, (size - 1) * 2 - positive, positive)

    return _from_source(x, widths, mirror)


def _from_source(x: te.Tensor, widths: Pads, source: Source) -> te.Tensor:
    last = x.ndim - 1

    def element(*index: PrimExpr) -> PrimExpr:
        at = [
            source(i - before, size) if _is_padded(before) or _is_padded(after) else i
            for i, size, (before, after) in zip(index, x.shape, widths, strict=True)
        ]
        if x.ndim == 0 or not any(map(_is_padded, widths[last])):
            return x[tuple(at)]
        # In the interior of a row the source index is affine, so that vectors can copy it.
        before, size = widths[last][0], x.shape[last]
        inside = all_of(index[last] >= before, index[last] < size + before)
        row = x[(*at[:last], index[last] - before)]
        return if_then_else(te.likely(inside), row, x[tuple(at)])

    return te.compute(padded_shape(x, widths), element, name="pad")
