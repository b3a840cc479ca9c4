"""Factorizations of matrices of all sizes around vectors and blocks, and of hostile values."""

from __future__ import annotations

import numpy as np
import pytest

import weft

# Sizes below, at and above a vector of 8, a tile of 24 and a block of 64.
SIZES = (1, 8, 25, 67)
BOUND = 3e-15


def call(text: str, *arrays: np.ndarray, **options: object) -> list[np.ndarray]:
    names = ("%a", "%b", "%c")[:len(arrays)]
    params = ", ".join(f"{name}: Tensor[{a.shape}, {a.dtype}]"
                       for name, a in zip(names, arrays, strict=True))
    found = weft.compile(weft.parse(f"def @main({params}) {{ {text} }}"), **options)(*arrays)
    return [np.asarray(one) for one in (found if isinstance(found, tuple) else (found,))]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def distance(got: np.ndarray, expected: np.ndarray) -> float:
    """The largest difference for each row of a matrix, relative to the largest number."""
    scale = np.abs(expected).max(initial=0.0) or 1.0
    return float(np.abs(got - expected).max(initial=0.0) / scale / max(8, *got.shape[-2:]))


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("shape", [*((n, n) for n in SIZES), (150, 200), (130, 20)],
                         ids=str)
def test_lu(shape):
    x = random(2, *shape)
    packed, pivots, order, info = call("linalg.lu(%a)", x)
    size = min(shape)
    lower = np.tril(packed, -1)[:, :, :size] + np.eye(shape[0], size)
    assert np.abs(lower).max() == 1.0
    assert distance(lower @ np.triu(packed)[:, :size], np.take_along_axis(
        x, order[:, :, None], 1)) < BOUND
    (swapped,) = call(f"linalg.pivot_order(%a, rows={shape[0]})", pivots)
    assert (swapped == order).all()
    assert not info.any()


def test_lu_of_singular_matrices():
    x = random(3, 20, 20)
    x[0, :, 5] = 0.0
    x[1] = 0.0
    info = call("linalg.lu(%a)", x)[3]
    assert info.tolist() == [6, 1, 0]


def test_lu_of_a_matrix_that_is_singular_in_its_own_type():
    x = (np.array([[[49, 49], [1, 1]]]) * 2.0**-100).astype(np.float32)
    packed, _, _, info = call("linalg.lu(%a)", x)
    assert packed[0, 1, 1] == 0.0
    assert info.tolist() == [2]


@pytest.mark.parametrize("unit", [False, True], ids=["pivots", "unit"])
@pytest.mark.parametrize("lower", [False, True], ids=["upper", "lower"])
def test_triangular_solve(lower, unit):
    for size, width in ((7, 25), (67, 3), (130, 48)):
        a = random(2, size, size) / size + 2 * np.eye(size)
        b = random(2, size, width, seed=1)
        triangle = np.tril(a) if lower else np.triu(a)
        if unit:
            triangle = triangle * (1 - np.eye(size)) + np.eye(size)
        other = np.triu(np.ones_like(a), 1) if lower else np.tril(np.ones_like(a), -1)
        hidden = np.where(other > 0, np.nan, a)  # the other triangle is not read
        (x,) = call(f"linalg.triangular_solve(%a, %b, lower={lower}, unit={unit})", hidden, b)
        assert distance(x, np.linalg.solve(triangle, b)) < BOUND


@pytest.mark.parametrize("size", SIZES)
def test_cholesky(size):
    roots = random(2, size, size)
    x = roots @ roots.swapaxes(1, 2) + np.eye(size)
    lower, info = call("linalg.cholesky(%a)", np.where(np.tri(size) > 0, x, np.nan))
    assert distance(lower, np.linalg.cholesky(x)) < 10 * BOUND
    assert not info.any()


def test_cholesky_stops_at_the_first_minor_that_is_not_positive():
    x = np.eye(20)[None] * 4.0 + 0.1
    x[0, 11, 11] = -1.0
    lower, info = call("linalg.cholesky(%a)", x)
    assert info.tolist() == [12]
    assert (lower[0, :, 11:] == np.tril(x[0])[:, 11:]).all()
    assert distance(lower[:, :11, :11], np.linalg.cholesky(x[:, :11, :11])) < BOUND


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("shape", [*((n, n) for n in SIZES), (130, 20), (20, 130)], ids=str)
def test_qr(shape):
    x = random(2, *shape)
    packed, scales = call("linalg.qr(%a)", x)
    whole = np.broadcast_to(np.eye(shape[0]), (2, shape[0], shape[0])).copy()
    (q,) = call("linalg.reflect(%a, %b, %c)", packed, scales, whole)
    (back,) = call("linalg.reflect(%a, %b, %c, transpose=True)", packed, scales, q)
    assert distance(q @ q.swapaxes(1, 2), whole) < BOUND
    assert distance(back, whole) < BOUND
    assert distance(q[:, :, :min(shape)] @ np.triu(packed)[:, :min(shape)], x) < BOUND


