"""A-normal form (ANF): every intermediate value has a name, in order of evaluation."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from weft.ir import FunctionPass, Op, PassContext, children, rebuild, register_pass
from weft.ir.expr import Constant, Constructor, Expr, Function, GlobalVar, Let, Var
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import is_primitive
from weft.transform.analysis.scopes import Scopes


@register_pass
@dataclass(frozen=True)
class ToANormalForm(FunctionPass):
    """Convert to A-normal form: bind every call, tuple and projection by ``let``.

    Operands become variables or constants. A value is bound in the innermost scope (function,
    branch, clause) that holds all of its uses, so that sharing is preserved and no computation
    moves into a scope that may run more often.

    def @main(%x: Tensor[(4,), float32]) { %0 = exp(%x); add(%0, %0) }
    =>
    def @main(%x: Tensor[(4,), float32]) {
      let %v0 = exp(%x);
      let %v1 = add(%v0, %v0);
      %v1
    }
    """

    name: ClassVar[str] = "to_a_normal_form"
    opt_level: ClassVar[int] = 0
    provides: ClassVar[tuple[str, ...]] = ("a_normal_form",)

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        body = Normalizer(fn.body).run()
        return fn.replace(body=body, checked_type=fn.checked_type)


def is_atom(expr: Expr) -> bool:
    """Whether evaluating ``expr`` costs nothing, so that it needs no name."""
    if isinstance(expr, (Var, Constant, GlobalVar, Constructor, Op)):
        return True
    return is_primitive(expr)


class Normalizer:
    """Binds nodes of ``body`` by ``let``, each in the scope that ``Scopes`` assigns to it.

    ``wants_name`` selects nodes among those that are not atoms; by default all of them.
    """

    def __init__(self, body: Expr, wants_name: Callable[[Expr], bool] | None = None) -> None:
        self.body = body
        self.wants_name = wants_name
        self.scopes = Scopes(body)
        self.named: dict[Expr, list[Var]] = {}
        for node in self.scopes.order:
            if isinstance(node, Let):
                self.named.setdefault(node.value, []).append(node.var)
        self.memo: dict[Expr, Expr] = {}
        self.count = 0

    def run(self) -> Expr:
        for node in self.scopes.order:
            self._visit(node)
        return self.scopes.root.close(self._known(self.body))

    def _visit(self, node: Expr) -> None:
        if isinstance(node, Var):
            self.memo.setdefault(node, node)
            known = self.memo[node]
        elif isinstance(node, Let):
            known = self.memo[node.body]
        elif is_atom(node):
            known = node
        elif self.wants_name is None or self.wants_name(node):
            known = self._bind(node)
        else:
            known = self._rebuilt(node)
        self.memo[node] = known
        for var in self.named.get(node, ()):
            self.memo[var] = known

    def _rebuilt(self, node: Expr) -> Expr:
        parts = [self._operand(node, i, c) for i, c in enumerate(children(node))]
        value = rebuild(node, parts)
        if value is not node and node.checked_type is not None:
            value = value.with_type(node.checked_type)
        return value

    def _bind(self, node: Expr) -> Var:
        value = self._rebuilt(node)
        var = self._name_for(node)
        self.scopes.scope_of[node].bindings.append((var, value))
        return var

    def _operand(self, node: Expr, position: int, child: Expr) -> Expr:
        scope = self.scopes.inner.get((node, position))
        known = self._known(child)
        return known if scope is None else scope.close(known)

    def _known(self, node: Expr) -> Expr:
        """The replacement of ``node``; a variable may stand for another one."""
        known = self.memo[node]
        while isinstance(known, Var) and self.memo.get(known, known) is not known:
            known = self.memo[known]
        return known

    def _name_for(self, node: Expr) -> Var:
        if isinstance(node, Function) and node in self.named:
            return self.named[node][0]  # the function may call itself by this name
        self.count += 1
        return Var(f"v{self.count - 1}", span=node.span, checked_type=node.checked_type)
