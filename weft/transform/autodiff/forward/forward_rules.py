"""The tangent of one operator call: by its ``jvp`` rule, its linearity, or from its gradient."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TypeAlias

from weft import op
from weft.ir import Call, Expr, Linearity, Tuple, Var, children, dims_equal, infer_expr, post_order
from weft.ir.op import GradientRule, JvpRule, Op, OpPattern
from weft.ir.types import TensorType, TupleType, Type
from weft.op.gradients import field_of, typed_zeros
from weft.support.errors import OperatorError
from weft.support.user_code import location_of
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.reverse.adjoint import is_differentiable
from weft.transform.autodiff.reverse.gradient_contract import checked_gradients
from weft.transform.autodiff.reverse.sweep import gradients_of
from weft.transform.normal_form.alpha import fresh_copy
from weft.transform.passes.canonicalize_ops import decomposed

Tangents: TypeAlias = "Sequence[Expr | None]"


class MissingRuleError(Exception):
    """The operator has a derivative, but no rule gives it."""


def operator_tangent(call: Call, tangents: Tangents) -> Expr | None:
    """The tangent of the typed ``call``, of its type, from those of its arguments.

    ``None`` stands for zero. The rules in order: the operator's ``jvp``; its trait ``linearity``;
    the gradient of an elementwise operator, whose Jacobian is diagonal; the transposed gradient,
    because the gradient is linear in that of the result (Townsend 2017). Raises
    ``MissingRuleError`` without any of them, and ``OperatorError`` for a result of a rule that has
    the wrong type.
    """
    operator = call.op
    assert isinstance(operator, Op)
    if all(t is None for t in tangents) or not is_differentiable(type_of(call)):
        return None
    made = _tangent(call, operator, tangents)
    return None if made is None else _with_zero_integers(made, call)


def _tangent(call: Call, operator: Op, tangents: Tangents) -> Expr | None:
    if operator.jvp_rule is not None:
        return _checked(call, operator, operator.jvp_rule, tangents)
    rule = operator.gradient_rule
    if operator.traits.linearity is Linearity.JOINT:
        made = _applied_to_tangents(call, operator, tangents)
    elif operator.traits.linearity is Linearity.EACH:
        made = _product_rule(call, operator, tangents)
    elif rule is None:
        if operator.traits.has_zero_gradient:
            return None
        raise MissingRuleError
    elif _is_elementwise(call, operator):
        made = _diagonal(call, operator, rule, tangents)
    else:
        made = _transposed(call, operator, rule, tangents)
    return None if made is None else infer_expr(made, trust=True)


def _with_zero_integers(tangent: Expr, call: Call) -> Expr:
    """``tangent`` with zeros for results that are not floating point."""
    type_ = type_of(call)
    if not isinstance(type_, TupleType) or all(map(is_differentiable, type_.fields)):
        return tangent
    fields = [field_of(tangent, i) if is_differentiable(field) else typed_zeros(field_of(call, i))
              for i, field in enumerate(type_.fields)]
    return Tuple(tuple(fields), span=call.span, checked_type=type_)


def expansion_of(call: Call) -> tuple[tuple[Var, ...], Expr] | None:
    """An equivalent of ``call`` whose operators have rules, over variables for the arguments.

    ``None`` without an ``expansion`` (or, for an operator without a gradient, a ``decomposition``).
    Also ``None`` if the operator has a ``jvp`` rule or is linear: it is then differentiated
    directly.
    """
    operator = call.op
    assert isinstance(operator, Op)
    if operator.jvp_rule is not None or operator.traits.linearity is not Linearity.NONE:
        return None
    tables = ["expansion", *(["decomposition"] if operator.gradient_rule is None else [])]
    for table in tables:
        if operator.hook(table) is not None:
            params = tuple(Var(f"a{i}", span=a.span, checked_type=type_of(a))
                           for i, a in enumerate(call.args))
            inner = dataclasses.replace(call, args=params)
            body = decomposed(inner, table)
            if body is not inner:
                return params, body
    return None


def _checked(call: Call, operator: Op, rule: JvpRule, tangents: Tangents) -> Expr | None:
    """The typed result of a ``jvp`` rule; raises ``OperatorError`` if its type is wrong."""
    found: object = rule(call, call, tangents)
    if found is None:
        return None
    if not isinstance(found, Expr):
        raise OperatorError(f"the jvp rule of {operator.name} must return an expression or None",
                            where=location_of(rule), got=type(found).__name__)
    typed = infer_expr(found, trust=True)
    if not _same_type(typed.checked_type, type_of(call)):
        raise OperatorError(
            f"the tangent of {operator.name} has the wrong type", where=location_of(rule),
            expected=f"{call.checked_type}, the type of the result", got=typed.checked_type,
            notes=() if call.span is None else (f"for the call at {call.span}",),
        )
    return typed


def _same_type(found: Type | None, wanted: Type) -> bool:
    if isinstance(wanted, TupleType):
        return isinstance(found, TupleType) and len(found.fields) == len(wanted.fields) and all(
            map(_same_type, found.fields, wanted.fields))
    return (isinstance(found, TensorType) and isinstance(wanted, TensorType)
            and found.dtype == wanted.dtype and found.ndim == wanted.ndim
            and all(dims_equal(a, b) is not False
                    for a, b in zip(found.shape, wanted.shape, strict=True)))


def _applied_to_tangents(call: Call, operator: Op, tangents: Tangents) -> Expr:
    """``f(dx, dy)`` for a linear ``f``; arguments that are not floating point stay."""
    args = [_linear_argument(arg, tangent)
            for arg, tangent in zip(call.args, tangents, strict=True)]
    return dataclasses.replace(call, op=operator, args=tuple(args))


def _linear_argument(arg: Expr, tangent: Expr | None) -> Expr:
    type_ = type_of(arg)
    if not is_differentiable(type_):
        return arg
    if tangent is None:
        tangent = typed_zeros(arg)
    if not isinstance(type_, TupleType) or all(map(is_differentiable, type_.fields)):
        return tangent
    fields = [field_of(tangent if is_differentiable(field) else arg, i)
              for i, field in enumerate(type_.fields)]
    return Tuple(tuple(fields), span=arg.span, checked_type=type_)


def _product_rule(call: Call, operator: Op, tangents: Tangents) -> Expr:
    """``f(dx, y) + f(x, dy)`` for a multilinear ``f``."""
    terms = []
    for index, (arg, tangent) in enumerate(zip(call.args, tangents, strict=True)):
        if tangent is None:
            continue
        type_ = type_of(arg)
        if isinstance(type_, TupleType):  # the only argument is a tuple of tensors
            fields = [field_of(tangent, i) for i in range(len(type_.fields))]
            choices = [_replaced(arg, i, f) for i, f in enumerate(fields) if not _is_zeros(f)]
        else:
            choices = [tangent]
        for choice in choices:
            args = (*call.args[:index], choice, *call.args[index + 1:])
            terms.append(dataclasses.replace(call, op=operator, args=args))
    total: Expr = terms[0]
    for term in terms[1:]:
        total = op.add(total, term, span=call.span)
    return total


def _replaced(tensors: Expr, index: int, field: Expr) -> Expr:
    type_ = type_of(tensors)
    assert isinstance(type_, TupleType)
    fields = [field if i == index else field_of(tensors, i) for i in range(len(type_.fields))]
    return Tuple(tuple(fields), span=tensors.span, checked_type=type_)


def _is_zeros(expr: Expr) -> bool:
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == "zeros"


def _is_elementwise(call: Call, operator: Op) -> bool:
    """Whether each element of the result depends on the same element of each argument alone."""
    result = type_of(call)
    return (operator.pattern <= OpPattern.BROADCAST and isinstance(result, TensorType)
            and all(_same_shape(type_of(a), result) for a in call.args))


def _same_shape(type_: Type, result: TensorType) -> bool:
    return isinstance(type_, TensorType) and type_.shape == result.shape


def _diagonal(call: Call, operator: Op, rule: GradientRule, tangents: Tangents) -> Expr:
    """The gradient rule with each tangent for ``dy``, because a diagonal Jacobian is symmetric."""
    total: Expr | None = None
    result = type_of(call)
    for index, tangent in enumerate(tangents):
        if tangent is not None:
            dy = tangent if tangent.checked_type == result else op.cast_like(tangent, call)
            dy = infer_expr(dy, trust=True)
            term = checked_gradients(call, operator, rule, dy)[index]
            if term.checked_type != result:
                term = op.cast_like(term, call)
            total = term if total is None else op.add(total, term, span=call.span)
    assert total is not None
    return total


def _transposed(call: Call, operator: Op, rule: GradientRule, tangents: Tangents) -> Expr | None:
    """Transpose the gradient rule: differentiate ``sum(rule(dy) * tangent)`` by ``dy``.

    The reverse sweep over the gradients starts from the tangents. Operands that do not depend on
    ``dy`` are variables meanwhile, so that it does not enter them.
    """
    dy = Var("dy", type_of(call), span=call.span, checked_type=type_of(call))
    gradients = checked_gradients(call, operator, rule, dy)
    active = [(g, t) for g, t in zip(gradients, tangents, strict=True) if t is not None]
    body = Tuple(tuple(g for g, _ in active))
    body, outside = _cut(infer_expr(body, trust=True), dy)
    if dy not in {n for n in post_order(body) if isinstance(n, Var)}:
        return None  # the gradient is zero
    seeds = [Var("t", checked_type=type_of(t)) for _, t in active]
    seed = Tuple(tuple(seeds), checked_type=body.checked_type)
    (result,) = gradients_of(body, [dy], seed)
    # The transpose of a linear map does not depend on its argument.
    back: dict[Expr, Expr] = {**outside, dy: typed_zeros(call),
                              **{s: t for s, (_, t) in zip(seeds, active, strict=True)}}
    return fresh_copy(infer_expr(result, trust=True), back)


def _cut(body: Expr, dy: Var) -> tuple[Expr, dict[Expr, Expr]]:
    """``body`` with variables for operands independent of ``dy``, and these operands."""
    depends: set[Expr] = set()
    for node in post_order(body):
        if node is dy or any(c in depends for c in children(node)):
            depends.add(node)
    stand: dict[Expr, Expr] = {}
    for node in post_order(body, enter=lambda n: n in depends):
        if node not in depends and node is not dy:
            stand[node] = Var("p", span=node.span, checked_type=type_of(node))
    cut = fresh_copy(body, stand)
    return cut, {var: node for node, var in stand.items()}
