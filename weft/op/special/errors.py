"""Error functions, and what special functions share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from weft.ir.op import Case, GradientRule, Op, op_case
from weft.op.elementwise import exp
from weft.op.families import unary
from weft.op.gradients import scalar
from weft.topi.special import gamma as topi
from weft.topi.special.arithmetic import Function, of_elements, on_arrays


def special(name: str, function: Function, *, doc: str, cases: Sequence[Case],
            grad: GradientRule | None = None) -> Op:
    """The operator ``special.<name>``; ``function`` takes an arithmetic and an element."""

    def reference(x: np.ndarray) -> np.ndarray:
        return on_arrays(function, x)

    return unary(f"special.{name}", reference, doc=doc, cases=cases, grad=grad,
                 compute=lambda x: of_elements(function, (x,), name))


_ROOT_PI = math.sqrt(math.pi)
_ENDS = np.array([0.0, 1.0, -1.0, 2.0, np.nan, np.inf], np.float32)

erfc = special(
    "erfc", topi.erfc, doc="1 - erf(x), accurate where it is small.",
    cases=(op_case((3, 5), low=-5.0, high=9.0), op_case(()), op_case((0, 4)), op_case(_ENDS)),
    grad=lambda call, _y, dy: [
        dy * exp(-(call.args[0] * call.args[0])) * scalar(-2 / _ROOT_PI, dy)])
erfcx = special(
    "erfcx", topi.erfcx, doc="exp(x**2) * erfc(x), which does not underflow.",
    cases=(op_case((3, 5), low=-2.0, high=30.0), op_case((4,), dtypes="float64"), op_case(_ENDS)),
    grad=lambda call, y, dy: [
        dy * (call.args[0] * y * scalar(2, dy) - scalar(2 / _ROOT_PI, dy))])
erfinv = special(
    "erfinv", topi.erfinv, doc="The inverse of erf: infinite at -1 and 1, NaN beyond.",
    cases=(op_case((3, 5), low=-0.99, high=0.99), op_case((6,), dtypes="float64"), op_case(_ENDS)),
    grad=lambda _call, y, dy: [dy * exp(y * y) * scalar(_ROOT_PI / 2, dy)])
ndtri = special(
    "ndtri", topi.ndtri, doc="The quantile of the standard normal distribution at x.",
    cases=(op_case((3, 5), low=0.01, high=0.99), op_case((6,), low=0.0, high=1.0, dtypes="float64"),
           op_case(_ENDS)),
    grad=lambda _call, y, dy: [
        dy * exp(y * y * scalar(0.5, dy)) * scalar(math.sqrt(2 * math.pi), dy)])
