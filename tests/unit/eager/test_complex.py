"""Complex tensors: memory, views, arithmetic, refusals, programs, against NumPy."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

import weft
from weft.eager.complex_numbers import ComplexError

RNG = np.random.default_rng(5)
A, B = (RNG.normal(size=(3, 4)) + 1j * RNG.normal(size=(3, 4)) for _ in range(2))


def test_a_complex_tensor_is_made_of_numbers_arrays_and_parts():
    z = weft.tensor([1 + 2j, 3])
    assert z.dtype is weft.complex64
    assert z.dtype.is_complex
    assert z.is_complex()
    assert not z.is_floating_point()
    assert (z.element_size(), z.nbytes, tuple(z.shape)) == (8, 16, (2,))
    assert repr(z) == "tensor([1.+2.j, 3.+0.j])"
    assert weft.tensor(A).dtype is weft.complex128
    np.testing.assert_array_equal(weft.tensor(A).numpy(), A)
    x, y = weft.tensor(A.real), weft.tensor(A.imag)
    np.testing.assert_array_equal(weft.complex(x, y).numpy(), A)
    np.testing.assert_allclose(weft.polar(weft.tensor(A).abs(), weft.tensor(A).angle()).numpy(), A)
    assert complex(weft.tensor(2 - 1j)) == 2 - 1j
    assert weft.zeros(2, dtype="complex64").tolist() == [0, 0]
    assert weft.full((2,), 1j).dtype is weft.complex64


def test_arrays_come_out_without_a_copy_and_through_dlpack():
    z = weft.tensor(A)
    assert np.shares_memory(z.numpy(), weft.view_as_real(z).numpy())
    np.testing.assert_array_equal(np.from_dlpack(z), A)
    np.testing.assert_array_equal(weft.from_dlpack(A).numpy(), A)
    np.testing.assert_array_equal(np.asarray(z), A)


def test_copies_keep_dtype_and_values(tmp_path):
    z = weft.tensor(A)
    for again in (pickle.loads(pickle.dumps(z)), copy.deepcopy(z), z.clone()):
        assert again.dtype is weft.complex128
        np.testing.assert_array_equal(again.numpy(), A)
    weft.save({"z": z}, tmp_path / "z.pt")
    np.testing.assert_array_equal(weft.load(tmp_path / "z.pt")["z"].numpy(), A)


def test_parts_and_conjugates_are_views_that_write_through():
    z = weft.tensor(A)
    expected = A.copy()
    z.real[0] = 7
    expected.real[0] = 7
    z.imag.mul_(2)
    expected.imag *= 2
    weft.view_as_real(z)[1, :, 0] = 5
    expected.real[1] = 5
    z.conj()[2, 3] = 1 + 1j
    expected[2, 3] = 1 - 1j
    z.T.diagonal().imag.zero_()
    np.fill_diagonal(expected.imag, 0)
    np.testing.assert_array_equal(z.numpy(), expected)
    pairs = weft.zeros(2, 3, 2)
    weft.view_as_complex(pairs)[1] = 1 + 2j
    assert pairs[1].tolist() == [[1, 2]] * 3
    weft.view_as_complex(pairs).t().diagonal().fill_(3j)
    assert pairs[0, 0].tolist() == [0, 3]


@pytest.mark.parametrize(("key", "expected"), [
    ("x", (3, 4)), ((1, slice(None, None, 2)), (2,)), ((..., None, 0), (3, 1)),
    ([2, 0], (2, 4)), (([0, 1], [2, 3]), (2,))], ids=str)
def test_parts_by_keys(key, expected):
    key = (slice(None),) if key == "x" else key
    for z in (weft.tensor(A), weft.tensor(A) * 1):
        assert tuple(z[key].shape) == expected
        np.testing.assert_array_equal(z[key].numpy(), A[key])


@pytest.mark.parametrize(("name", "expected"), [
    ("add", A + B), ("sub", A - B), ("mul", A * B), ("div", A / B), ("pow", A ** B),
    ("eq", A == B), ("ne", A != B)])
def test_arithmetic(name, expected):
    found = getattr(weft, name)(weft.tensor(A), weft.tensor(B))
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


@pytest.mark.sample(0.4)
@pytest.mark.parametrize(("function", "expected"), [
    (lambda z: z.sum(), A.sum()), (lambda z: z.sum(1), A.sum(1)), (lambda z: z.mean(0), A.mean(0)),
    (lambda z: z.prod(1), A.prod(1)), (lambda z: z.cumsum(1), A.cumsum(1)),
    (lambda z: z.cumprod(0), A.cumprod(0)), (lambda z: z @ z.mH, A @ A.conj().T),
    (lambda z: weft.einsum("ij,ij->i", z, z), (A * A).sum(1)),
    (lambda z: weft.vdot(z[0], z[1]), np.vdot(A[0], A[1])),
    (lambda z: weft.cat([z, z.conj()], 1), np.concatenate([A, A.conj()], 1)),
    (lambda z: weft.where(z.real > 0, z, 0), np.where(A.real > 0, A, 0)),
    (lambda z: z.gather(1, weft.tensor([[0], [1], [3]])), A[[0, 1, 2], [0, 1, 3]][:, None]),
    (lambda z: z.var(), A.var(ddof=1)), (lambda z: weft.stack(z.unbind(1)), A.T),
    (lambda z: z.flip(0).roll(1, 1), np.roll(A[::-1], 1, 1)), (lambda z: z.tril(), np.tril(A)),
    (lambda z: z.isnan() | z.isinf(), A != A), (lambda z: z.norm(), np.linalg.norm(A)),
], ids=lambda v: "" if callable(v) else str(v.shape))
def test_functions_of_whole_tensors(function, expected):
    for z in (weft.tensor(A), weft.tensor(A) * 1):
        np.testing.assert_allclose(function(z).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(("a", "b", "expected"), [
    (weft.int64, 1j, "complex64"), (weft.float64, 1j, "complex128"),
    (weft.complex64, 2.5, "complex64"), (weft.complex64, weft.float64, "complex128"),
    (weft.bfloat16, weft.complex64, "complex64"), (weft.complex64, weft.int64, "complex64")],
    ids=str)
def test_promotion(a, b, expected):
    other = weft.ones(2, dtype=b) if isinstance(b, weft.dtype) else b
    assert (weft.ones(2, dtype=a) + other).dtype == expected


def test_no_part_overflows_on_the_way():
    big = weft.tensor([3e38 + 3e38j, 3e-39 + 3e-39j], dtype="complex64")
    np.testing.assert_allclose((big / big).numpy(), [1, 1], rtol=1e-6)
    assert weft.tensor([3e307 + 4e307j], dtype="complex128").abs().tolist() == [5e307]
    huge = np.array([1e308 + 1e308j])
    np.testing.assert_allclose(weft.tensor(huge).sqrt().numpy(), np.sqrt(huge))


@pytest.mark.parametrize("name", ["floor", "lt", "max", "sort", "relu", "remainder", "erf"])
def test_what_complex_numbers_do_not_have_is_refused(name):
    z = weft.tensor([1j, 2])
    second = (z,) if name in ("lt", "remainder") else ()
    with pytest.raises(ComplexError, match="of complex numbers"):
        getattr(weft, name)(z, *second)
    with pytest.raises(weft.WeftError, match="complex"):
        weft.zeros(2).fill_(1j)


def test_gradients_are_by_the_real_part_plus_i_times_the_imaginary():
    x = weft.tensor(A.real, requires_grad=True)
    z = weft.complex(x, 2 * x)
    (z * z.conj()).real.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), 10 * A.real)
    w = weft.tensor(A, requires_grad=True)
    (w.abs() ** 2).sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), 2 * A)
    with pytest.raises(weft.WeftError, match="backward of a complex tensor needs a gradient"):
        (w * 2).sum().backward()


def test_functions_of_complex_tensors_are_traced():
    @weft.jit
    def step(z, w):
        return (z * w).exp().sum(), z.real

    for seed in (1.0, 2.0):
        z, w = A * seed, B / seed
        total, real = step(weft.tensor(z), weft.tensor(w))
        np.testing.assert_allclose(total.numpy(), np.exp(z * w).sum(), rtol=1e-12)
        np.testing.assert_array_equal(real.numpy(), z.real)


def test_a_complex_parameter_is_trained_by_a_compiled_step():
    class Rotation(weft.nn.Module):
        def __init__(self):
            super().__init__()
            self.factor = weft.nn.Parameter(weft.tensor([1 + 0j]))

        def forward(self, z):
            return z * self.factor

    model = Rotation()
    optimizer = weft.optim.SGD(model.parameters(), lr=0.1)

    @weft.train_step
    def step(z, wanted):
        optimizer.zero_grad()
        loss = ((model(z) - wanted).abs() ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    z = weft.tensor(A.astype(np.complex64))
    losses = [float(step(z, z * 1j)) for _ in range(30)]
    assert losses[-1] < 1e-3 * losses[0]
    np.testing.assert_allclose(model.factor.detach().numpy(), [1j], atol=0.02)


SQUARE = RNG.normal(size=(2, 3, 3)) + 1j * RNG.normal(size=(2, 3, 3))
DEFINITE = SQUARE @ SQUARE.conj().swapaxes(1, 2) + np.eye(3)


@pytest.mark.sample(0.4)
@pytest.mark.parametrize(("name", "given", "expected"), [
    ("inv", (SQUARE,), np.linalg.inv(SQUARE)), ("pinv", (A,), np.linalg.pinv(A)),
    ("solve", (SQUARE, SQUARE[:, :, :2]), np.linalg.solve(SQUARE, SQUARE[:, :, :2])),
    ("solve", (SQUARE, A.T[:2, :3]), np.linalg.solve(SQUARE, A.T[:2, :3, None])[..., 0]),
    ("cholesky", (DEFINITE,), np.linalg.cholesky(DEFINITE)),
    ("eigvalsh", (DEFINITE,), np.linalg.eigvalsh(DEFINITE)),
    ("svdvals", (A,), np.linalg.svd(A, compute_uv=False)),
    ("matrix_rank", (SQUARE,), np.array([3, 3])), ("norm", (A, "nuc"), np.linalg.norm(A, "nuc")),
    ("matrix_power", (SQUARE, -2), np.linalg.matrix_power(SQUARE, -2)),
    ("vector_norm", (A, 3), (np.abs(A) ** 3).sum() ** (1 / 3))], ids=[str(i) for i in range(11)])
def test_complex_matrices(name, given, expected):
    tensors = [weft.tensor(g) if isinstance(g, np.ndarray) else g for g in given]
    found = getattr(weft.linalg, name)(*tensors)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12)


def test_factors_that_complex_matrices_lack_are_refused():
    with pytest.raises(weft.WeftError, match="lu_factor of complex numbers"):
        weft.linalg.lu_factor(weft.tensor(SQUARE))


def test_a_conversion_to_real_numbers_warns_at_the_line_of_the_user():
    z = weft.tensor([1 + 2j])
    with pytest.warns(np.exceptions.ComplexWarning, match="imaginary part") as found:
        reals = z.float(), z.to(weft.float64)
    assert [one.tolist() for one in reals] == [[1.0], [1.0]]
    assert {Path(one.filename).name for one in found} == {Path(__file__).name}


def test_statistics_take_conjugates_and_norms_lengths():
    x = A[:, :3]
    rows = weft.tensor(x)
    other = weft.tensor(x[:, ::-1].copy())
    np.testing.assert_allclose(weft.cov(rows).numpy(), np.cov(x), rtol=1e-12)
    np.testing.assert_allclose(weft.corrcoef(rows).numpy(), np.corrcoef(x), rtol=1e-12)
    weights = {"fweights": np.array([1, 2, 3]), "aweights": np.array([0.5, 0.25, 1.0])}
    np.testing.assert_allclose(
        weft.cov(rows, **{name: weft.tensor(one) for name, one in weights.items()}).numpy(),
        np.cov(x, **weights), rtol=1e-12)
    np.testing.assert_allclose(weft.masked.var(rows, 1).numpy(), x.var(1, ddof=1), rtol=1e-12)
    functional = weft.nn.functional
    distance = functional.pairwise_distance(rows, other, eps=0.0)
    np.testing.assert_allclose(distance.numpy(), np.linalg.norm(x - x[:, ::-1], axis=1), rtol=1e-12)
    np.testing.assert_allclose(functional.normalize(rows).numpy(),
                               x / np.linalg.norm(x, axis=1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(functional.pad(rows, (1, 2), value=1 + 1j).numpy(),
                               np.pad(x, ((0, 0), (1, 2)), constant_values=1 + 1j))
    np.testing.assert_allclose(functional.avg_pool1d(rows[None], 3).numpy(),
                               x.mean(1).reshape(1, -1, 1), rtol=1e-12)
    np.testing.assert_allclose(weft.linalg.vander(rows[0], N=3).numpy(),
                               np.vander(x[0], 3, increasing=True), rtol=1e-12)
