"""Substitution of symbols in a program by numbers, other symbols, or symbols of other ranges.

A program for a part of the sizes is the general one with a symbol replaced: ``n`` by 1, by
``n{1..16}``, or by ``m``. Types and attributes are rewritten, and types are inferred again.

Data types whose fields get other types have new constructors, which replace the old ones
everywhere.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, overload

from weft.ir import expr
from weft.ir.attrs import Attrs
from weft.ir.expr import Call, Constructor, Expr, Function, GlobalVar, Var
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.shape import Dim, SymDim, substitute_dim
from weft.ir.size_range import name_of, range_of
from weft.ir.types import TensorType, Type, is_static, rewrite_type
from weft.ir.typing.infer import infer_expr, infer_type
from weft.ir.visitor import children, post_order, rebuild
from weft.support.errors import InternalError, TypeInferenceError


def changed_constructors(
    definitions: Mapping[str, expr.TypeData], change: Callable[[Type], Type]
) -> dict[str, expr.Constructor]:
    """The constructors whose field types ``change`` changes, by name."""
    found: dict[str, expr.Constructor] = {}
    for data in definitions.values():
        for constructor in data.constructors:
            inputs = tuple(map(change, constructor.inputs))
            if inputs != constructor.inputs:
                found[constructor.name] = dataclasses.replace(constructor, inputs=inputs,
                                                              checked_type=None)
    return found


def with_new_constructors(
    definitions: Mapping[str, expr.TypeData], new: Mapping[str, expr.Constructor]
) -> dict[str, expr.TypeData]:
    """``definitions`` with the constructors ``new``."""
    return {name: dataclasses.replace(data, constructors=tuple(new.get(c.name, c)
                                                               for c in data.constructors))
            for name, data in definitions.items()}


def over_new_constructors(node: expr.Expr, new: Mapping[str, expr.Constructor]) -> expr.Expr:
    """``node`` (a constructor, or a match with patterns) with the constructors ``new``."""
    if isinstance(node, expr.Constructor):
        return new.get(node.name, node)
    if not isinstance(node, expr.Match) or not new:
        return node
    clauses = tuple(expr.Clause(_pattern(c.lhs, new), c.rhs) for c in node.clauses)
    return node.replace(clauses=clauses)


def _pattern(pattern: expr.Pattern, new: Mapping[str, expr.Constructor]) -> expr.Pattern:
    # Patterns are written by hand and short, which bounds this recursion.
    if isinstance(pattern, expr.PatternTuple):
        return expr.PatternTuple(tuple(_pattern(p, new) for p in pattern.patterns))
    if isinstance(pattern, expr.PatternConstructor):
        constructor = new.get(pattern.constructor.name, pattern.constructor)
        return expr.PatternConstructor(constructor,
                                       tuple(_pattern(p, new) for p in pattern.patterns))
    return pattern


Sizes: TypeAlias = Mapping[str, int | str | SymDim]


@overload
def substitute_symbols(program: Function, sizes: Sizes) -> Function: ...


@overload
def substitute_symbols(program: IRModule, sizes: Sizes) -> IRModule: ...


def substitute_symbols(program: IRModule | Function, sizes: Sizes) -> IRModule | Function:
    """``program`` with ``sizes`` for symbols, by name (without the range), and types inferred.

    A string is a symbol with or without a range: ``{"n": "n{1..16}"}``. Symbols that the program
    does not contain are ignored. Raises ``TypeInferenceError`` for a size outside of the range of
    its symbol, and for sizes that the program does not accept.
    """
    values = {name: _value(size) for name, size in sizes.items()}
    if isinstance(program, Function):
        return _as_function(infer_expr(_Substitution(values).function(program)))
    new = changed_constructors(program.type_definitions, _Substitution(values).type_)
    functions = {name: _Substitution(values, new).function(fn)
                 for name, fn in program.functions.items()}
    if new:
        definitions = with_new_constructors(program.type_definitions, new)
        program = dataclasses.replace(program, type_definitions=definitions)
    return infer_type(dataclasses.replace(program, functions=functions))


def _as_function(expr: Expr) -> Function:
    if not isinstance(expr, Function):
        raise InternalError("a function became another expression", got=type(expr).__name__)
    return expr


def _value(size: int | str | SymDim) -> Dim:
    if isinstance(size, str):
        range_of(size)  # raises for a malformed text
        return SymDim.symbol(size)
    return size


def rewrite_dims(value: Any, change: Callable[[SymDim], Dim]) -> Any:
    """An attribute's value, or a record of attributes, with its symbolic dimensions changed."""
    if isinstance(value, SymDim):
        return change(value)
    if isinstance(value, tuple):
        changed = tuple(rewrite_dims(item, change) for item in value)
        same = all(a is b for a, b in zip(value, changed, strict=True))
        return value if same else changed
    if isinstance(value, Attrs):
        fields = {name: (old, rewrite_dims(old, change)) for name, old in value.items()}
        changes = {name: new for name, (old, new) in fields.items() if new is not old}
        return value.replace(**changes) if changes else value
    return value


