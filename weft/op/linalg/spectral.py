"""Eigenvalues and eigenvectors of symmetric matrices, and the singular value decomposition."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import (
    Attrs,
    OpPattern,
    RelationContext,
    TensorType,
    TupleType,
    attr,
    define_op,
    op_case,
)
from weft.ir.traits import FACTORIZATION
from weft.op.batching import merging
from weft.op.cut_axes import leading_axes
from weft.op.linalg.factors import matrices
from weft.op.linalg.spectral_gradients import eigh_gradient, svd_gradient
from weft.support.dataclass import dataclass
from weft.topi import linalg as topi


def _eigh_relation(ctx: RelationContext) -> bool:
    source = matrices(ctx, 0)
    if source is None:
        return False
    ctx.expect_dim(0, 2, source.shape[2], source.shape[1], "the matrices are not square")
    ctx.output(TupleType((TensorType(source.shape[:2], source.dtype), source)))
    return True


@define_op("linalg.eigh", relation=_eigh_relation, pattern=OpPattern.OPAQUE, level=3,
           inputs=("x",), results=2, traits=FACTORIZATION)
def eigh(x: te.Tensor, _attrs: Attrs) -> tuple[te.Tensor, ...]:
    """The eigenvalues of symmetric matrices, ascending, and eigenvectors as columns.

    Only the lower triangle is read. The first element of largest magnitude of each vector is
    positive.
    """
    return topi.eigh(x)


def _signs(vectors: np.ndarray) -> np.ndarray:
    """(…, 1, columns): the signs of the elements that are made positive."""
    sizes = abs(vectors)
    at = np.argmax(sizes >= sizes.max(axis=-2, keepdims=True) * (1 - 1e-9), axis=-2)
    chosen = np.take_along_axis(vectors, at[..., None, :], axis=-2)
    return np.where(chosen < 0, -1.0, 1.0)


def _eigh_reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if not x.size:
        return np.zeros(x.shape[:2], x.dtype), x
    values, vectors = np.linalg.eigh(x.astype(np.float64))
    return values.astype(x.dtype), (vectors * _signs(vectors)).astype(x.dtype)


def _apart(rows: int, columns: int, count: int = 1) -> np.ndarray:
    """Matrices whose singular values, and those of their symmetric parts, are well apart."""
    rng = np.random.default_rng(rows * 10 + columns)
    found = rng.standard_normal((count, rows, columns)) * 0.3
    found[:, range(min(rows, columns)), range(min(rows, columns))] += np.arange(
        1, min(rows, columns) + 1)
    return found.astype(np.float32)


eigh.gradient(eigh_gradient)
eigh.spec(_eigh_reference, op_case(_apart(4, 4, 2)), op_case(_apart(1, 1)), op_case((0, 3, 3)))


@dataclass(frozen=True, kw_only=True)
class SvdAttrs(Attrs):
    full: bool = attr(False, "complete the left vectors to a basis: as many as rows")


def _svd_relation(ctx: RelationContext) -> bool:
    source = matrices(ctx, 0)
    if source is None:
        return False
    batch, rows, columns = source.shape
    if isinstance(rows, int) and isinstance(columns, int) and rows < columns:
        ctx.fail("more columns than rows", arg=0, expected="at most as many columns as rows",
                 got=source)
    count = rows if ctx.attrs_as(SvdAttrs).full else columns
    ctx.output(TupleType((TensorType((batch, rows, count), source.dtype),
                          TensorType((batch, columns), source.dtype),
                          TensorType((batch, columns, columns), source.dtype))))
    return True


@define_op("linalg.svd", attrs=SvdAttrs, relation=_svd_relation, pattern=OpPattern.OPAQUE, level=3,
           inputs=("x",), results=3, traits=FACTORIZATION)
def svd(x: te.Tensor, attrs: SvdAttrs) -> tuple[te.Tensor, ...]:
    """``x = U diag(S) V'``: U, the singular values S, descending, and V, vectors as columns.

    ``x`` has at least as many rows as columns. The first element of largest magnitude of each
    column of V is positive.
    """
    return topi.svd(x, full=attrs.full)


def _svd_reference(x: np.ndarray, full: bool = False) -> tuple[np.ndarray, ...]:
    columns = x.shape[2]
    if not x.size:
        basis = np.eye(x.shape[1], x.shape[1] if full else columns, dtype=x.dtype)
        return (np.stack([basis] * len(x)) if len(x) else np.zeros((0, *basis.shape), x.dtype),
                np.zeros((len(x), columns), x.dtype), np.zeros((len(x), columns, columns), x.dtype))
    left, values, right = np.linalg.svd(x.astype(np.float64), full_matrices=full)
    vectors = np.swapaxes(right, 1, 2)
    signs = _signs(vectors)
    left[..., :columns] *= signs
    return (left.astype(x.dtype), values.astype(x.dtype),
            np.ascontiguousarray(vectors * signs).astype(x.dtype))


svd.gradient(svd_gradient)
svd.spec(_svd_reference, op_case(_apart(4, 4, 2)), op_case(_apart(5, 3)), op_case(_apart(2, 1)),
         op_case((0, 3, 2)), op_case(_apart(3, 3), full=True),
         op_case((2, 3, 0), full=True))
eigh.batching(merging())
eigh.cut_axes(leading_axes)
svd.batching(merging())
svd.cut_axes(leading_axes)
