"""Factors of matrices and what is solved with them."""

from __future__ import annotations

import pytest

from tests.unit.frontend.torch.check import check, normal, torch

pytestmark = pytest.mark.torch
linalg = torch.linalg


def test_lu_and_its_solutions():
    def all_of(a, b):
        packed, pivots = linalg.lu_factor_ex(a)[:2]
        return (*linalg.lu(a), packed, pivots, *torch.lu_unpack(packed, pivots), linalg.det(a),
                *linalg.slogdet(a), linalg.inv_ex(a)[0], linalg.solve_ex(a, b)[0],
                linalg.solve_ex(a, b[..., 0])[0], linalg.solve_ex(a, b.mT, left=False)[0],
                linalg.solve_ex(a[0], b)[0], linalg.lu_solve(packed, pivots, b),
                linalg.lu_solve(packed, pivots, b, adjoint=True),
                linalg.lu_solve(packed, pivots, b.mT, left=False),
                linalg.lu_solve(packed, pivots, b.mT, left=False, adjoint=True),
                linalg.inv_ex(a * 0)[1], linalg.det(a[0, :0, :0]))

    check(all_of, normal(2, 4, 4) + 3 * torch.eye(4), normal(2, 4, 3, seed=1), rtol=1e-4, atol=1e-5)


def test_triangles_and_cholesky():
    def all_of(a, b):
        results = []
        for upper in (False, True):
            for unit in (False, True):
                results.append(linalg.solve_triangular(a, b, upper=upper, unitriangular=unit))
                results.append(linalg.solve_triangular(a, b.mT, upper=upper, left=False,
                                                       unitriangular=unit))
        definite = a @ a.mT
        lower = linalg.cholesky_ex(definite)[0]
        return (*results, lower, linalg.cholesky_ex(definite, upper=True)[0],
                torch.cholesky_solve(b, lower), torch.cholesky_inverse(lower.mT, upper=True),
                linalg.cholesky_ex(-definite)[1], linalg.matrix_exp(a * 0.5))

    check(all_of, normal(2, 4, 4) + 3 * torch.eye(4), normal(2, 4, 3, seed=1), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(4, 4), (2, 5, 3), (3, 5)])
def test_orthogonal_factors(shape):
    def all_of(a):
        packed, scales = torch.geqrf(a)
        results = [*linalg.qr(a), *linalg.qr(a, "complete"), linalg.qr(a, "r")[1], packed, scales]
        if a.shape[-2] >= a.shape[-1]:
            results += [linalg.householder_product(packed, scales),
                        torch.ormqr(packed, scales, a),
                        torch.ormqr(packed, scales, a.mT, left=False, transpose=True)]
        return tuple(results)

    check(all_of, normal(*shape), rtol=1e-4, atol=1e-5)


def test_large_matrices():
    def all_of(a, b):
        definite = a @ a.mT / 200 + torch.eye(200)
        return (linalg.solve(a, b), linalg.inv(a), linalg.slogdet(a)[1], linalg.cholesky(definite),
                linalg.lu_factor(a)[1], linalg.eigvalsh(definite), linalg.svdvals(a),
                abs(linalg.qr(a)[1]), linalg.matrix_exp(a / 20))

    check(all_of, normal(200, 200) + 20 * torch.eye(200), normal(200, 3, seed=1), rtol=1e-4,
          atol=1e-5)
