"""A lowered program: a line of kernel calls, guarded and repeated, over the buffers of tensors.

This is what stands between the functional IR and machine code. Nothing here knows of offsets: a
``BufferRef`` says which tensor, ``memory_plan`` says where it lies.
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


class BufferKind(enum.Enum):
    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "const"
    TEMPORARY = "arena"


@dataclass(frozen=True, slots=True)
class BufferRef:
    """One tensor's memory: argument ``index``, output ``index``, constant or temporary number."""

    kind: BufferKind
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
    """What is guarded happens only where the scalar in ``condition`` is ``expected``."""

    condition: BufferRef
    expected: bool


@dataclass(frozen=True, slots=True)
class Loop:
    """What is inside, from step ``first`` on, is repeated whenever a ``Jump`` goes back to it."""

    number: int
    first: int


# What stands around a step, outermost first.
Path: TypeAlias = "tuple[Guard | Loop, ...]"


def moved_path(path: Path, refs: Mapping[BufferRef, BufferRef]) -> Path:
    """The same path with its conditions in other buffers."""
    return tuple(
        Guard(refs.get(part.condition, part.condition), part.expected) if isinstance(part, Guard)
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
    """Call kernel number ``kernel``; the last ``num_outputs`` buffers are written.

    ``path`` has the conditions of all branches around the step, and all loops.
    """

    kernel: int
    buffers: tuple[BufferRef, ...]
    num_outputs: int
    path: Path = ()

    @property
    def guards(self) -> tuple[Guard, ...]:
        return guards_of(self.path)

    @property
    def touched(self) -> tuple[BufferRef, ...]:
        """All buffers that must hold their values when the step comes."""
        return (*self.buffers, *(guard.condition for guard in self.guards))

    def moved(self, refs: Mapping[BufferRef, BufferRef]) -> Step:
        """The same step on other buffers."""
        return Step(self.kernel, tuple(refs.get(p, p) for p in self.buffers), self.num_outputs,
                    moved_path(self.path, refs))

    @property
    def reads(self) -> tuple[BufferRef, ...]:
        return self.buffers[: len(self.buffers) - self.num_outputs]

    @property
    def writes(self) -> tuple[BufferRef, ...]:
        return self.buffers[len(self.buffers) - self.num_outputs :]


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
