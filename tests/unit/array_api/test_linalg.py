"""The extensions linalg and fft, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft
from tests.unit.array_api.reference import check
from weft import array_api as xp
from weft.support.errors import InvalidInputError

RNG = np.random.default_rng(0)
MATRICES = RNG.normal(size=(2, 3, 3)) + 3 * np.eye(3)
TALL = RNG.normal(size=(2, 4, 3))
VECTORS = RNG.normal(size=(4, 3))
POSITIVE = MATRICES @ MATRICES.swapaxes(-2, -1)

CASES: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("cholesky", (POSITIVE,), {}), ("cholesky", (POSITIVE,), {"upper": True}),
    ("cross", (VECTORS, VECTORS[:1, ::-1]), {}),
    ("cross", (VECTORS.T, VECTORS[::-1].T), {"axis": 0}), ("det", (MATRICES,), {}),
    ("diagonal", (TALL,), {"offset": -1}),
    ("eigvalsh", (POSITIVE,), {}), ("inv", (MATRICES,), {}), ("matmul", (MATRICES, VECTORS[0]), {}),
    ("matrix_norm", (TALL,), {"ord": "nuc", "keepdims": True}), ("matrix_norm", (TALL,), {}),
    ("matrix_power", (MATRICES, -2), {}), ("matrix_rank", (TALL[..., [0, 1, 0]],), {}),
    ("matrix_transpose", (TALL,), {}), ("outer", (VECTORS[0], VECTORS[1]), {}),
    ("pinv", (TALL,), {"rtol": 1e-3}), ("slogdet", (MATRICES,), {}),
    ("solve", (MATRICES, VECTORS[0]), {}), ("solve", (MATRICES, VECTORS[:3]), {}),
    ("solve", (MATRICES, VECTORS[:2].T), {}), ("svdvals", (TALL,), {}),
    ("tensordot", (TALL, VECTORS), {"axes": ((1,), (0,))}),
    ("trace", (TALL.astype(np.uint8),), {"offset": 1}), ("vecdot", (VECTORS, VECTORS), {}),
    ("vector_norm", (TALL,), {"axis": (0, 2), "ord": 3}), ("vector_norm", (TALL,), {"axis": 1}),
    ("vector_norm", (TALL,), {"keepdims": True}),
]


@pytest.mark.sample(0.2)
@pytest.mark.parametrize(("name", "args", "options"), CASES,
                         ids=[f"{i}-{case[0]}" for i, case in enumerate(CASES)])
def test_linalg(name: str, args: Any, options: dict[str, Any]):
    found = getattr(xp.linalg, name)(
        *[weft.tensor(a) if isinstance(a, np.ndarray) else a for a in args], **options)
    expected = getattr(np.linalg, name)(*args, **options)
    pairs = [(found, expected)] if name != "slogdet" else zip(found, expected, strict=True)
    for one, other in pairs:
        check(one, other, (name, options))


def test_factors_give_their_matrices():
    x = weft.tensor(TALL)
    q, r = xp.linalg.qr(x)
    u, s, vh = xp.linalg.svd(x, full_matrices=False)
    values, vectors = xp.linalg.eigh(weft.tensor(POSITIVE))
    for found, expected in ((q @ r, TALL), (u * s[..., None, :] @ vh, TALL),
                            (vectors * values[..., None, :] @ vectors.mT, POSITIVE)):
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-10)
    assert xp.linalg.svd(x).U.shape == (2, 4, 4)


def test_vectors_of_norms_and_products():
    x = weft.tensor(VECTORS)
    check(xp.linalg.vector_norm(x, axis=()), np.abs(VECTORS))
    z = weft.tensor(np.array([[3 + 4j, 0], [0, 12]]))
    assert xp.linalg.vector_norm(z).item() == xp.linalg.matrix_norm(z).item() == 13
    assert xp.linalg.matrix_norm(z, ord=1).item() == 12
    with pytest.raises(InvalidInputError, match="three numbers"):  # the axis is not broadcast
        xp.linalg.cross(x, x[:, :1])
    with pytest.raises(InvalidInputError, match="vectors"):
        xp.linalg.outer(x, x)


@pytest.mark.sample(0.2)
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fftn", "ifftn",
                                  "rfftn", "irfftn"])
def test_transforms(name: str):
    x = VECTORS.astype(np.float64)
    x = x if name in ("rfft", "ihfft", "rfftn") else x * (1 - 0.5j)
    named = {"axes": (0,)} if name.endswith("n") else {"axis": 0}
    found = getattr(xp.fft, name)(weft.tensor(x), norm="ortho", **named)
    np.testing.assert_allclose(found.numpy(), getattr(np.fft, name)(x, norm="ortho", **named),
                               1e-12, 1e-12)


@pytest.mark.parametrize("n", [4, 5])
def test_frequencies_and_their_order(n: int):
    x = np.arange(2 * n).reshape(2, n)
    for name in ("fftfreq", "rfftfreq"):
        check(getattr(xp.fft, name)(n, d=0.5, dtype=xp.float64), getattr(np.fft, name)(n, d=0.5))
    for name in ("fftshift", "ifftshift"):
        check(getattr(xp.fft, name)(weft.tensor(x)), getattr(np.fft, name)(x))
        check(getattr(xp.fft, name)(weft.tensor(x), axes=1), getattr(np.fft, name)(x, axes=1))
