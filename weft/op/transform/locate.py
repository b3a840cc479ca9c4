"""Indexing with other tensors: adv_index, unravel_index, invert_permutation, searchsorted,
strided_set.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, DType, Expr, RelationContext, Tuple, TupleGetItem, attr, int64
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.shape import Dim, Shape, dim_product, may_be_at_least
from weft.ir.traits import ZERO_GRADIENT, linear
from weft.ir.types import TensorType, TupleType
from weft.ir.typing.relations import broadcast_shapes
from weft.op.batching import aligned, batch_numbers, leading, with_attrs
from weft.op.gradients import field_of, known_dim, numbered, tensor_type
from weft.op.indexing_gradients import write_gradient
from weft.support.dataclass import dataclass
from weft.topi import locate as topi


def _adv_index_relation(ctx: RelationContext) -> bool:
    parts = ctx.tensors(0)
    if parts is None:
        return False
    if len(parts) < 2 or len(parts) - 1 > parts[0].ndim:
        ctx.fail("wrong number of index tensors", arg=0,
                 expected="the data, then one tensor of indices for each of its first axes",
                 got=f"{len(parts)} tensors")
    shape: Shape = ()
    for part in parts[1:]:
        if not part.dtype.is_int:
            ctx.fail("indices must be integers", arg=0, expected="an integer dtype", got=part.dtype)
        shape = broadcast_shapes(ctx, shape, part.shape)
    looked_up = parts[0].shape[:len(parts) - 1]
    if 0 in looked_up and 0 not in shape:
        ctx.fail("cannot index an empty axis", arg=0, expected="sizes of 1 or more",
                 got=parts[0])
    ctx.output(TensorType((*shape, *parts[0].shape[len(parts) - 1:]), parts[0].dtype))
    return True


@define_op("adv_index", relation=_adv_index_relation, pattern=OpPattern.INJECTIVE,
           inputs=("*tensors",), level=3, traits=linear())
def adv_index(tensors: tuple[te.Tensor, ...], _attrs: Attrs) -> te.Tensor:
    """The first tensor at indices (the others, broadcast together) along its first axes.

    Negative indices count from the end; indices out of range are clamped.
    """
    return topi.adv_index(tensors[0], tensors[1:])


def _adv_index_reference(tensors: Sequence[np.ndarray]) -> np.ndarray:
    x, *positions = tensors
    positions = np.broadcast_arrays(*(
        np.clip(np.where(p < 0, p + size, p), 0, size - 1)
        for p, size in zip(positions, x.shape, strict=False)))
    return np.array(x[tuple(positions)], order="C")


adv_index.spec(
    _adv_index_reference, op_case([(4, 3), np.array([0, -1, 2])]),
    op_case([(4, 3, 2), np.array([[0], [3]]), np.array([1, 2], np.int32)]),
    op_case([(3,), np.int64(1)]), op_case([(2, 3), np.array([9, -9])]),
    op_case([(2, 3), np.zeros((0,), np.int64)]),
)


@adv_index.gradient
def _adv_index_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Gradients are added up at the indices that were read; indices have a zero gradient."""
    type_ = call.args[0].checked_type
    fields = [t for t in (type_.fields if isinstance(type_, TupleType) else ())
              if isinstance(t, TensorType)]
    shape = tuple(known_dim(d, call) for d in fields[0].shape)
    total = dim_product(shape)
    parts = [TupleGetItem(call.args[0], n) for n in range(len(fields))]
    rest = [op.zeros_like(p) for p in parts[1:]]
    if total == 0 or 0 in tensor_type(call).shape:
        return [Tuple((op.zeros_like(parts[0]), *rest))]
    positions = numbered(shape)
    origin = op.reshape(op.adv_index((positions, *parts[1:])), newshape=(-1,))
    clear = op.zeros(shape=(total,), dtype=fields[0].dtype)
    added = op.scatter_elements(clear, origin, op.reshape(dy, newshape=(-1,)), reduction="add")
    return [Tuple((op.reshape(added, newshape=shape, allowzero=True), *rest))]


def _unravel_index_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    indices, shape = types
    ctx.expect_int(0, indices)
    ctx.expect_int(1, shape)
    ctx.expect_rank(1, shape, 1)
    ctx.output(TensorType((shape.shape[0], *indices.shape), indices.dtype))
    return True


