"""Wrap functions in continuation-passing style in functions in direct style."""

from __future__ import annotations

from typing import ClassVar

from weft.ir.expr import Call, Expr, Function, GlobalVar, Var
from weft.ir.module import IRModule
from weft.ir.passes import Pass, PassContext, register_pass
from weft.ir.types import FuncType, Type, TypeVar
from weft.ir.typing.solver import substitute_type
from weft.ir.visitor import rewrite_post_order
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.analysis.graph import as_function, type_of


@register_pass
@dataclass(frozen=True)
class UnCPS(Pass):
    """Call the functions that ``to_cps`` converted with the identity as continuation.

    A converted function gets the suffix ``_cps`` in its name, and the other converted functions
    refer to it by that name; ``entries`` get a wrapper with the old signature.

    def @main[A](%x: Tensor[(2,), float32], %k: fn (Tensor[(2,), float32]) -> A, cps=True) -> A {
      %k(%x)
    }
    =>
    def @main(%x: Tensor[(2,), float32]) -> Tensor[(2,), float32] {
      @main_cps(%x, fn (%r: Tensor[(2,), float32]) { %r })
    }
    def @main_cps[A](%x: Tensor[(2,), float32], %k: fn (Tensor[(2,), float32]) -> A, cps=True)
        -> A { %k(%x) }
    """

    name: ClassVar[str] = "un_cps"
    opt_level: ClassVar[int] = 0
    entries: tuple[str, ...] = ("main",)

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:  # noqa: ARG002
        converted = [n for n, fn in mod.functions.items() if fn.attrs.get("cps")]
        if not converted:
            return mod
        names = {n: _free(f"{n}_cps", mod) for n in converted}
        moved: dict[str, Function] = {}
        for name, fn in mod.functions.items():
            if name in self.entries and name in names:
                moved[name] = _direct(names[name], fn)
            moved[names.get(name, name)] = _renamed(fn, names)
        return IRModule(moved, mod.type_definitions, mod.attrs)


def _free(name: str, mod: IRModule) -> str:
    while name in mod:
        name += "_"
    return name


def _renamed(fn: Function, names: dict[str, str]) -> Function:
    def step(node: Expr) -> Expr:
        if isinstance(node, GlobalVar) and node.name in names:
            return node.replace(name=names[node.name])
        return node

    return as_function(rewrite_post_order(fn, step))


def _direct(converted: str, fn: Function) -> Function:
    """A function with the signature from before the conversion."""
    *params, k = fn.params
    continuation = type_of(k)
    if not isinstance(continuation, FuncType) or not fn.type_params:
        raise PassError("function is not in continuation-passing style", where=fn.span)
    result = continuation.arg_types[0]
    values: dict[TypeVar, Type] = {fn.type_params[-1]: result}
    inner = tuple(
        Var(p.name, substitute_type(type_of(p), values), span=p.span) for p in params
    )
    returned = Var("r", result, span=fn.span)
    identity = Function((returned,), returned, span=fn.span)
    call = Call(GlobalVar(converted, span=fn.span), (*inner, identity), span=fn.span)
    return Function(inner, call, result, fn.type_params[:-1], span=fn.span)
