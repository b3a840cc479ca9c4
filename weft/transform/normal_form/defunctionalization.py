"""Defunctionalization: turn higher-order programs into first-order ones."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, TypeAlias

from weft import ir
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.support.names import unused
from weft.transform.analysis.graph import as_function, enters, holds_function, is_primitive, type_of
from weft.transform.normal_form.lambda_lift import LambdaLift, is_partial_application


@ir.register_pass
@dataclass(frozen=True)
class Defunctionalization(ir.Pass):
    """Defunctionalization: represent function values as data (Reynolds 1972).

    The pass lifts local functions first. It then makes a data type for each function type: its
    constructors stand for the functions that appear as values and hold their captured variables,
    and a function ``apply`` matches on them and calls the function. Raises ``PassError`` for
    generic functions and for data types that hold functions; ``partial_eval`` removes many of
    both.

    def @main(%x: Tensor[(2,), float32]) { @twice(@bump, %x) }
    def @twice(%f: fn (Tensor[(2,), float32]) -> Tensor[(2,), float32],
               %x: Tensor[(2,), float32]) { %f(%f(%x)) }
    def @bump(%x: Tensor[(2,), float32]) { exp(%x) }
    =>
    type Function0 { Bump0() }
    def @main(%x: Tensor[(2,), float32]) { @twice(Bump0(), %x) }
    def @twice(%f: Function0[], %x: Tensor[(2,), float32]) { @apply0(%f, @apply0(%f, %x)) }
    def @bump(%x: Tensor[(2,), float32]) { exp(%x) }
    def @apply0(%f: Function0[], %a: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
      match (%f) { Bump0() => { @bump(%a) } }
    }
    """

    name: ClassVar[str] = "defunctionalization"
    opt_level: ClassVar[int] = 0
    depends: ClassVar[tuple[str, ...]] = ("monomorphic",)
    provides: ClassVar[tuple[str, ...]] = ("first_order",)

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:
        lifted = ir.infer_type(LambdaLift().run_module(mod, ctx))
        _check(lifted)
        run = _Defunctionalize(lifted)
        functions = {n: run.function(fn) for n, fn in lifted.functions.items()}
        if not run.kinds:
            return lifted
        functions.update(run.apply_functions())
        definitions = {**lifted.type_definitions, **run.definitions()}
        return ir.IRModule(functions, definitions, lifted.attrs)


def _check(mod: ir.IRModule) -> None:
    for name, fn in mod.functions.items():
        if fn.type_params:
            raise PassError("cannot defunctionalize a generic function", where=f"@{name}",
                            help="inline it, or write one function for each type used")
    for data in mod.type_definitions.values():
        if any(holds_function(t) for c in data.constructors for t in c.inputs):
            raise PassError("a data type holds functions", where=str(data.header),
                            help="run partial_eval first, or keep functions out of data")


Target: TypeAlias = "ir.GlobalVar | ir.Constructor"


@dataclass(eq=False, slots=True)
class _Kind:
    """One function type: its data type, and one constructor for each function used as a value."""

    index: int
    type: ir.FuncType
    header: ir.GlobalTypeVar
    constructors: dict[str, ir.Constructor] = field(default_factory=dict)
    targets: list[Target] = field(default_factory=list)


class _Defunctionalize:
    def __init__(self, mod: ir.IRModule) -> None:
        self.mod = mod
        self.kinds: dict[ir.FuncType, _Kind] = {}
        self.apply_names: dict[ir.FuncType, str] = {}
        self.taken = {c.name for d in mod.type_definitions.values() for c in d.constructors}
        self.memo: dict[ir.Expr, ir.Expr] = {}

    def function(self, fn: ir.Function) -> ir.Function:
        """``fn`` with function values replaced by data."""
        self.memo = {}
        for node in ir.post_order(fn, enter=enters):
            for var in ir.binders(node):
                note = var.annotation
                self.memo[var] = ir.Var(var.name, note and self._type(note), span=var.span)
        for node in ir.post_order(fn, enter=enters):
            if node not in self.memo:
                self.memo[node] = self._visit(node, is_root=node is fn)
        after = as_function(self.memo[fn])
        return after.replace(ret_type=None if fn.ret_type is None else self._type(fn.ret_type))

    def _visit(self, node: ir.Expr, *, is_root: bool) -> ir.Expr:
        if isinstance(node, ir.Function) and not is_root and not is_primitive(node):
            return self._closure(node)
        if isinstance(node, ir.Call) and not _is_known(node.op):
            return self._unknown_call(node)
        old = ir.children(node) if enters(node) else ()
        callee = node.op if isinstance(node, ir.Call) else None
        parts = [c if c is callee and _is_target(c) else self._value(c) for c in old]
        return ir.rebuild(node, parts) if parts else node

    def _value(self, node: ir.Expr) -> ir.Expr:
        """The rewritten node; the name of a function becomes a value of its data type."""
        if isinstance(node, (ir.GlobalVar, ir.Constructor)) and isinstance(node.checked_type,
                                                                           ir.FuncType):
            return ir.Call(self._constructor(node, node.checked_type, ()), (), span=node.span)
        return self.memo[node]

    def _closure(self, fn: ir.Function) -> ir.Expr:
        if not is_partial_application(fn) or not isinstance(fn.body, ir.Call):
            raise PassError("a local function was not lifted", where=fn.span)
        captured = fn.body.args[: len(fn.body.args) - len(fn.params)]
        type_, target = type_of(fn), fn.body.op
        if not isinstance(type_, ir.FuncType) or not isinstance(target, ir.GlobalVar):
            raise PassError("a local function lacks a function type", where=fn.span, got=type_)
        stored = tuple(self._type(type_of(c)) for c in captured)
        constructor = self._constructor(target, type_, stored)
        return ir.Call(constructor, tuple(self.memo[c] for c in captured), span=fn.span)

    def _unknown_call(self, call: ir.Call) -> ir.Expr:
        type_ = type_of(call.op)
        if not isinstance(type_, ir.FuncType):
            raise PassError("called value is not a function", where=call.span, got=type_)
        self._kind(type_)
        args = (self._value(call.op), *(self._value(a) for a in call.args))
        return ir.Call(ir.GlobalVar(self.apply_names[type_], span=call.span), args, span=call.span)

    # -- data types --------------------------------------------------------------------------

    def _kind(self, type_: ir.FuncType) -> _Kind:
        if type_ not in self.kinds:
            index = len(self.kinds)
            header = unused(f"Function{index}", self.mod.type_definitions)
            self.apply_names[type_] = unused(f"apply{index}", self.mod.functions)
            self.kinds[type_] = _Kind(index, type_, ir.GlobalTypeVar(header))
        return self.kinds[type_]

    def _constructor(
        self, target: Target, type_: ir.FuncType, stored: tuple[ir.Type, ...]
    ) -> ir.Constructor:
        kind = self._kind(type_)
        if target.name not in kind.constructors:
            stem = "".join(part.capitalize() for part in target.name.split("_"))
            name = unused(f"{stem}{kind.index}", self.taken)
            self.taken.add(name)
            tag = len(kind.targets)
            kind.constructors[target.name] = ir.Constructor(name, stored, kind.header, tag)
            kind.targets.append(target)
        return kind.constructors[target.name]

    def _type(self, type_: ir.Type) -> ir.Type:
        # Types are written by hand or built field by field, which bounds this recursion.
        if isinstance(type_, ir.FuncType):
            return ir.TypeCall(self._kind(type_).header, ())
        if isinstance(type_, ir.TupleType):
            return ir.TupleType(tuple(map(self._type, type_.fields)))
        if isinstance(type_, ir.RefType):
            return ir.RefType(self._type(type_.value))
        if isinstance(type_, ir.TypeCall):
            return ir.TypeCall(type_.func, tuple(map(self._type, type_.args)))
        return type_

    def definitions(self) -> dict[str, ir.TypeData]:
        return {
            kind.header.name: ir.TypeData(kind.header, (), tuple(kind.constructors.values()))
            for kind in self.kinds.values()
        }

    def apply_functions(self) -> dict[str, ir.Function]:
        """For each data type, the function that calls the function that a value stands for."""
        made: dict[str, ir.Function] = {}
        while len(made) < len(self.kinds):  # signatures may name further function types
            for type_, kind in list(self.kinds.items()):
                made.setdefault(self.apply_names[type_], self._apply(kind))
        return made

    def _apply(self, kind: _Kind) -> ir.Function:
        value = ir.Var("f", ir.TypeCall(kind.header, ()))
        args = tuple(ir.Var(f"a{i}", self._type(t)) for i, t in enumerate(kind.type.arg_types))
        clauses = []
        for constructor, target in zip(kind.constructors.values(), kind.targets, strict=True):
            stored = tuple(ir.Var(f"c{i}") for i in range(len(constructor.inputs)))
            lhs = ir.PatternConstructor(constructor, tuple(map(ir.PatternVar, stored)))
            clauses.append(ir.Clause(lhs, ir.Call(_fresh(target), (*stored, *args))))
        body = ir.Match(value, tuple(clauses))
        return ir.Function((value, *args), body, self._type(kind.type.ret_type))


def _is_known(callee: ir.Expr) -> bool:
    return isinstance(callee, (ir.Op, ir.GlobalVar, ir.Constructor)) or is_primitive(callee)


def _is_target(node: ir.Expr) -> bool:
    return isinstance(node, (ir.GlobalVar, ir.Constructor))


def _fresh(target: Target) -> Target:
    return ir.GlobalVar(target.name) if isinstance(target, ir.GlobalVar) else target
