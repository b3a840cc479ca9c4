"""The reverse sweep: propagate adjoints from the result of a pure expression to its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from weft.ir.expr import Call, Constant, Expr, GlobalVar, If, Tuple, TupleGetItem, Var
from weft.ir.op import Op
from weft.ir.trampoline import Routine, run
from weft.ir.types import FuncType, TupleType
from weft.ir.visitor import post_order
from weft.support.errors import PassError
from weft.transform.analysis.graph import type_of
from weft.transform.analysis.scopes import Scope, Scopes
from weft.transform.autodiff.adjoint import (
    Adjoint,
    as_gradient,
    field_adjoint,
    is_differentiable,
    one_field,
    sum_of,
)
from weft.transform.autodiff.gradient_contract import checked_gradients
from weft.transform.normal_form.alpha import fresh_copy

# Maps the name of a global function to the name of its vector-Jacobian product.
ProductName = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class Sweep:
    """Reverse sweeps over let-free, first-order, typed expressions (Griewank and Walther 2008).

    ``product_of`` names the function that maps the arguments of a global function and the
    gradient of its result to the tuple of gradients of its differentiable arguments.
    """

    product_of: ProductName

    def gradients(self, body: Expr, wanted: Sequence[Var], seed: Expr) -> list[Expr]:
        """The gradients of ``body`` with respect to ``wanted``; ``seed`` is that of ``body``."""
        adjoints = self.adjoints(body, seed)
        return [as_gradient(adjoints.get(v), v) for v in wanted]

    def adjoints(self, body: Expr, seed: Expr) -> Mapping[Expr, Adjoint]:
        """The adjoints of the variables that ``body`` reaches; those left out are zero."""
        return run(self._sweep(body, seed))

    def _sweep(self, body: Expr, seed: Adjoint) -> Routine[dict[Expr, Adjoint]]:
        scopes = Scopes(body)
        adjoints: dict[Expr, Adjoint] = {body: seed}
        for node in reversed(scopes.order):
            if isinstance(node, (Var, Constant)) or scopes.scope_of[node] is not scopes.root:
                continue
            # In reverse topological order, all users of the node have contributed by now.
            adjoint = adjoints.pop(node, None)
            if adjoint is None:
                continue
            if isinstance(node, If):
                contributions = yield self._branches(node, adjoint, scopes)
            else:
                contributions = self._operands(node, adjoint)
            for operand, contribution in contributions:
                if is_differentiable(type_of(operand)):
                    adjoints[operand] = sum_of(adjoints.get(operand), contribution)
        return adjoints

    def _operands(self, node: Expr, adjoint: Adjoint) -> list[tuple[Expr, Adjoint]]:
        """The contribution of the adjoint of ``node`` to each operand."""
        if isinstance(node, Tuple):
            return [(field, field_adjoint(adjoint, i)) for i, field in enumerate(node.fields)]
        if isinstance(node, TupleGetItem):
            whole = type_of(node.tuple_value)
            count = len(whole.fields) if isinstance(whole, TupleType) else 0
            return [(node.tuple_value, one_field(adjoint, node.index, count))]
        if isinstance(node, Call) and isinstance(node.op, Op):
            return _operator_contributions(node, node.op, as_gradient(adjoint, node))
        if isinstance(node, Call) and isinstance(node.op, GlobalVar):
            return self._function_contributions(node, node.op, as_gradient(adjoint, node))
        raise PassError(
            f"cannot differentiate through {type(node).__name__}",
            where=node.span,
            expected="operators, tuples, if, and calls of functions",
            help="make the program first-order, without references and data types",
        )

    def _function_contributions(
        self, call: Call, callee: GlobalVar, dy: Expr
    ) -> list[tuple[Expr, Adjoint]]:
        wanted = [a for a in call.args if is_differentiable(type_of(a))]
        if not wanted:
            return []
        args = (*call.args, dy)
        result = TupleType(tuple(type_of(a) for a in wanted))
        signature = FuncType(tuple(type_of(a) for a in args), result)
        target = GlobalVar(self.product_of(callee.name), span=call.span, checked_type=signature)
        grads = Call(target, args, span=call.span, checked_type=result)
        return [(a, field_adjoint(grads, i)) for i, a in enumerate(wanted)]

    def _branches(
        self, node: If, adjoint: Adjoint, scopes: Scopes
    ) -> Routine[list[tuple[Expr, Adjoint]]]:
        """Differentiate an ``if`` as an ``if`` whose branches sweep over copies of the branches.

        Each branch recomputes its values there, so that the branch not taken is not evaluated.
        """
        dy = as_gradient(adjoint, node)
        found: list[Mapping[Expr, Adjoint]] = []
        for position, branch in ((1, node.true_branch), (2, node.false_branch)):
            found.append((yield self._branch(branch, dy, scopes, scopes.inner[node, position])))
        captured = list(dict.fromkeys((*found[0], *found[1])))
        if not captured:
            return []
        results = [
            Tuple(tuple(as_gradient(grads.get(c), c) for c in captured), span=node.span)
            for grads in found
        ]
        type_ = TupleType(tuple(type_of(c) for c in captured))
        typed = [r.with_type(type_) for r in results]
        grads = If(node.cond, *typed, span=node.span, checked_type=type_)
        return [(c, field_adjoint(grads, i)) for i, c in enumerate(captured)]

    def _branch(
        self, branch: Expr, dy: Expr, scopes: Scopes, scope: Scope
    ) -> Routine[dict[Expr, Adjoint]]:
        """The adjoints of the values that ``branch`` reads from outside."""
        outside = _read_from_outside(branch, scopes, scope)
        values = [*outside, dy]
        # The sweep of a branch stops at variables, so values from outside become variables
        # meanwhile.
        inputs = [Var(f"in{i}", span=v.span, checked_type=type_of(v)) for i, v in enumerate(values)]
        body = fresh_copy(branch, dict(zip(outside, inputs, strict=False)))
        adjoints = yield self._sweep(body, inputs[-1])
        back: dict[Expr, Expr] = dict(zip(inputs, values, strict=True))
        grads = [(c, adjoints.get(v)) for c, v in zip(outside, inputs, strict=False)]
        written = [(c, as_gradient(a, v)) for (c, a), v in zip(grads, inputs, strict=False)
                   if a is not None]
        together = fresh_copy(Tuple(tuple(g for _, g in written)), back)
        fields = together.fields if isinstance(together, Tuple) else ()
        return {c: f for (c, _), f in zip(written, fields, strict=True)}


def _read_from_outside(branch: Expr, scopes: Scopes, scope: Scope) -> list[Expr]:
    """The nodes that are computed outside of ``scope`` and used inside."""

    def is_inside(node: Expr) -> bool:
        return not isinstance(node, Var) and scopes.scope_of[node].depth >= scope.depth

    found = post_order(branch, enter=is_inside)
    return [n for n in found if not is_inside(n) and not isinstance(n, Constant)]


def _operator_contributions(call: Call, operator: Op, dy: Expr) -> list[tuple[Expr, Adjoint]]:
    if not any(is_differentiable(type_of(a)) for a in call.args):
        return []
    # A registered rule wins over the trait: a straight-through estimator replaces a derivative
    # that is zero by a useful one (Bengio et al. 2013).
    rule = operator.gradient_rule
    if rule is None and operator.traits.has_zero_gradient:
        return []
    if rule is None:
        raise PassError(
            f"missing gradient of {operator.name}",
            where=call.span,
            help=f'register one: @get_op("{operator.name}").gradient',
        )
    return list(zip(call.args, checked_gradients(call, operator, rule, dy), strict=True))
