"""Fast math: approximations that the user permits by the optimization level."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import numpy as np

from weft import op
from weft.ir.dtype import float32
from weft.ir.expr import Call, Constant, Expr, Function, const
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.types import TensorType
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, op_name, rewrite_function


@register_pass
@dataclass(frozen=True)
class FastMath(FunctionPass):
    """Replace ``tanh``, ``erf`` and ``sigmoid`` of float32 tensors by fast approximations.

    Their errors are below 5e-7; infinities give the limits and NaN propagates. Division by a
    constant becomes multiplication by its reciprocal. ``functions`` names the operators to
    replace; ``exp`` and ``nn.softmax`` (relative errors of 3e-6 and 1e-5) only if named.

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


def _sigmoid(call: Call, functions: Sequence[str]) -> Expr:
    # sigmoid(x) = tanh(x / 2) / 2 + 1 / 2
    half = const(0.5)
    tanh = op.fast_tanh if "tanh" in functions else op.tanh
    spread = tanh(op.multiply(call.args[0], half))
    return op.add(op.multiply(spread, half), half)


def _divide(call: Call) -> Expr:
    x, divisor = call.args
    if not isinstance(divisor, Constant):
        return call
    with np.errstate(all="ignore"):
        inverse = np.asarray(1 / divisor.data, divisor.data.dtype)
    # A denormal or zero divisor has no finite reciprocal.
    if not np.isfinite(inverse).all():
        return call
    return op.multiply(x, Constant(inverse, span=divisor.span), span=call.span)


_FAST: dict[str, Callable[[Call], Expr]] = {
    "divide": _divide,
    "erf": lambda call: op.fast_erf(call.args[0], span=call.span),
    "exp": lambda call: op.fast_exp(call.args[0], span=call.span),
    "nn.softmax": lambda call: op.nn.fast_softmax(
        call.args[0], axis=call.attrs.axis, span=call.span),  # type: ignore[attr-defined]
    "tanh": lambda call: op.fast_tanh(call.args[0], span=call.span),
}
