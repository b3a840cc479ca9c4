"""Store-passing style: references become addresses in a store that functions pass along."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar, TypeAlias

from weft import ir
from weft.ir.visitor import Routine, branches_of, run_routine
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.analysis.effects import touches_references
from weft.transform.analysis.graph import (
    enters,
    known_type,
    op_name,
    parts_of,
    traits_of,
    type_of,
)
from weft.transform.analysis.higher_order import is_higher_order
from weft.transform.normal_form.store_types import ADDRESS, Stores
from weft.transform.normal_form.to_a_normal_form import Normalizer

# The value of an expression, and the store after its evaluation.
_Result: TypeAlias = "tuple[ir.Expr, ir.Expr]"


@ir.register_pass
@dataclass(frozen=True)
class StorePassing(ir.Pass):
    """Make references values: a store holds their contents (Scott and Strachey 1971).

    The store has a list for each type of contents, and the number of its elements, which is the
    address of the next reference. A function that touches references, directly or through a callee,
    takes a store and returns its value and the new store. The program must be first-order and
    without generic functions (``monomorphize``, ``defunctionalization``); the result is pure.

    Raises ``PassError`` if ``entry`` takes or returns references, because its caller would then see
    the effects. Also raises it if functions that touch references call operators with effects:
    ``let`` orders these, but the result is a graph.
    """

    name: ClassVar[str] = "store_passing"
    opt_level: ClassVar[int] = 0
    provides: ClassVar[tuple[str, ...]] = ("no_references",)
    entry: str = "main"

    def needs(self, mod: ir.IRModule) -> tuple[str, ...]:
        return ("first_order",) if touches_references(mod) else ()

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:  # noqa: ARG002
        touching = functions_that_touch(mod)
        if not touching:
            return mod
        _check_entry(mod[self.entry], self.entry)
        _check_first_order(mod, touching)
        _check_effects(mod, touching)
        run_ = _Passing(mod, touching, self.entry)
        functions = {name: run_.function(name) for name in mod.functions}
        return dataclasses.replace(
            mod, functions={**functions, **run_.stores.functions()},
            type_definitions={**run_.definitions, **run_.stores.definitions()}, settled={})


def _check_first_order(mod: ir.IRModule, touching: set[str]) -> None:
    higher = [name for name in touching if is_higher_order(mod[name])]
    if higher:
        raise PassError(
            "store_passing takes first-order functions without type parameters",
            where=mod[higher[0]].span, got=", ".join(f"@{name}" for name in sorted(higher)),
            help="run lambda_lift, monomorphize and defunctionalization before")


def _check_effects(mod: ir.IRModule, touching: set[str]) -> None:
    for name in touching:
        for node in ir.post_order(mod[name], enter=enters):
            if traits_of(node).has_effect:
                raise PassError("store_passing keeps the effects of references alone",
                                where=node.span, got=f"a call of {op_name(node)} in @{name}",
                                help="leave the references or the operator out")


def functions_that_touch(mod: ir.IRModule) -> set[str]:
    """The functions that create, read or write references, directly or through callees."""
    callees: dict[str, set[str]] = {}
    found: set[str] = set()
    for name, fn in mod.functions.items():
        nodes = list(ir.post_order(fn, enter=enters))
        callees[name] = {n.name for n in nodes if isinstance(n, ir.GlobalVar)}
        if any(isinstance(n, (ir.RefCreate, ir.RefRead, ir.RefWrite)) for n in nodes):
            found.add(name)
    growing = bool(found)
    while growing:
        more = {name for name, called in callees.items() if name not in found and called & found}
        found |= more
        growing = bool(more)
    return found


def _check_entry(fn: ir.Function, name: str) -> None:
    outside = [p for p in fn.params if _holds_reference(known_type(p))]
    if outside:
        raise PassError(
            f"@{name} reads or writes references of its caller",
            where=outside[0].span or fn.span, got=", ".join(f"%{p.name}" for p in outside),
            help="take the value as a parameter, and return the new value")
    if _holds_reference(type_of(fn.body)):
        raise PassError(f"@{name} returns a reference", where=fn.span, got=type_of(fn.body),
                        help="return its value: ref_read")


def _holds_reference(type_: ir.Type | None) -> bool:
    return type_ is not None and any(isinstance(p, ir.RefType) for p in parts_of(type_))


class _Passing:
    def __init__(self, mod: ir.IRModule, touching: set[str], entry: str) -> None:
        self.mod = mod
        self.touching = touching
        self.entry = entry
        constructors = {c.name: dataclasses.replace(c, inputs=tuple(map(without_references,
                                                                        c.inputs)))
                        for d in mod.type_definitions.values() for c in d.constructors}
        self.constructors: Mapping[str, ir.Constructor] = constructors
        self.definitions = {
            name: ir.TypeData(d.header, d.type_vars, tuple(constructors[c.name]
                                                           for c in d.constructors))
            for name, d in mod.type_definitions.items()}
        contents = [t.value for f in touching for n in ir.post_order(mod[f], enter=enters)
                    if isinstance(t := known_type(n), ir.RefType)]
        self.stores = Stores(dict.fromkeys(map(without_references, contents)), mod)

    def function(self, name: str) -> ir.Function:
        fn = self.mod[name]
        block = _Block(self)
        params = tuple(block.variable(p) for p in fn.params)
        body = Normalizer(fn.body).run()
        is_entry = name == self.entry
        if name not in self.touching:
            value, _ = run_routine(block.of(body, ir.Tuple(())))
        elif is_entry:
            value, _ = run_routine(block.of(body, self.stores.empty()))
        else:
            store = ir.Var("store", self.stores.type)
            value = ir.Tuple(run_routine(block.of(body, store)), span=fn.span)
            params = (*params, store)
        return ir.Function(params, value, self._return_type(fn, name), attrs=fn.attrs, span=fn.span)

    def _return_type(self, fn: ir.Function, name: str) -> ir.Type | None:
        own = fn.ret_type and without_references(fn.ret_type)
        if name not in self.touching or name == self.entry:
            return own
        return ir.TupleType((own or without_references(type_of(fn.body)), self.stores.type))


def without_references(type_: ir.Type) -> ir.Type:
    """``type_`` with addresses for references."""
    return ir.rewrite_type(type_, lambda t: ADDRESS if isinstance(t, ir.RefType) else None)


@dataclass(eq=False, slots=True)
class _Block:
    """Rewrites one function in A-normal form; ``values`` maps variables to their replacements."""

    passing: _Passing
    values: dict[ir.Expr, ir.Expr] = field(default_factory=dict)

    def variable(self, var: ir.Var) -> ir.Var:
        known = known_type(var)
        made = ir.Var(var.name, None if known is None else without_references(known), span=var.span)
        self.values[var] = made
        return made

    def of(self, expr: ir.Expr, store: ir.Expr) -> Routine[_Result]:
        """The value of a chain of lets, and the store after it."""
        while isinstance(expr, ir.Let):
            self.values[expr.var], store = yield self._value(expr.value, store)
            expr = expr.body
        return (yield self._value(expr, store))

    def _value(self, node: ir.Expr, store: ir.Expr) -> Routine[_Result]:
        if isinstance(node, (ir.If, ir.Match)):
            return (yield self._choice(node, store))
        if isinstance(node, (ir.RefCreate, ir.RefRead, ir.RefWrite)):
            return self._reference(node, store)
        if node in self.values:
            return self.values[node], store
        if not enters(node):
            return node, store
        parts = [self._atom(c) for c in ir.children(node)]
        if isinstance(node, ir.Call) and isinstance(node.op, ir.GlobalVar) and (
                node.op.name in self.passing.touching):
            both = ir.Call(node.op.replace(checked_type=None), (*parts[1:], store), span=node.span)
            return ir.TupleGetItem(both, 0), ir.TupleGetItem(both, 1)
        changes: dict[str, object] = {"checked_type": None}
        if isinstance(node, ir.Call) and node.type_args:
            changes["type_args"] = tuple(map(without_references, node.type_args))
        made = ir.rebuild(node, parts, **changes) if parts else node
        return made, store

    def _atom(self, node: ir.Expr) -> ir.Expr:
        if isinstance(node, ir.Constructor):
            return self.passing.constructors[node.name]
        if isinstance(node, ir.GlobalVar):
            return node.replace(checked_type=None)
        return self.values.get(node, node)

    def _reference(self, node: ir.RefCreate | ir.RefRead | ir.RefWrite, store: ir.Expr) -> _Result:
        stores = self.passing.stores
        if isinstance(node, ir.RefCreate):
            content = without_references(type_of(node.value))
            return stores.created(store, content, self._atom(node.value))
        type_ = type_of(node.ref)
        if not isinstance(type_, ir.RefType):
            raise PassError("not a reference", where=node.span, got=type_)
        content, address = without_references(type_.value), self._atom(node.ref)
        if isinstance(node, ir.RefRead):
            return stores.read(store, content, address), store
        return ir.Tuple(()), stores.written(store, content, address, self._atom(node.value))

    def _choice(self, node: ir.If | ir.Match, store: ir.Expr) -> Routine[_Result]:
        branches = branches_of(node)
        if isinstance(node, ir.Match):
            for clause in node.clauses:
                for var in ir.pattern_vars(clause.lhs):
                    self.variable(var)
        results: list[_Result] = []
        for branch in branches:
            results.append((yield self.of(branch, store)))  # noqa: PERF401 - cannot yield
        if all(after is store for _, after in results):
            return self._chosen(node, [value for value, _ in results]), store
        both = self._chosen(node, [ir.Tuple(result) for result in results])
        return ir.TupleGetItem(both, 0), ir.TupleGetItem(both, 1)

    def _chosen(self, node: ir.If | ir.Match, results: Sequence[ir.Expr]) -> ir.Expr:
        if isinstance(node, ir.If):
            return ir.If(self._atom(node.cond), results[0], results[1], span=node.span)
        clauses = tuple(ir.Clause(self._pattern(c.lhs), r)
                        for c, r in zip(node.clauses, results, strict=True))
        return ir.Match(self._atom(node.data), clauses, node.complete, span=node.span)

    def _pattern(self, pattern: ir.Pattern) -> ir.Pattern:
        # Patterns are written by hand and short, which bounds this recursion.
        if isinstance(pattern, ir.PatternVar):
            var = self.values[pattern.var]
            return ir.PatternVar(var) if isinstance(var, ir.Var) else pattern
        if isinstance(pattern, ir.PatternTuple):
            return ir.PatternTuple(tuple(map(self._pattern, pattern.patterns)))
        if isinstance(pattern, ir.PatternConstructor):
            constructor = self.passing.constructors[pattern.constructor.name]
            return ir.PatternConstructor(constructor, tuple(map(self._pattern, pattern.patterns)))
        return pattern
