"""Wrap functions in continuation-passing style in functions in direct style."""

from __future__ import annotations

from typing import ClassVar

from weft import ir
from weft.ir.typing.solver import substitute_type
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.transform.analysis.graph import as_function, type_of


@ir.register_pass
@dataclass(frozen=True)
class UnCPS(ir.Pass):
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

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:  # noqa: ARG002
        converted = [n for n, fn in mod.functions.items() if fn.attrs.get("cps")]
        if not converted:
            return mod
        names = {n: _free(f"{n}_cps", mod) for n in converted}
        moved: dict[str, ir.Function] = {}
        for name, fn in mod.functions.items():
            if name in self.entries and name in names:
                moved[name] = _direct(names[name], fn)
            moved[names.get(name, name)] = _renamed(fn, names)
        return ir.IRModule(moved, mod.type_definitions, mod.attrs)


def _free(name: str, mod: ir.IRModule) -> str:
    while name in mod:
        name += "_"
    return name


def _renamed(fn: ir.Function, names: dict[str, str]) -> ir.Function:
    def step(node: ir.Expr) -> ir.Expr:
        if isinstance(node, ir.GlobalVar) and node.name in names:
            return node.replace(name=names[node.name])
        return node

    return as_function(ir.rewrite_post_order(fn, step))


def _direct(converted: str, fn: ir.Function) -> ir.Function:
    """A function with the signature from before the conversion."""
    *params, k = fn.params
    continuation = type_of(k)
    if not isinstance(continuation, ir.FuncType) or not fn.type_params:
        raise PassError("function is not in continuation-passing style", where=fn.span)
    result = continuation.arg_types[0]
    values: dict[ir.TypeVar, ir.Type] = {fn.type_params[-1]: result}
    inner = tuple(ir.Var(p.name, substitute_type(type_of(p), values), span=p.span) for p in params)
    returned = ir.Var("r", result, span=fn.span)
    identity = ir.Function((returned,), returned, span=fn.span)
    call = ir.Call(ir.GlobalVar(converted, span=fn.span), (*inner, identity), span=fn.span)
    return ir.Function(inner, call, result, fn.type_params[:-1], span=fn.span)
