"""Which implementations an operator has on a target, and which layouts they want."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from weft.ir.expr import Call
from weft.ir.op import Op
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.support.config import config
from weft.support.errors import LoweringError
from weft.support.registry import Registry
from weft.target import Target
from weft.transform.legalize import LegalizeHook

Strategy: TypeAlias = Callable[[Call, Target], Iterator[Implementation]]
LayoutHook: TypeAlias = Callable[..., Any]
Hook = TypeVar("Hook")
FamilySchedule: TypeAlias = Callable[[ScheduleContext], None]

STRATEGIES: Registry[Strategy] = Registry("strategy")
FAMILIES: Registry[FamilySchedule] = Registry("schedule family")
LAYOUT_HOOKS: Registry[LayoutHook] = Registry("layout hook")
LEGALIZATIONS: Registry[LegalizeHook] = Registry("legalization")


def strategy(op_name: str, *, target: str) -> Callable[[Strategy], Strategy]:
    """Register a generator of implementations of ``op_name`` for targets of kind ``target``."""

    def wrap(function: Strategy) -> Strategy:
        return STRATEGIES.register(f"{target}:{op_name}", function)

    return wrap


def family(name: str, *, target: str) -> Callable[[FamilySchedule], FamilySchedule]:
    """Register the schedule that every operator gets which has no strategy of its own."""

    def wrap(function: FamilySchedule) -> FamilySchedule:
        return FAMILIES.register(f"{target}:{name}", function)

    return wrap


def alter_layout(op_name: str, *, target: str) -> Callable[[LayoutHook], LayoutHook]:
    """Register ``(call, input types, target) -> LayoutChoice | None`` for the layout pass."""

    def wrap(function: LayoutHook) -> LayoutHook:
        return LAYOUT_HOOKS.register(f"{target}:{op_name}", function)

    return wrap


def legalize(op_name: str, *, target: str) -> Callable[[LegalizeHook], LegalizeHook]:
    """Register ``(call, input types, pass context) -> replacement | None`` for ``Legalize``."""

    def wrap(function: LegalizeHook) -> LegalizeHook:
        return LEGALIZATIONS.register(f"{target}:{op_name}", function)

    return wrap


def legalizations(target: Target) -> Mapping[str, LegalizeHook]:
    """The rewritings of a target by operator name, as ``Legalize`` takes them."""
    return _of_target(LEGALIZATIONS, target)


def layout_hooks(target: Target) -> Mapping[str, Callable[..., Any]]:
    """The layout hooks of a target by operator name, as ``AlterOpLayout`` takes them."""
    return _of_target(LAYOUT_HOOKS, target)


def _of_target(hooks: Registry[Hook], target: Target) -> dict[str, Hook]:
    """What a target's kind has registered, by operator name."""
    prefix = f"{target.kind}:"
    return {n.removeprefix(prefix): hooks.get(n) for n in hooks if n.startswith(prefix)}


def implementations(call: Call, target: Target) -> list[Implementation]:
    """What the operator's strategy offers for a call; its family where it has no strategy.

    Raises ``LoweringError`` if a strategy exists and none of its implementations applies.
    """
    op = call.op
    if not isinstance(op, Op):
        raise LoweringError("only calls of operators have implementations", where=call.span)
    generator = STRATEGIES.find(f"{target.kind}:{op.name}")
    if generator is None:
        return [default_implementation(op, target)]
    candidates = list(generator(call, target))
    if not candidates:
        raise LoweringError(
            f"{op.name} has no implementation for this call on {target}",
            where=call.span,
            got=", ".join(str(a.checked_type) for a in call.args),
        )
    return candidates


def select(call: Call, target: Target) -> Implementation:
    """The cheapest implementation of a call, the first of equals."""
    candidates = implementations(call, target)
    chosen = min(candidates, key=lambda candidate: candidate.cost)
    if "all" in config.explain or str(call.op) in config.explain:
        _explain(call, chosen, candidates)
    return chosen


def _explain(call: Call, chosen: Implementation, candidates: Sequence[Implementation]) -> None:
    """Print what ``WEFT_EXPLAIN`` asks for: the choice, and what was dearer."""
    types = ", ".join(str(a.checked_type) for a in call.args)
    lines = [f"// implementation of {call.op}({types}): {chosen.name}, {_estimate(chosen)}"]
    lines += [f"//   not {c.name}: {_estimate(c)}" for c in candidates if c is not chosen]
    sys.stderr.write("\n".join(lines) + "\n")


def _estimate(implementation: Implementation) -> str:
    return f"estimated {implementation.cost * 1e6:.1f} us" if implementation.cost else "no estimate"


def default_implementation(op: Op, target: Target) -> Implementation:
    """The family schedule, which looks at the tensor expressions and needs no operator."""
    return Implementation(
        f"{op.name}.{target.kind}.default", FAMILIES.get(f"{target.kind}:default")
    )
