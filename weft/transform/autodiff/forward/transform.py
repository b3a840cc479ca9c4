"""Forward-mode automatic differentiation by source transformation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.support.errors import PassError
from weft.support.names import unused
from weft.transform.analysis.graph import type_of
from weft.transform.autodiff.forward.dual import DualTypes, Pair, Value, is_simple
from weft.transform.autodiff.forward.forward_functions import DualFunctions
from weft.transform.autodiff.reverse.adjoint import is_differentiable
from weft.transform.autodiff.reverse.custom_rules import has_custom_rule, with_plain_entry
from weft.transform.autodiff.reverse.differentiable import refuse_ambiguous
from weft.transform.autodiff.reverse.expand_for_gradient import ExpandForGradient
from weft.transform.normal_form.lambda_lift import LambdaLift
from weft.transform.passes.inline import Inline


@ir.register_pass
@dataclass(frozen=True)
class ForwardMode(ir.Pass):
    """Forward-mode autodiff (JVP): make ``entry`` map ``(x, .., dx, ..)`` to ``(y, dy)``.

    There is a tangent ``dx`` for each parameter that ``with_respect_to`` names, by default for each
    that holds floating point, in the order of the names. ``dy`` is the product of the Jacobian and
    the tangents, with zeros for integers. Both have the types of their values. The pass handles the
    whole language: ``if``, loops and recursion, tuples, closures and functions as values,
    references, data types and ``match``. Results of ``entry``, and its parameters that hold
    floating point, must be tensors or tuples of tensors. ``training`` is that of ``Gradient``.
    Raises ``PassError`` with all operators that have no rule.

    def @main(%x: Tensor[(4,), float32]) { exp(%x) }
    =>
    def @main(%x: Tensor[(4,), float32], %dx: Tensor[(4,), float32]) {
      %0 = exp(%x);
      (%0, multiply(%dx, %0))
    }
    """

    name: ClassVar[str] = "forward_mode"
    opt_level: ClassVar[int] = 0
    entry: str = "main"
    with_respect_to: tuple[str, ...] = ()
    training: bool | None = None

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:
        refuse_ambiguous(mod, training=self.training)
        prepared = _prepared(with_plain_entry(mod, self.entry), ctx, training=bool(self.training))
        fn = prepared[self.entry]
        functions = DualFunctions(prepared)
        self._check_types(fn, functions.types)
        wanted = self._parameters(fn)
        tangents = _tangents_of(fn, wanted)
        seeds: Mapping[ir.Var, Value] = {p: Pair(p, tangents.get(p)) for p in fn.params}
        y = functions.split_body(fn.body, seeds)
        body = functions.both(y, type_of(fn.body))
        params = (*fn.params, *tangents.values())
        changed = {self.entry: fn.replace(params=params, body=body, ret_type=None),
                   **functions.definitions()}
        return ir.infer_type(functions.with_types(prepared.with_functions(changed)))

    def _check_types(self, fn: ir.Function, types: DualTypes) -> None:
        params = [p for p in fn.params if not types.is_plain(type_of(p))]
        for value, what in (*((p, f"the parameter %{p.name}") for p in params),
                            (fn.body, "the result")):
            if not is_simple(type_of(value)):
                raise PassError(f"{what} of @{self.entry} has no tangent type",
                                where=value.span, got=type_of(value),
                                expected="tensors and tuples of them",
                                help="differentiate a function that takes the tensors apart")

    def _parameters(self, fn: ir.Function) -> list[ir.Var]:
        names = self.with_respect_to or tuple(
            p.name for p in fn.params if is_differentiable(type_of(p)))
        by_name = {p.name: p for p in fn.params}
        for name in names:
            if name not in by_name or not is_differentiable(type_of(by_name[name])):
                raise PassError(f"cannot differentiate with respect to %{name}",
                                where=f"@{self.entry}",
                                expected=", ".join(f"%{p.name}" for p in fn.params),
                                help="name floating-point parameters")
        return [by_name[name] for name in names]


def _tangents_of(fn: ir.Function, wanted: list[ir.Var]) -> dict[ir.Var, ir.Var]:
    """A parameter ``dx`` for each ``x``, with a name that is free."""
    taken = {p.name for p in fn.params}
    made = {}
    for param in wanted:
        name = unused(f"d{param.name}", taken)
        taken.add(name)
        made[param] = ir.Var(name, type_of(param), span=param.span)
    return made


def _prepared(mod: ir.IRModule, ctx: ir.PassContext, *, training: bool) -> ir.IRModule:
    """A typed module of simpler operators, whose direct calls are calls of global functions."""
    mod = ir.infer_type(mod)
    for pass_ in (ExpandForGradient(training=training, hooks=False), LambdaLift(prefix="local"),
                  _InlineLocal()):
        mod = ir.infer_type(pass_.run_module(mod, ctx))
    return mod


class _InlineLocal(Inline):
    """Inlines lifted functions that are not recursive back into their callers."""

    name: ClassVar[str] = "inline_lifted"

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:
        lifted = tuple(n for n, fn in mod.functions.items()
                       if n.startswith("local_") and not has_custom_rule(fn))
        after = Inline(functions=lifted).run_module(mod, ctx)
        used = {n.name for f in after.functions.values() for n in ir.post_order(f)
                if isinstance(n, ir.GlobalVar)}
        return after.without(*(n for n in lifted if n not in used))
