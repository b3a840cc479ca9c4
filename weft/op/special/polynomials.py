"""Orthogonal polynomials with a degree per element."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np

from weft import op, te
from weft.ir import Attrs, Call, Expr, OpPattern, TensorType, attr, define_op, one_of, op_case
from weft.ir.typing.relation import RelationContext
from weft.op.cut_axes import broadcast_axes
from weft.op.gradients import attrs_of, typed_zeros
from weft.support.dataclass import dataclass
from weft.topi.special.recurrences import (
    LARGEST_DEGREE,
    POLYNOMIALS,
    evaluate_derivatives,
    evaluate_polynomials,
    polynomial_derivative,
)
from weft.topi.special.recurrences import (
    orthogonal_polynomial as topi_polynomial,
)

_KINDS = tuple(POLYNOMIALS)


@dataclass(frozen=True, kw_only=True)
class OrthogonalPolynomialAttrs(Attrs):
    kind: str = attr(doc="family of polynomials", check=one_of(*_KINDS),
                     expected=", ".join(_KINDS))
    derivative: int = attr(0, "order of the derivative in x", check=lambda d: 0 <= d < 16,
                           expected="a number from 0 to 15")


def _relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    x, n = types
    ctx.expect_float(0, x)
    ctx.expect_int(1, n)
    for arg, type_ in enumerate(types):
        ctx.expect_rank(arg, type_, 1)
    ctx.expect_dim(1, 0, n.shape[0], x.shape[0], "expected one degree per argument")
    ctx.output(TensorType(x.shape, x.dtype))
    return True


@define_op("special.orthogonal_polynomial", attrs=OrthogonalPolynomialAttrs, relation=_relation,
           pattern=OpPattern.OPAQUE, level=10, inputs=("x", "n"))
def orthogonal_polynomial(
    x: te.Tensor, n: te.Tensor, attrs: OrthogonalPolynomialAttrs
) -> te.Tensor:
    """The polynomial of degree ``n`` at ``x``, elementwise; zero for negative degrees.

    NaN for degrees above 2^20, whose values by recurrence would have few correct digits.
    Both are vectors. Computed by three-term recurrences in float64, and so are derivatives.
    """
    if attrs.derivative:
        return polynomial_derivative(x, n, attrs.kind, attrs.derivative)
    return topi_polynomial(x, n, attrs.kind)


@orthogonal_polynomial.gradient
def _gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    x, n = call.args
    attrs = attrs_of(call, OrthogonalPolynomialAttrs)
    slope = orthogonal_polynomial(x, n, kind=attrs.kind, derivative=attrs.derivative + 1)
    return [op.multiply(dy, slope), typed_zeros(n)]


def _reference(x: np.ndarray, n: np.ndarray, kind: str, derivative: int = 0) -> np.ndarray:
    out, wide = np.zeros(x.shape, np.float64), x.astype(np.float64)
    numbers = (LARGEST_DEGREE, *map(float, astuple(POLYNOMIALS[kind])))
    with np.errstate(all="ignore"):
        if derivative:
            state = np.zeros((2, derivative + 1))
            evaluate_derivatives(wide, n, out, state, derivative, *numbers)
        else:
            evaluate_polynomials(wide, n, out, *numbers)
        return out.astype(x.dtype)


_DEGREES = np.array([0, 1, 2, 3, 7, -1, 12])
orthogonal_polynomial.cut_axes(broadcast_axes)
orthogonal_polynomial.spec(
    _reference,
    *(op_case((7,), _DEGREES, kind=kind) for kind in ("chebyshev_t", "hermite_h", "laguerre_l")),
    op_case(np.array([1.0, -1.0, 1.0, -1.0, 0.0, 2.0, np.nan], np.float32), _DEGREES,
            kind="chebyshev_t"),
    op_case((3,), np.array([4, 5, 6], np.int32), kind="legendre_p", dtypes=("float64", "int32")),
    op_case((7,), _DEGREES, kind="chebyshev_u", derivative=1),
    op_case((7,), _DEGREES, kind="legendre_p", derivative=3, dtypes=("float64", "int64")),
)
