"""Elementwise functions of one tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from weft import te
from weft.ir.attrs import Attrs, attr
from weft.ir.dtype import DType
from weft.ir.op import OpPattern, case, define_op
from weft.ir.types import TensorType
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import identity_relation
from weft.op.families import UNARY_CASES, boolean, in_dtype, numeric, unary
from weft.op.gradients import scalar
from weft.op.layout_inference import keep_layout
from weft.op.numpy_functions import erf as erf_reference
from weft.op.numpy_functions import sigmoid as sigmoid_reference
from weft.op.relations import attrs_as, checked, expect_number
from weft.topi import elementwise

_POSITIVE = (case((3, 5), low=0.1, high=4.0), case((), low=0.1, high=4.0), case((0, 2)))
_INTEGERS = (case((3, 5), dtypes="int32", low=-9, high=9),)

negative = unary("negative", np.negative, doc="-x", compute=elementwise.negative,
                 relation=numeric, cases=(*UNARY_CASES, *_INTEGERS),
                 grad=lambda _call, _y, dy: [-dy])
abs = unary("abs", np.abs, doc="The magnitude of x.", compute=elementwise.absolute,
            relation=numeric, cases=(*UNARY_CASES, *_INTEGERS),
            grad=lambda call, _y, dy: [dy * sign(call.args[0])])
exp = unary("exp", np.exp, doc="e**x", grad=lambda _call, y, dy: [dy * y])
log = unary("log", np.log, doc="The natural logarithm of x.", cases=_POSITIVE,
            grad=lambda call, _y, dy: [dy / call.args[0]])
log2 = unary("log2", np.log2, doc="The logarithm of x to base 2.", cases=_POSITIVE,
             compute=lambda x: elementwise.logarithm(x, math.log(2)),
             grad=lambda call, _y, dy: [dy / (call.args[0] * scalar(math.log(2), dy))])
log10 = unary("log10", np.log10, doc="The logarithm of x to base 10.", cases=_POSITIVE,
              compute=lambda x: elementwise.logarithm(x, math.log(10)),
              grad=lambda call, _y, dy: [dy / (call.args[0] * scalar(math.log(10), dy))])
sqrt = unary("sqrt", np.sqrt, doc="The square root of x.", cases=_POSITIVE,
             grad=lambda _call, y, dy: [dy / (y + y)])
rsqrt = unary("rsqrt", in_dtype(lambda x: 1 / np.sqrt(x)), doc="1 / sqrt(x)", cases=_POSITIVE,
              grad=lambda call, y, dy: [dy * y * y * y * scalar(-0.5, call.args[0])])
sigmoid = unary("sigmoid", sigmoid_reference, doc="1 / (1 + exp(-x))",
                grad=lambda _call, y, dy: [dy * (y - y * y)])
tanh = unary("tanh", np.tanh, doc="The hyperbolic tangent of x.",
             grad=lambda _call, y, dy: [dy - dy * y * y])
erf = unary("erf", erf_reference, doc="The error function of x.",
            grad=lambda call, _y, dy: [
                dy * exp(-(call.args[0] * call.args[0])) * scalar(1.1283791670955126, call.args[0])
            ])
sin = unary("sin", np.sin, doc="The sine of x (radians).",
            grad=lambda call, _y, dy: [dy * cos(call.args[0])])
cos = unary("cos", np.cos, doc="The cosine of x (radians).",
            grad=lambda call, _y, dy: [-dy * sin(call.args[0])])
floor = unary("floor", in_dtype(np.floor), doc="The largest integer not above x.",
              compute=lambda x: elementwise.rounding(x, "floor"), relation=numeric)
ceil = unary("ceil", in_dtype(np.ceil), doc="The smallest integer not below x.",
             compute=lambda x: elementwise.rounding(x, "ceil"), relation=numeric)
round = unary("round", in_dtype(np.round), doc="The nearest integer, halves to even.",
              compute=lambda x: elementwise.rounding(x, "round"), relation=numeric,
              cases=(case((3, 5), low=-4, high=4),
                     case(np.array([0.5, 1.5, -0.5, 2.5], np.float32))))
sign = unary("sign", np.sign, doc="-1, 0 or 1 as x is negative, zero or positive.",
             compute=elementwise.sign, relation=numeric, cases=(*UNARY_CASES, *_INTEGERS))
logical_not = unary("logical_not", np.logical_not, doc="not x, of booleans.",
                    compute=elementwise.logical_not, relation=boolean,
                    cases=(case((3, 5), dtypes="bool"), case((), dtypes="bool")))
copy = unary("copy", np.copy, doc="x itself, in memory of its own.",
             compute=elementwise.identity, relation=identity_relation,
             grad=lambda _call, _y, dy: [dy])
relu = unary("nn.relu", lambda x: np.maximum(x, np.zeros((), np.asarray(x).dtype)),
             doc="max(x, 0)", compute=elementwise.relu, relation=numeric,
             cases=(*UNARY_CASES, *_INTEGERS), grad=lambda _call, y, dy: [dy * sign(y)])


@dataclass(frozen=True, kw_only=True)
class CastAttrs(Attrs):
    dtype: DType = attr(doc="dtype of the result", expected="a dtype")


def _cast_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is None:
        return False
    ctx.output(TensorType(source.shape, attrs_as(ctx, CastAttrs).dtype))
    return True


@define_op("cast", attrs=CastAttrs, relation=_cast_relation, pattern=OpPattern.ELEMWISE, level=3)
def cast(x: te.Tensor, attrs: CastAttrs) -> te.Tensor:
    """``x`` converted to another dtype: towards zero from float to integer, x != 0 to bool."""
    return elementwise.cast(x, attrs.dtype)


cast.layout(keep_layout)
cast.spec(
    lambda x, dtype: np.asarray(x).astype(DType.of(dtype).numpy),
    case((3, 5), dtype="int32", low=-9, high=9),
    case((4,), dtypes="int32", dtype="float32", low=-9, high=9),
    case((2, 3), dtypes="bool", dtype="float32"),
    case((2, 3), dtypes="int32", dtype="bool", low=-1, high=1),
    case((2, 3), dtype="float64"),
    case((), dtypes="int64", dtype="int32", low=-9, high=9),
)


@dataclass(frozen=True, kw_only=True)
class ClipAttrs(Attrs):
    a_min: float = attr(doc="smallest value of the result", expected="a number")
    a_max: float = attr(doc="largest value of the result", expected="a number")


@define_op("clip", attrs=ClipAttrs, relation=checked(expect_number, identity_relation),
           pattern=OpPattern.ELEMWISE, level=3)
def clip(x: te.Tensor, attrs: ClipAttrs) -> te.Tensor:
    """min(max(x, a_min), a_max)"""
    return elementwise.clip(x, attrs.a_min, attrs.a_max)


def _clip_reference(x: np.ndarray, a_min: float, a_max: float) -> np.ndarray:
    array = np.asarray(x)
    if np.issubdtype(array.dtype, np.integer):
        info = np.iinfo(array.dtype)
        a_min, a_max = (int(min(max(v, info.min), info.max)) for v in (a_min, a_max))
    low, high = (np.asarray(v).astype(array.dtype) for v in (a_min, a_max))
    return np.minimum(np.maximum(array, low), high)


clip.layout(keep_layout)
clip.spec(_clip_reference, case((3, 5), a_min=-0.5, a_max=0.25), case((), a_min=0.0, a_max=6.0),
          case((7,), dtypes="int32", low=-9, high=9, a_min=-3, a_max=float("inf")))


@dataclass(frozen=True, kw_only=True)
class LeakyReluAttrs(Attrs):
    alpha: float = attr(0.01, "slope for negative values")


@define_op("nn.leaky_relu", attrs=LeakyReluAttrs,
           relation=checked(expect_number, identity_relation), pattern=OpPattern.ELEMWISE, level=3)
def leaky_relu(x: te.Tensor, attrs: LeakyReluAttrs) -> te.Tensor:
    """``x`` where it is positive, else alpha * x"""
    return elementwise.leaky_relu(x, attrs.alpha)


leaky_relu.layout(keep_layout)
leaky_relu.spec(in_dtype(lambda x, alpha: np.where(x > 0, x, x * np.asarray(alpha, x.dtype))),
                case((3, 5), alpha=0.1), case((2, 0, 3)), case((), alpha=0.5))
