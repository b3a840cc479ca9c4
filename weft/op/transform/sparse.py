"""Sparse tensors in coordinate format (one row of indices per value):
sparse_to_dense, sparse_fill_empty_rows, sparse_reshape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft import op, te
from weft.ir import ANY, Attrs, Bounds, KnownDim, attr, bool_, dim_add, int64, linear, sizes_from
from weft.ir.expr import Call, Constant, Expr, TupleGetItem
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.types import TensorType, TupleType, Type
from weft.ir.typing.relation import RelationContext
from weft.op.gradients import known_shape, numbered, tensor_type, typed_zeros
from weft.op.relations import (
    tensor_of,
)
from weft.support.dataclass import dataclass
from weft.topi import sparse as topi
from weft.topi.sizes import as_sizes


@dataclass(frozen=True, kw_only=True)
class SparseToDenseAttrs(Attrs):
    output_shape: tuple[KnownDim, ...] = attr(doc="sizes of the dense tensor",
                                              expected="sizes >= 0", check=sizes_from(0))


def _expect_rows(ctx: RelationContext, arg: int, indices: TensorType, rank: int) -> None:
    """Check that ``indices`` has one row per value and one column per axis of the tensor."""
    ctx.expect_int(arg, indices)
    ctx.expect_rank(arg, indices, 2)
    ctx.expect_dim(arg, 1, indices.shape[1], rank, "expected one index per axis")


def _sparse_to_dense_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    indices, values, default = types
    shape = ctx.attrs_as(SparseToDenseAttrs).output_shape
    _expect_rows(ctx, 0, indices, len(shape))
    ctx.expect_rank(1, values, 1)
    ctx.expect_dim(1, 0, values.shape[0], indices.shape[0], "expected one value per index row")
    ctx.expect_rank(2, default, 0)
    ctx.expect_same_dtype(2, default, values.dtype)
    ctx.output(TensorType(shape, values.dtype))
    return True


@define_op("sparse_to_dense", attrs=SparseToDenseAttrs, relation=_sparse_to_dense_relation, level=3,
           traits=linear())
def sparse_to_dense(
    indices: te.Tensor, values: te.Tensor, default: te.Tensor, attrs: SparseToDenseAttrs
) -> te.Tensor:
    """A tensor of ``default`` with the values at their indices; the last of equal indices wins.

    Indices out of range are ignored.
    """
    return topi.sparse_to_dense(indices, values, default, as_sizes(attrs.output_shape))


def _sparse_to_dense_reference(
    indices: np.ndarray, values: np.ndarray, default: np.ndarray, output_shape: Sequence[int]
) -> np.ndarray:
    result = np.full(output_shape, default, values.dtype)
    for row, value in zip(indices.tolist(), values, strict=True):
        if all(0 <= i < size for i, size in zip(row, output_shape, strict=True)):
            result[tuple(row)] = value
    return result


_ROWS = np.array([[0, 1], [2, 3], [2, 3], [5, 0]])
sparse_to_dense.spec(
    _sparse_to_dense_reference, op_case(_ROWS, (4,), (), output_shape=(3, 4)),
    op_case(np.array([[1], [4]], np.int32), (2,), (), output_shape=(5,), dtypes="int32", high=9),
    op_case(np.zeros((0, 2), np.int64), (0,), (), output_shape=(2, 0)),
)


@sparse_to_dense.gradient
def _sparse_to_dense_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each value gets the gradient where it was written, the default that of all other elements."""
    indices, values, default = call.args
    shape, (count,) = known_shape(call, call), known_shape(values, call)
    # Numbers from 1, because 0 stands for the default value.
    numbers = numbered((count,), start=1)
    owner = op.sparse_to_dense(indices, numbers, Constant(np.asarray(0)), output_shape=shape)
    flat = op.reshape(owner, newshape=(-1,))
    shares = op.scatter_elements(op.zeros(shape=(count + 1,), dtype=tensor_type(values).dtype),
                                 flat, op.reshape(dy, newshape=(-1,)), reduction="add")
    rest = op.squeeze(op.strided_slice(shares, begin=(0,), end=(1,)), axis=0)
    return [typed_zeros(indices), op.strided_slice(shares, begin=(1,), end=(count + 1,)),
            op.cast(rest, dtype=tensor_type(default).dtype)]


def _fill_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(4)
    if types is None:
        return False
    indices, values, shape, default = types
    ctx.expect_int(2, shape)
    ctx.expect_rank(2, shape, 1)
    rank = shape.shape[0]
    if rank == 0:
        ctx.fail("the dense tensor must not be a scalar", arg=2, expected="one size or more",
                 got=shape)
    _expect_rows(ctx, 0, indices, rank if isinstance(rank, int) else 0)
    ctx.expect_rank(1, values, 1)
    ctx.expect_dim(1, 0, values.shape[0], indices.shape[0], "expected one value per index row")
    ctx.expect_rank(3, default, 0)
    ctx.expect_same_dtype(3, default, values.dtype)
    rows = ctx.attrs_as(FillEmptyRowsAttrs).num_rows
    ctx.output(TupleType((TensorType((ANY, rank), int64), TensorType((ANY,), values.dtype),
                          TensorType((rows,), bool_))))
    return True


@dataclass(frozen=True, kw_only=True)
class FillEmptyRowsAttrs(Attrs):
    num_rows: int = attr(doc="number of rows: the first size of the dense shape",
                         check=lambda n: n >= 0, expected="0 or more")


