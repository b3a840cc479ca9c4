"""Cumulative sums and products, and sorting: cumsum, cumprod, sort, argsort, topk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from weft import op, te
from weft.ir import Attrs, DType, KnownDim, RelationContext, attr, int64, may_be_at_least, size_from
from weft.ir.expr import Call, Expr, Tuple, TupleGetItem
from weft.ir.op import Op, OpPattern, define_op, op_case
from weft.ir.traits import NO_TRAITS, ZERO_GRADIENT, Family, OpTraits, in_family, linear
from weft.ir.types import TensorType, TupleType
from weft.ir.typing.relations import normalize_axis
from weft.op.batching import along
from weft.op.cut_axes import axes_but
from weft.op.gradients import attrs_of, scalar, tensor_type, typed_zeros
from weft.op.relations import range_help
from weft.support.dataclass import dataclass
from weft.topi import scan as topi_scan
from weft.topi import sort as topi_sort
from weft.topi.sizes import as_size
from weft.topi.upcast import converted


@dataclass(frozen=True, kw_only=True)
class ScanAttrs(Attrs):
    axis: int = attr(0, "axis of accumulation")
    dtype: DType | None = attr(None, "dtype of the result; None for that of the argument")
    exclusive: bool = attr(False, "exclude the element itself, so that the first result is the "
                           "neutral element")
    reverse: bool = attr(False, "start from the end")


def _scan_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.expect_number(0, source)
    attrs = ctx.attrs_as(ScanAttrs)
    normalize_axis(ctx, attrs.axis, source.ndim)
    ctx.output(TensorType(source.shape, attrs.dtype or source.dtype))
    return True


def _scan(name: str, combine: str, accumulate: Callable[..., np.ndarray], doc: str,
          traits: OpTraits = NO_TRAITS) -> Op:
    def run(x: te.Tensor, attrs: ScanAttrs) -> te.Tensor:
        return topi_scan.scan(x, attrs.axis % x.ndim, attrs.dtype or x.dtype, combine=combine,
                              exclusive=attrs.exclusive, reverse=attrs.reverse)

    def reference(x: np.ndarray, axis: int = 0, dtype: DType | None = None,
                  exclusive: bool = False, reverse: bool = False) -> np.ndarray:
        line = np.moveaxis(x, axis, 0).astype(x.dtype if dtype is None else DType.of(dtype).numpy)
        line = line[::-1] if reverse else line
        if exclusive:
            neutral = np.full_like(line[:1], combine == "mul")
            line = np.concatenate([neutral, line[:-1]])
        result = accumulate(line, axis=0, dtype=line.dtype)
        result = result[::-1] if reverse else result
        return np.ascontiguousarray(np.moveaxis(result, 0, axis))

    run.__doc__ = doc
    op = define_op(name, attrs=ScanAttrs, relation=_scan_relation, pattern=OpPattern.OPAQUE,
                   level=3, inputs=("x",),
                   traits=replace(traits, family=Family.SCAN, combine=combine))(run)
    op.batching(along("axis"))
    op.cut_axes(axes_but("axis"))
    op.spec(reference, op_case((3, 5), axis=1), op_case((4, 3)), op_case((6,), exclusive=True),
            op_case((2, 3, 4), axis=-2, reverse=True), op_case((5,), exclusive=True, reverse=True),
            op_case((0, 3)), op_case((4,), dtypes="int32", dtype="int64", low=-9, high=9))
    return op


cumsum = _scan("cumsum", "add", np.cumsum, "The cumulative sum along an axis.", linear())


@cumsum.gradient
def _cumsum_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, ScanAttrs)
    x = call.args[0]
    back = op.cumsum(dy, axis=attrs.axis, exclusive=attrs.exclusive, reverse=not attrs.reverse)
    return [op.cast(back, dtype=tensor_type(x).dtype)]


cumprod = _scan("cumprod", "mul", np.cumprod, "The cumulative product along an axis.")


@cumprod.gradient
def _cumprod_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    """``sum(dy[j] * y[j]) / x[i]`` over the products that contain element i.

    Products from the first zero on are zero. The gradient of that zero uses the products without
    it; later zeros have a zero gradient.
    """
    attrs = attrs_of(call, ScanAttrs)
    x = call.args[0]
    zero, one = scalar(0, x), scalar(1, x)
    forward = {"axis": attrs.axis, "reverse": attrs.reverse}
    back = {"axis": attrs.axis, "exclusive": attrs.exclusive, "reverse": not attrs.reverse}
    is_zero = op.equal(x, zero)
    earlier = op.cumsum(op.cast(is_zero, dtype=tensor_type(x).dtype), exclusive=True, **forward)
    is_first = op.logical_and(is_zero, op.equal(earlier, zero))
    without = op.cumprod(op.where(is_first, one, x), exclusive=attrs.exclusive, **forward)
    at_first = op.cumsum(op.multiply(dy, without), **back)
    elsewhere = op.divide(op.cumsum(op.multiply(dy, y), **back), op.where(is_zero, one, x))
    return [op.where(is_first, at_first, op.where(is_zero, zero, elsewhere))]


@dataclass(frozen=True, kw_only=True)
class SortAttrs(Attrs):
    axis: int = attr(-1, "axis that is sorted")
    is_ascend: bool = attr(True, "smallest first")


@dataclass(frozen=True, kw_only=True)
class ArgsortAttrs(SortAttrs):
    dtype: DType = attr(int64, "dtype of the indices",
                        check=lambda d: DType.of(d).is_int, expected="an integer dtype")


@dataclass(frozen=True, kw_only=True)
class TopkAttrs(ArgsortAttrs):
    k: KnownDim = attr(1, "how many", check=size_from(0), expected="0 or more")
    is_ascend: bool = attr(False, "select the smallest elements, not the largest")


def _sort_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    attrs = ctx.attrs_as(SortAttrs)
    axis = normalize_axis(ctx, attrs.axis, source.ndim)
    if isinstance(attrs, TopkAttrs):
        size = source.shape[axis]
        if not may_be_at_least(size, attrs.k):
            ctx.fail("k exceeds the number of elements", arg=0, axis=axis,
                     expected=f"{attrs.k} or more", got=size, help=range_help(size, attrs.k))
        shape = (*source.shape[:axis], attrs.k, *source.shape[axis + 1:])
        ctx.output(TupleType((TensorType(shape, source.dtype), TensorType(shape, attrs.dtype))))
    elif isinstance(attrs, ArgsortAttrs):
        ctx.output(TensorType(source.shape, attrs.dtype))
    else:
        ctx.output(source)
    return True


@define_op("sort", attrs=SortAttrs, relation=_sort_relation, pattern=OpPattern.OPAQUE, level=6,
           traits=in_family(Family.SORT))
def sort(x: te.Tensor, attrs: SortAttrs) -> te.Tensor:
    """The elements along an axis in sorted order; NaN sorts as the largest."""
    return topi_sort.sort(x, attrs.axis % x.ndim, is_ascend=attrs.is_ascend)


@define_op("argsort", attrs=ArgsortAttrs, relation=_sort_relation, pattern=OpPattern.OPAQUE,
           level=6, traits=in_family(Family.SORT, ZERO_GRADIENT))
def argsort(x: te.Tensor, attrs: ArgsortAttrs) -> te.Tensor:
    """The indices that sort the elements along an axis; the sort is stable."""
    return topi_sort.argsort(x, attrs.axis % x.ndim, is_ascend=attrs.is_ascend,
                             dtype=attrs.dtype)


@define_op("topk", attrs=TopkAttrs, relation=_sort_relation, pattern=OpPattern.OPAQUE, level=6,
           traits=in_family(Family.SORT), results=2)
def topk(x: te.Tensor, attrs: TopkAttrs) -> tuple[te.Tensor, te.Tensor]:
    """The k largest (or smallest) elements along an axis, and their indices."""
    axis = attrs.axis % x.ndim
    position = topi_sort.argsort(x, axis, is_ascend=attrs.is_ascend, count=as_size(attrs.k))
    values = topi_sort.at_positions(x, position, axis)  # int64 indices, which do not wrap
    return values, converted(position, attrs.dtype)


def _order(x: np.ndarray, axis: int, is_ascend: bool) -> np.ndarray:
    """Stable in both directions: a descending order is an ascending one of the reversed line.

    NumPy knows the NaNs of its own dtypes alone.
    """
    x = x.astype(np.float32) if x.dtype.kind == "V" else x
    if is_ascend:
        return np.argsort(x, axis, kind="stable")
    mirrored = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - mirrored, axis)


def _argsort_reference(
    x: np.ndarray, axis: int = -1, is_ascend: bool = True, dtype: DType = int64
) -> np.ndarray:
    return np.ascontiguousarray(_order(x, axis, is_ascend).astype(DType.of(dtype).numpy))


def _sort_reference(x: np.ndarray, axis: int = -1, is_ascend: bool = True) -> np.ndarray:
    return np.ascontiguousarray(np.take_along_axis(x, _order(x, axis, is_ascend), axis))


def _topk_reference(
    x: np.ndarray, axis: int = -1, is_ascend: bool = False, dtype: DType = int64, k: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    position = np.take(_order(x, axis, is_ascend), range(k), axis)
    values = np.take_along_axis(x, position, axis)
    return (np.ascontiguousarray(values),
            np.ascontiguousarray(position.astype(DType.of(dtype).numpy)))


_TIES = np.array([[2, 1, 2, 0, 1], [5, 5, 5, -1, 7]], np.int32)
_CASES = (op_case((3, 5)), op_case((4, 2), axis=0), op_case(_TIES), op_case(_TIES, is_ascend=False),
          op_case((2, 3, 4), axis=1, is_ascend=False),
          op_case(np.array([1.0, np.nan, -np.inf, 3.0], np.float32)))
# Long enough to need merging, with a number of runs other than a power of two.
_LONG = (op_case((2, 37), dtypes="int32", low=0, high=9), op_case((35, 2), axis=0, is_ascend=False))
sort.spec(_sort_reference, *_CASES, *_LONG, op_case((0, 3)))


def _add_at(x: Expr, positions: Expr, values: Expr, axis: int) -> Expr:
    """``values`` added to zeros in the shape of ``x``."""
    return op.scatter_elements(typed_zeros(x), positions, values, axis=axis, reduction="add")


@sort.gradient
def _sort_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    attrs = attrs_of(call, SortAttrs)
    x = call.args[0]
    positions = op.argsort(x, axis=attrs.axis, is_ascend=attrs.is_ascend)
    return [_add_at(x, positions, dy, attrs.axis)]


argsort.no_gradient("positions are integers")
@sort.jvp
def _sort_tangent(call: Call, _y: Expr, tangents: Sequence[Expr | None]) -> Expr | None:
    (tangent,), attrs = tangents, attrs_of(call, SortAttrs)
    if tangent is None:
        return None
    positions = op.argsort(call.args[0], axis=attrs.axis, is_ascend=attrs.is_ascend)
    return op.gather(tangent, positions, axis=attrs.axis)


argsort.spec(_argsort_reference, *_CASES, *_LONG, op_case((6,), dtype="int32"))
topk.spec(_topk_reference, op_case((3, 5), k=2), op_case((33,), k=3),
          op_case((2, 40), dtypes="int32", low=0, high=9, k=9, is_ascend=True),
          op_case((36, 2), k=1, axis=0), op_case((4, 2), k=3, axis=0, is_ascend=True),
          op_case(_TIES, k=4),
          op_case(_TIES, k=4, is_ascend=True, dtype="int32"), op_case((5,), k=0))


@topk.gradient
def topk_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    axis: int = call.attrs.axis  # type: ignore[attr-defined] - of ``topk`` or ``dyn.topk``
    x, *count = call.args
    return [_add_at(x, TupleGetItem(y, 1), TupleGetItem(dy, 0), axis),
            *map(typed_zeros, count)]


@topk.jvp
def topk_tangent(call: Call, y: Expr, tangents: Sequence[Expr | None]) -> Expr | None:
    """The tangents of the elements selected; the indices have none."""
    if tangents[0] is None:
        return None
    axis: int = call.attrs.axis  # type: ignore[attr-defined] - of ``topk`` or ``dyn.topk``
    positions = TupleGetItem(y, 1)
    return Tuple((op.gather(tangents[0], positions, axis=axis), op.zeros_like(positions)))


for _op in (sort, argsort, topk):
    _op.batching(along("axis"))
