"""weft.special: special functions of tensors, with torch's names and signatures."""

from weft.support.lazy_package import load_names_lazily

NAMES = {  # module -> the public names it defines
    "weft.eager.functions.bessel": (
        "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t "
        "chebyshev_polynomial_u chebyshev_polynomial_v chebyshev_polynomial_w entr erfcx "
        "hermite_polynomial_h hermite_polynomial_he i0e i1 i1e laguerre_polynomial_l "
        "legendre_polynomial_p log_ndtr modified_bessel_i0 modified_bessel_i1 modified_bessel_k0 "
        "modified_bessel_k1 ndtr ndtri scaled_modified_bessel_k0 scaled_modified_bessel_k1 "
        "shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u "
        "shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w spherical_bessel_j0 zeta"
    ),
    "weft.eager.functions.elementwise": "erf exp2 expm1 log1p round sigmoid=expit",
    "weft.eager.functions.reduction": "log_softmax logsumexp softmax",
    "weft.eager.functions.special": (
        "digamma digamma=psi erfc erfinv i0 igamma=gammainc igammac=gammaincc lgamma=gammaln logit "
        "mvlgamma=multigammaln polygamma sinc xlog1py xlogy"
    ),
}
load_names_lazily(__name__, NAMES)
