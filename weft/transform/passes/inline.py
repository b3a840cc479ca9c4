"""Inlining: replace calls of small or marked functions by their bodies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from weft import ir
from weft.support.dataclass import dataclass
from weft.transform.analysis.effects import Effects
from weft.transform.analysis.graph import as_function, is_primitive, rewrite_typed
from weft.transform.normal_form.alpha import fresh_copy, fresh_var
from weft.transform.normal_form.to_a_normal_form import is_atom
from weft.transform.normal_form.to_basic_block_normal_form import name_captures


@ir.register_pass
@dataclass(frozen=True)
class Inline(ir.Pass):
    """Inline global functions, callees first.

    Inlined are functions with the attribute ``inline=True``, those in ``functions``, those of at
    most ``max_nodes`` nodes, with ``single_use`` those referred to once, and with ``literals``
    function literals that are called directly. Recursive functions, generic ones and those with the
    attribute ``noinline=True`` are not inlined, and the definitions stay for
    ``remove_unused_functions`` to remove. Arguments are bound by ``let`` where their order or
    number of evaluations could change.

    def @main(%x: Tensor[(4,), float32]) { @square(exp(%x)) }
    def @square(%y: Tensor[(4,), float32], inline=True) { multiply(%y, %y) }
    =>
    def @main(%x: Tensor[(4,), float32]) { %0 = exp(%x); multiply(%0, %0) }
    def @square(%y: Tensor[(4,), float32], inline=True) { multiply(%y, %y) }
    """

    name: ClassVar[str] = "inline"
    opt_level: ClassVar[int] = 1
    functions: tuple[str, ...] = ()
    max_nodes: int = 0
    single_use: bool = False
    literals: bool = True

    def run_module(self, mod: ir.IRModule, ctx: ir.PassContext) -> ir.IRModule:  # noqa: ARG002
        bodies: dict[str, ir.Function] = {}
        changed: dict[str, ir.Function] = {}
        references = count_references(mod)
        effects = Effects()
        # Callees first, so that the calls in an inlined body have been inlined themselves.
        for name in _callees_first(mod):
            fn = mod[name]
            if not is_primitive(fn):
                expansion = _Expansion(bodies, self.literals, effects)
                fn = as_function(rewrite_typed(name_captures(fn), expansion.step))
                changed[name] = fn
            # Inlining a recursive function would not end.
            if self._is_wanted(name, fn, references) and not _refers_to(fn, {name}):
                bodies[name] = fn
        return mod.with_functions(changed)

    def _is_wanted(self, name: str, fn: ir.Function, references: Mapping[str, int]) -> bool:
        if fn.type_params or is_primitive(fn) or "compiler" in fn.attrs or fn.attrs.get("noinline"):
            return False
        if fn.attrs.get("inline") or name in self.functions:
            return True
        if self.single_use and references.get(name) == 1:
            return True
        return self.max_nodes > 0 and sum(1 for _ in ir.post_order(fn)) <= self.max_nodes


@dataclass(frozen=True, slots=True)
class _Expansion:
    bodies: Mapping[str, ir.Function]
    literals: bool
    effects: Effects

    def step(self, _: ir.Expr, node: ir.Expr) -> ir.Expr:
        if not isinstance(node, ir.Call):
            return node
        callee: ir.Expr | None = node.op
        if isinstance(callee, ir.GlobalVar):
            callee = self.bodies.get(callee.name)
        elif not self.literals:
            return node
        if not isinstance(callee, ir.Function) or is_primitive(callee) or callee.type_params:
            return node
        return beta_reduced(callee, node.args, self.effects)


def beta_reduced(fn: ir.Function, args: tuple[ir.Expr, ...], effects: Effects) -> ir.Expr:
    """The body of ``fn`` applied to ``args``, with fresh variables.

    An argument is substituted for its parameter if that changes neither how often nor in which
    order expressions are evaluated; the others are bound by ``let``.
    """
    movable = not effects.is_ordered(fn.body)
    values: dict[ir.Expr, ir.Expr] = {}
    bound = []
    for param, arg in zip(fn.params, args, strict=True):
        if is_atom(arg) or (movable and not effects.is_ordered(arg)):
            values[param] = arg
        else:
            values[param] = fresh_var(param)
            bound.append((values[param], arg))
    body = fresh_copy(fn.body, values)
    for var, arg in reversed(bound):
        type_ = body.checked_type
        body = ir.Let(var, arg, body, span=arg.span, checked_type=type_)  # type: ignore[arg-type]
    return body


def count_references(mod: ir.IRModule) -> dict[str, int]:
    """How many nodes refer to each global function."""
    counts: dict[str, int] = {}
    for fn in mod.functions.values():
        for node in ir.post_order(fn):
            callee = node.op if isinstance(node, ir.Call) else None
            if isinstance(callee, ir.GlobalVar):
                counts[callee.name] = counts.get(callee.name, 0) + 1
            for other in node.args if isinstance(node, ir.Call) else ():
                if isinstance(other, ir.GlobalVar):  # used as a value, so not called once only
                    counts[other.name] = counts.get(other.name, 0) + 2
    return counts


def _refers_to(fn: ir.Function, names: set[str]) -> bool:
    return any(isinstance(n, ir.GlobalVar) and n.name in names for n in ir.post_order(fn))


def _callees_first(mod: ir.IRModule) -> list[str]:
    """Names ordered so that a function follows its callees, except in cycles."""
    order: list[str] = []
    state: dict[str, bool] = {}
    pending = list(reversed(list(mod.functions)))
    while pending:
        name = pending[-1]
        if state.get(name) is None and name in mod:
            state[name] = False
            refers = (n.name for n in ir.post_order(mod[name]) if isinstance(n, ir.GlobalVar))
            pending.extend(n for n in refers if n not in state)
            continue
        pending.pop()
        if state.get(name) is False:
            state[name] = True
            order.append(name)
    return order
