"""Selects the implementation of a call among the candidates.

A tuning record decides where there is one (``records``). Otherwise the order is: implementations
without an estimate, in the order in which strategies yield them, then the others by their estimated
seconds, the first of equals, and last a fallback. weft's own implementations always have an
estimate or are fallbacks, so any other is a user's, who means it to be used.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Iterable, Sequence
from typing import Any

from weft.codegen import backend_of
from weft.ir import Call, Op
from weft.strategy.implementation import Implementation, ScheduleContext
from weft.strategy.registry import DEFAULT_SCHEDULES, DefaultSchedule, Schedule, registered
from weft.strategy.space import Point, Space, split_name
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.support.stage_times import stage
from weft.target import Target


def implementations(call: Call, target: Target) -> list[Implementation]:
    """The implementations that the operator's strategies yield for a call, in their order.

    The default schedule comes last where the operator's strategies are not complete. Raises
    ``LoweringError`` if they are and still yield no implementation.
    """
    op = call.op
    if not isinstance(op, Op):
        raise LoweringError("only calls of operators have implementations", where=call.span)
    strategies = registered(op.name, target.kind)
    offered = [one for each in strategies for one in each.generate(call, target)]
    if not any(each.complete for each in strategies):
        return [*offered, default_implementation(call, target)]
    if not offered:
        raise LoweringError(
            f"{op.name} has no implementation for this call on {target}",
            where=call.span,
            got=", ".join(str(a.checked_type) for a in call.args),
        )
    return offered


def default_implementation(call: Call, target: Target) -> Implementation:
    """The default schedule of the target kind, which is derived from the tensor expressions alone.

    A kind without one gets the schedule that every kernel starts from, a loop nest per stage, as a
    fallback.
    """
    name = call.op.name if isinstance(call.op, Op) else "call"
    default = DEFAULT_SCHEDULES.find(target.kind)
    if default is None:
        return Implementation(f"{name}.{target.kind}.unscheduled", lambda _: None, is_fallback=True)
    seconds = (backend_of(target).cost_model(target).call_seconds(call) if default.seconds is None
               else default.seconds(call, target))
    base = f"{name}.{target.kind}.default"
    return Implementation(base, default.schedule, seconds=seconds, space=None if (
        default.knobs is None) else functools.partial(_default_space, base, default, call, target))


def _default_space(base: str, default: DefaultSchedule, call: Call, target: Target) -> Space:
    knobs = () if default.knobs is None else default.knobs(call, target)
    return Space(base, knobs, lambda point: Implementation(base, functools.partial(
        _with_knobs, default.schedule, point)))


def _with_knobs(schedule: Schedule, point: Point, ctx: ScheduleContext[Any]) -> None:
    schedule(dataclasses.replace(ctx, knobs=point))


def in_order(offered: Iterable[Implementation]) -> list[Implementation]:
    """Implementations as they are preferred: without an estimate, by seconds, fallbacks."""
    return sorted(offered, key=_preference)


def _preference(one: Implementation) -> tuple[bool, bool, float]:
    return one.is_fallback, one.seconds is not None, one.seconds or 0.0


class Reason(enum.StrEnum):
    """Why an implementation was chosen."""

    RECORD = "fastest by the tuning records"
    NO_ESTIMATE = "preferred to candidates with one"
    ESTIMATE = "shortest estimate"
    ONLY = "the only candidate"


@dataclass(frozen=True, slots=True)
class Selection:
    """The implementation that runs a call, why, and the others in order of preference."""

    chosen: Implementation
    reason: Reason
    others: tuple[Implementation, ...]


@stage("decisions")
def select(call: Call, target: Target, ranking: Sequence[str] = ()) -> Selection:
    """The implementation for a call.

    ``ranking`` names implementations, or points of their spaces, that were timed for its kernel,
    the fastest first; names that no strategy yields any more are skipped.
    """
    offered = in_order(implementations(call, target))
    if ranking:
        recorded = next((one for name in ranking if (one := named(offered, name))), None)
        if recorded is not None:
            others = tuple(one for one in offered if one.name != recorded.name)
            return Selection(recorded, Reason.RECORD, others)
    best, *others = offered
    reason = Reason.NO_ESTIMATE if best.seconds is None else Reason.ESTIMATE
    return Selection(best, reason if others else Reason.ONLY, tuple(others))


def candidates(call: Call, target: Target) -> list[Implementation]:
    """All implementations that can be measured, in order; each may have a space of its own.

    Names tell them apart. Raises ``LoweringError`` as ``implementations`` does.
    """
    return in_order(implementations(call, target))


def named(offered: Iterable[Implementation], name: str) -> Implementation | None:
    """The implementation of a name, which may be a point of a space; ``None`` if none has it."""
    base, values = split_name(name)
    for one in offered:
        if one.name == name:
            return one
        if values and one.name == base and one.space is not None:
            return one.space().named(name)
    return None