@define_op("unravel_index", relation=_unravel_index_relation, pattern=OpPattern.INJECTIVE,
           level=3, inputs=("indices", "shape"))
def unravel_index(indices: te.Tensor, shape: te.Tensor, _attrs: Attrs) -> te.Tensor:
    """The index tuples, along axis 0, of flat row-major indices into a tensor of ``shape``.

    Indices beyond the last element wrap along the first axis; a size of 0 counts as 1.
    """
    return topi.unravel_index(indices, shape)


def _unravel_index_reference(indices: np.ndarray, shape: np.ndarray) -> np.ndarray:
    rows, rest = [], np.array(indices)
    for size in shape[::-1].tolist():
        rows.append(rest % max(size, 1))
        rest = rest // max(size, 1)
    result = np.array(rows[::-1], indices.dtype)
    return result.reshape(len(shape), *indices.shape)


unravel_index.spec(
    _unravel_index_reference, op_case(np.array([22, 3, 0]), np.array([4, 6])),
    op_case(np.array([[7, 1], [5, 2]], np.int32), np.array([2, 2, 2])),
    op_case(np.int64(3), np.array([5])), op_case(np.zeros(0, np.int64), np.array([2, 3])),
)


def _invert_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.expect_rank(0, source, 1)
    ctx.expect_int(0, source)
    ctx.output(source)
    return True


@define_op("invert_permutation", relation=_invert_relation, level=1, inputs=("x",))
def invert_permutation(x: te.Tensor, _attrs: Attrs) -> te.Tensor:
    """The position of each number in a permutation of 0, 1, …; out-of-range numbers are ignored."""
    return topi.invert_permutation(x)


def _invert_reference(x: np.ndarray) -> np.ndarray:
    result = np.zeros_like(x)
    for position, number in enumerate(x.tolist()):
        if 0 <= number < len(x):
            result[number] = position
    return result


invert_permutation.spec(
    _invert_reference, op_case(np.array([3, 4, 0, 2, 1])), op_case((0,), dtypes="int64"),
    op_case(np.array([0, 2, 1], np.int32)), op_case(np.array([1, 1, 7])))


@dataclass(frozen=True, kw_only=True)
class SearchSortedAttrs(Attrs):
    right: bool = attr(False, "insert after equal elements, not before them")
    dtype: DType = attr(int64, "dtype of the indices",
                        check=lambda d: DType.of(d).is_int, expected="an integer dtype")


def _searchsorted_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    sequence, values = types
    ctx.expect_number(0, sequence)
    ctx.expect_same_dtype(1, values, sequence.dtype)
    ctx.expect_min_rank(0, sequence, 1)
    if sequence.ndim > 1:
        ctx.expect_rank(1, values, sequence.ndim)
        for axis in range(sequence.ndim - 1):
            ctx.expect_dim(1, axis, values.shape[axis], sequence.shape[axis],
                           "the batch axes differ")
    ctx.output(TensorType(values.shape, ctx.attrs_as(SearchSortedAttrs).dtype))
    return True


@define_op("searchsorted", attrs=SearchSortedAttrs, relation=_searchsorted_relation, level=6,
           traits=ZERO_GRADIENT)
def searchsorted(
    sorted_sequence: te.Tensor, values: te.Tensor, attrs: SearchSortedAttrs
) -> te.Tensor:
    """The insertion index of each value into the ascending last axis, which may have batch axes.

    NaN sorts last.
    """
    return topi.searchsorted(sorted_sequence, values, right=attrs.right, dtype=attrs.dtype)


def _searchsorted_reference(
    sorted_sequence: np.ndarray, values: np.ndarray, right: bool = False, dtype: DType = int64
) -> np.ndarray:
    side, kind = "right" if right else "left", DType.of(dtype).numpy
    if sorted_sequence.ndim == 1:
        return np.asarray(np.searchsorted(sorted_sequence, values, side)).astype(kind)
    result = np.zeros(values.shape, kind)
    for batch in np.ndindex(values.shape[:-1]):
        result[batch] = np.searchsorted(sorted_sequence[batch], values[batch], side)
    return result


