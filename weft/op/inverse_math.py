"""Trigonometric and hyperbolic functions and their inverses, and classification of floats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import te
from weft.ir import Case, Op, OpPattern, RelationContext, TensorType, bool_, define_op, op_case
from weft.ir.traits import CONTINUOUS, ZERO_GRADIENT
from weft.op.broadcast import multiply, subtract
from weft.op.elementwise import rsqrt
from weft.op.families import UNARY_CASES, in_dtype, numeric, unary
from weft.op.gradients import Expr, scalar
from weft.op.layout_inference import keep_layout
from weft.tir.expr import PrimExpr, any_of
from weft.topi import elementwise
from weft.topi import inverse_math as topi

_WIDE = (op_case((3, 5), low=-6.0, high=6.0), *UNARY_CASES, op_case((4,), low=-1e-3, high=1e-3))
_UNIT = (op_case((3, 5), low=-0.95, high=0.95), op_case(()), op_case((0, 4)))
_ABOVE_ONE = (op_case((3, 5), low=1.01, high=9.0), op_case((), low=1.5, high=2.0), op_case((0, 4)))


def _function(
    name: str, reference: Callable[..., Any], compute: Callable[[PrimExpr], PrimExpr], doc: str,
    cases: tuple[Case, ...], grad: Callable[..., Any],
) -> Op:
    return unary(name, in_dtype(reference), doc=doc, cases=cases, grad=grad, traits=CONTINUOUS,
                 compute=lambda x: elementwise.apply(x, compute, name))


def _one_minus_square(x: Expr) -> Expr:
    return subtract(scalar(1, x), multiply(x, x))


tan = _function("tan", np.tan, topi.tan, "The tangent of x (radians).",
                (op_case((3, 5), low=-1.3, high=1.3), op_case(()), op_case((0, 4))),
                lambda _call, y, dy: [dy * (y * y + scalar(1, y))])
sinh = _function("sinh", np.sinh, topi.sinh, "The hyperbolic sine of x.", _WIDE,
                 lambda call, _y, dy: [dy * cosh(call.args[0])])
cosh = _function("cosh", np.cosh, topi.cosh, "The hyperbolic cosine of x.", _WIDE,
                 lambda call, _y, dy: [dy * sinh(call.args[0])])
asin = _function("asin", np.arcsin, topi.asin, "The angle whose sine is x.", _UNIT,
                 lambda call, _y, dy: [dy * rsqrt(_one_minus_square(call.args[0]))])
acos = _function("acos", np.arccos, topi.acos, "The angle whose cosine is x.", _UNIT,
                 lambda call, _y, dy: [-dy * rsqrt(_one_minus_square(call.args[0]))])
atan = _function("atan", np.arctan, topi.atan, "The angle whose tangent is x.", _WIDE,
                 lambda call, _y, dy: [
                     dy / (call.args[0] * call.args[0] + scalar(1, call.args[0]))])
asinh = _function("asinh", np.arcsinh, topi.asinh, "The inverse of the hyperbolic sine.", _WIDE,
                  lambda call, _y, dy: [
                      dy * rsqrt(call.args[0] * call.args[0] + scalar(1, call.args[0]))])
acosh = _function("acosh", np.arccosh, topi.acosh, "The inverse of the hyperbolic cosine.",
                  _ABOVE_ONE,
                  lambda call, _y, dy: [
                      dy * rsqrt(call.args[0] * call.args[0] - scalar(1, call.args[0]))])
atanh = _function("atanh", np.arctanh, topi.atanh, "The inverse of the hyperbolic tangent.", _UNIT,
                  lambda call, _y, dy: [dy / _one_minus_square(call.args[0])])
log1p = _function("log1p", np.log1p, topi.log1p, "log(1 + x), accurate near 0.",
                  (op_case((3, 5), low=-0.9, high=9.0), op_case((), low=0.1, high=0.2),
                   op_case((0, 4)),
                   op_case((4,), low=-1e-6, high=1e-6)),
                  lambda call, _y, dy: [dy / (call.args[0] + scalar(1, call.args[0]))])
expm1 = _function("expm1", np.expm1, topi.expm1, "e**x - 1, accurate near 0.", _WIDE,
                  lambda _call, y, dy: [dy * (y + scalar(1, y))])
trunc = unary("trunc", in_dtype(np.trunc), doc="x truncated towards zero.",
              compute=lambda x: elementwise.rounding(x, "trunc"), relation=numeric,
              cases=(op_case((3, 5), low=-4, high=4), op_case(()), op_case((0, 4))),
              traits=ZERO_GRADIENT)

_SPECIAL = (op_case(np.array([1.0, np.nan, -np.inf, np.inf], np.float32)), op_case((2, 3)),
            op_case(()),
            op_case((0, 4)))


def _test_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.expect_float(0, source)
    ctx.output(TensorType(source.shape, bool_))
    return True


def _float_test(
    name: str, reference: Callable[..., Any], test: Callable[[PrimExpr], PrimExpr], doc: str
) -> Op:
    def run(x: te.Tensor, _attrs: Any) -> te.Tensor:
        return elementwise.apply(x, test, name)

    run.__doc__ = doc
    op = define_op(name, relation=_test_relation, pattern=OpPattern.ELEMWISE, level=3,
                   inputs=("x",))(run)
    op.spec(lambda x: np.asarray(reference(x)), *_SPECIAL)
    op.layout(keep_layout)
    return op


def _is_infinite(x: PrimExpr) -> PrimExpr:
    return any_of(x.equal(te.max_value(x.dtype)), x.equal(te.min_value(x.dtype)))


def _is_finite(x: PrimExpr) -> PrimExpr:
    return te.abs(x) < te.max_value(x.dtype)


isnan = _float_test("isnan", np.isnan, te.isnan, "Whether x is NaN.")
isinf = _float_test("isinf", np.isinf, _is_infinite, "Whether x is infinite.")
isfinite = _float_test("isfinite", np.isfinite, _is_finite,
                       "Whether x is neither infinite nor NaN.")
for _test in (isnan, isinf, isfinite):
    _test.no_gradient("a test is a step")
