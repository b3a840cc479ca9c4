"""Bessel functions of orders 0 and 1, of both kinds, modified or not, and Airy's function."""

from __future__ import annotations

from functools import partial

import numpy as np

from weft.ir import Call, Expr, op_case
from weft.op.broadcast import divide, equal, where
from weft.op.elementwise import sign
from weft.op.gradients import scalar
from weft.op.special.errors import special
from weft.topi.special import bessel as topi

_ENDS = np.array([0.0, np.nan, np.inf, -np.inf, 8.0, -8.0], np.float32)
_EVEN = (op_case((3, 5), low=-16.0, high=16.0), op_case(_ENDS),
         op_case((5,), low=0.0, high=20.0, dtypes="float64"))
_POSITIVE = (op_case((3, 5), low=0.05, high=12.0),
             op_case(np.array([0.0, -1.0, np.nan, np.inf], np.float32)),
             op_case((5,), low=0.5, high=20.0, dtypes="float64"))


def _over(y: Expr, x: Expr, at_zero: float) -> Expr:
    """The ratio y / x, with ``at_zero`` where x is zero."""
    none = equal(x, scalar(0, x))
    return where(none, scalar(at_zero, y), divide(y, where(none, scalar(1, x), x)))


def _i1_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    return [dy * (modified_bessel_i0(call.args[0]) - _over(y, call.args[0], 0.5))]


def _i1e_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    x = call.args[0]
    return [dy * (modified_bessel_i0e(x) - _over(y, x, 0.5) - sign(x) * y)]


modified_bessel_i0 = special(
    "modified_bessel_i0", topi.modified_bessel_i0, doc="The modified Bessel function I0(x).",
    cases=_EVEN, grad=lambda call, _y, dy: [dy * modified_bessel_i1(call.args[0])])
modified_bessel_i0e = special(
    "modified_bessel_i0e", topi.modified_bessel_i0e, doc="exp(-|x|) * I0(x)", cases=_EVEN,
    grad=lambda call, y, dy: [
        dy * (modified_bessel_i1e(call.args[0]) - sign(call.args[0]) * y)])
modified_bessel_i1 = special(
    "modified_bessel_i1", topi.modified_bessel_i1, doc="The modified Bessel function I1(x).",
    cases=_EVEN, grad=_i1_gradient)
modified_bessel_i1e = special(
    "modified_bessel_i1e", topi.modified_bessel_i1e, doc="exp(-|x|) * I1(x)", cases=_EVEN,
    grad=_i1e_gradient)
modified_bessel_k0 = special(
    "modified_bessel_k0", topi.modified_bessel_k0,
    doc="The modified Bessel function K0(x), infinite at 0, NaN below.", cases=_POSITIVE,
    grad=lambda call, _y, dy: [-dy * modified_bessel_k1(call.args[0])])
modified_bessel_k0e = special(
    "modified_bessel_k0e", partial(topi.modified_bessel_k0, scaled=True), doc="exp(x) * K0(x)",
    cases=_POSITIVE, grad=lambda call, y, dy: [dy * (y - modified_bessel_k1e(call.args[0]))])
modified_bessel_k1 = special(
    "modified_bessel_k1", topi.modified_bessel_k1,
    doc="The modified Bessel function K1(x), infinite at 0, NaN below.", cases=_POSITIVE,
    grad=lambda call, y, dy: [-dy * (modified_bessel_k0(call.args[0]) + y / call.args[0])])
modified_bessel_k1e = special(
    "modified_bessel_k1e", partial(topi.modified_bessel_k1, scaled=True), doc="exp(x) * K1(x)",
    cases=_POSITIVE,
    grad=lambda call, y, dy: [
        dy * (y - y / call.args[0] - modified_bessel_k0e(call.args[0]))])
bessel_j0 = special(
    "bessel_j0", topi.bessel_j0, doc="The Bessel function of the first kind J0(x).", cases=_EVEN,
    grad=lambda call, _y, dy: [-dy * bessel_j1(call.args[0])])
bessel_j1 = special(
    "bessel_j1", topi.bessel_j1, doc="The Bessel function of the first kind J1(x).", cases=_EVEN,
    grad=lambda call, y, dy: [dy * (bessel_j0(call.args[0]) - _over(y, call.args[0], 0.5))])
bessel_y0 = special(
    "bessel_y0", topi.bessel_y0,
    doc="The Bessel function of the second kind Y0(x), minus infinity at 0, NaN below.",
    cases=_POSITIVE, grad=lambda call, _y, dy: [-dy * bessel_y1(call.args[0])])
bessel_y1 = special(
    "bessel_y1", topi.bessel_y1,
    doc="The Bessel function of the second kind Y1(x), minus infinity at 0, NaN below.",
    cases=_POSITIVE,
    grad=lambda call, y, dy: [dy * (bessel_y0(call.args[0]) - y / call.args[0])])


def _airy_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [dy * airy_ai_prime(call.args[0])]


_AIRY_CASES = (op_case((3, 5), low=-9.0, high=4.0), op_case(()), op_case((0, 4)), op_case(_ENDS))
airy_ai = special("airy_ai", topi.airy_ai, doc="The Airy function Ai(x), NaN at infinities.",
                  cases=_AIRY_CASES, grad=_airy_gradient)
airy_ai_prime = special(
    "airy_ai_prime", topi.airy_ai_prime,
    doc="The derivative of the Airy function Ai(x), NaN at infinities.", cases=_AIRY_CASES,
    grad=lambda call, _y, dy: [dy * call.args[0] * airy_ai(call.args[0])])
