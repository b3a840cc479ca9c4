"""Registries of strategies, default schedules, layout hooks and legalizations, by target kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias, TypeVar

from weft.ir import Call, Family
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.strategy.space import Knob
from weft.strategy.strategy_registry import (
    StrategyRegistry,
    check_kind,
    check_operator,
    is_registered_by_weft,
    key_of,
)
from weft.support.dataclass import dataclass
from weft.target import Target
from weft.transform.layout.layout_choice import AlterLayoutHook
from weft.transform.passes.legalize import LegalizeHook

# The second argument is a target of the kind that the strategy is registered for.
Strategy: TypeAlias = Callable[[Call, Any], Iterator[Implementation]]
Schedule: TypeAlias = Callable[[ScheduleContext[Any]], None]
Estimate: TypeAlias = Callable[[Call, Any], float]  # seconds of one call on one core


@dataclass(frozen=True, slots=True)
class RegisteredStrategy:
    """A generator of implementations; ``complete`` if one of them can run any call."""

    generate: Strategy
    complete: bool


@dataclass(frozen=True, slots=True)
class DefaultSchedule:
    """The schedule that can run every call, and the seconds that it is estimated to take.

    Without ``seconds`` the cost model of the target estimates them. ``knobs`` are what it reads
    from its context (``ScheduleContext.knobs``).
    """

    schedule: Schedule
    seconds: Estimate | None = None
    knobs: Callable[[Call, Any], tuple[Knob, ...]] | None = None


H = TypeVar("H", bound=Callable[..., object])

# By target kind and operator: weft's own generator, then those of users.
STRATEGIES: StrategyRegistry[tuple[RegisteredStrategy, ...]] = StrategyRegistry("strategy")
DEFAULT_SCHEDULES: StrategyRegistry[DefaultSchedule] = StrategyRegistry("default schedule")
LAYOUT_HOOKS: StrategyRegistry[AlterLayoutHook] = StrategyRegistry("layout hook")
LEGALIZATIONS: StrategyRegistry[LegalizeHook] = StrategyRegistry("legalization")
# Layout hooks and legalizations that decide by whether constants have infinities or NaN.
READ_FINITE: set[Callable[..., object]] = set()


def strategy(
    what: str | Family, *, target: str, complete: bool = False
) -> Callable[[Strategy], Strategy]:
    """Register a generator of implementations of an operator for targets of kind ``target``.

    ``what`` is the name of the operator, or a family: operators of it that have no generators of
    their own. An operator may have several generators: their implementations compete
    (``selection.select``).
    ``complete`` says that the generator yields an implementation for every call, so that the
    default schedule need not compete too. A generator replaces an earlier one of the same module
    and name, so that a notebook cell can run again. Raises ``RegistryError`` for an unknown
    operator or target kind.
    """
    check_operator(what, target)

    def wrap(function: Strategy) -> Strategy:
        key = key_of(what, target)
        known = STRATEGIES.known(key) if is_registered_by_weft() else \
            registered(what, target) if isinstance(what, str) else STRATEGIES.find(key)
        others = [s for s in known or () if _name(s.generate) != _name(function)]
        if STRATEGIES.known(key) is not None:
            STRATEGIES.remove(key)
        STRATEGIES.register(key, (*others, RegisteredStrategy(function, complete)))
        return function

    return wrap


def registered(op_name: str, target: str) -> tuple[RegisteredStrategy, ...]:
    """The strategies of an operator for a target kind, in the order of registration."""
    return STRATEGIES.of_operator(op_name, target) or ()


def strategies_of(op_name: str, target: str) -> tuple[Strategy, ...]:
    """The generators of an operator for a target kind, in the order of registration."""
    return tuple(s.generate for s in registered(op_name, target))


def strategies_of_kind(target: str) -> Iterator[tuple[str, Strategy]]:
    """The generators of a target kind with the operator or family of each."""
    for name, found in STRATEGIES.of_kind(target):
        for strategy in found:
            yield name, strategy.generate


def _name(function: Strategy) -> tuple[str, str]:
    return function.__module__, function.__qualname__


def default_schedule(
    *, target: str, seconds: Estimate | None = None,
    knobs: Callable[[Call, Any], tuple[Knob, ...]] | None = None,
) -> Callable[[Schedule], Schedule]:
    """Register the schedule of operators without a strategy, with its estimate and its knobs.

    Without ``seconds`` the cost model of the target estimates a call (``CostModel.call_seconds``).
    Raises ``RegistryError`` for an unknown target kind.
    """
    check_kind(target)

    def wrap(function: Schedule) -> Schedule:
        DEFAULT_SCHEDULES.register(target, DefaultSchedule(function, seconds, knobs))
        return function

    return wrap


def alter_layout(op_name: str, *, target: str) -> Callable[[AlterLayoutHook], AlterLayoutHook]:
    """Register ``(call, argument types, target) -> LayoutChoices`` for ``AlterOpLayout``.

    The cache keeps what weft's own hooks answer (``weft.strategy.cached_hooks``). Raises
    ``RegistryError`` for an unknown operator or target kind.
    """
    check_operator(op_name, target)

    def wrap(function: AlterLayoutHook) -> AlterLayoutHook:
        return LAYOUT_HOOKS.register(f"{target}:{op_name}", function)

    return wrap


def legalize(op_name: str, *, target: str) -> Callable[[LegalizeHook], LegalizeHook]:
    """Register ``(call, argument types, pass context) -> replacement | None`` for ``Legalize``.

    Raises ``RegistryError`` for an unknown operator or target kind.
    """
    check_operator(op_name, target)

    def wrap(function: LegalizeHook) -> LegalizeHook:
        return LEGALIZATIONS.register(f"{target}:{op_name}", function)

    return wrap


def reads_finite(hook: H) -> H:
    """Say that a layout hook or legalization asks whether constants have infinities or NaN."""
    READ_FINITE.add(hook)
    return hook


def legalizations(target: Target) -> Mapping[str, LegalizeHook]:
    """The rewrites that ``Legalize`` applies for a target, by operator name."""
    return dict(LEGALIZATIONS.of_kind(target.kind))


def layout_hooks(target: Target) -> Mapping[str, AlterLayoutHook]:
    """The layout hooks that ``AlterOpLayout`` asks for a target, by operator name."""
    return dict(LAYOUT_HOOKS.of_kind(target.kind))
