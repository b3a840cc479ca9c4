"""Change the shapes of a module's inputs: bind symbolic dimensions, or change sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from weft.ir.data_types import (
    changed_constructors,
    over_new_constructors,
    with_new_constructors,
)
from weft.ir.expr import Call, Constructor, Expr, Function, GlobalVar, Var
from weft.ir.module import IRModule
from weft.ir.op import Op
from weft.ir.shape import Dim, Shape, SymDim, as_shape, dims_equal, substitute_dim
from weft.ir.substitution import rewrite_dims
from weft.ir.types import TensorType, Type, rewrite_type
from weft.ir.typing.infer import infer_type
from weft.ir.visitor import children, post_order, rebuild
from weft.support.errors import InvalidInputError
from weft.support.suggestion import did_you_mean
from weft.transform.analysis.graph import as_function, type_of


def with_input_shapes(mod: IRModule, shapes: Mapping[str, Sequence[object]]) -> IRModule:
    """``mod`` with the given shapes for parameters of ``main``, and types inferred again.

    A symbolic dimension has one value in the whole module, so binding it in one shape binds it in
    every type. Raises ``InvalidInputError`` for an unknown input, one that is not a tensor, a
    wrong rank, or two values for one dimension; ``TypeInferenceError`` if the program does not
    fit its new shapes.
    """
    main = mod["main"]
    wanted = _wanted(main, mod.attrs, shapes)
    symbols = _symbols(main, wanted)
    rewriting = _Rewriting(symbols, wanted)
    new = changed_constructors(mod.type_definitions, rewriting.bound)
    functions = {name: rewriting.function(fn, new) for name, fn in mod.functions.items()}
    if new:
        definitions = with_new_constructors(mod.type_definitions, new)
        mod = dataclasses.replace(mod, type_definitions=definitions)
    if any(_changes_a_number(type_of(param), new) for param, new in wanted.items()):
        # The declared result type may contain the old size; inference finds the new one.
        functions["main"] = functions["main"].replace(ret_type=None)
    return infer_type(dataclasses.replace(mod, functions=functions))


def _changes_a_number(old: Type, new: TensorType) -> bool:
    pairs = zip(_shape(old), new.shape, strict=True)
    return any(isinstance(a, int) and a != b for a, b in pairs)


def _wanted(main: Function, attrs: Mapping[str, Any], shapes: Mapping[str, Sequence[object]]
            ) -> dict[Var, TensorType]:
    listed = attrs.get("input_names")
    fits = isinstance(listed, (tuple, list)) and len(listed) == len(main.params)
    names = [str(n) for n in listed] if fits and listed else [p.name for p in main.params]
    params = dict(zip(names, main.params, strict=True))
    wanted = {}
    for name, given in shapes.items():
        old = type_of(params[name]) if name in params else None
        if not isinstance(old, TensorType):
            raise InvalidInputError(f"unknown input {name!r}, or not a tensor",
                                    expected=", ".join(map(repr, names)) or "no inputs",
                                    help=did_you_mean(name, names))
        shape = as_shape(given)
        if len(shape) != old.ndim:
            raise InvalidInputError(f"the shape given for input {name!r} has the wrong rank",
                                    expected=f"{old.ndim} dimensions", got=str(tuple(given)))
        wanted[params[name]] = TensorType(shape, old.dtype)
    return wanted


def _symbols(main: Function, wanted: Mapping[Var, TensorType]) -> dict[str, Dim]:
    """The values of symbolic dimensions, from the dimensions that are a single symbol."""
    symbols: dict[str, Dim] = {}
    pairs = [(param, old, new) for param, type_ in wanted.items()
             for old, new in zip(_shape(type_of(param)), type_.shape, strict=True)]
    for _, old, new in pairs:
        if isinstance(old, SymDim) and str(old).isidentifier():
            symbols.setdefault(str(old), new)
    for param, old, new in pairs:
        expected = substitute_dim(old, symbols)
        if isinstance(old, SymDim) and dims_equal(expected, new) is False:
            raise InvalidInputError(f"input {param.name!r} has a wrong size",
                                    where=main.span,
                                    expected=f"{old} = {expected}, as another input has it",
                                    got=str(new))
    return symbols


def _shape(type_: Type) -> Shape:
    return type_.shape if isinstance(type_, TensorType) else ()


class _Rewriting:
    """Rewrites functions with fresh variables, so that what depends on them is typed again."""

    def __init__(self, symbols: Mapping[str, Dim], wanted: Mapping[Var, TensorType]) -> None:
        self.symbols = symbols
        self.wanted = wanted

    def function(self, fn: Function, constructors: Mapping[str, Constructor]) -> Function:
        memo: dict[Expr, Expr] = {}
        for node in post_order(fn):
            rebuilt = rebuild(node, [memo[c] for c in children(node)])
            memo[node] = over_new_constructors(self._visit(node, rebuilt), constructors)
        return as_function(memo[fn])

    def bound(self, type_: Type) -> Type:
        return rewrite_type(type_, self._replaced)

    def _replaced(self, type_: Type) -> Type | None:
        if not isinstance(type_, TensorType):
            return None
        return TensorType(tuple(map(self._dim, type_.shape)), type_.dtype)

    def _dim(self, dim: Dim) -> Dim:
        return substitute_dim(dim, self.symbols)

    def _visit(self, original: Expr, node: Expr) -> Expr:
        if isinstance(original, Var):
            annotation: Type | None = self.wanted.get(original)
            if annotation is None and original.annotation is not None:
                annotation = self.bound(original.annotation)
            return Var(original.name, annotation, span=original.span)
        if isinstance(node, GlobalVar) and node.checked_type is not None:
            return dataclasses.replace(node, checked_type=None)
        if isinstance(node, Function) and node.ret_type is not None:
            return dataclasses.replace(node, ret_type=self.bound(node.ret_type), checked_type=None)
        if isinstance(node, Call):
            attrs = self._attributes(node, original.checked_type)
            # Data without fields (``Nil()``) has a type that its operands do not determine.
            if node.type_args or attrs is not node.attrs or not node.args:
                types = tuple(map(self.bound, node.type_args))
                return dataclasses.replace(node, attrs=attrs, type_args=types, checked_type=None)
        return node

    def _attributes(self, call: Call, type_: Type | None) -> Any:
        attrs = rewrite_dims(call.attrs, self._dim)
        hook = call.op.hook("bind_sizes") if isinstance(call.op, Op) else None
        if attrs is call.attrs or hook is None or type_ is None:
            return attrs
        return hook(attrs, self.bound(type_))
