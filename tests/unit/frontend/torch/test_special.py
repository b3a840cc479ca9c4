"""Special functions of torch."""

from __future__ import annotations

import pytest

from tests.unit.frontend.torch.check import check, integers, torch, uniform

pytestmark = pytest.mark.torch
special = torch.special
POLYNOMIALS = [f"{shift}chebyshev_polynomial_{kind}" for shift in ("", "shifted_")
               for kind in "tuvw"] + ["hermite_polynomial_h", "hermite_polynomial_he",
                                      "laguerre_polynomial_l", "legendre_polynomial_p"]


def test_functions_of_any_number():
    def all_of(x):
        return (torch.erfc(x), special.erfcx(x), torch.lgamma(x), torch.digamma(x),
                torch.i0(x), special.i0e(x), special.i1(x), special.i1e(x), special.bessel_j0(x),
                special.bessel_j1(x), special.modified_bessel_i0(x), special.airy_ai(x),
                special.modified_bessel_i1(x), special.spherical_bessel_j0(x),
                special.log_ndtr(x))

    check(all_of, uniform(4, 30, low=-6.0, high=6.0), rtol=3e-5, atol=1e-5)
    check(all_of, integers(3, low=1, high=4), rtol=3e-5, atol=1e-5)


def test_functions_of_positive_numbers():
    def all_of(x):
        return (special.bessel_y0(x), special.bessel_y1(x), special.modified_bessel_k0(x),
                special.modified_bessel_k1(x), special.scaled_modified_bessel_k0(x),
                special.scaled_modified_bessel_k1(x), torch.polygamma(0, x), torch.polygamma(1, x),
                torch.polygamma(3, x), special.zeta(x + 1.5, 2 - x / 10), torch.mvlgamma(x + 2, 2),
                special.zeta(2.5, x))

    check(all_of, uniform(4, 30, low=0.05, high=9.0), rtol=1e-4, atol=1e-5)


def test_functions_of_shares():
    check(lambda x: (torch.erfinv(2 * x - 1), special.ndtri(x), torch.logit(x)),
          uniform(4, 30, low=0.001, high=0.999), rtol=1e-5, atol=1e-5)


def test_incomplete_gamma_functions():
    check(lambda a, x: (torch.special.gammainc(a, x), torch.special.gammaincc(a, x)),
          uniform(3, 10, low=0.1, high=30.0), uniform(10, low=0.1, high=40.0, seed=1), rtol=2e-5,
          atol=1e-6)


def test_orthogonal_polynomials():
    def all_of(x, n):
        return [getattr(special, name)(x, n) for name in POLYNOMIALS]

    check(all_of, uniform(3, 9, low=-1.0, high=1.0), integers(9, low=-1, high=9), rtol=1e-3,
          atol=1e-3)
    check(lambda x: special.legendre_polynomial_p(x, 4), uniform(5))