def _spectra(size: int) -> dict[str, np.ndarray]:
    steps = np.arange(size)
    return {"repeated": steps // (size // 4) + 1.0, "rank deficient": np.maximum(steps - 20.0, 0.0),
            "graded": 10.0**-steps, "equal": np.ones(size), "zero": np.zeros(size),
            "tiny": 1e-200 * steps, "huge": 1e200 * steps, "near": 1 + 1e-14 * steps}


def _check_eigh(x: np.ndarray) -> None:
    size = x.shape[1]
    values, vectors = call("linalg.eigh(%a)", np.where(np.tri(size) > 0, x, np.nan))
    assert distance(values[:, None], np.linalg.eigvalsh(x)[:, None]) < BOUND
    assert distance(vectors.swapaxes(1, 2) @ vectors, np.eye(size)[None]) < BOUND
    assert distance((vectors * values[:, None]) @ vectors.swapaxes(1, 2), x) < BOUND


def _check_svd(x: np.ndarray, *, full: bool = False) -> None:
    columns = x.shape[2]
    left, values, right = call(f"linalg.svd(%a, full={full})", x)
    assert distance(values[:, None], np.linalg.svd(x)[1][:, None]) < BOUND
    assert (np.diff(values) <= 0).all()
    for one in (left, right):
        assert distance(one.swapaxes(1, 2) @ one, np.eye(one.shape[2])[None]) < BOUND
    assert distance(left[:, :, :columns] * values[:, None] @ right.swapaxes(1, 2), x) < BOUND


@pytest.mark.parametrize("size", SIZES)
def test_eigh(size):
    x = random(2, size, size)
    _check_eigh(x + x.swapaxes(1, 2))


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("shape", [*((n, n) for n in SIZES), (130, 7)], ids=str)
def test_svd(shape):
    _check_svd(random(2, *shape), full=shape[0] < 70)


def test_spectra_that_are_hard():
    size = 40
    left, right = (np.linalg.qr(random(size, size, seed=s))[0] for s in (0, 1))
    for values in _spectra(size).values():
        _check_eigh((left * values @ left.T)[None])
        _check_eigh(np.diag(values)[None])
        _check_svd((left * values @ right.T)[None])
        _check_svd((np.diag(values) + np.eye(size, k=1) * values.max())[None])
    for x in (np.ones((1, 30, 20)), np.tril(np.ones((1, 40, 40))), np.eye(40, k=1)[None],
              np.vander(np.linspace(0, 1, 30), 20)[None]):
        _check_svd(x)


def test_matrix_exp():
    for size in (1, 9, 30):
        x = random(2, size, size)
        roots = x - x.swapaxes(1, 2)  # of which the exponential is orthogonal
        (q,) = call("linalg.matrix_exp(%a)", roots * 10)
        (half,) = call("linalg.matrix_exp(%a)", roots * 5)
        assert distance(q @ q.swapaxes(1, 2), np.eye(size)[None]) < 100 * BOUND
        assert distance(half @ half, q) < 100 * BOUND


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_end_as_nan(bad):
    x = random(1, 20, 20)
    x[0, 12, 3] = bad
    for text in ("linalg.eigh(%a)", "linalg.svd(%a)"):
        assert any(np.isnan(one).all() for one in call(text, x)), text
    for text in ("linalg.lu(%a)", "linalg.qr(%a)"):
        assert not np.isfinite(call(text, x)[0]).all(), text


def test_threads_do_not_change_bits():
    many, large = random(6, 40, 40), random(1, 208, 208)
    # Threads share the matrices of a batch, or the columns of a large one.
    for text, x in (("linalg.lu(%a)", many), ("linalg.svd(%a)", many), ("linalg.lu(%a)", large),
                    ("linalg.qr(%a)", large), ("linalg.triangular_solve(%a, %a)", large)):
        one, two = (call(text, x, threads=count) for count in (1, 2))
        assert all((a == b).all() for a, b in zip(one, two, strict=True)), text


def test_nothing():
    for text in ("linalg.lu(%a)", "linalg.eigh(%a)", "linalg.svd(%a)", "linalg.cholesky(%a)"):
        assert call(text, np.zeros((2, 0, 0)))[0].size == 0
