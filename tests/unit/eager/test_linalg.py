"""``weft.linalg`` equals torch's, with gradients, on seeded samples."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(5)


def matrix(*shape: int) -> np.ndarray:
    """Matrices whose singular values are well apart."""
    found = RNG.standard_normal(shape) * 0.3
    size = min(shape[-2:])
    found[..., range(size), range(size)] += np.arange(1, size + 1)
    return found


def symmetric(*shape: int) -> np.ndarray:
    x = matrix(*shape)
    return x + np.swapaxes(x, -1, -2)


def definite(*shape: int) -> np.ndarray:
    x = matrix(*shape)
    return x @ np.swapaxes(x, -1, -2) + np.eye(shape[-1])


def triangle(*shape: int) -> np.ndarray:
    return np.tril(matrix(*shape))


A, B, C = matrix(2, 4, 4), RNG.standard_normal((2, 4, 3)), RNG.standard_normal((4, 3))
WIDE, TALL = matrix(3, 5), matrix(2, 5, 3)
# name, operands, keywords
CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("norm", (A,), {}), ("norm", (C,), {"ord": 1}), ("norm", (C, 3, 0), {"keepdim": True}),
    ("norm", (A, "nuc"), {"dim": (0, 2)}), ("norm", (TALL, -2), {"dim": (1, 2)}),
    ("vector_norm", (B,), {"ord": 0.5, "dim": (0, 2)}), ("vector_norm", (B, -math.inf), {}),
    ("vector_norm", (np.float64(-3.0),), {}), ("vector_norm", (C, 0, 1), {}),
    ("matrix_norm", (A,), {"ord": -math.inf, "keepdim": True}), ("matrix_norm", (TALL, 2), {}),
    ("matrix_norm", (A, -1), {"dim": (1, 0)}),
    ("cond", (A,), {}), ("cond", (A, -2), {}),
    ("det", (A,), {}), ("det", (np.zeros((0, 0)),), {}), ("slogdet", (-A,), {}),
    ("inv", (A,), {}), ("inv_ex", (A,), {}), ("solve", (A, B), {}), ("solve", (A, C), {}),
    ("solve", (A, B[:, :, 0]), {}), ("solve", (A, np.swapaxes(B, 1, 2)), {"left": False}),
    ("solve", (A[0], C[:, 0]), {}), ("solve_ex", (A, B), {}),
    ("solve_triangular", (triangle(4, 4), B), {"upper": False}),
    ("solve_triangular", (np.swapaxes(triangle(2, 4, 4), 1, 2), np.swapaxes(B, 1, 2)),
     {"upper": True, "left": False, "unitriangular": True}),
    ("tensorsolve", (matrix(6, 6).reshape(2, 3, 6), C[:2, :3]), {}),
    ("tensorsolve", (matrix(6, 6).reshape(2, 3, 6).transpose(0, 2, 1), C[:2, :3]), {"dims": (1,)}),
    ("tensorinv", (matrix(6, 6).reshape(2, 3, 6),), {}),
    ("cholesky", (definite(2, 4, 4),), {}), ("cholesky", (definite(3, 3),), {"upper": True}),
    ("cholesky_ex", (definite(2, 3, 3) - 4 * np.eye(3),), {}),
    ("qr", (TALL,), {}), ("qr", (WIDE,), {}),
    ("lu", (TALL,), {}), ("lu", (WIDE,), {}), ("lu_factor", (A,), {}),
    ("householder_product", (TALL, RNG.uniform(0, 1, (2, 2))), {}),
    ("matrix_exp", (A * 0.3,), {}), ("matrix_power", (A, 3), {}), ("matrix_power", (A, -2), {}),
    ("matrix_power", (A, 0), {}), ("multi_dot", ([C.T, A[0], C, C[0]],), {}),
    ("cross", (B, B[:1] * 2 + 1), {}), ("cross", (C.T, C.T[:, :1]), {"dim": 0}),
    ("vecdot", (B, C), {"dim": 1}), ("diagonal", (B,), {"offset": -1}),
    ("vander", (C,), {"N": 3}), ("vander", (np.float64(3.0),), {"N": 3}),
    ("eigvalsh", (symmetric(2, 4, 4),), {}), ("eigvalsh", (matrix(3, 3),), {"UPLO": "U"}),
    ("svdvals", (TALL,), {}), ("svdvals", (WIDE,), {}),
    ("pinv", (TALL,), {}), ("pinv", (WIDE,), {}), ("pinv", (A,), {"rtol": 1e-3}),
    ("pinv", (symmetric(4, 4) * 1.0,), {"hermitian": True}),
    ("matrix_rank", (np.ones((3, 2)),), {}), ("matrix_rank", (A,), {"atol": 2.0}),
    ("matrix_rank", (definite(2, 4, 4),), {"hermitian": True, "rtol": 0.3}),
    ("lstsq", (TALL, RNG.standard_normal((2, 5, 2))), {}),
    ("lstsq", (WIDE, RNG.standard_normal((3, 2))), {"driver": "gelsd"}),
    ("lstsq", (np.ones((4, 2)), C), {}),
]


# Torch computes no gradients of these.
VALUES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("cond", (A, 1), {}), ("cond", (A, "fro"), {}), ("cond", (np.zeros((2, 2)), math.inf), {}),
    ("qr", (A[0],), {"mode": "r"}), ("pinv", (A,), {"rtol": 0.5}),
    ("vander", (np.int64([1, 2, 3]),), {}),
]


def as_torch(value: Any) -> Any:
    if isinstance(value, list):
        return [as_torch(v) for v in value]
    return torch.tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def as_weft(value: Any) -> Any:
    if isinstance(value, list):
        return [as_weft(v) for v in value]
    return weft.tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def floats(values: list[Any]) -> list[Any]:
    """The tensors of floats among operands, which then require gradients."""
    flat = [w for v in values for w in (v if isinstance(v, list) else [v])]
    return [v.requires_grad_() for v in flat
            if hasattr(v, "requires_grad_") and v.dtype.is_floating_point]


def compare(mine: Callable[..., Any], theirs: Callable[..., Any], operands: tuple[Any, ...],
            *, gradients: bool = True) -> None:
    """Results, and the gradients of their sum with random weights, are close."""
    ours, other = [as_weft(v) for v in operands], [as_torch(v) for v in operands]
    leaves, twins = floats(ours), floats(other)
    got, want = (r if isinstance(r, tuple) else (r,) for r in (mine(*ours), theirs(*other)))
    total: Any = 0.0
    expected: Any = 0.0
    for x, y in zip(got, want, strict=True):
        assert x.dtype == str(y.dtype)
        np.testing.assert_allclose(x.detach().numpy(), y.detach().numpy(), 1e-8, 1e-8)
        if y.requires_grad and gradients:
            slopes = RNG.uniform(0.5, 1.5, tuple(y.shape)).astype(y.detach().numpy().dtype)
            total = total + (x * weft.tensor(slopes)).sum()
            expected = expected + (y * torch.tensor(slopes)).sum()
    if not isinstance(expected, torch.Tensor):
        return
    slopes = torch.autograd.grad(expected, twins, allow_unused=True)
    total.backward()
    for x, y in zip(leaves, slopes, strict=True):
        if y is not None:
            np.testing.assert_allclose(x.grad.numpy(), y.numpy(), 1e-6, 1e-6)


@pytest.mark.sample(0.15)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0])
def test_a_function_equals_torchs(case: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    name, operands, named = case
    compare(lambda *xs: getattr(weft.linalg, name)(*xs, **named),
            lambda *xs: getattr(torch.linalg, name)(*xs, **named), operands)


@pytest.mark.sample(0.15)
@pytest.mark.parametrize("case", VALUES, ids=lambda c: c[0])
def test_a_value_equals_torchs(case: tuple[str, tuple[Any, ...], dict[str, Any]]) -> None:
    name, operands, named = case
    compare(lambda *xs: getattr(weft.linalg, name)(*xs, **named),
            lambda *xs: getattr(torch.linalg, name)(*xs, **named), operands, gradients=False)


@pytest.mark.parametrize("shape", [(2, 4, 4), (5, 3), (3, 5)])
def test_singular_vectors_and_their_gradients(shape: tuple[int, ...]) -> None:
    # Squares do not depend on the signs of vectors.
    compare(lambda x: tuple(t * t for t in weft.linalg.svd(x, False)),
            lambda x: tuple(t * t for t in torch.linalg.svd(x, full_matrices=False)),
            (matrix(*shape),))


@pytest.mark.parametrize("triangle", ["L", "U"])
def test_eigenvectors_and_their_gradients(triangle: str) -> None:
    compare(lambda x: tuple(t * t for t in weft.linalg.eigh(x, triangle)),
            lambda x: tuple(t * t for t in torch.linalg.eigh(x, triangle)), (matrix(2, 4, 4),))


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (3, 0)])
def test_full_singular_vectors_are_bases(shape: tuple[int, int]) -> None:
    x = np.ones(shape)
    u, s, v = (t.numpy() for t in weft.linalg.svd(weft.tensor(x)))
    np.testing.assert_allclose(u.T @ u, np.eye(shape[0]), atol=1e-12)
    np.testing.assert_allclose(v @ v.T, np.eye(shape[1]), atol=1e-12)
    np.testing.assert_allclose((u[:, :len(s)] * s) @ v[:len(s)], x, atol=1e-12)


def test_factors_solve() -> None:
    packed, pivots = weft.linalg.lu_factor(weft.tensor(A))
    for left, adjoint in ((True, False), (True, True), (False, False), (False, True)):
        b = B if left else np.swapaxes(B, 1, 2)
        found = weft.linalg.lu_solve(packed, pivots, weft.tensor(b), left=left, adjoint=adjoint)
        whole = np.swapaxes(A, 1, 2) if adjoint else A
        product = whole @ found.numpy() if left else found.numpy() @ whole
        np.testing.assert_allclose(product, b, 1e-9, 1e-9)


def test_bfloat16_and_float32_factor_in_float64() -> None:
    x = weft.tensor(A.astype(np.float32))
    np.testing.assert_allclose(weft.linalg.inv(x).numpy(), np.linalg.inv(A), 1e-5, 1e-6)
    assert weft.linalg.det(x.to("bfloat16")).dtype == "bfloat16"


def test_results_have_names_and_out_is_written() -> None:
    found = weft.linalg.qr(weft.tensor(A))
    assert (found.Q.shape, found.R.shape) == ((2, 4, 4), (2, 4, 4))
    out = weft.zeros(2, 4, 4, dtype="float64")
    assert weft.linalg.inv(weft.tensor(A), out=out) is out
    np.testing.assert_allclose(out.numpy() @ A, np.broadcast_to(np.eye(4), A.shape), atol=1e-9)


SINGULAR = np.float32([[1, 2], [2, 4]])
ERRORS: list[tuple[Callable[[], Any], str]] = [
    (lambda: weft.linalg.inv(weft.tensor(SINGULAR)).numpy(), "inv: the matrix is singular"),
    (lambda: weft.linalg.solve(weft.tensor(SINGULAR), weft.ones(2)).numpy(), "is singular"),
    (lambda: weft.linalg.cholesky(weft.tensor(-SINGULAR)).numpy(), "not positive definite"),
    (lambda: weft.linalg.det(weft.ones(2, 3)), "expected square matrices"),
    (lambda: weft.linalg.det(weft.ones(2, 2, dtype="int64")), "not floating point"),
    (lambda: weft.linalg.svd(weft.ones(3)), "expected matrices"),
    (lambda: weft.linalg.lu(weft.ones(2, 2), pivot=False), "without pivots"),
    (lambda: weft.linalg.qr(weft.ones(2, 2), mode="full"), "unknown mode"),
    (lambda: weft.linalg.norm(weft.ones(2, 2, 2), 2), "a vector or a matrix"),
    (lambda: weft.linalg.matrix_norm(weft.ones(2, 2), 3), "unknown order"),
    (lambda: weft.linalg.solve(weft.ones(2, 2), weft.ones(3, 1)), "does not fit"),
    (lambda: weft.linalg.cross(weft.ones(2), weft.ones(2)), "three numbers"),
    (lambda: weft.linalg.eigh(weft.ones(2, 2), "X"), "unknown triangle"),
    (lambda: weft.linalg.lstsq(weft.ones(2, 2), weft.ones(2), driver="x"), "unknown driver"),
    (lambda: weft.linalg.inv(weft.ones(2, 2), kepdim=1), "kepdim"),
]


@pytest.mark.parametrize(("call", "message"), ERRORS, ids=[m for _, m in ERRORS])
def test_wrong_operands_are_refused(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(weft.WeftError, match=message):
        call()


def test_a_singular_matrix_is_an_arithmetic_error_of_the_line() -> None:
    found = weft.linalg.inv(weft.tensor(SINGULAR))
    with pytest.raises(weft.linalg.LinAlgError, match=r"test_linalg\.py"):
        found.numpy()
