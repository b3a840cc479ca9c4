"""Special functions as a table: Bessel and Airy functions, polynomials, distributions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from weft.eager.emitter import TENSORS, call
from weft.eager.functions.elementwise import operands
from weft.eager.functions.special import wide
from weft.eager.record import wrap
from weft.eager.signature import pair, public, row
from weft.op.composites import special as composites

if TYPE_CHECKING:
    from weft.eager.tensor import Tensor


def _composite(function: Callable[..., Any], *given: Any) -> Any:
    """A composite of operands in their common float dtype; half precision is computed wider."""
    values = [wrap(node) for node in operands(*given, to_float=True)]
    d = values[0].dtype
    if d.itemsize > 2:
        return function(TENSORS, *values)
    return function(TENSORS, *(v.to("float32") for v in values)).to(d)


entr = row("entr", "``-input * log(input)``: 0 at 0, minus infinity below.", _composite,
           composites.entropy)
ndtr = row("ndtr", "The standard normal distribution function.", _composite, composites.ndtr)
log_ndtr = row("log_ndtr", "The logarithm of ``ndtr``, without cancellation.", _composite,
               composites.log_ndtr)
ndtri = row("ndtri", "The quantile of the standard normal distribution.", wide, "special.ndtri")
erfcx = row("erfcx", "``exp(input**2) * erfc(input)``, which does not underflow.", wide,
            "special.erfcx")
i0e = row("i0e", "``exp(-abs(input)) * i0(input)``.", wide, "special.modified_bessel_i0e")
i1 = row("i1", "The modified Bessel function of order 1.", wide, "special.modified_bessel_i1")
i1e = row("i1e", "``exp(-abs(input)) * i1(input)``.", wide, "special.modified_bessel_i1e")
airy_ai = row("airy_ai", "The Airy function Ai.", wide, "special.airy_ai")
bessel_j0 = row("bessel_j0", "The Bessel function of the first kind of order 0.", wide,
                "special.bessel_j0")
bessel_j1 = row("bessel_j1", "The Bessel function of the first kind of order 1.", wide,
                "special.bessel_j1")
bessel_y0 = row("bessel_y0", "The Bessel function of the second kind of order 0.", wide,
                "special.bessel_y0")
bessel_y1 = row("bessel_y1", "The Bessel function of the second kind of order 1.", wide,
                "special.bessel_y1")
modified_bessel_i0 = row("modified_bessel_i0", "The same as ``i0``.", wide,
                         "special.modified_bessel_i0")
modified_bessel_i1 = row("modified_bessel_i1", "The same as ``i1``.", wide,
                         "special.modified_bessel_i1")
modified_bessel_k0 = row("modified_bessel_k0", "The modified Bessel function K of order 0.", wide,
                         "special.modified_bessel_k0")
modified_bessel_k1 = row("modified_bessel_k1", "The modified Bessel function K of order 1.", wide,
                         "special.modified_bessel_k1")
scaled_modified_bessel_k0 = row(
    "scaled_modified_bessel_k0", "``exp(input) * modified_bessel_k0(input)``.", wide,
    "special.modified_bessel_k0e")
scaled_modified_bessel_k1 = row(
    "scaled_modified_bessel_k1", "``exp(input) * modified_bessel_k1(input)``.", wide,
    "special.modified_bessel_k1e")
spherical_bessel_j0 = row("spherical_bessel_j0", "``sin(input) / input``: 1 at 0.", _composite,
                          composites.spherical_bessel_j0)


def _zeta(input: Any, other: Any) -> Any:
    s, q = [wrap(node) for node in operands(input, other, to_float=True)]
    return call("special.zeta", s, q)


zeta = pair("zeta", "The Hurwitz zeta function: the sum of ``(other + k)**-input`` for k >= 0.",
            _zeta)


def _polynomial(kind: str, shifted: bool, input: Any, n: Any) -> Any:
    """The polynomials of degrees ``n`` at ``input``; the shifted ones at ``2 input - 1``."""
    x, degree = [wrap(node) for node in operands(input, n, to_float=True)]
    shape = np.broadcast_shapes(tuple(x.shape), tuple(degree.shape))
    x, degree = (v.expand(shape).reshape((math.prod(shape),)) for v in (x, degree))
    x = x * 2.0 - 1.0 if shifted else x
    found = call("special.orthogonal_polynomial", x, call("cast", degree, dtype="int64"), kind=kind)
    return found.reshape(shape)


def _polynomials(name: str, kind: str, shifted: bool = False) -> Callable[..., Tensor]:
    """The function of one family of orthogonal polynomials."""

    def evaluate(input: Any, n: Any) -> Tensor:
        return _polynomial(kind, shifted, input, n)

    evaluate.__name__ = evaluate.__qualname__ = name
    evaluate.__doc__ = "The orthogonal polynomials of degrees ``n`` at ``input``" + (
        ", shifted to the range from 0 to 1." if shifted else ".")
    return public(evaluate)


(chebyshev_polynomial_t, chebyshev_polynomial_u, chebyshev_polynomial_v,
 chebyshev_polynomial_w) = (
    _polynomials(f"chebyshev_polynomial_{kind}", f"chebyshev_{kind}") for kind in "tuvw")
(shifted_chebyshev_polynomial_t, shifted_chebyshev_polynomial_u, shifted_chebyshev_polynomial_v,
 shifted_chebyshev_polynomial_w) = (
    _polynomials(f"shifted_chebyshev_polynomial_{kind}", f"chebyshev_{kind}", True)
    for kind in "tuvw")
hermite_polynomial_h = _polynomials("hermite_polynomial_h", "hermite_h")
hermite_polynomial_he = _polynomials("hermite_polynomial_he", "hermite_he")
laguerre_polynomial_l = _polynomials("laguerre_polynomial_l", "laguerre_l")
legendre_polynomial_p = _polynomials("legendre_polynomial_p", "legendre_p")
