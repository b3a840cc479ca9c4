"""Phases of the pipeline, and users' passes inserted into them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from weft.ir.passes import Pass
from weft.support.dataclass import dataclass
from weft.support.errors import OptionError
from weft.support.insertion import Insertion, inserted, unknown_anchor
from weft.support.suggestion import did_you_mean

DEFAULT_PHASE = "optimized"  # of users' passes without a position


@dataclass(frozen=True, slots=True)
class Phase:
    """A named sequence of passes; ``as_text`` of a compiled model shows the module at its end."""

    name: str
    passes: tuple[Pass, ...]

    def __str__(self) -> str:
        return f"{self.name}: {','.join(map(str, self.passes))}"


def with_passes(phases: Sequence[Phase], insertions: Iterable[Insertion[Pass]]
                ) -> tuple[Phase, ...]:
    """The phases with users' passes at their positions, in order (see ``weft.pass_at``).

    Raises ``OptionError`` for an unknown phase or pass, and for a pass that several phases contain
    where the position does not give a phase.
    """
    groups: list[list[Insertion[Pass]]] = [[] for _ in phases]
    for insertion in insertions:
        names = [[*map(_name, phase.passes), *(_name(i.item) for i in group)]
                 for phase, group in zip(phases, groups, strict=True)]
        groups[_phase_number(insertion, [phase.name for phase in phases], names)].append(insertion)
    return tuple(
        Phase(phase.name, inserted(phase.passes, group, _name, f"the phase {phase.name}"))
        for phase, group in zip(phases, groups, strict=True))


def _phase_number(insertion: Insertion[Pass], phases: Sequence[str],
                  passes: Sequence[Sequence[str]]) -> int:
    """The number of the phase that a position means; ``passes`` are their names by phase."""
    if insertion.phase is not None:
        if insertion.phase not in phases:
            raise OptionError(f"unknown phase {insertion.phase!r} for the pass {insertion.item}",
                              expected=", ".join(phases),
                              help=did_you_mean(insertion.phase, phases))
        return phases.index(insertion.phase)
    if insertion.anchor is None:
        return phases.index(DEFAULT_PHASE)
    found = [number for number, names in enumerate(passes) if insertion.anchor in names]
    if len(found) > 1:
        listed = [phases[number] for number in found]
        raise OptionError(f"several phases contain the pass {insertion.anchor!r}",
                          got=", ".join(listed), help=f"name one of them: phase={listed[0]!r}")
    if not found:
        raise unknown_anchor(insertion, (n for names in passes for n in names), "the pipeline")
    return found[0]


def _name(pass_: Pass) -> str:
    return pass_.name
