"""``weft.special`` and ``weft.fft`` equal torch's, with gradients, on seeded samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import weft

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

RNG = np.random.default_rng(11)
REAL, UNIT = RNG.uniform(-3, 3, (3, 7)), RNG.uniform(0.05, 0.95, (3, 7))
POSITIVE = RNG.uniform(0.3, 6, (3, 7))
ENDS = np.array([-np.inf, -20.0, -1.0, 0.0, 0.5, 30.0, np.inf, np.nan])

# Every function of one operand, by its range.
_OF_REALS = ("erf", "erfc", "erfcx", "expit", "exp2", "expm1", "i0", "i0e", "i1", "i1e",
             "log_ndtr", "ndtr", "sinc", "spherical_bessel_j0", "bessel_j0", "bessel_j1", "digamma",
             "psi")
_OF_POSITIVES = ("gammaln", "modified_bessel_i0", "modified_bessel_i1",
                 "modified_bessel_k0", "modified_bessel_k1", "scaled_modified_bessel_k0",
                 "scaled_modified_bessel_k1")
UNARY = {**dict.fromkeys(_OF_REALS, REAL), **dict.fromkeys(_OF_POSITIVES, POSITIVE),
         **dict.fromkeys(("entr", "erfinv", "logit", "log1p", "ndtri"), UNIT),
         "airy_ai": REAL.astype(np.float32), "bessel_y0": POSITIVE.astype(np.float32),
         "bessel_y1": POSITIVE.astype(np.float32)}
# torch has no gradients of these.
WITHOUT = ("airy_ai", "bessel_", "modified_", "scaled_", "spherical_", "chebyshev", "shifted",
           "hermite", "laguerre", "legendre")
DEGREES = RNG.integers(0, 8, (3, 7)).astype(np.float64)
SEVERAL: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    ("xlogy", (REAL, POSITIVE), {}), ("xlog1py", (REAL, POSITIVE), {}),
    ("polygamma", (1, POSITIVE), {}), ("polygamma", (3, POSITIVE), {}),
    ("multigammaln", (POSITIVE + 2, 3), {}), ("logit", (REAL, 0.1), {}),
    ("softmax", (REAL, 1), {}), ("log_softmax", (REAL, 0), {}), ("logsumexp", (REAL, 1), {}),
    ("round", (REAL,), {"decimals": 1}),
]
FIXED: list[tuple[str, tuple[Any, ...]]] = [
    ("gammainc", (POSITIVE, POSITIVE[::-1])), ("gammaincc", (POSITIVE, POSITIVE[::-1])),
    ("zeta", (POSITIVE + 1.1, POSITIVE[:, :1])),
    *((f"{prefix}chebyshev_polynomial_{kind}", (UNIT, DEGREES)) for kind in "tuvw"
      for prefix in ("", "shifted_")),
    *((name, (REAL, DEGREES)) for name in (
        "hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
        "legendre_polynomial_p")),
]


def check(name: str, operands: tuple[Any, ...], named: dict[str, Any], gradients: bool) -> None:
    ours = [weft.tensor(np.array(v)) if isinstance(v, np.ndarray) else v for v in operands]
    other = [torch.tensor(np.array(v)) if isinstance(v, np.ndarray) else v for v in operands]
    pairs = [(x, y) for x, y in zip(ours, other, strict=True) if isinstance(y, torch.Tensor)]
    for x, y in pairs if gradients else ():
        x.requires_grad_()
        y.requires_grad_()
    got, want = getattr(weft.special, name)(*ours, **named), getattr(torch.special, name)(
        *other, **named)
    assert got.dtype == str(want.dtype)
    relative, absolute = (1e-9, 1e-12) if got.dtype == "float64" else (1e-4, 1e-5)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), relative, absolute)
    if gradients:
        got.sum().backward()
        want.sum().backward()
        for x, y in pairs:
            np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), 1e-7, 1e-9)


@pytest.mark.sample(0.15)
@pytest.mark.parametrize("name", UNARY)
def test_a_function_of_one_operand_equals_torchs(name: str) -> None:
    check(name, (UNARY[name],), {}, not name.startswith(WITHOUT))


@pytest.mark.sample(0.15)
@pytest.mark.parametrize("case", SEVERAL, ids=lambda c: c[0])
def test_a_function_of_several_operands_equals_torchs(case: Any) -> None:
    check(*case, gradients=True)


@pytest.mark.sample(0.15)
@pytest.mark.parametrize("case", FIXED, ids=lambda c: c[0])
def test_a_function_without_gradient_equals_torchs(case: Any) -> None:
    check(*case, {}, gradients=False)


@pytest.mark.parametrize("name", ["entr", "ndtr", "log_ndtr", "spherical_bessel_j0", "erfcx"])
def test_ends_of_the_range(name: str) -> None:
    check(name, (ENDS,), {}, gradients=False)


def test_integers_become_floats_and_half_precision_stays() -> None:
    assert weft.special.entr(weft.tensor([1, 2])).dtype == "float32"
    assert weft.special.ndtr(weft.ones(2, dtype="bfloat16")).dtype == "bfloat16"


COMPLEX = RNG.standard_normal((3, 4, 6)) + 1j * RNG.standard_normal((3, 4, 6))
LINES: list[tuple[str, dict[str, Any]]] = [
    ("fft", {}), ("fft", {"n": 9, "dim": 1, "norm": "ortho"}), ("ifft", {"n": 4}),
    ("ifft", {"norm": "forward"}), ("fftn", {"s": (3, 7)}), ("ifftn", {"dim": (0, 2)}),
    ("fft2", {"norm": "forward"}), ("ifft2", {"s": (-1, 5)}), ("irfft", {}), ("irfft", {"n": 7}),
    ("irfftn", {"s": (4, 9), "norm": "ortho"}), ("irfft2", {}), ("hfft", {"n": 8, "dim": 0}),
    ("hfft", {"norm": "ortho"}), ("hfftn", {"dim": (1, 2)}), ("hfft2", {"norm": "forward"}),
]
REALS: list[tuple[str, dict[str, Any]]] = [
    ("fft", {}), ("rfft", {}), ("rfft", {"n": 9, "dim": 1, "norm": "forward"}),
    ("rfftn", {"s": (3, 7)}), ("rfft2", {"norm": "ortho"}), ("ihfft", {}), ("ihfft", {"n": 5}),
    ("ihfftn", {"dim": (0, 1)}), ("ihfft2", {}), ("irfft", {"n": 5}), ("hfft", {}),
]


def check_fft(name: str, named: dict[str, Any], value: np.ndarray) -> None:
    mine: Any = weft.tensor(value, requires_grad=True)
    theirs = torch.tensor(value).requires_grad_()
    got, want = getattr(weft.fft, name)(mine, **named), getattr(torch.fft, name)(theirs, **named)
    np.testing.assert_allclose(got.detach().numpy(), want.detach().resolve_conj().numpy(), 1e-9,
                               1e-9)
    (got.abs() ** 2 * 2 + got.real).sum().backward()
    (want.abs() ** 2 * 2 + want.real).sum().backward()
    np.testing.assert_allclose(mine.grad.numpy(), theirs.grad.resolve_conj().numpy(), 1e-7, 1e-7)


@pytest.mark.sample(0.15)
@pytest.mark.parametrize("case", LINES, ids=lambda c: c[0])
def test_a_transform_of_complex_tensors_equals_torchs(case: tuple[str, dict[str, Any]]) -> None:
    check_fft(*case, COMPLEX)


@pytest.mark.sample(0.15)
@pytest.mark.parametrize("case", REALS, ids=lambda c: c[0])
def test_a_transform_of_real_tensors_equals_torchs(case: tuple[str, dict[str, Any]]) -> None:
    check_fft(*case, REAL.reshape(3, 7, 1).repeat(4, 2))


@pytest.mark.parametrize("size", [5, 6])
def test_frequencies_and_shifts(size: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        np.testing.assert_allclose(getattr(weft.fft, name)(size, 0.5).numpy(),
                                   getattr(torch.fft, name)(size, 0.5).numpy())
    x = np.arange(size * 3).reshape(size, 3)
    for name in ("fftshift", "ifftshift"):
        for dim in (None, 0, (1,)):
            np.testing.assert_array_equal(
                getattr(weft.fft, name)(weft.tensor(x), dim).numpy(),
                getattr(torch.fft, name)(torch.tensor(x), dim).numpy())


@pytest.mark.parametrize(("call", "message"), [
    (lambda: weft.fft.fft(weft.ones(3), norm="half"), "unknown normalisation"),
    (lambda: weft.fft.fft(weft.ones(3), n=0), "no elements"),
    (lambda: weft.fft.rfft(weft.ones(3) * 1j), "takes a real tensor"),
    (lambda: weft.fft.fftn(weft.ones(3, 3), dim=(0, 0)), "differ"),
])
def test_wrong_arguments_are_refused(call: Any, message: str) -> None:
    with pytest.raises(weft.WeftError, match=message):
        call()
