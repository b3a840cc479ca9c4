"""What a schedule leaves open: the knobs of an implementation, and the points of their space.

The record of a decision says which of its fields are knobs and which values each may take; the cost
model's own choice is one point of the space. Every other point is the same algorithm with other
tiles, orders, blocks or unrolling: it computes the same result, up to the order of additions. Not
every combination fits the registers or the loops; ``Space.at`` then raises ``ScheduleError``, as
the schedule may still do.

A point is named by its values in brackets, as in ``nn.dense.cpu.gemm[mr=8,vectors=3]``. Records of
measured times hold such names.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from weft.strategy.implementation import Implementation
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError, ScheduleError

Value: TypeAlias = "int | str"
Point: TypeAlias = "dict[str, Value]"


@dataclass(frozen=True, slots=True)
class Knob:
    """One choice: its legal ``values``, of which neighbours are alike, and the model's own.

    Raises ``InternalError`` if ``chosen`` is not among the values.
    """

    name: str
    values: tuple[Value, ...]
    chosen: Value

    def __post_init__(self) -> None:
        if self.chosen not in self.values:
            raise InternalError(f"the choice for {self.name} is not among its legal values",
                                expected=", ".join(map(str, self.values)), got=str(self.chosen))

    @staticmethod
    def of(name: str, values: Iterable[Value], chosen: Value) -> Knob:
        """The knob with its choice among the values, which are sorted."""
        found = {*values, chosen}
        return Knob(name, tuple(sorted(found, key=lambda v: (isinstance(v, str), v))), chosen)


def flag(name: str, chosen: bool, *, free: bool = True) -> Knob:
    """A knob that is off (0) or on (1); one value only unless ``free``."""
    return Knob.of(name, (0, 1) if free else (), int(chosen))


@dataclass(frozen=True, slots=True)
class Space:
    """The points of an implementation; ``make`` builds one of them.

    ``make`` may raise ``ScheduleError`` for values that do not fit together.
    """

    base: str
    knobs: tuple[Knob, ...]
    make: Callable[[Any], Implementation]

    @property
    def chosen(self) -> Point:
        """The point of the cost model."""
        return {knob.name: knob.chosen for knob in self.knobs}

    @property
    def size(self) -> int:
        """The number of combinations, those that do not fit among them."""
        return math.prod(len(knob.values) for knob in self.knobs)

    def name_of(self, point: Mapping[str, Value]) -> str:
        """``base`` for the point of the cost model, else with all values in brackets."""
        if point == self.chosen:
            return self.base
        values = ",".join(f"{knob.name}={point[knob.name]}" for knob in self.knobs)
        return f"{self.base}[{values}]"

    def at(self, point: Mapping[str, Value]) -> Implementation:
        """The implementation of a point; ``ScheduleError`` for values that do not fit together."""
        for knob in self.knobs:
            if point.get(knob.name) not in knob.values:
                raise ScheduleError(
                    f"{knob.name} of {self.base} cannot have this value",
                    expected=", ".join(map(str, knob.values)), got=str(point.get(knob.name)))
        return dataclasses.replace(self.make(point), name=self.name_of(point), space=None)

    def named(self, name: str) -> Implementation | None:
        """The implementation that ``name_of`` named; ``None`` if it is none of this space."""
        point = self.point_of(name)
        try:
            return None if point is None else self.at(point)
        except ScheduleError:
            return None

    def point_of(self, name: str) -> Point | None:
        """The point of a name; ``None`` if it is none of this space."""
        base, values = split_name(name)
        if base != self.base:
            return None
        if not values:
            return self.chosen
        point = dict(self.chosen)
        for text in values:
            key, _, value = text.partition("=")
            known = next((k for k in self.knobs if k.name == key), None)
            legal = {str(v): v for v in known.values} if known is not None else {}
            if value not in legal:
                return None
            point[key] = legal[value]
        return point if len(values) == len(self.knobs) else None


def split_name(name: str) -> tuple[str, Sequence[str]]:
    """The base of an implementation's name, and the texts of its values."""
    base, bracket, rest = name.partition("[")
    return base, rest.removesuffix("]").split(",") if bracket else ()


def divisors_up_to(number: int, most: int) -> list[int]:
    """The divisors of a size, up to ``most``."""
    return [n for n in range(1, min(number, most) + 1) if number % n == 0]


def doubled_up_to(most: int, least: int = 1) -> list[int]:
    """``least`` and its products with powers of two, up to ``most``."""
    return [least << n for n in range(max(0, most // max(1, least)).bit_length())]
