"""Lambda lifting: convert closures to global functions with explicit captured arguments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.transform.analysis import graph
from weft.transform.normal_form.alpha import fresh_copy, fresh_var
from weft.transform.normal_form.to_basic_block_normal_form import name_captures


@ir.register_pass
@dataclass(frozen=True)
class LambdaLift(ir.Pass):
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

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:  # noqa: ARG002
        names = _Names(mod.functions)
        changed: dict[str, ir.Function] = {}
        for name, fn in mod.functions.items():
            if graph.is_primitive(fn) or not needs_lifting(fn):
                continue
            lift = _Lift(name_captures(fn), self.prefix, names)
            changed[name] = lift.run()
            changed.update(lift.lifted)
        return mod.with_functions(changed)


def needs_lifting(fn: ir.Function) -> bool:
    """Whether ``fn`` contains functions other than kernels and bare partial applications."""
    inner = (n for n in ir.post_order(fn.body, enter=graph.enters) if isinstance(n, ir.Function))
    return any(not graph.is_primitive(n) and not is_partial_application(n) for n in inner)


def is_partial_application(fn: ir.Function) -> bool:
    """Whether ``fn`` is ``fn (%a, ..) { @g(captured, .., %a, ..) }``, as lifted closures are."""
    call = fn.body
    if not isinstance(call, ir.Call) or not isinstance(call.op, ir.GlobalVar):
        return False
    captured = call.args[: len(call.args) - len(fn.params)]
    rest = call.args[len(captured) :]
    if len(rest) != len(fn.params) or any(a is not p for a, p in zip(rest, fn.params, strict=True)):
        return False
    return all(isinstance(c, ir.Var) and c not in fn.params for c in captured)


class _Lift:
    """Lifts the local functions of one global function."""

    def __init__(self, fn: ir.Function, prefix: str, unique: _Names) -> None:
        self.fn = fn
        self.order = list(ir.post_order(fn, enter=graph.enters))
        locals_ = [n for n in self.order if isinstance(n, ir.Function) and n is not fn]
        self.functions = [f for f in locals_ if not graph.is_primitive(f)]
        locals_set = set(self.functions)
        self.bound: dict[ir.Expr, ir.Function] = {}  # let variables that name local functions
        named: dict[ir.Expr, str] = {}
        for node in self.order:
            if isinstance(node, ir.Let) and node.value in locals_set:
                self.bound[node.var] = graph.as_function(node.value)
                named.setdefault(node.value, node.var.name)
        self.names = {
            f: unique.unused(f"{prefix}_{named.get(f, 'fn')}") for f in self.functions
        }
        self.captured = self._captured()
        self.lifted: dict[str, ir.Function] = {}
        self.memo: dict[ir.Expr, ir.Expr] = {}

    def run(self) -> ir.Function:
        for node in self.order:
            if node not in self.memo:
                self.memo[node] = self._visit(node)
        return graph.as_function(self.memo[self.fn])

    def _captured(self) -> dict[ir.Expr, tuple[ir.Var, ...]]:
        """The variables that each local function captures, directly or through its callees."""
        free = {f: ir.free_vars(f) for f in self.functions}
        found: dict[ir.Expr, dict[ir.Var, None]] = {
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

    def _visit(self, node: ir.Expr) -> ir.Expr:
        if node in self.bound:
            return self._value(self.bound[node])
        if isinstance(node, ir.Function) and node in self.names:
            self._define(node)
            return self._value(node)
        # The function is global now, so its let is dropped.
        if isinstance(node, ir.Let) and node.var in self.bound:
            return self.memo[node.body]
        if isinstance(node, ir.Call) and not isinstance(node.op, ir.GlobalVar):
            callee = self.bound.get(node.op, node.op)
            if callee in self.names:
                return self._direct_call(node, graph.as_function(callee))
        return graph.over_new_children(node, self.memo.__getitem__)

    def _direct_call(self, call: ir.Call, callee: ir.Function) -> ir.Call:
        args = tuple(self.memo[a] for a in call.args)
        target = ir.GlobalVar(self.names[callee], span=call.op.span)
        return ir.Call(
            target, (*self.captured[callee], *args), span=call.span, checked_type=call.checked_type
        )

    def _value(self, fn: ir.Function) -> ir.Expr:
        """``fn`` as a value, that is, other than as a callee."""
        target, captured = ir.GlobalVar(self.names[fn], span=fn.span), self.captured[fn]
        if not captured and not self._generics(fn):
            return target  # a generic function as a closure would have another type
        params = tuple(fresh_var(p) for p in fn.params)
        call = ir.Call(target, (*captured, *params), span=fn.span)
        return ir.Function(params, call, fn.ret_type, fn.type_params, fn.attrs, span=fn.span)

    def _define(self, fn: ir.Function) -> None:
        captured = self.captured[fn]
        values: dict[ir.Expr, ir.Expr] = {v: _typed_parameter(v) for v in (*captured, *fn.params)}
        params = tuple(p for p in values.values() if isinstance(p, ir.Var))
        body = fresh_copy(self.memo[fn.body], values)
        self.lifted[self.names[fn]] = ir.Function(
            params, body, fn.ret_type, self._generics(fn), fn.attrs, span=fn.span
        )

    def _generics(self, fn: ir.Function) -> tuple[ir.TypeVar, ...]:
        """Type parameters of the global function: its own and those of the enclosing functions."""
        return _type_variables(map(graph.known_type, (*self.captured[fn], *fn.params)),
                               fn.type_params)


def _typed_parameter(var: ir.Var) -> ir.Var:
    return ir.Var(var.name, graph.known_type(var), span=var.span)


def _bound_inside(fn: ir.Function) -> Iterable[ir.Var]:
    return (v for node in ir.post_order(fn) for v in ir.binders(node))


def _type_variables(
    types: Iterable[ir.Type | None], known: tuple[ir.TypeVar, ...]
) -> tuple[ir.TypeVar, ...]:
    found = dict.fromkeys(known)
    pending = [t for t in types if t is not None]
    seen = set(pending)
    for current in pending:  # the loop appends component types
        if isinstance(current, ir.TypeVar):
            found[current] = None
        parts = [p for p in dict.fromkeys(ir.component_types(current)) if p not in seen]
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
