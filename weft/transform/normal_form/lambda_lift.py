"""Lambda lifting: convert closures to global functions with explicit captured arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from weft.ir.expr import Call, Expr, Function, GlobalVar, Let, Var
from weft.ir.module import IRModule
from weft.ir.passes import Pass, PassContext, register_pass
from weft.ir.types import Type, TypeVar, component_types
from weft.ir.visitor import binders, free_vars, post_order
from weft.support.dataclass import dataclass
from weft.transform.analysis.graph import (
    as_function,
    enters,
    is_primitive,
    known_type,
    over_new_children,
)
from weft.transform.normal_form.alpha import fresh_copy, fresh_var
from weft.transform.normal_form.to_basic_block_normal_form import name_captures


@register_pass
@dataclass(frozen=True)
class LambdaLift(Pass):
    """Lambda lifting: move every local function to the module level (Johnsson 1985).

    The global function takes the captured variables before its own parameters. A call of a
    function by its let-bound name, even a recursive one, becomes a call of the global function.
    Where a function is used as a value, a closure remains whose body is only that call; a function
    without captures becomes a reference to the global function. ``prefix`` starts the new names.

    def @main(%x: Tensor[(4,), float32]) {
      let %f = fn (%y: Tensor[(4,), float32]) { add(%y, %x) };
      %f(exp(%x))
    }
    =>
    def @main(%x: Tensor[(4,), float32]) { @lifted_f(%x, exp(%x)) }
    def @lifted_f(%x: Tensor[(4,), float32], %y: Tensor[(4,), float32]) { add(%y, %x) }
    """

    name: ClassVar[str] = "lambda_lift"
    opt_level: ClassVar[int] = 1
    prefix: str = "lifted"

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:  # noqa: ARG002
        names = _Names(mod.functions)
        changed: dict[str, Function] = {}
        for name, fn in mod.functions.items():
            if is_primitive(fn) or not needs_lifting(fn):
                continue
            lift = _Lift(name_captures(fn), self.prefix, names)
            changed[name] = lift.run()
            changed.update(lift.lifted)
        return mod.with_functions(changed)


def needs_lifting(fn: Function) -> bool:
    """Whether ``fn`` contains functions other than kernels and bare partial applications."""
    inner = (n for n in post_order(fn.body, enter=enters) if isinstance(n, Function))
    return any(not is_primitive(n) and not is_partial_application(n) for n in inner)


def is_partial_application(fn: Function) -> bool:
    """Whether ``fn`` is ``fn (%a, ..) { @g(captured, .., %a, ..) }``, as lifted closures are."""
    call = fn.body
    if not isinstance(call, Call) or not isinstance(call.op, GlobalVar):
        return False
    captured = call.args[: len(call.args) - len(fn.params)]
    rest = call.args[len(captured) :]
    if len(rest) != len(fn.params) or any(a is not p for a, p in zip(rest, fn.params, strict=True)):
        return False
    return all(isinstance(c, Var) and c not in fn.params for c in captured)


class _Lift:
    """Lifts the local functions of one global function."""

    def __init__(self, fn: Function, prefix: str, unique: _Names) -> None:
        self.fn = fn
        self.order = list(post_order(fn, enter=enters))
        locals_ = [n for n in self.order if isinstance(n, Function) and n is not fn]
        self.functions = [f for f in locals_ if not is_primitive(f)]
        locals_set = set(self.functions)
        self.bound: dict[Expr, Function] = {}  # let variables that name local functions
        named: dict[Expr, str] = {}
        for node in self.order:
            if isinstance(node, Let) and node.value in locals_set:
                self.bound[node.var] = as_function(node.value)
                named.setdefault(node.value, node.var.name)
        self.names = {
            f: unique.unused(f"{prefix}_{named.get(f, 'fn')}") for f in self.functions
        }
        self.captured = self._captured()
        self.lifted: dict[str, Function] = {}
        self.memo: dict[Expr, Expr] = {}

    def run(self) -> Function:
        for node in self.order:
            if node not in self.memo:
                self.memo[node] = self._visit(node)
        return as_function(self.memo[self.fn])

    def _captured(self) -> dict[Expr, tuple[Var, ...]]:
        """The variables that each local function captures, directly or through its callees."""
        free = {f: free_vars(f) for f in self.functions}
        found: dict[Expr, dict[Var, None]] = {
            f: dict.fromkeys(v for v in free[f] if v not in self.bound) for f in self.functions
        }
        named = {f: [self.bound[v] for v in free[f] if v in self.bound] for f in self.functions}
        # A fixed point, because local functions may call each other recursively.
        growing = True
        while growing:
            growing = False
            for f in self.functions:
                own = set(_bound_inside(f))
                extra = [v for g in named[f] for v in found[g] if v not in own]
                before = len(found[f])
                found[f].update(dict.fromkeys(extra))
                growing = growing or len(found[f]) > before
        return {f: tuple(variables) for f, variables in found.items()}

    def _visit(self, node: Expr) -> Expr:
        if node in self.bound:
            return self._value(self.bound[node])
        if isinstance(node, Function) and node in self.names:
            self._define(node)
            return self._value(node)
        # The function is global now, so its let is dropped.
        if isinstance(node, Let) and node.var in self.bound:
            return self.memo[node.body]
        if isinstance(node, Call) and not isinstance(node.op, GlobalVar):
            callee = self.bound.get(node.op, node.op)
            if callee in self.names:
                return self._direct_call(node, as_function(callee))
        return over_new_children(node, self.memo.__getitem__)

    def _direct_call(self, call: Call, callee: Function) -> Call:
        args = tuple(self.memo[a] for a in call.args)
        target = GlobalVar(self.names[callee], span=call.op.span)
        return Call(
            target, (*self.captured[callee], *args), span=call.span, checked_type=call.checked_type
        )

    def _value(self, fn: Function) -> Expr:
        """``fn`` as a value: used otherwise than as a callee."""
        target, captured = GlobalVar(self.names[fn], span=fn.span), self.captured[fn]
        if not captured and not self._generics(fn):
            return target  # a generic function as a closure would have another type
        params = tuple(fresh_var(p) for p in fn.params)
        call = Call(target, (*captured, *params), span=fn.span)
        return Function(params, call, fn.ret_type, fn.type_params, fn.attrs, span=fn.span)

    def _define(self, fn: Function) -> None:
        captured = self.captured[fn]
        values: dict[Expr, Expr] = {v: _typed_parameter(v) for v in (*captured, *fn.params)}
        params = tuple(p for p in values.values() if isinstance(p, Var))
        body = fresh_copy(self.memo[fn.body], values)
        self.lifted[self.names[fn]] = Function(
            params, body, fn.ret_type, self._generics(fn), fn.attrs, span=fn.span
        )

    def _generics(self, fn: Function) -> tuple[TypeVar, ...]:
        """Type parameters of the global function: its own and those of the enclosing functions."""
        return _type_variables(map(known_type, (*self.captured[fn], *fn.params)), fn.type_params)


def _typed_parameter(var: Var) -> Var:
    return Var(var.name, known_type(var), span=var.span)


def _bound_inside(fn: Function) -> Iterable[Var]:
    return (v for node in post_order(fn) for v in binders(node))


def _type_variables(
    types: Iterable[Type | None], known: tuple[TypeVar, ...]
) -> tuple[TypeVar, ...]:
    found = dict.fromkeys(known)
    pending = [t for t in types if t is not None]
    seen = set(pending)
    for current in pending:  # the loop appends component types
        if isinstance(current, TypeVar):
            found[current] = None
        parts = [p for p in dict.fromkeys(component_types(current)) if p not in seen]
        seen.update(parts)
        pending.extend(parts)
    return tuple(found)


class _Names:
    """Unused names; duplicates get a number."""

    def __init__(self, taken: Iterable[str]) -> None:
        self.taken = set(taken)
        self.numbers: Counter[str] = Counter()

    def unused(self, name: str) -> str:
        candidate = name
        while candidate in self.taken:
            self.numbers[name] += 1
            candidate = f"{name}_{self.numbers[name]}"
        self.taken.add(candidate)
        return candidate
