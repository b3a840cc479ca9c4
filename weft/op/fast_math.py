"""Fast approximations for float32: fast_exp, fast_tanh, fast_erf, and where ``FastMath`` uses them.

An operator names its ``FastForm`` here as its hook ``fast_form``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import op
from weft.ir import Call, Constant, Expr, Op, TensorType, const, float32, get_op, op_case
from weft.ir.op import GradientRule
from weft.ir.traits import CONTINUOUS
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import identity_relation
from weft.op.elementwise import erf, tanh
from weft.op.families import in_dtype, unary
from weft.op.numpy_functions import erf as erf_reference
from weft.op.relations import checked
from weft.support.dataclass import dataclass
from weft.tir.expr import PrimExpr
from weft.topi import elementwise
from weft.topi import fast_math as topi


@dataclass(frozen=True, slots=True)
class FastForm:
    """What replaces a call in float32: ``rewrite(call, is_fast)``.

    ``is_fast(name)`` says whether ``FastMath`` replaces another operator too. A form ``on_request``
    has larger errors: the pass uses it only where it is told the operator's name.
    """

    rewrite: Callable[[Call, Callable[[str], bool]], Expr]
    on_request: bool = False


def _expect_float32(ctx: RelationContext, arg: int, type_: TensorType) -> None:
    if type_.dtype != float32:
        ctx.fail("defined for float32 only", arg=arg, expected="float32", got=type_.dtype,
                 help="use the exact function for other dtypes")


_CASES = (
    op_case(np.linspace(-12, 12, 49, dtype=np.float32).reshape(7, 7), rtol=4e-6, atol=5e-7),
    op_case(np.array([np.nan, 0.0, -0.0], np.float32), rtol=4e-6, atol=5e-7),
    op_case(np.float32(0.5), rtol=4e-6, atol=5e-7), op_case(np.zeros((0, 2), np.float32)),
)


def _fast(
    name: str, reference: Callable[..., Any], compute: Callable[[PrimExpr], PrimExpr],
    doc: str, grad: GradientRule,
) -> Op:
    return unary(name, in_dtype(reference), doc=doc, cases=_CASES, grad=grad, traits=CONTINUOUS,
                 compute=lambda x: elementwise.apply(x, compute, name),
                 relation=checked(_expect_float32, identity_relation))


fast_exp = _fast("fast_exp", np.exp, topi.fast_exp,
                 "e**x with a relative error of 3e-6, for x between -87 and 88.",
                 lambda _call, y, dy: [dy * y])
fast_tanh = _fast("fast_tanh", np.tanh, topi.fast_tanh,
                  "The hyperbolic tangent with an error of 5e-7.",
                  tanh.hook("gradient"))
fast_erf = _fast("fast_erf", erf_reference, topi.fast_erf,
                 "The error function with an error of 5e-7.",
                 erf.hook("gradient"))


def _sigmoid(call: Call, is_fast: Callable[[str], bool]) -> Expr:
    # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2
    half = const(0.5)
    spread = (fast_tanh if is_fast("tanh") else tanh)(op.multiply(call.args[0], half))
    return op.add(op.multiply(spread, half), half)


def _divide(call: Call, _is_fast: Callable[[str], bool]) -> Expr:
    x, divisor = call.args
    if not isinstance(divisor, Constant):
        return call
    with np.errstate(all="ignore"):
        inverse = np.asarray(1 / divisor.data, divisor.data.dtype)
    # A denormal or zero divisor has no finite reciprocal.
    if not np.isfinite(inverse).all():
        return call
    return op.multiply(x, Constant(inverse, span=divisor.span), span=call.span)


def _replaced(fast: str, *, on_request: bool = False) -> FastForm:
    """The operator called ``fast`` on the same operand, with the same attributes."""
    return FastForm(lambda call, _: get_op(fast)(
        *call.args, **dict(call.attrs.items()), span=call.span), on_request)


TANH, ERF = _replaced("fast_tanh"), _replaced("fast_erf")
EXP, SOFTMAX = (_replaced(name, on_request=True) for name in ("fast_exp", "nn.fast_softmax"))
SIGMOID, DIVIDE = FastForm(_sigmoid), FastForm(_divide)
