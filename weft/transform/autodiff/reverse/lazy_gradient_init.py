"""Simplify arithmetic on tensors of zeros and ones, which reverse sweeps create."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from weft import op
from weft.ir import FunctionPass, PassContext, TensorType, is_static, register_pass
from weft.ir.expr import Call, Constant, Expr, Function, Tuple, TupleGetItem
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import known_type, op_name, rewrite_function, traits_of


@register_pass
@dataclass(frozen=True)
class LazyGradientInit(FunctionPass):
    """Simplify arithmetic with tensors of zeros and ones, so that they need not be materialized.

    Reverse sweeps start from ones and add to zeros. ``x + 0`` and ``x * 1`` become ``x``, and
    ``x * zeros`` becomes ``zeros``, as is intended for gradients (an infinite ``x`` would give
    NaN). Only ``zeros`` and ``ones`` that a result needs remain.

    def @main(%x: Tensor[(4,), float32]) {
      %0 = ones(shape=(4,));
      (multiply(%0, exp(%x)), add(zeros(shape=(4,)), multiply(zeros(shape=(4,)), %x)))
    }
    =>
    def @main(%x: Tensor[(4,), float32]) { (exp(%x), zeros(shape=(4,))) }
    """

    name: ClassVar[str] = "lazy_gradient_init"
    opt_level: ClassVar[int] = 2

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        return rewrite_function(fn, lambda _, node: _simpler(node) or node)


def _simpler(node: Expr) -> Expr | None:
    if isinstance(node, TupleGetItem) and isinstance(node.tuple_value, Tuple):
        return node.tuple_value.fields[node.index]
    if not isinstance(node, Call):
        return None
    rule = _copied if traits_of(node).copies_elements else _RULES.get(op_name(node))
    return rule(node) if rule is not None else None


def is_filled(expr: Expr, value: float) -> bool:
    """Whether every element of ``expr`` is known to be ``value`` from the expression alone."""
    name = op_name(expr)
    if name in ("zeros", "ones"):
        return value == (1 if name == "ones" else 0)
    if isinstance(expr, Call) and traits_of(expr).copies_elements:
        return is_filled(expr.args[0], value)
    return isinstance(expr, Constant) and expr.is_scalar and bool(expr.data == value)


def _filled_like(call: Call, value: int) -> Expr | None:
    type_ = known_type(call)
    if not isinstance(type_, TensorType) or not is_static(type_):
        return None
    create = op.ones if value else op.zeros
    return create(shape=type_.shape, dtype=type_.dtype, span=call.span)


def _other(call: Call, value: float) -> Expr | None:
    """The other operand, if one is filled with ``value`` and the other has the result's type."""
    left, right = call.args
    for filled, other in ((left, right), (right, left)):
        if is_filled(filled, value) and known_type(other) == known_type(call):
            return other
    return None


def _add(call: Call) -> Expr | None:
    return _other(call, 0)


def _subtract(call: Call) -> Expr | None:
    left, right = call.args
    if is_filled(right, 0) and known_type(left) == known_type(call):
        return left
    if is_filled(left, 0) and known_type(right) == known_type(call):
        return op.negative(right, span=call.span)
    return None


def _multiply(call: Call) -> Expr | None:
    # Not for constants: a zero of the user's program times infinity must remain NaN.
    if any(op_name(a) and is_filled(a, 0) for a in call.args):
        return _filled_like(call, 0)
    return _other(call, 1)


def _copied(call: Call) -> Expr | None:
    """A tensor of zeros or ones created directly in the shape of the result."""
    source = call.args[0]
    if op_name(source) not in ("zeros", "ones"):
        return None
    return _filled_like(call, int(op_name(source) == "ones"))


def _linear_of_zeros(call: Call) -> Expr | None:
    return _filled_like(call, 0) if op_name(call.args[0]) == "zeros" else None


_RULES: dict[str, Callable[[Call], Expr | None]] = {
    "add": _add,
    "multiply": _multiply,
    "negative": _linear_of_zeros,
    "subtract": _subtract,
    "sum": _linear_of_zeros,
}
