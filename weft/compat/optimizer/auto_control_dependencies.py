"""Replaces ``let`` by control edges (TensorFlow's ``AutomaticControlDependencies``)."""

from __future__ import annotations

from typing import ClassVar

from weft.ir import FunctionPass, Op, PassContext, TensorType, TupleType, register_pass
from weft.ir.expr import Call, Expr, Function, If, Let, Tuple, TupleGetItem, Var
from weft.ir.visitor import Routine, children, post_order, replace_children, run_routine
from weft.op import annotation
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.analysis.effects import has_effect
from weft.transform.analysis.graph import enters, is_primitive, traits_of, type_of
from weft.transform.normal_form.to_a_normal_form import Normalizer


@register_pass
@dataclass(frozen=True)
class AutoControlDependencies(FunctionPass):
    """Order the side effects of operators by control edges instead of ``let``.

    Each call with an effect runs after the one before it, and the result of the function, or of a
    branch, after the last one. The function becomes a graph, which can be differentiated,
    vectorised and partitioned. Functions with references, closures, matches or calls of functions
    keep their lets. Raises ``PassError`` for an effect on values that are not tensors.

    ``let %a = f(%x); let %b = f(%y); exp(%x)`` with an effect of ``f`` becomes ``%0 =
    f(annotation.barrier(%y, f(%x))); annotation.barrier(exp(%x), %0)``.
    """

    name: ClassVar[str] = "auto_control_dependencies"
    opt_level: ClassVar[int] = 0

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        nodes = list(post_order(fn.body, enter=enters))
        if not any(traits_of(node).has_effect for node in nodes) or any(map(_keeps_lets, nodes)):
            return fn
        body = Normalizer(fn.body).run()
        return fn.replace(body=run_routine(_Scope({}).of(body)), checked_type=fn.checked_type)


def _keeps_lets(node: Expr) -> bool:
    """Whether a node has effects that control edges do not order."""
    if isinstance(node, Call):
        return not isinstance(node.op, Op) and not is_primitive(node.op)
    is_value = isinstance(node, (Let, If, Tuple, TupleGetItem))
    return (not is_value and bool(children(node)) and enters(node)) or (
        has_effect(node) and not is_primitive(node))


class _Scope:
    """The values of let-bound variables as a graph, and the last effect so far."""

    def __init__(self, values: dict[Expr, Expr]) -> None:
        self.values = values
        self.last: Expr | None = None

    def of(self, expr: Expr) -> Routine[Expr]:
        """The result of a chain of lets, after the effects of this scope."""
        while isinstance(expr, Let):
            self.values[expr.var] = yield self._value(expr.value)
            expr = expr.body
        result = yield self._value(expr)
        return result if self.last is None or result is self.last else _after(result, self.last)

    def _value(self, node: Expr) -> Routine[Expr]:
        if isinstance(node, If):
            return (yield self._choice(node))
        if isinstance(node, Var):
            return self.values.get(node, node)
        made = replace_children(node, [self.values.get(c, c) for c in children(node)]) \
            if enters(node) else node
        if traits_of(node).has_effect and isinstance(made, Call):
            if self.last is not None:
                made = _call_after(made, self.last)
            self.last = made
        return made

    def _choice(self, node: If) -> Routine[Expr]:
        """A choice whose branches may have effects: its condition waits for the last effect."""
        inner = [_Scope(dict(self.values)) for _ in range(2)]
        branches = []
        for scope, branch in zip(inner, (node.true_branch, node.false_branch), strict=True):
            branches.append((yield scope.of(branch)))
        cond = self.values.get(node.cond, node.cond)
        has_effects = any(scope.last is not None for scope in inner)
        if has_effects and self.last is not None:
            cond = _after(cond, self.last)
        made = replace_children(node, [cond, *branches])
        if has_effects:
            self.last = made
        return made


def _call_after(call: Call, last: Expr) -> Call:
    """The same call, whose first tensor waits for ``last``."""
    for position, arg in enumerate(call.args):
        if isinstance(type_of(arg), TensorType):
            args = (*call.args[:position], _after(arg, last), *call.args[position + 1:])
            return call.replace(args=args, checked_type=call.checked_type)
    raise PassError("an effect without a tensor as operand cannot wait for another one",
                    where=call.span, got=str(call.op))


def _after(value: Expr, last: Expr) -> Expr:
    """``value``, a tensor or a tuple, available after ``last``."""
    edges = _tensors_of(last)
    if not edges:
        raise PassError("an effect without a tensor as result cannot be waited for",
                        where=last.span, got=str(last.checked_type))
    after = edges[0] if len(edges) == 1 else Tuple(
        tuple(edges), checked_type=TupleType(tuple(type_of(e) for e in edges)))
    type_ = type_of(value)
    if isinstance(type_, TensorType):
        return annotation.barrier(value, after).with_type(type_)
    if not isinstance(type_, TupleType) or not type_.fields \
            or not all(isinstance(f, TensorType) for f in type_.fields):
        raise PassError("a result that is not a tensor or a tuple of tensors cannot wait for an "
                        "effect", where=value.span, got=str(type_))
    fields = [annotation.barrier(_field(value, i), after).with_type(f)
              for i, f in enumerate(type_.fields)]
    return Tuple(tuple(fields), span=value.span, checked_type=type_)


def _tensors_of(value: Expr) -> list[Expr]:
    type_ = type_of(value)
    if isinstance(type_, TupleType):
        return [_field(value, i) for i, f in enumerate(type_.fields) if isinstance(f, TensorType)]
    return [value] if isinstance(type_, TensorType) else []


def _field(value: Expr, index: int) -> Expr:
    if isinstance(value, Tuple):
        return value.fields[index]
    type_ = type_of(value)
    assert isinstance(type_, TupleType)
    return TupleGetItem(value, index, span=value.span, checked_type=type_.fields[index])
