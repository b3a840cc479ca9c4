"""A-normal form: every intermediate value has a name, in order of evaluation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from weft.ir.expr import Constant, Constructor, Expr, Function, GlobalVar, If, Let, Match, Var
from weft.ir.op import Op
from weft.ir.passes import FunctionPass, PassContext, register_pass
from weft.ir.visitor import children, post_order, rebuild
from weft.transform.graph import enters, is_primitive


@register_pass
@dataclass(frozen=True)
class ToANormalForm(FunctionPass):
    """Bind every call, tuple and projection by ``let``; operands become variables or constants.

    A value is bound in the innermost scope (function, branch, clause) that holds all of its uses,
    so that sharing is kept and nothing moves into a scope that might run more often.

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

    def run(self, fn: Function, ctx: PassContext) -> Function:  # noqa: ARG002
        body = _Normalizer(fn.body).run()
        return fn.replace(body=body, checked_type=fn.checked_type)


@dataclass(eq=False, slots=True)
class _Scope:
    """A place for bindings; ``depth`` counts the scopes around it."""

    parent: _Scope | None = None
    depth: int = 0
    bindings: list[tuple[Var, Expr]] = field(default_factory=list)

    def inner(self) -> _Scope:
        return _Scope(self, self.depth + 1)

    def close(self, result: Expr) -> Expr:
        for var, value in reversed(self.bindings):
            result = Let(var, value, result, span=value.span, checked_type=result.checked_type)
        return result


def is_atom(expr: Expr) -> bool:
    """Whether evaluating ``expr`` takes no work, so that it needs no name."""
    if isinstance(expr, (Var, Constant, GlobalVar, Constructor, Op)):
        return True
    return is_primitive(expr)


class _Normalizer:
    def __init__(self, body: Expr) -> None:
        self.body = body
        self.order = list(post_order(body, enter=enters))
        self.root = _Scope()
        self.inner: dict[tuple[Expr, int], _Scope] = {}  # scopes opened by (node, operand)
        self.scope_of = self._place()
        self.named: dict[Expr, list[Var]] = {}
        for node in self.order:
            if isinstance(node, Let):
                self.named.setdefault(node.value, []).append(node.var)
        self.memo: dict[Expr, Expr] = {}
        self.count = 0

    def run(self) -> Expr:
        for node in self.order:
            self._visit(node)
        return self.root.close(self.memo[self.body])

    def _place(self) -> dict[Expr, _Scope]:
        """The scope of every node: the innermost around all its uses, found users first."""
        placed = {self.body: self.root}
        for node in reversed(self.order):
            scope = placed[node]
            for position, child in enumerate(children(node) if enters(node) else ()):
                use = scope
                if _opens_scope(node, position):
                    use = self.inner[node, position] = scope.inner()
                placed[child] = _common(placed[child], use) if child in placed else use
        return placed

    def _visit(self, node: Expr) -> None:
        if isinstance(node, Var):
            self.memo.setdefault(node, node)
            known = self.memo[node]
        elif isinstance(node, Let):
            known = self.memo[node.body]
        elif is_atom(node):
            known = node
        else:
            known = self._bind(node)
        self.memo[node] = known
        for var in self.named.get(node, ()):
            self.memo[var] = known

    def _bind(self, node: Expr) -> Var:
        parts = [self._operand(node, i, c) for i, c in enumerate(children(node))]
        value = rebuild(node, parts)
        if value is not node and node.checked_type is not None:
            value = value.with_type(node.checked_type)
        var = self._name_for(node)
        self.scope_of[node].bindings.append((var, value))
        return var

    def _operand(self, node: Expr, position: int, child: Expr) -> Expr:
        scope = self.inner.get((node, position))
        return self.memo[child] if scope is None else scope.close(self.memo[child])

    def _name_for(self, node: Expr) -> Var:
        if isinstance(node, Function) and node in self.named:
            return self.named[node][0]  # the function may call itself by this name
        self.count += 1
        return Var(f"v{self.count - 1}", span=node.span, checked_type=node.checked_type)


def _opens_scope(node: Expr, position: int) -> bool:
    if isinstance(node, If):
        return position > 0
    if isinstance(node, Function):
        return position == len(node.params)
    return isinstance(node, Match) and position > 0


def _common(a: _Scope, b: _Scope) -> _Scope:
    while a is not b:
        if a.depth >= b.depth and a.parent is not None:
            a = a.parent
        elif b.parent is not None:
            b = b.parent
    return a
