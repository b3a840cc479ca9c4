"""Monomorphization: one function for each set of types at which a generic function is used."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from weft.ir import IRModule, Op, Pass, PassContext, register_pass
from weft.ir.expr import Call, Constructor, Expr, Function, GlobalVar, Var
from weft.ir.types import FuncType, Type, TypeVar, component_types, rewrite_type
from weft.ir.typing.adt import constructor_type, instantiate
from weft.ir.visitor import binders, children, post_order, rebuild
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.analysis.graph import as_function, enters, known_type, type_of

MAX_INSTANCES = 1000


@register_pass
@dataclass(frozen=True)
class Monomorphize(Pass):
    """Replace generic functions by an instance for each list of type arguments.

    Only functions that ``entry`` reaches stay. Raises ``PassError`` for a generic function as a
    value where its types are unknown, and for a program that needs infinitely many instances
    (polymorphic recursion).

    def @main(%x: Tensor[(2,), float32]) { @twice(%x) }
    def @twice[A](%x: A) -> (A, A) { (%x, %x) }
    =>
    def @main(%x: Tensor[(2,), float32]) { @twice_0(%x) }
    def @twice_0(%x: Tensor[(2,), float32]) -> (Tensor[(2,), float32], Tensor[(2,), float32]) {
      (%x, %x)
    }
    """

    name: ClassVar[str] = "monomorphize"
    opt_level: ClassVar[int] = 0
    provides: ClassVar[tuple[str, ...]] = ("monomorphic",)
    entry: str = "main"

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:  # noqa: ARG002
        instances = _Instances(mod)
        instances.name_of(self.entry, ())
        functions = instances.definitions()
        if functions.keys() == mod.functions.keys() and all(
                functions[name] is fn for name, fn in mod.functions.items()):
            return mod
        return dataclasses.replace(mod, functions=functions, settled={})


class _Instances:
    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.names: dict[tuple[str, tuple[Type, ...]], str] = {}
        self.taken = set(mod.functions)

    def name_of(self, function: str, type_args: tuple[Type, ...]) -> str:
        key = function, type_args
        if key not in self.names:
            if len(self.names) == MAX_INSTANCES:
                raise PassError(f"@{function} is used at more than {MAX_INSTANCES} types",
                                where=self.mod[function].span,
                                help="a generic function may not call itself at larger types")
            self.names[key] = self._unused(function) if type_args else function
        return self.names[key]

    def _unused(self, function: str) -> str:
        number = 0
        while f"{function}_{number}" in self.taken:
            number += 1
        self.taken.add(f"{function}_{number}")
        return f"{function}_{number}"

    def definitions(self) -> dict[str, Function]:
        made: dict[str, Function] = {}
        size = -1
        while len(made) > size:
            size = len(made)
            for (function, type_args), name in list(self.names.items()):
                if name not in made:
                    fn = self.mod[function]
                    values = dict(zip(fn.type_params, type_args, strict=True))
                    made[name] = _Instance(self, values).of(fn)
        return made


class _Instance:
    """Rewrites one function for ``values`` of its type parameters."""

    def __init__(self, instances: _Instances, values: Mapping[TypeVar, Type]) -> None:
        self.instances = instances
        self.values = values
        self.memo: dict[Expr, Expr] = {}

    def of(self, fn: Function) -> Function:
        for node in post_order(fn, enter=enters):
            for var in binders(node) if self.values else ():
                self.memo[var] = self._variable(var)
        for node in post_order(fn, enter=enters):
            if node not in self.memo:
                self.memo[node] = self._visit(node, is_root=node is fn)
        made = as_function(self.memo[fn])
        return made if not fn.type_params else made.replace(type_params=())

    def _variable(self, var: Var) -> Var:
        known = known_type(var)
        return Var(var.name, None if known is None else self._type(known), span=var.span)

    def _visit(self, node: Expr, *, is_root: bool) -> Expr:
        if not enters(node):
            return node
        changes: dict[str, Any] = {"checked_type": None} if self.values else {}
        parts = [self.memo[c] for c in children(node)]
        if isinstance(node, Function):
            if node.type_params and not is_root:
                raise PassError("a generic local function is used as a value", where=node.span,
                                help="make it a global function")
            if node.ret_type is not None and self.values:
                changes["ret_type"] = self._type(node.ret_type)
        elif isinstance(node, GlobalVar):
            return self._global(node)
        elif isinstance(node, Call) and not isinstance(node.op, Op):
            return self._call(node, parts, changes)
        return rebuild(node, parts, **changes) if children(node) else node

    def _global(self, node: GlobalVar) -> Expr:
        """A function that is not generic; generic ones are replaced where they are used."""
        if node.name not in self.instances.mod or self.instances.mod[node.name].type_params:
            return node
        self.instances.name_of(node.name, ())
        return node

    def _call(self, call: Call, parts: list[Expr], changes: dict[str, Any]) -> Expr:
        callee, type_args = call.op, tuple(map(self._type, call.type_args
                                               or call.checked_type_args))
        signature: Type = self._signature(callee, type_args)
        if isinstance(signature, FuncType):
            parts = [parts[0], *(self._as_asked(p, a, w) for p, a, w in zip(
                parts[1:], call.args, signature.arg_types, strict=True))]
        if isinstance(callee, Constructor) and self.values and type_args:
            changes["type_args"] = type_args
            changes["checked_type_args"] = ()
        if isinstance(callee, GlobalVar) and self.instances.mod[callee.name].type_params:
            parts[0] = GlobalVar(self.instances.name_of(callee.name, type_args), span=callee.span)
            changes.update(type_args=(), checked_type_args=())
        return rebuild(call, parts, **changes)

    def _signature(self, callee: Expr, type_args: tuple[Type, ...]) -> Type:
        if isinstance(callee, Constructor):
            generic = constructor_type(callee, self.instances.mod.type_definitions)
        else:
            known = type_of(callee)
            if not isinstance(known, FuncType):
                return known
            generic = known
        return instantiate(generic, type_args) if type_args else self._type(generic)

    def _as_asked(self, made: Expr, argument: Expr, wanted: Type) -> Expr:
        """A generic function as an argument becomes its instance of the type of the parameter."""
        if not isinstance(argument, GlobalVar):
            return made
        fn = self.instances.mod[argument.name]
        if not fn.type_params:
            return made
        generic = type_of(argument)
        found = _solved(generic, wanted, fn.type_params)
        name = self.instances.name_of(argument.name, found)
        return GlobalVar(name, span=argument.span)

    def _type(self, type_: Type) -> Type:
        if not self.values:
            return type_
        return rewrite_type(
            type_, lambda t: self.values.get(t) if isinstance(t, TypeVar) else None)


def _solved(generic: Type, wanted: Type, params: Sequence[TypeVar]) -> tuple[Type, ...]:
    """The type arguments for which ``generic`` becomes ``wanted``."""
    found: dict[TypeVar, Type] = {}
    pending = [(generic, wanted)]
    own = generic.type_params if isinstance(generic, FuncType) else ()
    while pending:
        left, right = pending.pop()
        if isinstance(left, TypeVar) and left in (*params, *own):
            found.setdefault(left, right)
        else:
            pending.extend(zip(component_types(left), component_types(right), strict=False))
    names = own or tuple(params)
    if any(p not in found for p in names):
        raise PassError("the types of a generic function that is used as a value are unknown",
                        got=generic, expected=wanted, help="wrap it: fn (%x: ..) { @f(%x) }")
    return tuple(found[p] for p in names)
