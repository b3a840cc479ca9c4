"""The forward sweep: every node with its tangent, from those of its operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from weft import ir
from weft.support.errors import InternalError, PassError
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.forward.dual import (
    DualTypes,
    Packed,
    Pair,
    Value,
    is_atom,
    retyped,
)
from weft.transform.autodiff.forward.dual_layout import Layout
from weft.transform.autodiff.forward.forward_rules import (
    MissingRuleError,
    expansion_of,
    operator_tangent,
)


class Functions(Protocol):
    """How global functions are called and passed on."""

    def called(self, node: ir.Call, callee: ir.GlobalVar, args: list[Value]) -> Value: ...
    def value(self, function: ir.GlobalVar) -> ir.Expr: ...


class MissingRules:
    """Calls whose operators have no rule of differentiation, reported together."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], str | None] = {}

    def add(self, call: ir.Call) -> None:
        operator = call.op
        assert isinstance(operator, ir.Op)
        self.found[operator.name, str(call.span)] = operator.no_gradient_reason

    def check(self) -> None:
        """Raise ``PassError`` with all of them."""
        if not self.found:
            return
        names = dict.fromkeys(name for name, _ in self.found)
        locations = [f"{name} at {location}" + (f": {reason}" if reason else "")
                  for (name, location), reason in self.found.items()]
        raise PassError(
            f"missing derivative of {', '.join(names)}",
            where=next(iter(self.found))[1], notes=locations if len(locations) > 1 else (),
            help="register a rule with @op.jvp or @op.gradient, or stop the gradient at its "
                 "arguments: annotation.stop_gradient",
        )


