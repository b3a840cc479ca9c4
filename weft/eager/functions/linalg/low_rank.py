"""Truncated singular value decompositions by random projections (Halko, Martinsson, Tropp 2009)."""

from __future__ import annotations

from typing import Any

from weft.eager.functions.linalg.factors import qr
from weft.eager.functions.linalg.matrices import floats, matrices, transposed
from weft.eager.functions.linalg.older import OlderSvdResult
from weft.eager.functions.linalg.spectral import svd
from weft.eager.functions.linear import matmul
from weft.eager.functions.random import randn
from weft.eager.functions.reduction import mean
from weft.eager.signature import public
from weft.support.errors import InvalidInputError


@public
def svd_lowrank(A: Any, q: int | None = 6, niter: int | None = 2, M: Any = None) -> OlderSvdResult:
    """U, S and V of rank ``q`` with ``A - M`` near ``U diag(S) V'``.

    ``niter`` iterations over the subspace make the largest singular values more exact.
    """
    x = matrices(A, "svd_lowrank") if M is None else matrices(A, "svd_lowrank") - floats(M, "M")
    if x.shape[-2] < x.shape[-1]:
        right, values, left = _of_tall(transposed(x), q, niter)
        return OlderSvdResult(left, values, right)
    return OlderSvdResult(*_of_tall(x, q, niter))


def _of_tall(x: Any, q: int | None, niter: int | None) -> tuple[Any, Any, Any]:
    columns = x.shape[-1]
    count = min(6, columns) if q is None else int(q)
    if not 0 <= count <= columns:
        raise InvalidInputError("a rank exceeds the sizes of the matrix", got=count,
                                expected=f"at most {columns}")
    probe = randn(columns, count, dtype=x.dtype, device=x.device)
    basis = qr(matmul(x, probe))[0]
    for _ in range(2 if niter is None else niter):
        basis = qr(matmul(transposed(x), basis))[0]
        basis = qr(matmul(x, basis))[0]
    inner, values, right = svd(matmul(transposed(basis), x), False)
    return matmul(basis, inner), values, transposed(right)


@public
def pca_lowrank(A: Any, q: int | None = None, center: bool = True, niter: int = 2
                ) -> OlderSvdResult:
    """``svd_lowrank`` of the rows, the principal components; ``center`` subtracts their mean."""
    x = matrices(A, "pca_lowrank")
    rank = min(6, *x.shape[-2:]) if q is None else q
    return svd_lowrank(x - mean(x, -2, keepdim=True) if center else x, rank, niter)
