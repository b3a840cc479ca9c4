"""Fast approximations for float32: fast_exp, fast_tanh, fast_erf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.ir.dtype import float32
from weft.ir.op import GradientRule, Op, op_case
from weft.ir.traits import CONTINUOUS
from weft.ir.types import TensorType
from weft.ir.typing.relation import RelationContext
from weft.ir.typing.relations import identity_relation
from weft.op.elementwise import erf, tanh
from weft.op.families import in_dtype, unary
from weft.op.numpy_functions import erf as erf_reference
from weft.op.relations import checked
from weft.tir.expr import PrimExpr
from weft.topi import elementwise
from weft.topi import fast_math as topi


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
