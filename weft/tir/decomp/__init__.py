"""Elementary functions as polynomial approximations, for scalars and vectors of any width."""

from __future__ import annotations

from collections.abc import Callable

from weft.tir.decomp.exp import exp, sigmoid
from weft.tir.decomp.log import log
from weft.tir.decomp.piecewise import erf, tanh
from weft.tir.decomp.power import power
from weft.tir.decomp.trig import cos, sin, tan
from weft.tir.expr import Call, PrimExpr, const

__all__ = ["DECOMPOSITIONS"]


def _rsqrt(x: PrimExpr) -> PrimExpr:
    return const(1.0, x.dtype) / Call(x.dtype, "sqrt", (x,))


# For float32 and float64 operands; narrower dtypes are upcast to float32.
DECOMPOSITIONS: dict[str, Callable[..., PrimExpr]] = {
    "exp": exp, "log": log, "tanh": tanh, "erf": erf, "sigmoid": sigmoid, "sin": sin,
    "cos": cos, "tan": tan, "pow": power, "rsqrt": _rsqrt,
}  # fmt: skip
