"""The forward sweep: every node with its tangent, from those of its operands."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from weft.ir.expr import (
    Call,
    Clause,
    Constant,
    Constructor,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    RefCreate,
    RefRead,
    RefWrite,
    Tuple,
    TupleGetItem,
    Var,
)
from weft.ir.op import Op
from weft.ir.visitor import children
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

    def called(self, node: Call, callee: GlobalVar, args: list[Value]) -> Value: ...
    def value(self, function: GlobalVar) -> Expr: ...


class MissingRules:
    """Calls whose operators have no rule of differentiation, reported together."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, str], str | None] = {}

    def add(self, call: Call) -> None:
        operator = call.op
        assert isinstance(operator, Op)
        self.found[operator.name, str(call.span)] = operator.no_gradient_reason

    def check(self) -> None:
        """Raise ``PassError`` with all of them."""
        if not self.found:
            return
        names = dict.fromkeys(name for name, _ in self.found)
        places = [f"{name} at {place}" + (f": {reason}" if reason else "")
                  for (name, place), reason in self.found.items()]
        raise PassError(
            f"missing derivative of {', '.join(names)}",
            where=next(iter(self.found))[1], notes=places if len(places) > 1 else (),
            help="register a rule with @op.jvp or @op.gradient, or stop the gradient at its "
                 "arguments: annotation.stop_gradient",
        )


