"""Special functions: ``op.special.erfinv``, ``op.special.lgamma``, ``op.special.bessel_j0``, …"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weft.op.index import NAMES
from weft.support.lazy_package import load_names_lazily

if TYPE_CHECKING:
    from weft.op.special.bessel import (
        airy_ai,
        airy_ai_prime,
        bessel_j0,
        bessel_j1,
        bessel_y0,
        bessel_y1,
        modified_bessel_i0,
        modified_bessel_i0e,
        modified_bessel_i1,
        modified_bessel_i1e,
        modified_bessel_k0,
        modified_bessel_k0e,
        modified_bessel_k1,
        modified_bessel_k1e,
    )
    from weft.op.special.errors import erfc, erfcx, erfinv, ndtri
    from weft.op.special.gamma import (
        IncompleteGammaAttrs,
        PolygammaAttrs,
        digamma,
        incomplete_gamma,
        lgamma,
        polygamma,
        zeta,
    )
    from weft.op.special.polynomials import OrthogonalPolynomialAttrs, orthogonal_polynomial
else:
    load_names_lazily(__name__, NAMES[__name__])

__all__ = [
    "IncompleteGammaAttrs",
    "OrthogonalPolynomialAttrs",
    "PolygammaAttrs",
    "airy_ai",
    "airy_ai_prime",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "digamma",
    "erfc",
    "erfcx",
    "erfinv",
    "incomplete_gamma",
    "lgamma",
    "modified_bessel_i0",
    "modified_bessel_i0e",
    "modified_bessel_i1",
    "modified_bessel_i1e",
    "modified_bessel_k0",
    "modified_bessel_k0e",
    "modified_bessel_k1",
    "modified_bessel_k1e",
    "ndtri",
    "orthogonal_polynomial",
    "polygamma",
    "zeta",
]
