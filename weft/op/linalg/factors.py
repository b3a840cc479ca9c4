"""LU, Cholesky and QR factorizations of batches of matrices, in LAPACK's storage formats."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import Attrs, Dim, RelationContext, TensorType, TupleType, attr, dim_min, int32, int64
from weft.ir.op import OpPattern, define_op, op_case
from weft.ir.traits import FACTORIZATION
from weft.op.batching import merging
from weft.op.cut_axes import leading_axes
from weft.op.linalg.gradients import cholesky_gradient, expand_qr, expand_reflect, lu_gradient
from weft.support.dataclass import dataclass
from weft.topi import linalg as topi


def matrices(ctx: RelationContext, arg: int) -> TensorType | None:
    """The type of an argument that is a batch of floating-point matrices."""
    source = ctx.tensor(arg)
    if source is not None:
        ctx.expect_float(arg, source)
        ctx.expect_rank(arg, source, 3)
    return source


def _smaller(source: TensorType) -> Dim:
    """The minimum of rows and columns."""
    return dim_min(*source.shape[1:])


def _lu_relation(ctx: RelationContext) -> bool:
    source = matrices(ctx, 0)
    if source is None:
        return False
    batch, rows = source.shape[:2]
    ctx.output(TupleType((source, TensorType((batch, _smaller(source)), int32),
                          TensorType((batch, rows), int64), TensorType((batch,), int32))))
    return True


@define_op("linalg.lu", relation=_lu_relation, pattern=OpPattern.OPAQUE, level=3,
           inputs=("x",), results=4, traits=FACTORIZATION)
def lu(x: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
    """LU factors with partial pivoting: packed factors, pivots (from 1), row permutation, info.

    ``x[order] = L U``; ``info`` is the position (from 1) of the first zero on U's diagonal, or 0.
    """
    return topi.lu(x)


def _lu_reference(x: np.ndarray) -> tuple[np.ndarray, ...]:
    batch, rows, columns = x.shape
    packed = x.astype(np.float64)
    pivots = np.zeros((batch, min(rows, columns)), np.int32)
    order = np.tile(np.arange(rows), (batch, 1))
    info = np.zeros(batch, np.int32)
    for b, k in np.ndindex(*pivots.shape):
        a = packed[b]
        best = k + int(np.argmax(abs(a[k:, k])))
        pivots[b, k] = best + 1
        a[[k, best]], order[b, [k, best]] = a[[best, k]], order[b, [best, k]]
        if a[k, k] == 0:
            info[b] = info[b] or k + 1
            continue
        a[k + 1:, k] /= a[k, k]
        a[k + 1:, k + 1:] -= np.outer(a[k + 1:, k], a[k, k + 1:])
    return packed.astype(x.dtype), pivots, order, info


lu.gradient(lu_gradient)
_SINGULAR = np.array([[[1.0, 2.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 3.0]]], np.float32)
lu.spec(_lu_reference, op_case((2, 4, 4)), op_case((1, 5, 3)), op_case((2, 3, 5)),
        op_case(_SINGULAR),
        op_case((0, 3, 3)))


@dataclass(frozen=True, kw_only=True)
class PivotOrderAttrs(Attrs):
    rows: int = attr(1, "number of rows of the matrix", check=lambda n: n >= 0,
                     expected="0 or more")


def _pivot_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.expect_int(0, source)
    ctx.expect_rank(0, source, 2)
    ctx.output(TensorType((source.shape[0], ctx.attrs_as(PivotOrderAttrs).rows), int64))
    return True


@define_op("linalg.pivot_order", attrs=PivotOrderAttrs, relation=_pivot_relation,
           pattern=OpPattern.OPAQUE, level=3)
def pivot_order(pivots: te.Tensor, attrs: PivotOrderAttrs) -> te.Tensor:
    """The row permutation that the pivots of ``linalg.lu`` describe."""
    return topi.pivot_order(pivots, attrs.rows)


def _pivot_reference(pivots: np.ndarray, rows: int = 1) -> np.ndarray:
    order = np.tile(np.arange(rows), (len(pivots), 1))
    for b, k in np.ndindex(*pivots.shape):
        other = pivots[b, k] - 1
        order[b, [k, other]] = order[b, [other, k]]
    return order


pivot_order.spec(_pivot_reference,
                 op_case(np.array([[2, 3, 3], [3, 2, 3]], np.int32), rows=4),
                 op_case(np.array([[1], [2]], np.int32), rows=2))


def _cholesky_relation(ctx: RelationContext) -> bool:
    source = matrices(ctx, 0)
    if source is None:
        return False
    ctx.expect_dim(0, 2, source.shape[2], source.shape[1], "the matrices are not square")
    ctx.output(TupleType((source, TensorType(source.shape[:1], int32))))
    return True


@define_op("linalg.cholesky", relation=_cholesky_relation, pattern=OpPattern.OPAQUE, level=3,
           inputs=("x",), results=2, traits=FACTORIZATION)
def cholesky(x: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
    """The lower factor L of ``x = L L'``, computed from the lower triangle, and info.

    ``info`` is the order (from 1) of the first leading minor that is not positive, or 0.
    """
    return topi.cholesky(x)


def _cholesky_reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lower, info = np.tril(x.astype(np.float64)), np.zeros(len(x), np.int32)
    for b, a in enumerate(lower.copy()):
        full = a + np.tril(a, -1).T
        minors = [n for n in range(1, len(a) + 1) if not _is_definite(full[:n, :n])]
        count = minors[0] - 1 if minors else len(a)
        root = np.linalg.cholesky(full[:count, :count])
        lower[b, :count, :count] = root
        lower[b, count:, :count] = np.linalg.solve(root, a[count:, :count].T).T
        info[b] = minors[0] if minors else 0
    return lower.astype(x.dtype), info


def _is_definite(x: np.ndarray) -> bool:
    try:
        np.linalg.cholesky(x)
    except np.linalg.LinAlgError:
        return False
    return True


cholesky.gradient(cholesky_gradient)


def _definite(*shape: int) -> np.ndarray:
    roots = np.random.default_rng(0).standard_normal(shape)
    return (roots @ np.swapaxes(roots, 1, 2) + np.eye(shape[-1])).astype(np.float32)


cholesky.spec(_cholesky_reference, op_case(_definite(2, 4, 4)), op_case(_definite(1, 1, 1)),
              op_case((0, 3, 3)), op_case(_definite(1, 3, 3) - 3 * np.eye(3, dtype=np.float32)))


def _qr_relation(ctx: RelationContext) -> bool:
    source = matrices(ctx, 0)
    if source is None:
        return False
    scales = TensorType((source.shape[0], _smaller(source)), source.dtype)
    ctx.output(TupleType((source, scales)))
    return True


@define_op("linalg.qr", relation=_qr_relation, pattern=OpPattern.OPAQUE, level=3,
           inputs=("x",), results=2, traits=FACTORIZATION)
def qr(x: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
    """R on and above the diagonal, Householder vectors below it, and their scales."""
    return topi.qr(x)


def _qr_reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    found = [np.linalg.qr(a.astype(np.float64), mode="raw") for a in x]
    packed = [h.T.astype(x.dtype) for h, _ in found]
    scales = [t.astype(x.dtype) for _, t in found]
    count = min(x.shape[1:])
    return (np.array(packed, x.dtype).reshape(x.shape),
            np.array(scales, x.dtype).reshape(len(x), count))


qr.expansion(expand_qr)
qr.spec(_qr_reference, op_case((2, 4, 4)), op_case((1, 5, 3)), op_case((2, 3, 5)),
        op_case((0, 3, 3)))


@dataclass(frozen=True, kw_only=True)
class ReflectAttrs(Attrs):
    transpose: bool = attr(False, "multiply by the transpose of Q")


def _reflect_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(3)
    if types is None:
        return False
    packed, scales, c = types
    for arg in (0, 2):
        matrices(ctx, arg)
        ctx.expect_same_dtype(arg, types[arg], packed.dtype)
    ctx.expect_same_dtype(1, scales, packed.dtype)
    ctx.expect_rank(1, scales, 2)
    ctx.expect_dim(2, 1, c.shape[1], packed.shape[1], "the matrices differ in rows")
    ctx.output(c)
    return True


@define_op("linalg.reflect", attrs=ReflectAttrs, relation=_reflect_relation,
           pattern=OpPattern.OPAQUE, level=3, traits=FACTORIZATION)
def reflect(packed: te.Tensor, scales: te.Tensor, c: te.Tensor, attrs: ReflectAttrs) -> te.Tensor:
    """``Q c`` for the orthogonal factor Q that ``linalg.qr`` packs."""
    return topi.reflect(packed, scales, c, transpose=attrs.transpose)


def _reflect_reference(packed: np.ndarray, scales: np.ndarray, c: np.ndarray,
                       transpose: bool = False) -> np.ndarray:
    rows = packed.shape[1]
    out = np.empty_like(c)
    for b, columns in enumerate(packed.astype(np.float64)):
        q = np.eye(rows)
        for k in range(scales.shape[1]):
            v = np.concatenate([np.zeros(k), [1.0], columns[k + 1:, k]])
            q = q @ (np.eye(rows) - scales[b, k] * np.outer(v, v))
        out[b] = (q.T if transpose else q) @ c[b]
    return out


reflect.expansion(expand_reflect)
reflect.spec(_reflect_reference, op_case((2, 4, 3), (2, 3), (2, 4, 4)),
             op_case((1, 3, 3), (1, 3), (1, 3, 2), transpose=True))

lu.batching(merging())
lu.cut_axes(leading_axes)
pivot_order.batching(merging())
pivot_order.cut_axes(leading_axes)
cholesky.batching(merging())
cholesky.cut_axes(leading_axes)
qr.batching(merging())
qr.cut_axes(leading_axes)
reflect.batching(merging(0, 1, 2))
reflect.cut_axes(leading_axes)
