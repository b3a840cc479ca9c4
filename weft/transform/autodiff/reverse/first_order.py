"""Programs in the form that reverse mode differentiates: first-order, pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from weft.ir import GlobalVar, IRModule, PassContext, infer_type, post_order
from weft.support.dataclass import dataclass
from weft.transform.analysis.effects import touches_references
from weft.transform.analysis.higher_order import is_higher_order
from weft.transform.autodiff.checkpoint.checkpoint import is_checkpointed
from weft.transform.autodiff.reverse.custom_rules import has_custom_rule
from weft.transform.normal_form.defunctionalization import Defunctionalization
from weft.transform.normal_form.lambda_lift import LambdaLift
from weft.transform.normal_form.monomorphize import Monomorphize
from weft.transform.normal_form.store_passing import StorePassing
from weft.transform.passes.inline import Inline
from weft.transform.passes.remove_unused_functions import RemoveUnusedFunctions


def reached_functions(mod: IRModule, entry: str) -> list[str]:
    """``entry`` and the global functions that it refers to, directly or not."""
    found = [entry]
    for name in found:  # the loop appends names
        found += [n for n in _references(mod, name) if n not in found]
    return found


def _references(mod: IRModule, name: str) -> list[str]:
    nodes = post_order(mod[name])
    return list(dict.fromkeys(n.name for n in nodes if isinstance(n, GlobalVar) and n.name in mod))


def has_cycle(mod: IRModule, names: Iterable[str]) -> bool:
    """Whether one of the functions calls itself, directly or not."""
    callees = {name: set(_references(mod, name)) for name in names}
    while True:
        leaves = [name for name, called in callees.items() if not called & callees.keys()]
        if not leaves:
            return bool(callees)
        for name in leaves:
            del callees[name]


def to_first_order(mod: IRModule, entry: str, ctx: PassContext) -> IRModule:
    """``mod`` with functions that take and return tensors, tuples and data only; typed.

    Lifting turns captured variables into arguments, for which gradients can be returned; lifted
    functions that are not recursive are inlined again. Where functions remain values, generic
    functions get an instance for each use, and function values become data. References become
    addresses in a store that functions pass along.
    """
    for pass_ in (LambdaLift(prefix="local"), _InlineLocal()):
        mod = infer_type(pass_.run_module(mod, ctx))
    if any(is_higher_order(mod[name]) for name in reached_functions(mod, entry)):
        for again in (Monomorphize(entry), Defunctionalization()):
            mod = infer_type(again.run_module(mod, ctx))
    if touches_references(mod):
        for again in (RemoveUnusedFunctions(entries=(entry,)), StorePassing(entry)):
            mod = infer_type(again.run_module(mod, ctx))
    return mod


@dataclass(frozen=True)
class _InlineLocal(Inline):
    """Inlines lifted functions that are not recursive back into their callers."""

    name: ClassVar[str] = "inline_local"

    def run_module(self, mod: IRModule, ctx: PassContext) -> IRModule:
        # A checkpointed function stays a call, whose derivative computes its values again; so does
        # a function with a custom rule.
        lifted = tuple(n for n, fn in mod.functions.items()
                       if n.startswith("local_") and not is_checkpointed(fn)
                       and not has_custom_rule(fn))
        after = Inline(functions=lifted).run_module(mod, ctx)
        used = {n.name for f in after.functions.values() for n in post_order(f)
                if isinstance(n, GlobalVar)}
        return after.without(*(n for n in lifted if n not in used))
