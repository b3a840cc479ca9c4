"""Which implementations an operator has on a target, and which layouts they want."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar

from weft.ir.expr import Call
from weft.ir.op import OPS, Op
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.support.config import config
from weft.support.errors import LoweringError, RegistryError
from weft.support.registry import Registry
from weft.target import TARGET_KINDS, Target
from weft.transform.passes.legalize import LegalizeHook

# The second argument is a target of the kind that the strategy is registered for.
Strategy: TypeAlias = Callable[[Call, Any], Iterator[Implementation]]
LayoutHook: TypeAlias = Callable[..., Any]
Hook = TypeVar("Hook")
FamilySchedule: TypeAlias = Callable[[ScheduleContext[Any]], None]

# By target and operator: weft's own generator, then those of users.
STRATEGIES: Registry[tuple[Strategy, ...]] = Registry("strategy")
FAMILIES: Registry[FamilySchedule] = Registry("schedule family")
LAYOUT_HOOKS: Registry[LayoutHook] = Registry("layout hook")
LEGALIZATIONS: Registry[LegalizeHook] = Registry("legalization")


def strategy(op_name: str, *, target: str) -> Callable[[Strategy], Strategy]:
    """Register a generator of implementations of ``op_name`` for targets of kind ``target``.

    An operator may have several: their implementations compete. A generator of the same module
    and name takes the place of the one before it, so that a notebook's cell can be run again.
    Raises ``RegistryError`` for an operator or a kind of target that does not exist.
    """
    OPS.get(op_name)
    if target not in TARGET_KINDS:
        raise RegistryError(f"unknown kind of target {target!r}", expected=", ".join(TARGET_KINDS))

    def wrap(function: Strategy) -> Strategy:
        key = f"{target}:{op_name}"
        others = tuple(f for f in strategies_of(op_name, target) if _name(f) != _name(function))
        if key in STRATEGIES:
            STRATEGIES.remove(key)
        STRATEGIES.register(key, (*others, function))
        return function

    return wrap


def strategies_of(op_name: str, target: str) -> tuple[Strategy, ...]:
    """The generators of an operator's implementations on a kind of target, first come first."""
    return STRATEGIES.find(f"{target}:{op_name}") or ()


def _name(function: Strategy) -> tuple[str, str]:
    return function.__module__, function.__qualname__


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
    """What the operator's strategies offer for a call; its family where it has none of its own.

    Raises ``LoweringError`` if weft has a strategy for the operator and nothing applies.
    """
    op = call.op
    if not isinstance(op, Op):
        raise LoweringError("only calls of operators have implementations", where=call.span)
    generators = strategies_of(op.name, target.kind)
    candidates = [i for generator in generators for i in generator(call, target)]
    if not candidates and not any(map(_is_complete, generators)):
        return [default_implementation(op, target)]
    if not candidates:
        raise LoweringError(
            f"{op.name} has no implementation for this call on {target}",
            where=call.span,
            got=", ".join(str(a.checked_type) for a in call.args),
        )
    return candidates


def candidates(call: Call, target: Target) -> list[Implementation]:
    """All that can be measured for a call: its implementations, each before its variants.

    Names tell them apart. Raises ``LoweringError`` as ``implementations`` does.
    """
    offered = implementations(call, target)
    return [each for one in offered for each in (one, *one.variants())]


def _is_complete(generator: Strategy) -> bool:
    """Whether the strategy is weft's: these all that is meant to run, those of users need not."""
    return generator.__module__.startswith("weft.")


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
