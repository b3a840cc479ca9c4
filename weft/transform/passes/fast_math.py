"""Fast math: approximations that the user permits by the optimization level."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import Call, Expr, Function, Op, TensorType, float32, get_op
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.op.fast_math import FastForm
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, rewrite_function


@register_pass
@dataclass(frozen=True)
class FastMath(FunctionPass):
    """Replace calls in float32 by the ``fast_form`` that their operators name.

    The errors of ``tanh``, ``erf`` and ``sigmoid`` are below 5e-7; infinities give the limits and
    NaN propagates. Division by a constant becomes multiplication by its reciprocal. ``functions``
    names the operators to replace, by default all whose form is not ``on_request``, as those of
    ``exp`` and ``nn.softmax`` are (relative errors of 3e-6 and 1e-5).

    With ``functions=("sigmoid",)``, for which ``tanh`` is left in place:

    def @main(%x: Tensor[(4,), float32]) { sigmoid(%x) }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      add(multiply(tanh(multiply(%x, 0.5f)), 0.5f), 0.5f)
    }
    """

    name: ClassVar[str] = "fast_math"
    opt_level: ClassVar[int] = 4
    functions: tuple[str, ...] | None = None

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_function(fn, self._step)

    def _step(self, _: Expr, node: Expr) -> Expr:
        type_ = known_type(node)
        if not isinstance(node, Call) or not isinstance(node.op, Op) \
                or not isinstance(type_, TensorType) or type_.dtype != float32:
            return node
        form: FastForm | None = node.op.hook("fast_form")
        if form is None or not self._replaces(node.op.name, form):
            return node
        return form.rewrite(node, self._is_fast)

    def _replaces(self, name: str, form: FastForm) -> bool:
        return not form.on_request if self.functions is None else name in self.functions

    def _is_fast(self, name: str) -> bool:
        form: FastForm | None = get_op(name).hook("fast_form")
        return form is not None and self._replaces(name, form)
