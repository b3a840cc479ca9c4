"""Softmax and log-softmax."""

from __future__ import annotations

import numpy as np

from weft import te
from weft.ir import Attrs, Call, Expr, OpPattern, TensorType, attr, define_op, float32, op_case
from weft.ir.traits import CONTINUOUS, SENSITIVE, Family, in_family
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import identity_relation, normalize_axis
from weft.op.batching import along
from weft.op.elementwise import exp
from weft.op.gradients import attrs_of
from weft.op.layout_inference import along_axis
from weft.op.reduce import sum as sum_op
from weft.op.relations import checked
from weft.support.dataclass import dataclass
from weft.topi.fast_math import fast_exp
from weft.topi.nn import norm as topi_norm


@dataclass(frozen=True, kw_only=True)
class SoftmaxAttrs(Attrs):
    axis: int = attr(-1, "axis normalised over; negative counts from the end")


def _softmax_relation(ctx: RelationContext) -> bool:
    source = ctx.tensor(0)
    if source is not None:
        ctx.expect_float(0, source)
        normalize_axis(ctx, ctx.attrs_as(SoftmaxAttrs).axis, source.ndim)
    return identity_relation(ctx)


@define_op("nn.softmax", attrs=SoftmaxAttrs, relation=_softmax_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1, traits=in_family(Family.REDUCTION, SENSITIVE))
def softmax(x: te.Tensor, attrs: SoftmaxAttrs) -> te.Tensor:
    """y[i] = exp(x[i] - max x) / sum exp(x - max x), along an axis."""
    return topi_norm.softmax(x, attrs.axis % x.ndim)


@define_op("nn.log_softmax", attrs=SoftmaxAttrs, relation=_softmax_relation,
           pattern=OpPattern.OUT_FUSABLE, level=1, traits=in_family(Family.REDUCTION, SENSITIVE))
def log_softmax(x: te.Tensor, attrs: SoftmaxAttrs) -> te.Tensor:
    """y[i] = x[i] - max x - log sum exp(x - max x), along an axis."""
    return topi_norm.log_softmax(x, attrs.axis % x.ndim)


def _expect_float32(ctx: RelationContext, arg: int, type_: TensorType) -> None:
    if type_.dtype != float32:
        ctx.fail("defined for float32 only", arg=arg, expected="float32", got=type_.dtype,
                 help="use nn.softmax for other dtypes")


@define_op("nn.fast_softmax", attrs=SoftmaxAttrs,
           relation=checked(_expect_float32, _softmax_relation), pattern=OpPattern.OUT_FUSABLE,
           level=1, traits=CONTINUOUS)
def fast_softmax(x: te.Tensor, attrs: SoftmaxAttrs) -> te.Tensor:
    """``nn.softmax`` of float32 by ``fast_exp``, with a relative error of 1e-5."""
    return topi_norm.softmax(x, attrs.axis % x.ndim, fast_exp)


def _shifted(x: np.ndarray, axis: int) -> np.ndarray:
    wide = x.astype(np.float64)
    return wide - wide.max(axis=axis, keepdims=True, initial=-np.inf)


def _softmax_reference(x: np.ndarray, axis: int = -1) -> np.ndarray:
    powers = np.exp(_shifted(x, axis))
    return (powers / powers.sum(axis=axis, keepdims=True)).astype(x.dtype)


def _log_softmax_reference(x: np.ndarray, axis: int = -1) -> np.ndarray:
    shifted = _shifted(x, axis)
    total = np.exp(shifted).sum(axis=axis, keepdims=True)
    return (shifted - np.log(total)).astype(x.dtype)


_CASES = (op_case((3, 5)), op_case((2, 4, 3), axis=1), op_case((7,), axis=0),
          op_case((2, 5), low=80.0, high=100.0), op_case((0, 4)))

@softmax.gradient
@fast_softmax.gradient
def _softmax_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    return [(dy - sum_op(dy * y, axis=attrs_of(call, SoftmaxAttrs).axis, keepdims=True)) * y]


@log_softmax.gradient
def _log_softmax_gradient(call: Call, y: Expr, dy: Expr) -> list[Expr]:
    return [dy - exp(y) * sum_op(dy, axis=attrs_of(call, SoftmaxAttrs).axis, keepdims=True)]


softmax.layout(along_axis())
fast_softmax.layout(along_axis())
log_softmax.layout(along_axis())
softmax.spec(_softmax_reference, *_CASES)
_ROWS = np.linspace(-9, 9, 24, dtype=np.float32)
fast_softmax.spec(_softmax_reference, op_case(_ROWS.reshape(4, 6), rtol=1e-5),
                  op_case(_ROWS.reshape(2, 4, 3), axis=1, rtol=1e-5),
                  op_case(np.zeros((0, 4), np.float32)))
log_softmax.spec(_log_softmax_reference, *_CASES)
for _op in (softmax, fast_softmax, log_softmax):
    _op.batching(along("axis"))
softmax.refer(fast_form="weft.op.fast_math:SOFTMAX",
              requantized_form="weft.op.qnn.integer_forms:softmax")
for _op, _form in ((softmax, "softmax"), (log_softmax, "log_softmax")):
    _op.refer(permuted="weft.op.permuted:along_axis",
              reduced_form=f"weft.op.reduced_forms:{_form}")
