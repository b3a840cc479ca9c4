"""The gamma function's logarithm and its derivatives, zeta, and the incomplete gamma functions."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, OpPattern, TensorType, attr, define_op, op_case
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import float_unary
from weft.op.cut_axes import broadcast_axes
from weft.op.families import float_arithmetic
from weft.op.gradients import attrs_of
from weft.op.layout_inference import join_layouts, keep_layout
from weft.op.special.errors import special
from weft.support.dataclass import dataclass
from weft.topi.special import gamma as topi
from weft.topi.special import recurrences
from weft.topi.special.arithmetic import Arithmetic, Function, of_elements, on_arrays

_POLES = np.array([0.0, -0.0, -1.0, -2.5, 1.0, 2.0, np.nan, np.inf], np.float32)
_BOTH_SIGNS = (op_case((3, 5), low=0.1, high=12.0), op_case((2, 4), low=-4.9, high=-4.1),
               op_case(_POLES), op_case((4,), low=20.0, high=90.0, dtypes="float64"))

lgamma = special("lgamma", topi.lgamma, doc="log |gamma(x)|, infinite at 0, -1, -2, …",
                 cases=_BOTH_SIGNS,
                 grad=lambda call, _y, dy: [dy * digamma(call.args[0])])
digamma = special("digamma", topi.digamma, doc="The derivative of log gamma(x).",
                  cases=_BOTH_SIGNS,
                  grad=lambda call, _y, dy: [dy * polygamma(call.args[0], order=1)])


@dataclass(frozen=True, kw_only=True)
class PolygammaAttrs(Attrs):
    order: int = attr(doc="order of the derivative of digamma", check=lambda n: 0 <= n < 100,
                      expected="a number from 0 to 99")


def _polygamma(order: int) -> Function:
    def of(m: Arithmetic, x: object) -> object:
        return topi.polygamma(m, order, x)

    return of


@define_op("special.polygamma", attrs=PolygammaAttrs, relation=float_unary,
           pattern=OpPattern.ELEMWISE, level=1, inputs=("x",))
def polygamma(x: te.Tensor, attrs: PolygammaAttrs) -> te.Tensor:
    """The derivative of order ``order`` of digamma at x."""
    return of_elements(_polygamma(attrs.order), (x,), "polygamma")


@polygamma.gradient
def _polygamma_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    order = attrs_of(call, PolygammaAttrs).order
    return [dy * polygamma(call.args[0], order=order + 1)]


polygamma.layout(keep_layout)
polygamma.spec(
    lambda x, order: on_arrays(_polygamma(order), x),
    op_case((3, 5), low=0.3, high=9.0, order=1), op_case((2, 4), low=-2.9, high=-2.1, order=2),
    op_case(_POLES, order=1), op_case((4,), low=5.0, high=30.0, order=4, dtypes="float64"),
)


@define_op("special.zeta", relation=float_arithmetic, pattern=OpPattern.BROADCAST, level=1,
           inputs=("s", "q"))
def zeta(s: te.Tensor, q: te.Tensor, _attrs: Attrs) -> te.Tensor:
    """The Hurwitz zeta function: the sum of (q + k)**-s over k = 0, 1, 2, …"""
    return of_elements(topi.zeta, (s, q), "zeta")


_ORDERS = np.array([[1.0], [2.0], [0.5], [3.0], [2.5]], np.float32)
_STARTS = np.array([1.0, 0.25, 0.0, -1.0, -2.5, 7.0], np.float32)
zeta.layout(join_layouts)
zeta.spec(
    lambda s, q: on_arrays(topi.zeta, s, q),
    op_case((3, 5), (5,), low=1.1, high=6.0), op_case(_ORDERS, _STARTS),
)


@dataclass(frozen=True, kw_only=True)
class IncompleteGammaAttrs(Attrs):
    upper: bool = attr(False, "the integral from x to infinity, not from 0 to x")


def _pair_relation(ctx: RelationContext) -> bool:
    types = ctx.tensors_known(2)
    if types is None:
        return False
    first, second = types
    for arg, type_ in enumerate(types):
        ctx.expect_float(arg, type_)
        ctx.expect_rank(arg, type_, 1)
    ctx.expect_same_dtype(1, second, first.dtype)
    ctx.expect_dim(1, 0, second.shape[0], first.shape[0], "the lengths differ")
    ctx.output(TensorType(second.shape, second.dtype))
    return True


@define_op("special.incomplete_gamma", attrs=IncompleteGammaAttrs, relation=_pair_relation,
           pattern=OpPattern.OPAQUE, level=10, inputs=("a", "x"))
def incomplete_gamma(a: te.Tensor, x: te.Tensor, attrs: IncompleteGammaAttrs) -> te.Tensor:
    """The regularised incomplete gamma function P(a, x), or Q = 1 - P; both are vectors."""
    return recurrences.incomplete_gamma(a, x, upper=attrs.upper)


def _incomplete_reference(a: np.ndarray, x: np.ndarray, upper: bool = False) -> np.ndarray:
    out = np.zeros(x.shape, np.float64)
    recurrences.integrate_gamma(a.astype(np.float64), x.astype(np.float64), out, upper)
    return out.astype(x.dtype)


_A = np.array([0.0, 0.0, 2.0, 2.0, -1.0, 3.0, 50.0, 0.5], np.float32)
_X = np.array([0.0, 1.0, 0.0, np.inf, 1.0, np.nan, 45.0, 30.0], np.float32)
incomplete_gamma.cut_axes(broadcast_axes)
incomplete_gamma.spec(
    _incomplete_reference,
    op_case((7,), (7,), low=0.1, high=9.0), op_case((5,), (5,), low=0.1, high=9.0, upper=True),
    op_case(_A, _X), op_case(_A, _X, upper=True), op_case((0,), (0,)),
)
