"""All that a format has no form for, in one error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from weft.ir import TensorType, TupleType, Type
from weft.ir.expr import Expr
from weft.support.errors import UnsupportedModelError

_SHOWN_PLACES = 3
_StandIn: TypeAlias = "str | Sequence[_StandIn]"


class Gaps:
    """The parts of a program that are not written, with their places."""

    def __init__(self, format: str) -> None:
        self._format = format
        self._places: dict[str, list[str]] = {}
        self._count = 0

    def add(self, node: Expr, what: str, reason: str) -> None:
        """Note an expression that is not written."""
        label = f"{what}: {reason}" if reason else what
        place = str(node.span) if node.span is not None else "the program"
        self._places = {**self._places, label: [*self._places.get(label, ()), place]}

    def mark(self) -> Mapping[str, list[str]]:
        """The gaps so far."""
        return self._places

    def reset(self, mark: Mapping[str, list[str]]) -> None:
        """Forget the gaps since ``mark``."""
        self._places = dict(mark)

    def stand_in(self, type_: Type | None) -> _StandIn:
        """A value for one that is not written, so that other gaps are found."""
        if isinstance(type_, TupleType):
            return [self.stand_in(f) for f in type_.fields]
        self._count += 1
        return f"%gap{self._count}"

    def tensor(self, type_: Type | None, port: str) -> TensorType:
        """The type of a port, which is a tensor."""
        if not isinstance(type_, TensorType):
            raise UnsupportedModelError(f"inputs and outputs of {self._format} are tensors",
                                        where=port, got=str(type_))
        return type_

    def check(self, where: str) -> None:
        """Raise ``UnsupportedModelError`` if anything is not written; most frequent first."""
        places = self._places
        if not places:
            return
        ordered = sorted(places, key=lambda gap: (-len(places[gap]), gap))
        raise UnsupportedModelError(
            f"{self._format} has no form of {len(ordered)} "
            f"part{'s' if len(ordered) != 1 else ''} of the program", where=where,
            notes=[_note(gap, places[gap]) for gap in ordered],
            help="export an artifact: weft.compile(model).export(path)")


def _note(gap: str, places: Sequence[str]) -> str:
    shown = list(dict.fromkeys(places))
    more = ", ..." if len(shown) > _SHOWN_PLACES else ""
    times = "" if len(places) == 1 else f" ({len(places)} times)"
    return f"{gap}{times}, at {', '.join(shown[:_SHOWN_PLACES])}{more}"
