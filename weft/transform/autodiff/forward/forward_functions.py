"""Functions in forward mode: versions of global functions that compute tangents too.

A function of tensors and tuples that is called directly gets one version for each set of arguments
with tangents: ``@f(x, y)`` becomes ``@f_jvp(x, y, dy) -> (z, dz)``. Functions that take or return
other values, and functions used as values, become functions of dual values.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft.ir import FuncType, IRModule, TupleType, Type, replace_children
from weft.ir.expr import Call, Expr, Function, GlobalVar, Var
from weft.op.gradients import field_of
from weft.transform.analysis.graph import as_function, type_of
from weft.transform.autodiff.forward.dual import (
    DualTypes,
    Pair,
    Value,
    function_type,
    is_active,
    is_simple,
    made_tuple,
    retyped,
    tangent_or_zeros,
)
from weft.transform.autodiff.forward.forward_sweep import ForwardSweep, MissingRules
from weft.transform.autodiff.reverse.adjoint import is_differentiable
from weft.transform.autodiff.reverse.custom_rules import checked_jvp, has_forward_rule
from weft.transform.normal_form.alpha import fresh_function

Mask = tuple[bool, ...]


class DualFunctions:
    """The versions of a module's functions that forward mode needs, made on demand."""

    def __init__(self, mod: IRModule) -> None:
        self.mod = mod
        self.types = DualTypes(mod.type_definitions)
        self.missing = MissingRules()
        self._versions: dict[tuple[str, Mask | None], str] = {}
        self._names = set(mod.functions)
        # The version being defined, and which arguments of its recursive calls have tangents.
        self._current: tuple[str, Mask | None] | None = None
        self._recursive: Mask = ()

    def body(self, body: Expr, seeds: Mapping[Var, Value]) -> Value:
        """The value of ``body`` with its tangents, from those of its free variables."""
        return ForwardSweep(self.types, self.missing, self).value_of(body, seeds)

    def split_body(self, body: Expr, seeds: Mapping[Var, Value]) -> Pair:
        """``body`` for an expression of tensors and tuples."""
        return self.types.split(self.body(body, seeds), type_of(body))

    @staticmethod
    def both(y: Pair, type_: Type) -> Expr:
        """``(y, dy)``; the call itself for the two results of a call."""
        halves = [y.primal, tangent_or_zeros(y)]
        return made_tuple(halves, TupleType((type_, type_)), y.primal.span)

    # -- uses --------------------------------------------------------------------------------------

    def called(self, node: Call, callee: GlobalVar, args: list[Value]) -> Value:
        """The value of a direct call of a global function."""
        type_ = type_of(node)
        known = [type_of(a) for a in node.args]
        plain = self.types.is_plain(type_) or is_simple(type_)
        if plain and not any(map(is_active, args)):
            parts = [self.types.split(a, t).primal if is_simple(t) else self.types.packed(a, t)
                     for a, t in zip(args, known, strict=True)]
            return Pair(replace_children(node, [callee, *parts]))
        if has_forward_rule(self.mod[callee.name]):
            halves = [self.types.split(a, t) for a, t in zip(args, known, strict=True)]
            return self._by_rule(callee.name, halves)
        if self.mod[callee.name].type_params or not all(map(is_simple, (*known, type_))):
            packed = [self.types.packed(a, t) for a, t in zip(args, known, strict=True)]
            of = self.types.of
            call = Call(self.value(callee), tuple(packed), span=node.span,
                        type_args=tuple(map(of, node.type_args)), checked_type=of(type_),
                        checked_type_args=tuple(map(of, node.checked_type_args)))
            return self.types.unpacked(call, type_)
        return self._call_version(node, callee.name,
                                  [self.types.split(a, t) for a, t in zip(args, known,
                                                                          strict=True)])

    def _by_rule(self, name: str, args: list[Pair]) -> Pair:
        """A call of the ``custom_jvp`` of a function."""
        rule = checked_jvp(self.mod, name)
        tangents = [tangent_or_zeros(a) for a in args if is_differentiable(type_of(a.primal))]
        type_ = function_type(rule).ret_type
        call = Call(rule, (*(a.primal for a in args), *tangents), checked_type=type_)
        return Pair(field_of(call, 0), field_of(call, 1))

    def _call_version(self, node: Call, name: str, args: list[Pair]) -> Value:
        mask = tuple(a.tangent is not None for a in args)
        if self._current is not None and self._current[0] == name and self._current[1] is not None:
            self._recursive = tuple(a or b for a, b in zip(self._recursive, mask, strict=True))
            mask = tuple(a or b for a, b in zip(self._current[1], mask, strict=True))
        tangents = [tangent_or_zeros(a) for a, active in zip(args, mask, strict=True) if active]
        return self._version_call(node, name, mask, [a.primal for a in args], tangents)

    def _version_call(self, at: Expr, name: str, mask: Mask, args: list[Expr],
                      tangents: list[Expr]) -> Value:
        type_ = type_of(at)
        both = (*args, *tangents)
        result = TupleType((type_, type_)) if self._has_tangent(at) else type_
        signature = FuncType(tuple(map(type_of, both)), result)
        target = GlobalVar(self._version(name, mask), span=at.span, checked_type=signature)
        call = Call(target, both, span=at.span, checked_type=result)
        return Pair(field_of(call, 0), field_of(call, 1)) if result != type_ else Pair(call)

    def _has_tangent(self, node: Expr) -> bool:
        return not self.types.is_plain(type_of(node))

    def value(self, function: GlobalVar) -> Expr:
        """A global function as a value: the version on dual values."""
        type_ = function_type(function) if function.checked_type is not None else None
        fn = self.mod[function.name]
        declared = FuncType(tuple(type_of(p) for p in fn.params), type_of(fn.body), fn.type_params)
        if self.types.is_plain(declared):
            return function
        name = self._version(function.name, None)
        dual = self.types.of(declared if type_ is None else type_)
        return GlobalVar(name, span=function.span, checked_type=dual)

    def _version(self, name: str, mask: Mask | None) -> str:
        known = self._versions.get((name, mask))
        if known is None:
            known = f"{name}_{'dual' if mask is None else 'jvp'}"
            while known in self._names:
                known += "_"
            self._names.add(known)
            self._versions[name, mask] = known
        return known

    # -- definitions -------------------------------------------------------------------------------

    def definitions(self) -> dict[str, Function]:
        """All versions; raises ``PassError`` for operators without a rule."""
        made: dict[str, Function] = {}
        while len(made) < len(self._versions):
            for (name, mask), version in list(self._versions.items()):
                if version not in made:
                    made[version] = self._defined(name, mask)
        self.missing.check()
        return made

    def _defined(self, name: str, mask: Mask | None) -> Function:
        # The function itself may stay in the module, where a variable is bound only once.
        fn = fresh_function(self.mod[name])
        if mask is None and has_forward_rule(fn):
            target = GlobalVar(name, checked_type=FuncType(tuple(map(type_of, fn.params)),
                                                           type_of(fn.body)))
            call = Call(target, fn.params, span=fn.span, checked_type=type_of(fn.body))
            fn = fn.replace(body=call, attrs={}, checked_type=target.checked_type)
        if mask is None:
            dual = ForwardSweep(self.types, self.missing, self).value_of(fn, {})
            return as_function(self.types.packed(dual, function_type(fn)))
        before, names = dict(self._versions), set(self._names)
        self._current, self._recursive = (name, mask), mask
        made = self._with_tangents(fn, mask)
        wide = self._recursive
        self._current = None
        if wide == mask:
            return made
        # The recursive call has tangents that the caller lacks: one version with all of them serves
        # both.
        self._versions, self._names = before, names
        return self._widening(name, fresh_function(self.mod[name]), mask, wide)

    def _with_tangents(self, fn: Function, mask: Mask) -> Function:
        tangents = {p: retyped(p, type_of(p)) for p, active in zip(fn.params, mask, strict=True)
                    if active}
        tangents = {p: Var(f"d{p.name}", type_of(p), span=p.span) for p in tangents}
        y = self.split_body(fn.body, {p: Pair(p, tangents.get(p)) for p in fn.params})
        return self._function(fn, (*fn.params, *tangents.values()), y)

    def _widening(self, name: str, fn: Function, mask: Mask, wide: Mask) -> Function:
        tangents = {p: Var(f"d{p.name}", type_of(p), span=p.span)
                    for p, active in zip(fn.params, mask, strict=True) if active}
        given = [tangent_or_zeros(Pair(p, tangents.get(p)))
                 for p, active in zip(fn.params, wide, strict=True) if active]
        y = self._version_call(fn.body, name, wide, list(fn.params), given)
        assert isinstance(y, Pair)
        return self._function(fn, (*fn.params, *tangents.values()), y)

    def _function(self, fn: Function, params: tuple[Var, ...], y: Pair) -> Function:
        body = y.primal
        if self._has_tangent(fn.body):
            body = self.both(y, type_of(fn.body))
        return Function(params, body, span=fn.span)

    def with_types(self, mod: IRModule) -> IRModule:
        """``mod`` with the dual data types."""
        new = self.types.new_definitions()
        if not new:
            return mod
        return IRModule(mod.functions, {**mod.type_definitions, **new}, mod.attrs)
