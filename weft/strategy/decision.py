"""The decision for one call on one target: the algorithm, its plan, and the rejected candidates.

Each operator family has one function that takes a typed call and a target and returns a
``Decision``. Legalisation, the layout pass, scheduling and ``weft inspect`` read it; none of them
decides again. All estimates are seconds of one call on one core, from the machine model of the
target.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar

from weft.ir import Call, Family
from weft.strategy.strategy_registry import StrategyRegistry, check_operator, key_of
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.support.markup import shown_as_text
from weft.target import Target

P = TypeVar("P")
P_co = TypeVar("P_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Candidate(Generic[P_co]):
    """An algorithm that can run the call; ``plan`` holds its layouts, tiles and blocks.

    ``summary`` says the plan in one line, for users.
    """

    algorithm: str
    seconds: float
    plan: P_co
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Rejected:
    """An algorithm that was not chosen; ``seconds`` is ``None`` if it cannot run the call."""

    algorithm: str
    reason: str
    seconds: float | None = None

    def __str__(self) -> str:
        estimate = "" if self.seconds is None else f" ({time_text(self.seconds)})"
        return f"not {self.algorithm}{estimate}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Decision(Generic[P_co]):
    """The chosen candidate and the rejected algorithms.

    ``sizes`` are those of the symbols that the estimates assume, such as ``batch=1``.
    """

    chosen: Candidate[P_co]
    rejected: tuple[Rejected, ...] = ()
    sizes: str = ""

    @property
    def algorithm(self) -> str:
        return self.chosen.algorithm

    @property
    def seconds(self) -> float:
        return self.chosen.seconds

    @property
    def plan(self) -> P_co:
        return self.chosen.plan

    def __str__(self) -> str:
        plan = f" ({self.chosen.summary})" if self.chosen.summary else ""
        at = f" at {self.sizes}" if self.sizes else ""
        lines = [f"{self.algorithm}{plan}, estimated {time_text(self.seconds)}{at}",
                 *(f"  {each}" for each in self.rejected)]
        return "\n".join(lines)

    _repr_html_ = shown_as_text


def time_text(seconds: float) -> str:
    """``12.3 us``: one decimal in the largest unit that gives at least 1, or in ns."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds * 1e9:.1f} ns"


def choose(candidates: Iterable[Candidate[P]], rejected: Iterable[Rejected] = ()) -> Decision[P]:
    """The candidate with the shortest estimate, the first of equals.

    ``rejected`` are the algorithms that do not apply, with their reasons; the slower candidates are
    appended. Raises ``InternalError`` for no candidates: every family has a generic algorithm.
    """
    offered = list(candidates)
    if not offered:
        raise InternalError("no algorithm applies",
                            got="; ".join(f"{r.algorithm}: {r.reason}" for r in rejected))
    best = min(offered, key=lambda c: c.seconds)
    lost = tuple(
        Rejected(c.algorithm, _compared(c.seconds, best.seconds), c.seconds)
        for c in offered if c is not best
    )
    return Decision(best, (*rejected, *lost))


def _compared(seconds: float, best: float) -> str:
    if seconds == best:
        return "as long; the first of equals is taken"
    return f"{seconds / best:.3g} times as long" if best else "the best takes no time"


# (call with typed arguments, target of the registered kind) -> the decision.
Decide: TypeAlias = Callable[[Call, Any], "Decision[object] | None"]


@dataclass(frozen=True, slots=True)
class RegisteredDecision:
    """How an operator family decides: before legalisation, and for a call that stays as it is."""

    decide: Decide
    in_kernel: Decide


DECISIONS: StrategyRegistry[RegisteredDecision] = StrategyRegistry("decision")
F = TypeVar("F", bound=Decide)


def decides(
    what: str | Family, *, target: str, in_kernel: Decide | None = None
) -> Callable[[F], F]:
    """Register the function that decides for calls of an operator, or of those of a family,
    on targets of kind ``target``.

    It returns ``None`` for calls that it cannot decide yet, because a size is not fixed. A family
    that decides otherwise where no pass rewrites its calls gives ``in_kernel``. Raises
    ``RegistryError`` for an unknown operator or target kind.
    """
    check_operator(what, target)

    def wrap(function: F) -> F:
        DECISIONS.register(key_of(what, target),
                           RegisteredDecision(function, in_kernel or function))
        return function

    return wrap


def deciders_of(op_name: str, target: str) -> tuple[Decide, ...]:
    """The functions that decide for calls of an operator on a target kind."""
    found = DECISIONS.of_operator(op_name, target)
    return () if found is None else (found.decide, found.in_kernel)


def deciders_of_kind(target: str) -> Iterator[tuple[str, Decide]]:
    """The deciding functions of a target kind with the operator or family of each."""
    for name, found in DECISIONS.of_kind(target):
        yield name, found.decide
        yield name, found.in_kernel


def decision_of(call: Call, target: Target, *, in_kernel: bool = False) -> Decision[object] | None:
    """The decision of the operator's family; ``None`` for an operator without a registered one.

    With ``in_kernel`` that for a call which legalisation and the layout pass do not rewrite.
    """
    found = DECISIONS.of_operator(getattr(call.op, "name", ""), target.kind)
    if found is None:
        return None
    return (found.in_kernel if in_kernel else found.decide)(call, target)