@define_op("sparse_fill_empty_rows", attrs=FillEmptyRowsAttrs, relation=_fill_relation,
           pattern=OpPattern.OPAQUE, level=3,
           inputs=("indices", "values", "dense_shape", "default"), traits=linear(), results=3)
def sparse_fill_empty_rows(
    indices: te.Tensor, values: te.Tensor, _dense_shape: te.Tensor, default: te.Tensor,
    attrs: FillEmptyRowsAttrs,
) -> tuple[te.Tensor, ...]:
    """Indices and values with ``default`` added in column 0 of empty rows; which rows were empty.

    The result is sorted by rows, and within a row in the order of the argument. Indices out of
    range are ignored.
    """
    return topi.fill_empty_rows(indices, values, default, attrs.num_rows)


@sparse_fill_empty_rows.bounds
def _fill_bounds(attrs: FillEmptyRowsAttrs, types: Sequence[Type]) -> Bounds:
    indices, values = tensor_of(types[0]), tensor_of(types[1])
    most = dim_add(indices.shape[0], attrs.num_rows)
    return Bounds((TensorType((most, indices.shape[1]), int64), TensorType((most,), values.dtype),
                   TensorType((attrs.num_rows,), bool_)), ((0, 0, 0), (1, 0, 0)))


@sparse_fill_empty_rows.gradient
def _fill_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each value has the gradients of its places, the default those of the added ones."""
    indices, values, shape, default = call.args
    (count,) = known_shape(values, call)
    # Numbers from 1, because 0 stands for the default value.
    filled = sparse_fill_empty_rows(indices, numbered((count,), start=1), shape,
                                    Constant(np.asarray(0)), **dict(call.attrs.items()))
    shares = op.scatter_elements(op.zeros(shape=(count + 1,), dtype=tensor_type(values).dtype),
                                 TupleGetItem(filled, 1), TupleGetItem(dy, 1), reduction="add")
    rest = op.squeeze(op.strided_slice(shares, begin=(0,), end=(1,)), axis=0)
    return [typed_zeros(indices), op.strided_slice(shares, begin=(1,), end=(count + 1,)),
            typed_zeros(shape), op.cast(rest, dtype=tensor_type(default).dtype)]


def _fill_reference(
    indices: np.ndarray, values: np.ndarray, dense_shape: np.ndarray, default: np.ndarray,
    num_rows: int,
) -> tuple[np.ndarray, ...]:
    rows, numbers = [], []
    for row in range(num_rows):
        here = np.flatnonzero(indices[:, 0] == row)
        rows += [indices[n] for n in here] or [np.array([row] + [0] * (len(dense_shape) - 1))]
        numbers += [values[n] for n in here] or [default]
    empty = ~np.isin(np.arange(num_rows), indices[:, 0])
    return (np.array(rows, np.int64).reshape(len(rows), len(dense_shape)),
            np.array(numbers, values.dtype), empty)


_SPARSE = np.array([[3, 1], [0, 2], [3, 0], [7, 0]])
sparse_fill_empty_rows.spec(
    _fill_reference, op_case(_SPARSE, (4,), np.array([5, 4]), (), num_rows=5),
    op_case(np.zeros((0, 2), np.int64), (0,), np.array([2, 2]), (), num_rows=2),
    op_case(np.array([[0]], np.int32), (1,), np.array([1]), (), num_rows=1),
)


def _sparse_reshape_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    indices, before, after = types
    for arg, shape in ((1, before), (2, after)):
        ctx.expect_int(arg, shape)
        ctx.expect_rank(arg, shape, 1)
    rank = before.shape[0]
    _expect_rows(ctx, 0, indices, rank if isinstance(rank, int) else 0)
    ctx.output(TupleType((TensorType((indices.shape[0], after.shape[0]), indices.dtype),
                          TensorType(after.shape, after.dtype))))
    return True


@define_op("sparse_reshape", relation=_sparse_reshape_relation, pattern=OpPattern.OPAQUE, level=3,
           inputs=("indices", "old_shape", "new_shape"), results=2)
def sparse_reshape(
    indices: te.Tensor, old_shape: te.Tensor, new_shape: te.Tensor, _attrs: Attrs
) -> tuple[te.Tensor, ...]:
    """The indices of the same elements in another shape, in which one size may be -1; and that
    shape with the size filled in.
    """
    return topi.sparse_reshape(indices, old_shape, new_shape)


def _sparse_reshape_reference(
    indices: np.ndarray, old_shape: np.ndarray, new_shape: np.ndarray
) -> tuple[np.ndarray, ...]:
    known = math.prod(s for s in new_shape.tolist() if s != -1)
    total = math.prod(old_shape.tolist())
    shape = [total // max(known, 1) if s == -1 else s for s in new_shape.tolist()]
    flat = [sum(i * math.prod(old_shape.tolist()[a + 1:]) for a, i in enumerate(row))
            for row in indices.tolist()]
    rows = [[f // max(math.prod(shape[a + 1:]), 1) % max(size, 1) for a, size in enumerate(shape)]
            for f in flat]
    return (np.array(rows, indices.dtype).reshape(len(flat), len(shape)),
            np.array(shape, new_shape.dtype))


sparse_reshape.spec(
    _sparse_reshape_reference,
    op_case(np.array([[0, 0, 1], [1, 2, 3]]), np.array([2, 3, 4]), np.array([6, 4])),
    op_case(np.array([[0, 3], [2, 1]], np.int32), np.array([3, 4], np.int32),
            np.array([2, -1, 3], np.int32)),
    op_case(np.zeros((0, 1), np.int64), np.array([4]), np.array([2, 2])),
)
