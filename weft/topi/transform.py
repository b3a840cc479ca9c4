"""Data movement: reshape, transpose, concatenate, split, slices and layouts."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from weft import te
from weft.support.errors import LoweringError
from weft.tir.expr import PrimExpr, as_prim, const, if_then_else, int_value, maximum
from weft.tir.row_major import Dims, element_count, ravel, unravel
from weft.topi.layout import Layout, convert_shape

# Rows of fewer elements fill one or two vectors; partitioned loops would be scalar.
SHORT_ROW = 32


def resolve_shape(
    source: Dims, target: Dims, *, allowzero: bool = False
) -> tuple[PrimExpr, ...]:
    """``target`` with 0 (copy that size, unless ``allowzero``) and -1 (the rest) filled in."""
    sizes: list[PrimExpr] = [
        as_prim(source[i]) if _is(size, 0) and not allowzero else as_prim(size)
        for i, size in enumerate(target)
    ]
    hole = next((i for i, size in enumerate(target) if _is(size, -1)), None)
    if hole is not None:
        # Sizes that are copied leave the division: one of them may be 0.
        copied = [i for i, size in enumerate(target) if _is(size, 0) and not allowzero]
        sizes[hole] = _rest([d for i, d in enumerate(source) if i not in copied],
                            [d for i, d in enumerate(sizes) if i != hole and i not in copied])
    return tuple(sizes)


def _is(size: PrimExpr | int, value: int) -> bool:
    return isinstance(size, int) and size == value


def _rest(source: Dims, known: Sequence[PrimExpr]) -> PrimExpr:
    """The product of ``source`` divided by that of ``known``.

    Symbolic sizes that both have are cancelled: they may be 0 at run time.
    """
    remaining = list(map(as_prim, source))
    divisor: PrimExpr = const(1)
    for size in known:
        common = next((i for i, s in enumerate(remaining) if s is size), None)
        if int_value(size) is None and common is not None:
            del remaining[common]
        else:
            divisor = divisor * size
    rest = element_count(remaining)
    return rest // (divisor if int_value(divisor) is not None else maximum(divisor, 1))


def reshape(x: te.Tensor, shape: Dims, name: str = "reshape") -> te.Tensor:
    """The same elements in row-major order under another shape."""

    def element(*index: PrimExpr) -> PrimExpr:
        # An empty tensor is not read; its index would come from a division by zero.
        if any(int_value(s) == 0 for s in x.shape):
            return x[tuple(const(0) for _ in x.shape)]
        return x[unravel(ravel(index, shape), x.shape)]

    return te.compute(shape, element, name=name)


def transpose(x: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """Axis ``i`` of the result is axis ``axes[i]`` of ``x``."""
    position = {source: i for i, source in enumerate(axes)}
    return te.compute(
        [x.shape[a] for a in axes],
        lambda *i: x[tuple(i[position[s]] for s in range(x.ndim))],
        name="transpose",
    )


def expand_dims(x: te.Tensor, axis: int, count: int) -> te.Tensor:
    """``count`` new axes of size 1 before axis ``axis``."""
    shape = (*x.shape[:axis], *(const(1),) * count, *x.shape[axis:])
    return te.compute(shape, lambda *i: x[(*i[:axis], *i[axis + count:])], name="expand_dims")


def squeeze(x: te.Tensor, axes: Sequence[int]) -> te.Tensor:
    """``x`` without ``axes``, which have size 1."""
    kept = [a for a in range(x.ndim) if a not in axes]

    def element(*index: PrimExpr) -> PrimExpr:
        own = dict(zip(kept, index, strict=True))
        return x[tuple(own.get(a, const(0)) for a in range(x.ndim))]

    return te.compute([x.shape[a] for a in kept], element, name="squeeze")


def concatenate(tensors: Sequence[te.Tensor], axis: int) -> te.Tensor:
    """Concatenation of the tensors along ``axis``."""
    ends: list[PrimExpr] = []
    total: PrimExpr = const(0)
    for tensor in tensors:
        total = total + tensor.shape[axis]
        ends.append(total)
    first = tensors[0]
    shape = (*first.shape[:axis], total, *first.shape[axis + 1:])

    def element(*index: PrimExpr) -> PrimExpr:
        """A chain of selections by offset, so that each tensor is read only within its range."""
        value: PrimExpr | None = None
        rows_are_short = axis == first.ndim - 1 and (int_value(total) or SHORT_ROW) < SHORT_ROW
        for k in reversed(range(len(tensors))):
            start = ends[k - 1] if k else const(0)
            # As the parts of a stack, a part of size 1 does not depend on the axis.
            is_single = int_value(tensors[k].shape[axis]) == 1
            at = const(0) if is_single else index[axis] - start
            part = tensors[k][(*index[:axis], at, *index[axis + 1:])]
            if value is None:
                value = part
                continue
            # Long rows let the loop be partitioned at the boundaries of the tensors.
            before = index[axis] < ends[k]
            value = if_then_else(before if rows_are_short else te.likely(before), part, value)
        if value is None:
            raise LoweringError("there is nothing to concatenate")
        return value

    return te.compute(shape, element, name="concatenate")


def split(x: te.Tensor, points: Sequence[PrimExpr | int], axis: int) -> tuple[te.Tensor, ...]:
    """``x`` split at ``points`` along ``axis``."""
    bounds = [as_prim(0), *(as_prim(p) for p in points), x.shape[axis]]
    return tuple(
        _part(x, axis, start, stop, k)
        for k, (start, stop) in enumerate(itertools.pairwise(bounds))
    )


def _part(x: te.Tensor, axis: int, start: PrimExpr, stop: PrimExpr, number: int) -> te.Tensor:
    shape = (*x.shape[:axis], stop - start, *x.shape[axis + 1:])
    return te.compute(
        shape,
        lambda *i: x[(*i[:axis], i[axis] + start, *i[axis + 1:])],
        name=f"split{number}",
    )


def strided_slice(
    x: te.Tensor, begin: Sequence[PrimExpr | int], strides: Sequence[int], shape: Dims
) -> te.Tensor:
    """Element ``i`` is ``x[begin + strides * i]``; one ``begin`` and stride for every axis."""
    return te.compute(
        shape,
        lambda *i: x[tuple(b + v * s for v, b, s in zip(i, begin, strides, strict=True))],
        name="strided_slice",
    )


def layout_transform(x: te.Tensor, src: Layout, dst: Layout) -> te.Tensor:
    """``x`` converted from layout ``src`` to layout ``dst``."""
    return te.compute(
        convert_shape(src, dst, x.shape),
        lambda *i: x[src.indices(dst.blocked_indices(i))],
        name="layout_transform",
    )
