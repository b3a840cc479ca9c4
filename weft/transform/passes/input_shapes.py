"""Change the shapes of a module's inputs: bind symbolic dimensions, or change sizes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from weft import ir
from weft.ir.substitution import (
    changed_constructors,
    over_new_constructors,
    rewrite_dims,
    with_new_constructors,
)
from weft.support.errors import InvalidInputError
from weft.support.suggestion import did_you_mean
from weft.transform.analysis.graph import as_function, type_of


def with_input_shapes(mod: ir.IRModule, shapes: Mapping[str, Sequence[object]]) -> ir.IRModule:
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
    return ir.infer_type(dataclasses.replace(mod, functions=functions))


def _changes_a_number(old: ir.Type, new: ir.TensorType) -> bool:
    pairs = zip(_shape(old), new.shape, strict=True)
    return any(isinstance(a, int) and a != b for a, b in pairs)


def _wanted(main: ir.Function, attrs: Mapping[str, Any], shapes: Mapping[str, Sequence[object]]
            ) -> dict[ir.Var, ir.TensorType]:
    listed = attrs.get("input_names")
    fits = isinstance(listed, (tuple, list)) and len(listed) == len(main.params)
    names = [str(n) for n in listed] if fits and listed else [p.name for p in main.params]
    params = dict(zip(names, main.params, strict=True))
    wanted = {}
    for name, given in shapes.items():
        old = type_of(params[name]) if name in params else None
        if not isinstance(old, ir.TensorType):
            raise InvalidInputError(f"unknown input {name!r}, or not a tensor",
                                    expected=", ".join(map(repr, names)) or "no inputs",
                                    help=did_you_mean(name, names))
        shape = ir.as_shape(given)
        if len(shape) != old.ndim:
            raise InvalidInputError(f"the shape given for input {name!r} has the wrong rank",
                                    expected=f"{old.ndim} dimensions", got=str(tuple(given)))
        wanted[params[name]] = ir.TensorType(shape, old.dtype)
    return wanted


def _symbols(main: ir.Function, wanted: Mapping[ir.Var, ir.TensorType]) -> dict[str, ir.Dim]:
    """The values of symbolic dimensions, from the dimensions that are a single symbol."""
    symbols: dict[str, ir.Dim] = {}
    pairs = [(param, old, new) for param, type_ in wanted.items()
             for old, new in zip(_shape(type_of(param)), type_.shape, strict=True)]
    for _, old, new in pairs:
        if isinstance(old, ir.SymDim) and str(old).isidentifier():
            symbols.setdefault(str(old), new)
    for param, old, new in pairs:
        expected = ir.substitute_dim(old, symbols)
        if isinstance(old, ir.SymDim) and ir.dims_equal(expected, new) is False:
            raise InvalidInputError(f"input {param.name!r} has a wrong size",
                                    where=main.span,
                                    expected=f"{old} = {expected}, as another input has it",
                                    got=str(new))
    return symbols


def _shape(type_: ir.Type) -> ir.Shape:
    return type_.shape if isinstance(type_, ir.TensorType) else ()


class _Rewriting:
    """Rewrites functions with fresh variables, so that what depends on them is typed again."""

    def __init__(self, symbols: Mapping[str, ir.Dim],
                 wanted: Mapping[ir.Var, ir.TensorType]) -> None:
        self.symbols = symbols
        self.wanted = wanted

    def function(self, fn: ir.Function, constructors: Mapping[str, ir.Constructor]) -> ir.Function:
        memo: dict[ir.Expr, ir.Expr] = {}
        for node in ir.post_order(fn):
            rebuilt = ir.rebuild(node, [memo[c] for c in ir.children(node)])
            memo[node] = over_new_constructors(self._visit(node, rebuilt), constructors)
        return as_function(memo[fn])

    def bound(self, type_: ir.Type) -> ir.Type:
        return ir.rewrite_type(type_, self._replaced)

    def _replaced(self, type_: ir.Type) -> ir.Type | None:
        if not isinstance(type_, ir.TensorType):
            return None
        return ir.TensorType(tuple(map(self._dim, type_.shape)), type_.dtype)

    def _dim(self, dim: ir.Dim) -> ir.Dim:
        return ir.substitute_dim(dim, self.symbols)

    def _visit(self, original: ir.Expr, node: ir.Expr) -> ir.Expr:
        if isinstance(original, ir.Var):
            annotation: ir.Type | None = self.wanted.get(original)
            if annotation is None and original.annotation is not None:
                annotation = self.bound(original.annotation)
            return ir.Var(original.name, annotation, span=original.span)
        if isinstance(node, ir.GlobalVar) and node.checked_type is not None:
            return dataclasses.replace(node, checked_type=None)
        if isinstance(node, ir.Function) and node.ret_type is not None:
            return dataclasses.replace(node, ret_type=self.bound(node.ret_type), checked_type=None)
        if isinstance(node, ir.Call):
            attrs = self._attributes(node, original.checked_type)
            # Data without fields (``Nil()``) has a type that its operands do not determine.
            if node.type_args or attrs is not node.attrs or not node.args:
                types = tuple(map(self.bound, node.type_args))
                return dataclasses.replace(node, attrs=attrs, type_args=types, checked_type=None)
        return node

    def _attributes(self, call: ir.Call, type_: ir.Type | None) -> Any:
        attrs = rewrite_dims(call.attrs, self._dim)
        hook = call.op.hook("bind_sizes") if isinstance(call.op, ir.Op) else None
        if attrs is call.attrs or hook is None or type_ is None:
            return attrs
        return hook(attrs, self.bound(type_))
