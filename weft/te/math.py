"""Mathematical functions inside tensor expressions: ``te.exp(x)`` and the like.

Each builds a checked call of an intrinsic of ``weft.tir.intrinsics``; lowering expands the
transcendental ones into polynomials over vectors.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir.dtype import DType
from weft.tir.expr import ExprLike, PrimExpr, call
from weft.tir.intrinsics import INTRINSICS, intrinsic


def _function(name: str) -> Callable[..., PrimExpr]:
    def function(*operands: ExprLike) -> PrimExpr:
        return intrinsic(name, *operands)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = INTRINSICS.get(name).doc
    return function


exp = _function("exp")
log = _function("log")
tanh = _function("tanh")
erf = _function("erf")
sigmoid = _function("sigmoid")
sin = _function("sin")
cos = _function("cos")
tan = _function("tan")
pow = power = _function("pow")
sqrt = _function("sqrt")
rsqrt = _function("rsqrt")
abs = _function("abs")
floor = _function("floor")
ceil = _function("ceil")
round = _function("round")
trunc = _function("trunc")
fma = _function("fma")
fmod = _function("fmod")
isnan = _function("isnan")
popcount = _function("popcount")
shift_left = _function("shift_left")
shift_right = _function("shift_right")
bitwise_and = _function("bitwise_and")
bitwise_or = _function("bitwise_or")
bitwise_xor = _function("bitwise_xor")
bitwise_not = _function("bitwise_not")
likely = _function("likely")
prefetch = _function("prefetch")


def reinterpret(dtype: DType | str, x: PrimExpr) -> PrimExpr:
    """The bits of ``x`` as another dtype of the same width."""
    return call(dtype, "reinterpret", x)
