"""Constraint generation: a type, possibly incomplete, for every node of a function.

The walk visits operands first and binds let variables before their scope, so most relations run
only once, with complete inputs. Nodes that are already typed, over operands whose types did not
change, are reused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from weft.ir import expr
from weft.ir.op import Op
from weft.ir.types import (
    IncompleteType,
    Type,
)
from weft.ir.typing.adt import bind_pattern, constructor_type
from weft.ir.typing.node_rules import NodeRules
from weft.ir.typing.solver import ERROR, UnifyError
from weft.ir.visitor import children
from weft.support.errors import TypeInferenceError
from weft.support.suggestion import did_you_mean

_ENTER, _BIND, _EXIT = 0, 1, 2


class Constraints(NodeRules):
    """Types of the nodes of one or several functions that are inferred together.

    ``order`` lists the nodes in post-order; ``types`` is keyed by ``id``; ``clean`` holds the nodes
    whose type, and all types below them, are still valid. With ``trust``, the walk does not enter
    typed nodes.
    """

    def __init__(self, global_types: Mapping[str, Type],
                 definitions: Mapping[str, expr.TypeData] | None, *, trust: bool = False) -> None:
        super().__init__(definitions)
        self.clean: set[int] = set()
        self.order: list[expr.Expr] = []
        self._trust = trust
        self._global_types = global_types

    def collect(self, root: expr.Expr, function: str | None = None) -> Type:
        """Visit all nodes below ``root``, and return its type as far as known."""
        self.function = function
        stack: list[tuple[expr.Expr, int]] = [(root, _ENTER)]
        entered: set[int] = set()
        while stack:
            node, step = stack.pop()
            if step == _ENTER:
                if id(node) not in entered and id(node) not in self.types:
                    entered.add(id(node))
                    self._enter(node, stack)
            elif step == _BIND:
                self._bind(node)
            else:
                self._exit(node)
        return self.types[id(root)]

    def solve(self) -> None:
        """Retry pending relations, and report those that remain."""
        self.solver.run()
        if not self.errors:
            for relation, context in self._contexts:
                if not relation.done:
                    self.errors.append(context.stuck())

    def agree(self, fn: expr.Function, declared: Type, found: Type) -> None:
        """Require that a global function has the type that its callers assumed."""
        self._unify(fn, declared, found, "the function is used with another type",
                    help="annotate its parameters and its result")

    # -- the walk ----------------------------------------------------------------------------

    def _enter(self, node: expr.Expr, stack: list[tuple[expr.Expr, int]]) -> None:
        if self._trust and node.checked_type is not None:
            self.clean.add(id(node))
            self._set(node, node.checked_type)
            return
        leaf = self._leaves.get(type(node))
        if leaf is not None:
            leaf(self, node)
            return
        if type(node) is expr.Call and type(node.op) is Op:  # most nodes
            waiting = [(arg, _ENTER) for arg in node.args if id(arg) not in self.types]
            if not waiting:
                self._exit(node)
                return
            if all(type(arg) is not Op for arg, _ in waiting):
                stack.append((node, _EXIT))
                stack += waiting[::-1]
                return
        stack.append((node, _EXIT))
        if isinstance(node, expr.Let):
            if isinstance(node.value, expr.Function) and node.var.annotation is None:
                # A recursive function: the type inferred for it before may be outdated.
                self._set(node.var, IncompleteType())
            stack += [(node.body, _ENTER), (node, _BIND), (node.value, _ENTER)]
        elif isinstance(node, expr.Match):
            stack.extend((clause.rhs, _ENTER) for clause in reversed(node.clauses))
            stack += [(node, _BIND), (node.data, _ENTER)]
        else:
            for child in reversed(children(node)):
                if type(child) is Op and id(child) not in self.types:
                    self._operator_as_value(node, child)  # operators are not first-class
                    self._set(child, ERROR)
                stack.append((child, _ENTER))

    def _bind(self, node: expr.Expr) -> None:
        if isinstance(node, expr.Let):
            self._bind_var(node.var, self.types[id(node.value)])
        elif isinstance(node, expr.Match):
            for clause in node.clauses:
                self._bind_clause(node, clause)

    def _bind_clause(self, match: expr.Match, clause: expr.Clause) -> None:
        data = self.types[id(match.data)]
        try:
            bind_pattern(clause.lhs, data, self.solver, self._definitions, self._bind_var)
        except TypeInferenceError as error:
            self._report(error, match)
            self._ill_formed.add(id(match))

    def _bind_var(self, var: expr.Var, type_: Type) -> None:
        known = self.types.get(id(var))
        if known is None:
            self._check_kind(var, var.annotation)
            known = var.annotation if var.annotation is not None else self.solver.shallow(type_)
            self._set(var, known)
        try:
            known = self.solver.unify(known, type_)
        except UnifyError as error:
            self._fail(var, f"%{var.name} is bound to a value of another type ({error.detail})",
                       expected=error.left, got=error.right,
                       help="change the annotation, or leave it out to have it inferred")
        if var.checked_type is not None and var.checked_type == self.solver.resolve(known):
            self.clean.add(id(var))

    def _exit(self, node: expr.Expr) -> None:
        known = node.checked_type
        if known is not None and self.clean.issuperset(map(id, children(node))):
            self.clean.add(id(node))
            self._set(node, known)
        else:
            self._set(node, self._rules[type(node)](self, node))

    def _set(self, node: expr.Expr, type_: Type) -> None:
        self.types[id(node)] = type_
        self.order.append(node)

    # -- leaves ------------------------------------------------------------------------------

    def _leaf_constant(self, constant: expr.Constant) -> None:
        self.clean.add(id(constant))
        self._set(constant, constant.checked_type or constant.tensor_type)

    def _leaf_var(self, var: expr.Var) -> None:
        if var.annotation is not None:
            self._check_kind(var, var.annotation)
            self._set(var, var.annotation)
        else:
            self._set(var, var.checked_type or IncompleteType())
        if var.checked_type is not None:
            self.clean.add(id(var))

    def _leaf_global(self, node: expr.GlobalVar) -> None:
        known = self._global_types.get(node.name)
        if known is None:
            names = ", ".join(f"@{n}" for n in self._global_types)
            self._fail(node, f"unknown function @{node.name}", expected=names or "a module",
                       got=f"@{node.name}",
                       help=did_you_mean(node.name, self._global_types, "define it, or import it"))
            known = ERROR
        if node.checked_type is not None and node.checked_type == known:
            self.clean.add(id(node))
        self._set(node, known)

    def _leaf_constructor(self, node: expr.Constructor) -> None:
        self.clean.add(id(node))
        try:
            self._set(node, constructor_type(node, self._definitions))
        except TypeInferenceError as error:
            self._report(error, node)
            self._set(node, ERROR)

    def _leaf_op(self, node: Op) -> None:
        self._operator_as_value(node, node)
        self._set(node, ERROR)

    def _operator_as_value(self, user: expr.Expr, node: Op) -> None:
        self._fail(
            user, f"the operator {node.name} is used as a value", expected="a function",
            got="an operator",
            help=f"wrap it in a function: fn ({_params(node)}) {{ {node.name}({_params(node)}) }}"
        )

    _leaves: ClassVar[dict[type, Callable[[Any, Any], None]]] = {
        expr.Constant: _leaf_constant,
        expr.Var: _leaf_var,
        expr.GlobalVar: _leaf_global,
        expr.Constructor: _leaf_constructor,
        Op: _leaf_op,
    }


def _params(op: Op) -> str:
    return ", ".join(f"%{name.lstrip('*')}" for name in op.inputs)
