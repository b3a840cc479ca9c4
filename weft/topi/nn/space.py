"""Space-to-depth and space-to-batch, their inverses, dilation and mirror padding."""

from __future__ import annotations

import math
from collections.abc import Sequence

from weft import te
from weft.tir.expr import PrimExpr, all_of, as_prim, const, if_then_else, maximum, select
from weft.tir.row_major import unravel
from weft.topi.layout import Layout


def space_to_depth(x: te.Tensor, block: int, layout: Layout) -> te.Tensor:
    """Each ``block`` x ``block`` square of pixels becomes channels of one pixel, position first."""
    sizes = dict(zip(layout.primal_axes, x.shape, strict=True))
    channels = sizes["C"]

    def element(*index: PrimExpr) -> PrimExpr:
        at = layout.blocked_indices(index)
        coord = at["C"] // channels
        return x[layout.indices({
            "N": at["N"], "C": at["C"] % channels,
            "H": at["H"] * block + coord // block, "W": at["W"] * block + coord % block,
        })]

    shape = layout.indices(sizes | {"C": channels * (block * block), "H": sizes["H"] // block,
                                    "W": sizes["W"] // block})
    return te.compute(shape, element, name="space_to_depth")


def depth_to_space(x: te.Tensor, block: int, layout: Layout, mode: str) -> te.Tensor:
    """Channels become ``block`` x ``block`` pixels.

    An input channel is the flat index (row, column, output channel) with ``mode`` "DCR", and
    (output channel, row, column) with "CRD".
    """
    sizes = dict(zip(layout.primal_axes, x.shape, strict=True))
    left = sizes["C"] // (block * block)

    def element(*index: PrimExpr) -> PrimExpr:
        at = layout.blocked_indices(index)
        coord = at["H"] % block * block + at["W"] % block
        channel = coord * left + at["C"] if mode == "DCR" else at["C"] * (block * block) + coord
        return x[layout.indices({"N": at["N"], "C": channel, "H": at["H"] // block,
                                 "W": at["W"] // block})]

    shape = layout.indices(sizes | {"C": left, "H": sizes["H"] * block, "W": sizes["W"] * block})
    return te.compute(shape, element, name="depth_to_space")


def space_to_batch(
    x: te.Tensor, block: Sequence[int], paddings: Sequence[tuple[int, int]], value: float
) -> te.Tensor:
    """The padded data with the positions in each ``block`` of axes 1, 2, … moved to the batch."""
    batch, whole = x.shape[0], maximum(x.shape[0], 1)
    rank = len(block)
    padded = [s + (b + a) for s, (b, a) in zip(x.shape[1:], paddings, strict=False)]

    def element(*index: PrimExpr) -> PrimExpr:
        coord, source = index[0] // whole, [index[0] % whole]
        offsets = unravel(coord, block)
        inside = []
        for i in range(rank):
            position = index[1 + i] * block[i] + offsets[i] - paddings[i][0]
            if any(paddings[i]):
                inside += [position >= 0, position < x.shape[1 + i]]
            source.append(position)
        found = x[(*source, *index[1 + rank:])]
        return if_then_else(all_of(*inside), found, const(value, x.dtype)) if inside else found

    total = math.prod(block)
    shape = (batch * total, *(p // b for p, b in zip(padded, block, strict=True)),
             *x.shape[1 + rank:])
    return te.compute(shape, element, name="space_to_batch")


def batch_to_space(
    x: te.Tensor, block: Sequence[int], crops: Sequence[tuple[int, int]]
) -> te.Tensor:
    """The inverse of ``space_to_batch``, cropped by ``crops`` elements at the ends."""
    rank = len(block)
    batch = x.shape[0] // math.prod(block)

    def element(*index: PrimExpr) -> PrimExpr:
        coord: PrimExpr = const(0)
        source = []
        for i in range(rank):
            position = index[1 + i] + crops[i][0]
            coord = coord * block[i] + position % block[i]
            source.append(position // block[i])
        return x[(coord * batch + index[0], *source, *index[1 + rank:])]

    sizes = (s * b - (first + last) for s, b, (first, last)
             in zip(x.shape[1:], block, crops, strict=False))
    shape = (batch, *sizes, *x.shape[1 + rank:])
    return te.compute(shape, element, name="batch_to_space")


def dilate(x: te.Tensor, strides: Sequence[int], value: float) -> te.Tensor:
    """``x`` dilated: ``strides - 1`` elements of ``value`` between adjacent elements."""

    def element(*index: PrimExpr) -> PrimExpr:
        spread = [(i, s) for i, s in zip(index, strides, strict=True) if s > 1]
        source = tuple(i // s if s > 1 else i for i, s in zip(index, strides, strict=True))
        if not spread:
            return x[source]
        hit = all_of(*((i % s).equal(0) for i, s in spread))
        return if_then_else(hit, x[source], const(value, x.dtype))

    shape = [(size - 1) * s + 1 if s > 1 else size for size, s in zip(x.shape, strides,
                                                                     strict=True)]
    return te.compute(shape, element, name="dilate")


def mirror_pad(
    x: te.Tensor, widths: Sequence[tuple[int, int]], *, repeats_edge: bool
) -> te.Tensor:
    """``x`` padded by mirroring, with or without repeating the border elements."""
    skip = 0 if repeats_edge else 1

    def source(i: PrimExpr, size: PrimExpr, before: int, after: int) -> PrimExpr:
        if not before and not after:
            return i
        at = i - before
        positive = select(at < 0, as_prim(skip - 1) - at, at)
        return select(positive >= size, size * 2 - 1 - skip - positive, positive)

    def element(*index: PrimExpr) -> PrimExpr:
        return x[tuple(source(i, size, *pair)
                       for i, size, pair in zip(index, x.shape, widths, strict=True))]

    shape = [s + (b + a) for s, (b, a) in zip(x.shape, widths, strict=True)]
    return te.compute(shape, element, name="mirror_pad")