_LINE = np.array([-1.0, 0.5, 0.5, 2.0, np.nan], np.float32)
_SOUGHT = np.array([[0.5, -3.0, 2.0], [np.nan, 9.0, 0.4]], np.float32)
searchsorted.no_gradient("positions are integers")
searchsorted.spec(
    _searchsorted_reference, op_case(_LINE, _SOUGHT),
    op_case(_LINE, _SOUGHT, right=True, dtype="int32"),
    op_case(np.array([[1, 3, 5], [2, 2, 2]]), np.array([[3, 9], [2, 1]])),
    op_case(_LINE, np.float32(0.5)), op_case((0,), (3,)), op_case(_LINE, (0,)),
    op_case(np.arange(0, 26, 2), np.arange(-1, 34).reshape(5, 7)),
    op_case(np.arange(11, dtype=np.float32), np.arange(19, dtype=np.float32) - 3, right=True),
)


def _strided_set_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(5)
    if types is None:
        return False
    x, values = types[:2]
    ctx.expect_same_dtype(1, values, x.dtype)
    ctx.expect_rank(1, values, x.ndim)
    for arg in (2, 3, 4):
        ctx.expect_int(arg, types[arg])
        ctx.expect_rank(arg, types[arg], 1)
        ctx.expect_dim(arg, 0, types[arg].shape[0], x.ndim, "expected one bound per axis")
    for axis, (size, limit) in enumerate(zip(values.shape, x.shape, strict=True)):
        if not may_be_at_least(limit, size):
            ctx.fail("more values than elements to replace", arg=1, axis=axis,
                     expected=f"{limit} or less", got=size)
    ctx.output(x)
    return True


@define_op("strided_set", relation=_strided_set_relation, pattern=OpPattern.INJECTIVE, level=4,
           inputs=("x", "values", "begin", "end", "strides"), traits=linear())
def strided_set(
    x: te.Tensor, values: te.Tensor, begin: te.Tensor, end: te.Tensor, strides: te.Tensor,
    _attrs: Attrs,
) -> te.Tensor:
    """``x`` with ``values`` written to ``x[begin:end:strides]``; surplus values are ignored."""
    return topi.strided_set(x, values, begin, end, strides)


def _strided_set_reference(
    x: np.ndarray, values: np.ndarray, begin: np.ndarray, end: np.ndarray, strides: np.ndarray
) -> np.ndarray:
    result = x.copy()
    positions = [list(range(*slice(*map(int, cut)).indices(size)))[:count] for *cut, size, count in
              zip(begin, end, strides, x.shape, values.shape, strict=True)]
    cut = tuple(slice(len(p)) for p in positions)
    result[np.ix_(*positions)] = values[cut]
    return result


strided_set.spec(
    _strided_set_reference,
    op_case((4, 5), (2, 2), np.array([1, 0]), np.array([3, 4]), np.array([1, 2])),
    op_case((6,), (3,), np.array([-1], np.int32), np.array([-9], np.int32),
            np.array([-2], np.int32)),
    op_case((4,), (2,), np.array([3]), np.array([99]), np.array([1])),
    op_case((3, 2), (0, 2), np.array([1, 0]), np.array([1, 2]), np.array([1, 1])),
)


strided_set.gradient(write_gradient(1))


@adv_index.batching
def _adv_index_each(
    call: Call, args: Sequence[Expr], _is_batched: Sequence[bool], size: Dim
) -> Expr:
    """One more index in front: the number of the example."""
    whole, example = args[0], call.args[0]
    type_ = example.checked_type
    count = len(type_.fields) if isinstance(type_, TupleType) else 0
    parts = [field_of(example, i) for i in range(count)]
    rank = max(tensor_type(p).ndim for p in parts[1:])
    numbers = batch_numbers(size, rank + 1, "int64")
    found = [aligned(field_of(whole, i), parts[i], rank) for i in range(1, count)]
    return with_attrs(call, (Tuple((field_of(whole, 0), numbers, *found)),))


@searchsorted.batching
def _searchsorted_each(
    call: Call, args: Sequence[Expr], is_batched: Sequence[bool], size: Dim
) -> Expr | None:
    sequence, values = call.args
    if not is_batched[0] and tensor_type(sequence).ndim == 1:
        return with_attrs(call, args)
    return leading(call, args, is_batched, size) \
        if tensor_type(sequence).ndim == tensor_type(values).ndim else None