class ForwardSweep:
    """Maps the nodes of an expression to values with tangents; shared nodes stay shared."""

    def __init__(self, types: DualTypes, missing: MissingRules, functions: Functions) -> None:
        self.types = types
        self.missing = missing
        self.functions = functions
        self._values: dict[Expr, Value] = {}
        self._lets: dict[Var, Let] = {}
        self._bound: dict[Let, list[tuple[Var, Expr]]] = {}
        self._renamed: dict[Var, Var] = {}

    def value_of(self, expr: Expr, seeds: Mapping[Var, Value]) -> Value:
        """The value of ``expr``, from those of its free variables."""
        for var, value in seeds.items():
            self._values[var] = value
        for node in self._order(expr):
            if node not in self._values:
                self._values[node] = self._visited(node)
        return self._values[expr]

    def _order(self, root: Expr) -> Iterator[Expr]:
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

    def _operands(self, node: Expr) -> Sequence[Expr]:
        if isinstance(node, Let) and not isinstance(node.value, Function):
            self._lets[node.var] = node
            return (node.value, node.var, node.body)
        if isinstance(node, Call) and isinstance(node.op, (GlobalVar, Constructor)):
            return node.args  # the callee is not used as a value
        return children(node)

    def _visited(self, node: Expr) -> Value:
        visit: Callable[[Expr], Value] | None = _VISITS.get(type(node))
        if visit is None:
            raise InternalError(f"not an expression of the IR: {type(node).__name__}")
        return visit(self, node)  # type: ignore[call-arg]

    # -- parts of a node ---------------------------------------------------------------------------

    def _packed(self, node: Expr) -> Expr:
        return self.types.packed(self._values[node], type_of(node))

    def _split(self, node: Expr) -> Pair:
        return self.types.split(self._values[node], type_of(node))

    def _made(self, node: Expr, made: Expr) -> Value:
        """The value of ``node`` that ``made``, of the dual type, computes."""
        type_ = type_of(node)
        dual = self.types.of(type_)
        return self.types.unpacked(made if made.checked_type == dual else made.with_type(dual),
                                   type_)

    # -- names -------------------------------------------------------------------------------------

    def _var(self, var: Var) -> Value:
        let = self._lets.get(var)
        if let is not None:
            return self._let_var(let)
        type_ = type_of(var)
        if self.types.is_plain(type_):
            return Pair(var)
        renamed = self._renamed[var] = retyped(var, self.types.of(type_))
        return self.types.unpacked(renamed, type_)

    def _let_var(self, let: Let) -> Value:
        """Variables for the value of ``let`` and for its tangent."""
        value = self._values[let.value]
        layout = Layout.of([value], type_of(let.value), self.types)
        parts = layout.parts(value)
        # Bindings are listed from the inside out, so the value itself comes last.
        bound = self._bound[let] = []
        tangents = [self._named(let.var, f"d{let.var.name}", t, bound) for t in parts[1:]]
        return layout.value([self._named(let.var, let.var.name, parts[0], bound), *tangents])

    def _named(self, var: Var, name: str, value: Expr, bound: list[tuple[Var, Expr]]) -> Expr:
        if is_atom(value):
            return value
        type_ = type_of(value)
        new = Var(name, type_, span=var.span, checked_type=type_)
        bound.append((new, value))
        return new

    def _constant(self, node: Expr) -> Value:
        return Pair(node)

    def _global(self, node: GlobalVar) -> Value:
        return self.types.unpacked(self.functions.value(node), type_of(node))

    def _constructor(self, node: Constructor) -> Value:
        dual = self.types.constructor(node)
        return Pair(node) if dual is node else Packed(dual, type_of(node))

    # -- bindings ----------------------------------------------------------------------------------

    def _let(self, node: Let) -> Value:
        body = self._values[node.body]
        if isinstance(node.value, Function):
            var = self._renamed.get(node.var, node.var)
            bound = [(var, self._packed(node.value))]
        else:
            bound = self._bound[node]
        if not bound:
            return body
        return self._scoped(bound, body, node)

    def _scoped(self, bound: list[tuple[Var, Expr]], body: Value, node: Let) -> Value:
        """``body`` inside bindings; all its parts are one expression, which they scope over."""
        type_ = type_of(node)
        layout = Layout.of([body], type_, self.types)
        result = layout.joined(body)
        for var, value in bound:
            result = Let(var, value, result, span=node.span, checked_type=result.checked_type)
        return layout.parted(result)

    def _function(self, node: Function) -> Value:
        params = tuple(self._renamed.get(p, p) for p in node.params)
        body = self._packed(node.body)
        if params == node.params and body is node.body:
            return Pair(node)
        ret = None if node.ret_type is None else self.types.of(node.ret_type)
        made = dataclasses.replace(node, params=params, body=body, ret_type=ret,
                                   checked_type=self.types.of(type_of(node)))
        return self._made(node, made)

    # -- branches ----------------------------------------------------------------------------------

    def _if(self, node: If) -> Value:
        cond = self._split(node.cond).primal
        values = [self._values[node.true_branch], self._values[node.false_branch]]
        layout = Layout.of(values, type_of(node), self.types)
        branches = [layout.joined(v) for v in values]
        made = If(cond, *branches, span=node.span, checked_type=branches[0].checked_type)
        return layout.parted(made)

    def _match(self, node: Match) -> Value:
        data = self._packed(node.data)
        values = [self._values[c.rhs] for c in node.clauses]
        layout = Layout.of(values, type_of(node), self.types)
        clauses = tuple(Clause(self._pattern(c.lhs), layout.joined(v))
                        for c, v in zip(node.clauses, values, strict=True))
        type_ = clauses[0].rhs.checked_type if clauses else None
        made = Match(data, clauses, node.complete, span=node.span, checked_type=type_)
        return layout.parted(made)

    def _pattern(self, pattern: Pattern) -> Pattern:
        # Patterns are written by hand and short, which bounds this recursion.
        if isinstance(pattern, PatternVar):
            return PatternVar(self._renamed.get(pattern.var, pattern.var))
        if isinstance(pattern, PatternConstructor):
            return PatternConstructor(self.types.constructor(pattern.constructor),
                                      tuple(map(self._pattern, pattern.patterns)))
        if isinstance(pattern, PatternTuple):
            return PatternTuple(tuple(map(self._pattern, pattern.patterns)))
        return pattern

    # -- tuples and references ---------------------------------------------------------------------

    def _tuple(self, node: Tuple) -> Value:
        fields = tuple(self._values[f] for f in node.fields)
        if not self.types.is_plain(type_of(node)):
            return fields
        parts = [self._packed(f) for f in node.fields]
        same = all(a is b for a, b in zip(parts, node.fields, strict=True))
        return Pair(node if same else dataclasses.replace(node, fields=tuple(parts)))

    def _item(self, node: TupleGetItem) -> Value:
        whole = self._values[node.tuple_value]
        if isinstance(whole, Pair) and whole.primal is node.tuple_value and whole.tangent is None:
            return Pair(node)
        return self.types.field(whole, node.index, type_of(node))

    def _reference(self, node: Expr) -> Value:
        parts = [self._packed(c) for c in children(node)]
        if isinstance(node, RefCreate):
            made: Expr = dataclasses.replace(node, value=parts[0],
                                             checked_type=self.types.of(type_of(node)))
        elif isinstance(node, RefRead):
            made = dataclasses.replace(node, ref=parts[0],
                                       checked_type=self.types.of(type_of(node)))
        else:
            assert isinstance(node, RefWrite)
            made = dataclasses.replace(node, ref=parts[0], value=parts[1])
        return self._made(node, made)

    # -- calls -------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Value:
        if isinstance(node.op, Op):
            return self._operator(node)
        if isinstance(node.op, GlobalVar):
            return self.functions.called(node, node.op, [self._values[a] for a in node.args])
        args = tuple(self._packed(a) for a in node.args)
        if isinstance(node.op, Constructor):
            callee: Expr = self.types.constructor(node.op)
        else:
            callee = self._packed(node.op)
        of = self.types.of
        made = dataclasses.replace(
            node, op=callee, args=args, type_args=tuple(map(of, node.type_args)),
            checked_type_args=tuple(map(of, node.checked_type_args)),
            checked_type=of(type_of(node)))
        return self._made(node, made)

    def _operator(self, node: Call) -> Value:
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
    Var: ForwardSweep._var,  # noqa: SLF001 - the methods of the class above
    Constant: ForwardSweep._constant,  # noqa: SLF001
    GlobalVar: ForwardSweep._global,  # noqa: SLF001
    Constructor: ForwardSweep._constructor,  # noqa: SLF001
    Let: ForwardSweep._let,  # noqa: SLF001
    Function: ForwardSweep._function,  # noqa: SLF001
    If: ForwardSweep._if,  # noqa: SLF001
    Match: ForwardSweep._match,  # noqa: SLF001
    Tuple: ForwardSweep._tuple,  # noqa: SLF001
    TupleGetItem: ForwardSweep._item,  # noqa: SLF001
    RefCreate: ForwardSweep._reference,  # noqa: SLF001
    RefRead: ForwardSweep._reference,  # noqa: SLF001
    RefWrite: ForwardSweep._reference,  # noqa: SLF001
    Call: ForwardSweep._call,  # noqa: SLF001
}