def has_symbols(value: Any) -> bool:
    """Whether an attribute's value, or a record of attributes, contains a symbolic dimension."""
    if isinstance(value, Attrs):
        return any(has_symbols(item) for _, item in value.items())
    if isinstance(value, tuple):
        return any(map(has_symbols, value))
    return isinstance(value, SymDim)


class _Substitution:
    """Rewrites one function; variables of symbolic type are replaced by fresh ones."""

    def __init__(
        self, values: Mapping[str, Dim], constructors: Mapping[str, Constructor] | None = None
    ) -> None:
        self._values = values
        self._constructors = constructors or {}

    def function(self, fn: Function) -> Function:
        memo: dict[Expr, Expr] = {}
        for node in post_order(fn):
            memo[node] = self._visit(node, [memo[c] for c in children(node)])
        return _as_function(memo[fn])

    def _visit(self, node: Expr, parts: list[Expr]) -> Expr:
        if isinstance(node, Var):
            return self._variable(node)
        changes: dict[str, Any] = {}
        if isinstance(node, GlobalVar):
            changes = {"checked_type": None} if node.checked_type is not None else {}
        elif isinstance(node, Call):
            attrs = self._attributes(node)
            types = tuple(map(self.type_, node.type_args))
            # Data without fields (``Nil()``) has a type that its operands do not determine.
            if attrs is not node.attrs or types != node.type_args or not node.args:
                changes = {"attrs": attrs, "type_args": types, "checked_type": None}
        elif isinstance(node, Function):
            ret_type = None if node.ret_type is None else self.type_(node.ret_type)
            if ret_type is not node.ret_type:
                changes = {"ret_type": ret_type, "checked_type": None}
        return over_new_constructors(rebuild(node, parts, **changes), self._constructors)

    def _variable(self, var: Var) -> Var:
        """A fresh variable, unless its type has fixed sizes."""
        known = var.annotation or var.checked_type
        if known is not None and is_static(known):
            return var
        return Var(var.name, None if known is None else self.type_(known), span=var.span)

    def _attributes(self, call: Call) -> Any:
        attrs = rewrite_dims(call.attrs, self.dim)
        hook = call.op.hook("bind_sizes") if isinstance(call.op, Op) else None
        if hook is None or call.checked_type is None or is_static(call.checked_type):
            return attrs
        return hook(attrs, self.type_(call.checked_type))

    def type_(self, type_: Type) -> Type:
        def replace(part: Type) -> Type | None:
            if not isinstance(part, TensorType) or is_static(part):
                return None
            return TensorType(tuple(self.dim(d) for d in part.shape), part.dtype)

        return rewrite_type(type_, replace)

    def dim(self, dim: Dim) -> Dim:
        if isinstance(dim, SymDim):
            for symbol in dim.symbols():
                self._check(symbol)
            return substitute_dim(dim, self._values)
        return dim

    def _check(self, symbol: str) -> None:
        size = self._values.get(name_of(symbol))
        if isinstance(size, int) and size not in range_of(symbol):
            raise TypeInferenceError(f"the size of {name_of(symbol)} is out of its range",
                                     expected=symbol, got=size)
