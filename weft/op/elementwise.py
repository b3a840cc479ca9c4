"""Elementwise functions of one tensor, and classification of floats."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from weft import op, te
from weft.ir import (
    Attrs,
    Call,
    Case,
    DType,
    Expr,
    Op,
    OpPattern,
    RelationContext,
    TensorType,
    attr,
    bool_,
    define_op,
    identity_relation,
    op_case,
)
from weft.ir.traits import (
    CONTINUOUS,
    COPIES_ELEMENTS,
    SENSITIVE,
    ZERO_GRADIENT,
    Homogeneity,
    OpTraits,
    linear,
)
from weft.op.broadcast import multiply, subtract
from weft.op.families import UNARY_CASES, boolean, in_dtype, numeric, unary
from weft.op.gradients import attrs_of, scalar, tensor_type
from weft.op.layout_inference import keep_layout
from weft.op.numpy_functions import erf as erf_reference
from weft.op.numpy_functions import sigmoid as sigmoid_reference
from weft.op.relations import checked, expect_number
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr, any_of
from weft.topi import elementwise

_POSITIVE = (op_case((3, 5), low=0.1, high=4.0), op_case((), low=0.1, high=4.0), op_case((0, 2)))
_INTEGERS = (op_case((3, 5), dtypes="int32", low=-9, high=9),)
_EXPENSIVE_AND_SENSITIVE = replace(SENSITIVE, is_expensive=True)
_RECTIFIER = replace(CONTINUOUS, homogeneity=Homogeneity.POSITIVE)

negative = unary("negative", np.negative, doc="-x", compute=elementwise.negative,
                 relation=numeric, cases=(*UNARY_CASES, *_INTEGERS),
                 grad=lambda _call, _y, dy: [-dy], traits=linear(CONTINUOUS))
abs = unary("abs", np.abs, doc="The magnitude of x.", compute=elementwise.absolute,
            relation=numeric, cases=(*UNARY_CASES, *_INTEGERS),
            grad=lambda call, _y, dy: [dy * sign(call.args[0])], traits=CONTINUOUS)
# Where a derivative is a function of the result y, the gradient uses y: it is known already, and
# the function is not evaluated a second time.
exp = unary("exp", np.exp, doc="e**x", grad=lambda _call, y, dy: [dy * y],
            traits=_EXPENSIVE_AND_SENSITIVE)
log = unary("log", np.log, doc="The natural logarithm of x.", cases=_POSITIVE,
            grad=lambda call, _y, dy: [dy / call.args[0]], traits=_EXPENSIVE_AND_SENSITIVE)
log2 = unary("log2", np.log2, doc="The logarithm of x to base 2.", cases=_POSITIVE,
             compute=lambda x: elementwise.logarithm(x, math.log(2)),
             grad=lambda call, _y, dy: [dy / (call.args[0] * scalar(math.log(2), dy))],
             traits=CONTINUOUS)
log10 = unary("log10", np.log10, doc="The logarithm of x to base 10.", cases=_POSITIVE,
              compute=lambda x: elementwise.logarithm(x, math.log(10)),
              grad=lambda call, _y, dy: [dy / (call.args[0] * scalar(math.log(10), dy))],
              traits=CONTINUOUS)
sqrt = unary("sqrt", np.sqrt, doc="The square root of x.", cases=_POSITIVE,
             grad=lambda _call, y, dy: [dy / (y + y)], traits=SENSITIVE)
rsqrt = unary("rsqrt", in_dtype(lambda x: 1 / np.sqrt(x)), doc="1 / sqrt(x)", cases=_POSITIVE,
              grad=lambda call, y, dy: [dy * y * y * y * scalar(-0.5, call.args[0])],
              traits=SENSITIVE)
sigmoid = unary("sigmoid", sigmoid_reference, doc="1 / (1 + exp(-x))",
                grad=lambda _call, y, dy: [dy * (y - y * y)], traits=CONTINUOUS)
tanh = unary("tanh", np.tanh, doc="The hyperbolic tangent of x.",
             grad=lambda _call, y, dy: [dy - dy * y * y],
             traits=replace(CONTINUOUS, is_expensive=True))
# The factor of the gradient is 2 / sqrt(pi).
erf = unary("erf", erf_reference, doc="The error function of x.",
            grad=lambda call, _y, dy: [
                dy * exp(-(call.args[0] * call.args[0])) * scalar(1.1283791670955126, call.args[0])
            ], traits=_EXPENSIVE_AND_SENSITIVE)
sin = unary("sin", np.sin, doc="The sine of x (radians).",
            grad=lambda call, _y, dy: [dy * cos(call.args[0])], traits=CONTINUOUS)
cos = unary("cos", np.cos, doc="The cosine of x (radians).",
            grad=lambda call, _y, dy: [-dy * sin(call.args[0])], traits=CONTINUOUS)
floor = unary("floor", in_dtype(np.floor), doc="The largest integer not above x.",
              compute=lambda x: elementwise.rounding(x, "floor"), relation=numeric,
              traits=ZERO_GRADIENT)
ceil = unary("ceil", in_dtype(np.ceil), doc="The smallest integer not below x.",
             compute=lambda x: elementwise.rounding(x, "ceil"), relation=numeric,
             traits=ZERO_GRADIENT)
round = unary("round", in_dtype(np.round), doc="The nearest integer, halves to even.",
              compute=lambda x: elementwise.rounding(x, "round"), relation=numeric,
              cases=(op_case((3, 5), low=-4, high=4),
                     op_case(np.array([0.5, 1.5, -0.5, 2.5], np.float32))), traits=ZERO_GRADIENT)
sign = unary("sign", np.sign, doc="-1, 0 or 1 for negative, zero or positive x.",
             compute=elementwise.sign, relation=numeric, cases=(*UNARY_CASES, *_INTEGERS),
             traits=ZERO_GRADIENT)
logical_not = unary("logical_not", np.logical_not, doc="not x, of booleans.",
                    compute=elementwise.logical_not, relation=boolean,
                    cases=(op_case((3, 5), dtypes="bool"), op_case((), dtypes="bool")))
copy = unary("copy", np.copy, doc="A copy of x.",
             compute=elementwise.identity, relation=identity_relation,
             grad=lambda _call, _y, dy: [dy], traits=replace(COPIES_ELEMENTS, keeps_scale=True))
copy.identity(lambda call: call.args[0])
relu = unary("nn.relu", lambda x: np.maximum(x, np.zeros((), np.asarray(x).dtype)),
             doc="max(x, 0)", compute=elementwise.relu, relation=numeric,
             cases=(*UNARY_CASES, *_INTEGERS), grad=lambda _call, y, dy: [dy * sign(y)],
             traits=_RECTIFIER)

_FORMS, _SHAPES, _FAST = (
    "weft.op.qnn.integer_forms", "weft.op.shape_values", "weft.op.fast_math")
relu.refer(integer_form=f"{_FORMS}:relu")
for _op in (erf, exp, log, rsqrt, sigmoid, sqrt, tanh):
    _op.refer(requantized_form=f"{_FORMS}:{_op.name}")
abs.refer(requantized_form=f"{_FORMS}:abs_")
for _op in (erf, exp, sigmoid, tanh):
    _op.refer(fast_form=f"{_FAST}:{_op.name.upper()}")
for _op in (negative, logical_not):
    _op.refer(shape_value=f"{_SHAPES}:{_op.name}")
copy.refer(shape_value=f"{_SHAPES}:moved")


@dataclass(frozen=True, kw_only=True)
class CastAttrs(Attrs):
    dtype: DType = attr(doc="dtype of the result", expected="a dtype")


def _cast_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.output(TensorType(source.shape, ctx.attrs_as(CastAttrs).dtype))
    return True


@define_op("cast", attrs=CastAttrs, relation=_cast_relation, pattern=OpPattern.ELEMWISE, level=3,
           traits=linear(OpTraits(is_identity_at_same_type=True)))
def cast(x: te.Tensor, attrs: CastAttrs) -> te.Tensor:
    """``x`` converted to another dtype; floats are truncated to integers, bool is x != 0."""
    return elementwise.cast(x, attrs.dtype)


cast.layout(keep_layout)
cast.refer(shape_value=f"{_SHAPES}:cast")
cast.spec(
    lambda x, dtype: np.asarray(x).astype(DType.of(dtype).numpy),
    op_case((3, 5), dtype="int32", low=-9, high=9),
    op_case((4,), dtypes="int32", dtype="float32", low=-9, high=9),
    op_case((2, 3), dtypes="bool", dtype="float32"),
    op_case((2, 3), dtypes="int32", dtype="bool", low=-1, high=1),
    op_case((2, 3), dtype="float64"),
    op_case((), dtypes="int64", dtype="int32", low=-9, high=9),
)


@cast.gradient
def _cast_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    return [op.cast(dy, dtype=tensor_type(call.args[0]).dtype)]


@dataclass(frozen=True, kw_only=True)
class ClipAttrs(Attrs):
    a_min: float = attr(doc="smallest value of the result", expected="a number")
    a_max: float = attr(doc="largest value of the result", expected="a number")
    flat_ends: bool = attr(False, "the derivative at a_min and a_max is 0 (torch's hardtanh), "
                                  "not 1 (clamp)")


@define_op("clip", attrs=ClipAttrs, relation=checked(expect_number, identity_relation),
           pattern=OpPattern.ELEMWISE, level=3, traits=CONTINUOUS)
def clip(x: te.Tensor, attrs: ClipAttrs) -> te.Tensor:
    """min(max(x, a_min), a_max)"""
    return elementwise.clip(x, attrs.a_min, attrs.a_max)


def _clip_reference(x: np.ndarray, a_min: float, a_max: float, **_: Any) -> np.ndarray:
    array = np.asarray(x)
    if np.issubdtype(array.dtype, np.integer):
        info = np.iinfo(array.dtype)
        a_min, a_max = (int(min(max(v, info.min), info.max)) for v in (a_min, a_max))
    low, high = (np.asarray(v).astype(array.dtype) for v in (a_min, a_max))
    return np.minimum(np.maximum(array, low), high)


clip.layout(keep_layout)
clip.spec(_clip_reference, op_case((3, 5), a_min=-0.5, a_max=0.25),
          op_case((), a_min=0.0, a_max=6.0),
          op_case((7,), dtypes="int32", low=-9, high=9, a_min=-3, a_max=float("inf")))


@clip.gradient
def _clip_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    x, attrs = call.args[0], attrs_of(call, ClipAttrs)
    low, high = scalar(attrs.a_min, x), scalar(attrs.a_max, x)
    above, below = (op.greater, op.less) if attrs.flat_ends else (op.greater_equal, op.less_equal)
    inside = op.logical_and(above(x, low), below(x, high))
    return [op.where(inside, dy, scalar(0.0, dy))]


@dataclass(frozen=True, kw_only=True)
class LeakyReluAttrs(Attrs):
    alpha: float = attr(0.01, "slope for negative values")


@define_op("nn.leaky_relu", attrs=LeakyReluAttrs,
           relation=checked(expect_number, identity_relation), pattern=OpPattern.ELEMWISE, level=3,
           traits=_RECTIFIER)
def leaky_relu(x: te.Tensor, attrs: LeakyReluAttrs) -> te.Tensor:
    """``x`` where it is positive, otherwise alpha * x"""
    return elementwise.leaky_relu(x, attrs.alpha)


leaky_relu.layout(keep_layout)
leaky_relu.refer(requantized_form=f"{_FORMS}:leaky_relu")
leaky_relu.spec(in_dtype(lambda x, alpha: np.where(x > 0, x, x * np.asarray(alpha, x.dtype))),
                op_case((3, 5), alpha=0.1), op_case((2, 0, 3)), op_case((), alpha=0.5))


@leaky_relu.gradient
def _leaky_relu_gradient(call: Call, _y: Expr, dy: Expr) -> list[Expr]:
    x, attrs = call.args[0], attrs_of(call, LeakyReluAttrs)
    slope = scalar(attrs.alpha, x)
    return [op.where(op.greater(x, scalar(0.0, x)), dy, op.multiply(dy, slope))]


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


tan = _function("tan", np.tan, elementwise.tan, "The tangent of x (radians).",
                (op_case((3, 5), low=-1.3, high=1.3), op_case(()), op_case((0, 4))),
                lambda _call, y, dy: [dy * (y * y + scalar(1, y))])
sinh = _function("sinh", np.sinh, elementwise.sinh, "The hyperbolic sine of x.", _WIDE,
                 lambda call, _y, dy: [dy * cosh(call.args[0])])
cosh = _function("cosh", np.cosh, elementwise.cosh, "The hyperbolic cosine of x.", _WIDE,
                 lambda call, _y, dy: [dy * sinh(call.args[0])])
asin = _function("asin", np.arcsin, elementwise.asin, "The angle whose sine is x.", _UNIT,
                 lambda call, _y, dy: [dy * rsqrt(_one_minus_square(call.args[0]))])
acos = _function("acos", np.arccos, elementwise.acos, "The angle whose cosine is x.", _UNIT,
                 lambda call, _y, dy: [-dy * rsqrt(_one_minus_square(call.args[0]))])
atan = _function("atan", np.arctan, elementwise.atan, "The angle whose tangent is x.", _WIDE,
                 lambda call, _y, dy: [
                     dy / (call.args[0] * call.args[0] + scalar(1, call.args[0]))])
asinh = _function("asinh", np.arcsinh, elementwise.asinh, "The inverse of the hyperbolic sine.",
                  _WIDE,
                  lambda call, _y, dy: [
                      dy * rsqrt(call.args[0] * call.args[0] + scalar(1, call.args[0]))])
acosh = _function("acosh", np.arccosh, elementwise.acosh, "The inverse of the hyperbolic cosine.",
                  _ABOVE_ONE,
                  lambda call, _y, dy: [
                      dy * rsqrt(call.args[0] * call.args[0] - scalar(1, call.args[0]))])
atanh = _function("atanh", np.arctanh, elementwise.atanh, "The inverse of the hyperbolic tangent.",
                  _UNIT, lambda call, _y, dy: [dy / _one_minus_square(call.args[0])])
log1p = _function("log1p", np.log1p, elementwise.log1p, "log(1 + x), accurate near 0.",
                  (op_case((3, 5), low=-0.9, high=9.0), op_case((), low=0.1, high=0.2),
                   op_case((0, 4)),
                   op_case((4,), low=-1e-6, high=1e-6)),
                  lambda call, _y, dy: [dy / (call.args[0] + scalar(1, call.args[0]))])
expm1 = _function("expm1", np.expm1, elementwise.expm1, "e**x - 1, accurate near 0.", _WIDE,
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
