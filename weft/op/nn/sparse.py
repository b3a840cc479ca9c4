"""Sparse GEMM, addition and transposition: sparse_dense, sparse_add, sparse_transpose."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import op, te
from weft.ir import Attrs, OpPattern, RelationContext, attr, define_op, infer_expr, int64, op_case
from weft.ir.expr import Call, Expr, Tuple, TupleGetItem, const
from weft.ir.shape import Dim, KnownDim, dim_add, dim_floordiv, dim_mul
from weft.ir.traits import linear, multilinear
from weft.ir.types import TensorType, TupleType
from weft.op.gradients import (
    attrs_of,
    known_dim,
    known_shape,
    numbered,
    tensor_type,
    typed_zeros,
)
from weft.support.dataclass import dataclass
from weft.topi.nn import sparse as topi


@dataclass(frozen=True, kw_only=True)
class SparseDenseAttrs(Attrs):
    sparse_lhs: bool = attr(False, "the sparse matrix is the left operand, not the right one")


def expect_rows(
    ctx: RelationContext, first: int, data: TensorType, indices: TensorType, indptr: TensorType
) -> None:
    """Check that the arguments from ``first`` on form a sparse matrix (CSR or BSR)."""
    ctx.expect_float(first, data)
    for arg, type_ in ((first + 1, indices), (first + 2, indptr)):
        ctx.expect_rank(arg, type_, 1)
        ctx.expect_int(arg, type_)
    ctx.expect_dim(first + 1, 0, indices.shape[0], data.shape[0],
                   "expected one column per entry")
    if indptr.shape[0] == 0:
        ctx.fail("the row pointers are empty", arg=first + 2, axis=0,
                 expected="one more than the number of rows", got=0)


def _sparse_dense_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(4)
    if types is None:
        return False
    dense, data, indices, indptr = types
    ctx.expect_rank(0, dense, 2)
    ctx.expect_float(0, dense)
    ctx.expect_rank(1, data, 1, 3)
    ctx.expect_same_dtype(1, data, dense.dtype)
    expect_rows(ctx, 1, data, indices, indptr)
    rows = dim_add(indptr.shape[0], -1)
    if data.ndim == 3:
        depth, columns = dense.shape[1], data.shape[2]
        rows = dim_mul(rows, data.shape[1])
        if columns == 0 or (isinstance(depth, int) and isinstance(columns, int)
                            and depth % columns):
            ctx.fail("the dense matrix is not divisible into blocks", arg=0, axis=1,
                     expected=f"a size divisible by {columns}", got=depth)
    shape = (dense.shape[0], rows)
    is_left = ctx.attrs_as(SparseDenseAttrs).sparse_lhs
    ctx.output(TensorType(shape[::-1] if is_left else shape, dense.dtype))
    return True


@define_op("nn.sparse_dense", attrs=SparseDenseAttrs, relation=_sparse_dense_relation,
           pattern=OpPattern.OPAQUE, level=1, traits=multilinear())
def sparse_dense(
    dense_data: te.Tensor, sparse_data: te.Tensor, sparse_indices: te.Tensor,
    sparse_indptr: te.Tensor, attrs: SparseDenseAttrs,
) -> te.Tensor:
    """``dense`` (M, K) times the transpose of a sparse matrix (N, K) in CSR or BSR format.

    With ``sparse_lhs``, the sparse matrix times the transpose of ``dense``.
    """
    return topi.sparse_dense(dense_data, sparse_data, sparse_indices, sparse_indptr,
                             is_left=attrs.sparse_lhs)


def dense_of(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray, columns: int
) -> np.ndarray:
    """The sparse matrix in dense form, in float64."""
    block = data.shape[1:] if data.ndim == 3 else (1, 1)
    blocks = data.reshape(len(data), *block).astype(np.float64)
    result = np.zeros((len(indptr) - 1, columns // block[1], *block))
    for row in range(len(indptr) - 1):
        for p in range(indptr[row], indptr[row + 1]):
            result[row, indices[p]] += blocks[p]
    return result.transpose(0, 2, 1, 3).reshape((len(indptr) - 1) * block[0], columns)


def _sparse_dense_reference(
    dense: np.ndarray, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray,
    sparse_lhs: bool = False,
) -> np.ndarray:
    matrix = dense_of(data, indices, indptr, dense.shape[1])
    product = dense.astype(np.float64) @ matrix.T
    return np.ascontiguousarray(product.T if sparse_lhs else product).astype(dense.dtype)


def rows_of_entries(indptr: Expr, count: KnownDim) -> Expr:
    """The row (int64) of each of ``count`` entries."""
    ends = infer_expr(op.cast(indptr, dtype="int64"), trust=True)
    return op.subtract(op.searchsorted(ends, numbered((count,)), right=True, dtype="int64"),
                       const(1, int64))


@sparse_dense.gradient
def _sparse_dense_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each block meets the columns of ``dense`` and the rows of the result that it connects."""
    dense, data, indices, indptr = call.args
    type_, (height, depth) = tensor_type(data), known_shape(dense, call)
    (count, *block) = known_shape(data, call)
    tall, broad = block or (1, 1)
    results = dim_mul(known_dim(dim_add(tensor_type(indptr).shape[0], -1), call), tall)
    if 0 in (count, height):
        return [typed_zeros(a) for a in call.args]
    arriving = op.transpose(dy) if attrs_of(call, SparseDenseAttrs).sparse_lhs else dy
    columns = op.cast(indices, dtype="int64")
    grads = _blocks(arriving, height, results, tall, rows_of_entries(indptr, count))
    values = _blocks(dense, height, depth, broad, columns)
    blocks = op.reshape(data, newshape=(count, tall, broad), allowzero=True)
    d_data = op.einsum(Tuple((grads, values)), equation="mpi,mpj->pij")
    shares = op.einsum(Tuple((grads, blocks)), equation="mpi,pij->pmj")
    clear = op.zeros(shape=(dim_floordiv(depth, broad), height, broad), dtype=type_.dtype)
    added = op.scatter_nd(clear, op.expand_dims(columns, axis=0), shares, mode="add")
    d_dense = op.reshape(op.transpose(added, axes=(1, 0, 2)), newshape=(height, depth),
                         allowzero=True)
    return [d_dense, op.reshape(d_data, newshape=(count, *block), allowzero=True),
            typed_zeros(indices), typed_zeros(indptr)]


