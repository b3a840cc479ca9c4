"""The contract of gradient rules: one expression per argument, of the argument's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import Call, Expr, Op, TensorType, Tuple, Type, dims_equal, infer_expr
from weft.support.errors import OperatorError
from weft.support.user_code import location_of


def checked_gradients(call: Call, op: Op, rule: Callable[..., Any], dy: Expr) -> list[Expr]:
    """Call ``rule`` for ``call``, and return its gradients, typed.

    Raises ``OperatorError`` that points at the rule if the number or a type of the gradients is
    wrong.
    """
    result = rule(call, call, dy)
    found = list(result) if isinstance(result, list | tuple) else [result]
    if len(found) != len(call.args) or not all(isinstance(g, Expr) for g in found):
        raise OperatorError(
            f"the gradient of {op.name} must return one expression per argument",
            where=location_of(rule), expected=f"{len(call.args)} for ({', '.join(op.inputs)})",
            got=", ".join(type(g).__name__ for g in found) or "nothing",
        )
    grads = _typed(found)
    for name, argument, grad in zip(op.inputs, call.args, grads, strict=False):
        if not _same_type(grad.checked_type, argument.checked_type):
            raise OperatorError(
                f"the gradient of {op.name} with respect to {name} has the wrong type",
                where=location_of(rule),
                expected=f"{argument.checked_type}, the type of {name}", got=grad.checked_type,
                notes=() if call.span is None else (f"for the call at {call.span}",),
            )
    return grads


def _typed(gradients: list[Expr]) -> list[Expr]:
    """``gradients`` with types; expressions that a rule passes on are typed already."""
    new = tuple(g for g in gradients if g.checked_type is None)
    if not new:
        return gradients
    whole = infer_expr(Tuple(new), trust=True)
    typed = iter(whole.fields if isinstance(whole, Tuple) else ())
    return [next(typed) if g.checked_type is None else g for g in gradients]


def _same_type(found: Type | None, wanted: Type | None) -> bool:
    """Whether types agree as far as shapes are known; only float tensors have gradients."""
    if not isinstance(wanted, TensorType) or not wanted.dtype.is_float:
        return True
    return isinstance(found, TensorType) and found.dtype == wanted.dtype and (
        found.ndim == wanted.ndim) and all(
        dims_equal(a, b) is not False for a, b in zip(found.shape, wanted.shape, strict=True))
