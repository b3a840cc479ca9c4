"""Approximations that are good enough where the user says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from weft import op
from weft.ir.dtype import float32
from weft.ir.expr import Call, Constant, Expr, Function, const
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.types import TensorType
from weft.transform.graph import known_type, op_name, rewrite_function

# Fits of f(x)/x by quotients of polynomials in x^2 over [0, bound], least relative error by
# reweighted least squares, highest power first; beyond the bound float32 knows no difference.
_TANH_BOUND = 9.0
_TANH_P = (5.085561928e-08, 3.161552766e-05, 4.009722873e-03, 1.378631575e-01, 1.0)
_TANH_Q = (
    7.393286472e-10, 1.619541268e-06, 4.209604665e-04, 2.774189827e-02, 4.711964818e-01, 1.0,
)  # fmt: skip
_ERF_BOUND = 3.92
_ERF_P = (
    2.050102603e-06, 2.848754903e-04, 3.765381167e-03, 5.274799097e-02, 1.904012563e-01,
    1.128379146,
)  # fmt: skip
_ERF_Q = (
    3.809149390e-05, 1.162474685e-03, 1.496874649e-02, 1.141069191e-01, 5.020714622e-01, 1.0,
)  # fmt: skip


@register_pass
@dataclass(frozen=True)
class FastMath(FunctionPass):
    """Replace ``tanh``, ``erf`` and ``sigmoid`` of float32 tensors by rational functions.

    The errors are below 5e-7; infinities give the limits and NaN stays. Division by a constant
    becomes multiplication by its reciprocal. ``functions`` names the operators to replace.

    With ``functions=("sigmoid",)``, for which ``tanh`` is left in place:

    def @main(%x: Tensor[(4,), float32]) { sigmoid(%x) }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      add(multiply(tanh(multiply(%x, 0.5f)), 0.5f), 0.5f)
    }
    """

    name: ClassVar[str] = "fast_math"
    opt_level: ClassVar[int] = 4
    functions: tuple[str, ...] = ("divide", "erf", "sigmoid", "tanh")

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_function(fn, self._step)

    def _step(self, _: Expr, node: Expr) -> Expr:
        name, type_ = op_name(node), known_type(node)
        if name not in self.functions or not isinstance(node, Call):
            return node
        if not isinstance(type_, TensorType) or type_.dtype != float32:
            return node
        return _sigmoid(node, self.functions) if name == "sigmoid" else _FAST[name](node)


def _tanh(call: Call) -> Expr:
    return _quotient(call.args[0], _TANH_BOUND, _TANH_P, _TANH_Q)


def _erf(call: Call) -> Expr:
    return _quotient(call.args[0], _ERF_BOUND, _ERF_P, _ERF_Q)


def _quotient(x: Expr, bound: float, above: Sequence[float], below: Sequence[float]) -> Expr:
    """``x P(x²) / Q(x²)`` with ``x`` kept within ``±bound``."""
    near = op.clip(x, a_min=-bound, a_max=bound)
    square = op.multiply(near, near)
    return op.divide(op.multiply(near, _polynomial(square, above)), _polynomial(square, below))


def _polynomial(x: Expr, coefficients: Sequence[float]) -> Expr:
    """Horner's scheme, the highest power first."""
    first, *rest = (const(c) for c in coefficients)
    value: Expr = first
    for coefficient in rest:
        value = op.add(op.multiply(value, x), coefficient)
    return value


def _sigmoid(call: Call, functions: Sequence[str]) -> Expr:
    half = const(0.5)
    inner = op.tanh(op.multiply(call.args[0], half))
    spread = _tanh(inner) if "tanh" in functions else inner
    return op.add(op.multiply(spread, half), half)


def _divide(call: Call) -> Expr:
    x, divisor = call.args
    if not isinstance(divisor, Constant):
        return call
    with np.errstate(all="ignore"):
        inverse = np.asarray(1 / divisor.data, divisor.data.dtype)
    # A denormal or zero divisor has no reciprocal that gives nearly the same quotients.
    if not np.isfinite(inverse).all():
        return call
    return op.multiply(x, Constant(inverse, span=divisor.span), span=call.span)


_FAST: dict[str, Callable[[Call], Expr]] = {"divide": _divide, "erf": _erf, "tanh": _tanh}