class ForwardSweep:
    """Maps the nodes of an expression to values with tangents; shared nodes stay shared."""

    def __init__(self, types: DualTypes, missing: MissingRules, functions: Functions) -> None:
        self.types = types
        self.missing = missing
        self.functions = functions
        self._values: dict[ir.Expr, Value] = {}
        self._lets: dict[ir.Var, ir.Let] = {}
        self._bound: dict[ir.Let, list[tuple[ir.Var, ir.Expr]]] = {}
        self._renamed: dict[ir.Var, ir.Var] = {}

    def value_of(self, expr: ir.Expr, seeds: Mapping[ir.Var, Value]) -> Value:
        """The value of ``expr``, from those of its free variables."""
        for var, value in seeds.items():
            self._values[var] = value
        for node in self._order(expr):
            if node not in self._values:
                self._values[node] = self._visited(node)
        return self._values[expr]

    def _order(self, root: ir.Expr) -> Iterator[ir.Expr]:
        """Post-order, in which a bound value precedes its variable."""
        done: dict[int, bool] = {}
        stack = [root]
        while stack:
            node = stack[-1]
            state = done.get(id(node))
            if state is None:
                done[id(node)] = False
                stack.extend(c for c in reversed(self._operands(node)) if id(c) not in done)
            else:
                stack.pop()
                if not state:
                    done[id(node)] = True
                    yield node

    def _operands(self, node: ir.Expr) -> Sequence[ir.Expr]:
        if isinstance(node, ir.Let) and not isinstance(node.value, ir.Function):
            self._lets[node.var] = node
            return (node.value, node.var, node.body)
        if isinstance(node, ir.Call) and isinstance(node.op, (ir.GlobalVar, ir.Constructor)):
            return node.args  # the callee is not used as a value
        return ir.children(node)

    def _visited(self, node: ir.Expr) -> Value:
        visit: Callable[[ir.Expr], Value] | None = _VISITS.get(type(node))
        if visit is None:
            raise InternalError(f"not an expression of the IR: {type(node).__name__}")
        return visit(self, node)  # type: ignore[call-arg]

    # -- parts of a node ---------------------------------------------------------------------------

    def _packed(self, node: ir.Expr) -> ir.Expr:
        return self.types.packed(self._values[node], type_of(node))

    def _split(self, node: ir.Expr) -> Pair:
        return self.types.split(self._values[node], type_of(node))

    def _made(self, node: ir.Expr, made: ir.Expr) -> Value:
        """The value of ``node`` that ``made``, of the dual type, computes."""
        type_ = type_of(node)
        dual = self.types.of(type_)
        return self.types.unpacked(made if made.checked_type == dual else made.with_type(dual),
                                   type_)

    # -- names -------------------------------------------------------------------------------------

    def _var(self, var: ir.Var) -> Value:
        let = self._lets.get(var)
        if let is not None:
            return self._let_var(let)
        type_ = type_of(var)
        if self.types.is_plain(type_):
            return Pair(var)
        renamed = self._renamed[var] = retyped(var, self.types.of(type_))
        return self.types.unpacked(renamed, type_)

    def _let_var(self, let: ir.Let) -> Value:
        """Variables for the value of ``let`` and for its tangent."""
        value = self._values[let.value]
        layout = Layout.of([value], type_of(let.value), self.types)
        parts = layout.parts(value)
        # Bindings are listed from the inside out, so the value itself comes last.
        bound = self._bound[let] = []
        tangents = [self._named(let.var, f"d{let.var.name}", t, bound) for t in parts[1:]]
        return layout.value([self._named(let.var, let.var.name, parts[0], bound), *tangents])

    def _named(self, var: ir.Var, name: str, value: ir.Expr,
               bound: list[tuple[ir.Var, ir.Expr]]) -> ir.Expr:
        if is_atom(value):
            return value
        type_ = type_of(value)
        new = ir.Var(name, type_, span=var.span, checked_type=type_)
        bound.append((new, value))
        return new

    def _constant(self, node: ir.Expr) -> Value:
        return Pair(node)

    def _global(self, node: ir.GlobalVar) -> Value:
        return self.types.unpacked(self.functions.value(node), type_of(node))

    def _constructor(self, node: ir.Constructor) -> Value:
        dual = self.types.constructor(node)
        return Pair(node) if dual is node else Packed(dual, type_of(node))

    # -- bindings ----------------------------------------------------------------------------------

    def _let(self, node: ir.Let) -> Value:
        body = self._values[node.body]
        if isinstance(node.value, ir.Function):
            var = self._renamed.get(node.var, node.var)
            bound = [(var, self._packed(node.value))]
        else:
            bound = self._bound[node]
        if not bound:
            return body
        return self._scoped(bound, body, node)

    def _scoped(self, bound: list[tuple[ir.Var, ir.Expr]], body: Value, node: ir.Let) -> Value:
        """``body`` inside bindings; all its parts are one expression, which they scope over."""
        type_ = type_of(node)
        layout = Layout.of([body], type_, self.types)
        result = layout.joined(body)
        for var, value in bound:
            result = ir.Let(var, value, result, span=node.span, checked_type=result.checked_type)
        return layout.parted(result)

    def _function(self, node: ir.Function) -> Value:
        params = tuple(self._renamed.get(p, p) for p in node.params)
        body = self._packed(node.body)
        if params == node.params and body is node.body:
            return Pair(node)
        ret = None if node.ret_type is None else self.types.of(node.ret_type)
        made = dataclasses.replace(node, params=params, body=body, ret_type=ret,
                                   checked_type=self.types.of(type_of(node)))
        return self._made(node, made)

    # -- branches ----------------------------------------------------------------------------------

    def _if(self, node: ir.If) -> Value:
        cond = self._split(node.cond).primal
        values = [self._values[node.true_branch], self._values[node.false_branch]]
        layout = Layout.of(values, type_of(node), self.types)
        branches = [layout.joined(v) for v in values]
        made = ir.If(cond, *branches, span=node.span, checked_type=branches[0].checked_type)
        return layout.parted(made)

    def _match(self, node: ir.Match) -> Value:
        data = self._packed(node.data)
        values = [self._values[c.rhs] for c in node.clauses]
        layout = Layout.of(values, type_of(node), self.types)
        clauses = tuple(ir.Clause(self._pattern(c.lhs), layout.joined(v))
                        for c, v in zip(node.clauses, values, strict=True))
        type_ = clauses[0].rhs.checked_type if clauses else None
        made = ir.Match(data, clauses, node.complete, span=node.span, checked_type=type_)
        return layout.parted(made)

    def _pattern(self, pattern: ir.Pattern) -> ir.Pattern:
        # Patterns are written by hand and short, which bounds this recursion.
        if isinstance(pattern, ir.PatternVar):
            return ir.PatternVar(self._renamed.get(pattern.var, pattern.var))
        if isinstance(pattern, ir.PatternConstructor):
            return ir.PatternConstructor(self.types.constructor(pattern.constructor),
                                         tuple(map(self._pattern, pattern.patterns)))
        if isinstance(pattern, ir.PatternTuple):
            return ir.PatternTuple(tuple(map(self._pattern, pattern.patterns)))
        return pattern

    # -- tuples and references ---------------------------------------------------------------------

    def _tuple(self, node: ir.Tuple) -> Value:
        fields = tuple(self._values[f] for f in node.fields)
        if not self.types.is_plain(type_of(node)):
            return fields
        parts = [self._packed(f) for f in node.fields]
        same = all(a is b for a, b in zip(parts, node.fields, strict=True))
        return Pair(node if same else dataclasses.replace(node, fields=tuple(parts)))

    def _item(self, node: ir.TupleGetItem) -> Value:
        whole = self._values[node.tuple_value]
        if isinstance(whole, Pair) and whole.primal is node.tuple_value and whole.tangent is None:
            return Pair(node)
        return self.types.field(whole, node.index, type_of(node))

    def _reference(self, node: ir.Expr) -> Value:
        parts = [self._packed(c) for c in ir.children(node)]
        if isinstance(node, ir.RefCreate):
            made: ir.Expr = dataclasses.replace(node, value=parts[0],
                                                checked_type=self.types.of(type_of(node)))
        elif isinstance(node, ir.RefRead):
            made = dataclasses.replace(node, ref=parts[0],
                                       checked_type=self.types.of(type_of(node)))
        else:
            assert isinstance(node, ir.RefWrite)
            made = dataclasses.replace(node, ref=parts[0], value=parts[1])
        return self._made(node, made)

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, node: ir.Call) -> Value:
        if isinstance(node.op, ir.Op):
            return self._operator(node)
        if isinstance(node.op, ir.GlobalVar):
            return self.functions.called(node, node.op, [self._values[a] for a in node.args])
        args = tuple(self._packed(a) for a in node.args)
        if isinstance(node.op, ir.Constructor):
            callee: ir.Expr = self.types.constructor(node.op)
        else:
            callee = self._packed(node.op)
        of = self.types.of
        made = dataclasses.replace(
            node, op=callee, args=args, type_args=tuple(map(of, node.type_args)),
            checked_type_args=tuple(map(of, node.checked_type_args)),
            checked_type=of(type_of(node)))
        return self._made(node, made)

    def _operator(self, node: ir.Call) -> Value:
        pairs = [self._split(a) for a in node.args]
        args = tuple(p.primal for p in pairs)
        same = all(a is b for a, b in zip(args, node.args, strict=True))
        call = node if same else dataclasses.replace(node, args=args)
        if any(p.tangent is not None for p in pairs):
            expansion = expansion_of(call)
            if expansion is not None:
                params, body = expansion
                inner = ForwardSweep(self.types, self.missing, self.functions)
                return inner.value_of(body, dict(zip(params, pairs, strict=True)))
        try:
            tangent = operator_tangent(call, [p.tangent for p in pairs])
        except MissingRuleError:
            self.missing.add(node)
            return Pair(call)
        return Pair(call, tangent)


_VISITS: Mapping[type, Callable[..., Value]] = {
    ir.Var: ForwardSweep._var,  # noqa: SLF001 - the methods of the class above
    ir.Constant: ForwardSweep._constant,  # noqa: SLF001
    ir.GlobalVar: ForwardSweep._global,  # noqa: SLF001
    ir.Constructor: ForwardSweep._constructor,  # noqa: SLF001
    ir.Let: ForwardSweep._let,  # noqa: SLF001
    ir.Function: ForwardSweep._function,  # noqa: SLF001
    ir.If: ForwardSweep._if,  # noqa: SLF001
    ir.Match: ForwardSweep._match,  # noqa: SLF001
    ir.Tuple: ForwardSweep._tuple,  # noqa: SLF001
    ir.TupleGetItem: ForwardSweep._item,  # noqa: SLF001
    ir.RefCreate: ForwardSweep._reference,  # noqa: SLF001
    ir.RefRead: ForwardSweep._reference,  # noqa: SLF001
    ir.RefWrite: ForwardSweep._reference,  # noqa: SLF001
    ir.Call: ForwardSweep._call,  # noqa: SLF001
}
