"""Converters of special functions."""

from __future__ import annotations

from typing import Any

from weft import op
from weft.frontend.torch.node import Node, broadcast_shape, shape_in, size_of
from weft.frontend.torch.registry import ConvertFunction, converts, register
from weft.ir import Expr, Op
from weft.op.composites import special as composites

_FUNCTIONS: dict[str, Op] = {
    "digamma": op.special.digamma,
    "erfc": op.special.erfc,
    "erfinv": op.special.erfinv,
    "i0": op.special.modified_bessel_i0,
    "lgamma": op.special.lgamma,
    "special_airy_ai": op.special.airy_ai,
    "special_bessel_j0": op.special.bessel_j0,
    "special_bessel_j1": op.special.bessel_j1,
    "special_bessel_y0": op.special.bessel_y0,
    "special_bessel_y1": op.special.bessel_y1,
    "special_erfcx": op.special.erfcx,
    "special_i0e": op.special.modified_bessel_i0e,
    "special_i1": op.special.modified_bessel_i1,
    "special_i1e": op.special.modified_bessel_i1e,
    "special_modified_bessel_i0": op.special.modified_bessel_i0,
    "special_modified_bessel_i1": op.special.modified_bessel_i1,
    "special_modified_bessel_k0": op.special.modified_bessel_k0,
    "special_modified_bessel_k1": op.special.modified_bessel_k1,
    "special_ndtri": op.special.ndtri,
    "special_scaled_modified_bessel_k0": op.special.modified_bessel_k0e,
    "special_scaled_modified_bessel_k1": op.special.modified_bessel_k1e,
}
_POLYNOMIALS = {
    "chebyshev_polynomial_t": "chebyshev_t",
    "chebyshev_polynomial_u": "chebyshev_u",
    "chebyshev_polynomial_v": "chebyshev_v",
    "chebyshev_polynomial_w": "chebyshev_w",
    "hermite_polynomial_h": "hermite_h",
    "hermite_polynomial_he": "hermite_he",
    "laguerre_polynomial_l": "laguerre_l",
    "legendre_polynomial_p": "legendre_p",
}


def _function(operator: Op) -> ConvertFunction:
    return lambda node, x: node.call(operator, node.cast(x, node.dtype()))


def _polynomial(kind: str, *, shifted: bool) -> ConvertFunction:
    """The degrees are data; shifted polynomials are evaluated at 2 x - 1."""

    def convert(node: Node, values: Any, n: Any) -> Expr:
        x, degrees = _vectors(node, values, n)
        if shifted:
            doubled = node.call(op.multiply, x, node.scalar_like(2, x))
            x = node.call(op.subtract, doubled, node.scalar_like(1, x))
        found = node.call(op.special.orthogonal_polynomial, x, node.cast(degrees, "int64"),
                          kind=kind)
        return node.reshape(found, _common_shape(values, n))

    return convert


def _register_all() -> None:
    for name, operator in _FUNCTIONS.items():
        register(name, _function(operator))
    for name, kind in _POLYNOMIALS.items():
        register(f"special_{name}", _polynomial(kind, shifted=False))
        if kind.startswith("chebyshev"):
            register(f"special_shifted_{name}", _polynomial(kind, shifted=True))


_register_all()


@converts("polygamma")
def polygamma(node: Node, order: int, x: Expr) -> Expr:
    return node.call(op.special.polygamma, node.cast(x, node.dtype()), order=int(order))


@converts("special_zeta")
def zeta(node: Node, s: Any, q: Any) -> Expr:
    """The Hurwitz zeta function."""
    dtype = node.dtype()
    return node.call(op.special.zeta, node.tensor(s, dtype), node.tensor(q, dtype))


@converts("igamma", "igammac")
def incomplete_gamma(node: Node, a: Any, x: Any) -> Expr:
    """The regularised incomplete gamma functions P and Q."""
    first, second = _vectors(node, a, x)
    found = node.call(op.special.incomplete_gamma, first, second,
                      upper=node.op.startswith("aten.igammac"))
    return node.reshape(found, _common_shape(a, x))


@converts("special_spherical_bessel_j0")
def spherical_bessel_j0(node: Node, x: Expr) -> Expr:
    """The ratio sin(x) / x: 1 at zero, and 0 at infinities."""
    return node.composed(composites.spherical_bessel_j0, node.cast(x, node.dtype()))


def _vectors(node: Node, *operands: Any) -> list[Expr]:
    """Operands in the result's dtype, broadcast to its shape, as vectors."""
    shape, dtype = _common_shape(*operands), node.dtype()
    tensors = [node.tensor(x, dtype) for x in operands]
    wide = [node.broadcast(x, shape) for x in tensors]
    return [node.reshape(x, (size_of(x),)) for x in wide]


def _common_shape(*operands: Any) -> tuple[int, ...]:
    return broadcast_shape(*(shape_in(x) for x in operands if isinstance(x, Expr)))
