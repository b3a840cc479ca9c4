"""A lowered program: a line of kernel calls, guarded and repeated, over named places in memory.

This is what stands between the functional IR and machine code. Nothing here knows of offsets: a
``Place`` says which tensor, ``memory_plan`` says where it lies.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from weft.ir.expr import Function
from weft.ir.types import TensorType


class PlaceKind(enum.Enum):
    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "const"
    TEMPORARY = "arena"


@dataclass(frozen=True, slots=True)
class Place:
    """One tensor's memory: argument ``index``, output ``index``, constant or temporary number."""

    kind: PlaceKind
    index: int


@dataclass(frozen=True, slots=True)
class Port:
    """A named tensor at the edge of the program."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A primitive function to be built; ``digest`` is its structural hash."""

    name: str
    digest: str
    function: Function
    text: str


@dataclass(frozen=True, slots=True)
class Guard:
    """What is guarded happens only where the scalar in ``place`` is ``expected``."""

    place: Place
    expected: bool


@dataclass(frozen=True, slots=True)
class Loop:
    """What is inside, from step ``first`` on, is repeated whenever a ``Jump`` goes back to it."""

    number: int
    first: int


# What stands around a step, outermost first.
Path: TypeAlias = "tuple[Guard | Loop, ...]"


def moved_path(path: Path, places: Mapping[Place, Place]) -> Path:
    """The same path with conditions in other places."""
    return tuple(
        Guard(places.get(part.place, part.place), part.expected) if isinstance(part, Guard)
        else part for part in path
    )


def guards_of(path: Path) -> tuple[Guard, ...]:
    """The conditions that a path has."""
    return tuple(part for part in path if isinstance(part, Guard))


@dataclass(frozen=True, slots=True)
class Jump:
    """Before step number ``at``, control that came along ``path`` goes back to ``loop``."""

    at: int
    loop: Loop
    path: Path


@dataclass(frozen=True, slots=True)
class Step:
    """Call kernel number ``kernel``; the last ``num_outputs`` places are written.

    ``path`` has the conditions of all branches around the step, and all loops.
    """

    kernel: int
    places: tuple[Place, ...]
    num_outputs: int
    path: Path = ()

    @property
    def guards(self) -> tuple[Guard, ...]:
        return guards_of(self.path)

    @property
    def touched(self) -> tuple[Place, ...]:
        """All places that must hold their values when the step comes."""
        return (*self.places, *(guard.place for guard in self.guards))

    def moved(self, places: Mapping[Place, Place]) -> Step:
        """The same step with other places."""
        return Step(self.kernel, tuple(places.get(p, p) for p in self.places), self.num_outputs,
                    moved_path(self.path, places))

    @property
    def reads(self) -> tuple[Place, ...]:
        return self.places[: len(self.places) - self.num_outputs]

    @property
    def writes(self) -> tuple[Place, ...]:
        return self.places[len(self.places) - self.num_outputs :]


@dataclass(frozen=True, slots=True)
class Program:
    """``temporaries`` are sizes in bytes; ``constants`` are distinct arrays."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    output_is_tuple: bool
    constants: tuple[np.ndarray, ...]
    temporaries: tuple[int, ...]
    kernels: tuple[KernelSource, ...]
    steps: tuple[Step, ...]
    jumps: tuple[Jump, ...] = ()


def bytes_of(type_: TensorType) -> int:
    """Bytes of a tensor of fixed shape."""
    return math.prod(type_.concrete_shape) * type_.dtype.itemsize
