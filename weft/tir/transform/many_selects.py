"""The cuts of a loop that selects among many values by its variable, and the middle one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from weft.support.dataclass import dataclass
from weft.tir import expr as x
from weft.tir.expr import PrimExpr

# With more selections than these the middle one is taken first.
MANY_SELECTS = 8

Values: TypeAlias = "dict[PrimExpr, PrimExpr]"


@dataclass(frozen=True, slots=True)
class SelectCut:
    """A selection that changes along a loop; between the two cuts it depends on loops inside.

    One that ``holds_first`` holds in the iterations before ``always``, and in none from ``never``
    on. Another one holds from ``always`` on, and in no iteration before ``never``.
    """

    predicate: PrimExpr
    holds_first: bool
    always: int
    never: int


def halves_of(cuts: Sequence[SelectCut]) -> tuple[int, Values, Values]:
    """The middle cut, and the selections that are decided before it, and from it on."""
    middle = sorted(cut.always for cut in cuts)[len(cuts) // 2]
    first = {cut.predicate: _value(cut.holds_first) for cut in cuts
             if (cut.always if cut.holds_first else cut.never) >= middle}
    last = {cut.predicate: _value(not cut.holds_first) for cut in cuts
            if (cut.never if cut.holds_first else cut.always) <= middle}
    return middle, first, last


def _value(holds: bool) -> PrimExpr:
    return x.TRUE if holds else x.FALSE