def _blocks(x: Expr, rows: KnownDim, columns: Dim, width: KnownDim, which: Expr) -> Expr:
    """The blocks of columns of a matrix that ``which`` names: (rows, blocks, width)."""
    split = op.reshape(x, newshape=(rows, dim_floordiv(columns, width), width), allowzero=True)
    return op.take(split, which, axis=1)


_COLUMNS = np.array([0, 3, 1, 1, 4, 0], np.int32)
_ENDS = np.array([0, 2, 2, 5, 6], np.int32)
_BLOCK_COLUMNS, _BLOCK_ENDS = np.array([1, 0, 2], np.int32), np.array([0, 1, 3], np.int32)
sparse_dense.spec(
    _sparse_dense_reference,
    op_case((3, 5), (6,), _COLUMNS, _ENDS),
    op_case((3, 5), (6,), _COLUMNS, _ENDS, sparse_lhs=True),
    op_case((2, 6), (3, 4, 2), _BLOCK_COLUMNS, _BLOCK_ENDS),
    op_case((2, 9), (3, 1, 3), _BLOCK_COLUMNS, _BLOCK_ENDS, sparse_lhs=True),
)


def _add_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(4)
    if types is None:
        return False
    dense, data, indices, indptr = types
    ctx.expect_rank(0, dense, 2)
    ctx.expect_float(0, dense)
    ctx.expect_rank(1, data, 1)
    ctx.expect_same_dtype(1, data, dense.dtype)
    expect_rows(ctx, 1, data, indices, indptr)
    ctx.expect_dim(3, 0, indptr.shape[0], dim_add(dense.shape[0], 1),
                   "the matrices differ in rows")
    ctx.output(dense)
    return True


@define_op("nn.sparse_add", relation=_add_relation, pattern=OpPattern.OPAQUE, level=1,
           inputs=("dense_data", "sparse_data", "sparse_indices", "sparse_indptr"), traits=linear())
def sparse_add(
    dense_data: te.Tensor, sparse_data: te.Tensor, sparse_indices: te.Tensor,
    sparse_indptr: te.Tensor, _attrs: Attrs,
) -> te.Tensor:
    """``dense`` plus a sparse matrix of the same shape, in CSR format."""
    return topi.sparse_add(dense_data, sparse_data, sparse_indices, sparse_indptr)


@sparse_add.gradient
def _add_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """Each entry has the gradient of its element."""
    _, data, indices, indptr = call.args
    (count,) = known_shape(data, call)
    if count == 0:
        return [dy, *map(typed_zeros, call.args[1:])]
    rows, columns = rows_of_entries(indptr, count), op.cast(indices, dtype="int64")
    places = op.stack(Tuple((rows, columns)), axis=0)
    return [dy, op.gather_nd(dy, places), typed_zeros(indices), typed_zeros(indptr)]


def _add_reference(
    dense: np.ndarray, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray
) -> np.ndarray:
    return (dense + dense_of(data, indices, indptr, dense.shape[1])).astype(dense.dtype)


sparse_add.spec(_add_reference, op_case((4, 5), (6,), _COLUMNS, _ENDS))


def _transpose_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    data, indices, indptr = types
    ctx.expect_rank(0, data, 1)
    expect_rows(ctx, 0, data, indices, indptr)
    ctx.output(TupleType((data, indices, indptr)))
    return True


@define_op("nn.sparse_transpose", relation=_transpose_relation, pattern=OpPattern.OPAQUE, level=1,
           inputs=("sparse_data", "sparse_indices", "sparse_indptr"), traits=linear(), results=3)
def sparse_transpose(
    sparse_data: te.Tensor, sparse_indices: te.Tensor, sparse_indptr: te.Tensor, _attrs: Attrs
) -> tuple[te.Tensor, ...]:
    """The transpose of a square CSR matrix, with sorted columns."""
    return topi.sparse_transpose(sparse_data, sparse_indices, sparse_indptr)


@sparse_transpose.gradient
def _transpose_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    """The entries are sorted by column; their gradients return to the places they came from."""
    data, indices, indptr = call.args
    order = op.argsort(indices, dtype="int64")
    back = op.gather(TupleGetItem(dy, 0), op.argsort(order, dtype="int64"), axis=0)
    return [back if tensor_type(data).shape[0] != 0 else typed_zeros(data),
            typed_zeros(indices), typed_zeros(indptr)]


def _transpose_reference(
    data: np.ndarray, indices: np.ndarray, indptr: np.ndarray
) -> tuple[np.ndarray, ...]:
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    order = np.argsort(indices, kind="stable")
    counts = np.bincount(indices, minlength=len(indptr) - 1)
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(indptr.dtype)
    return data[order], rows[order].astype(indices.dtype), ends


_SQUARE: Any = (np.array([0, 3, 1, 1, 2, 0], np.int32), _ENDS)
sparse_transpose.spec(_transpose_reference, op_case((6,), *_SQUARE))
