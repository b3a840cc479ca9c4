"""A lowered program: a sequence of kernel calls under branches and loops, over buffers of tensors.

It is the form between the functional IR and machine code. A ``BufferRef`` names a tensor; its
offset in memory is decided later, by ``memory_plan``.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias

from weft.codegen.launch import Loop
from weft.ir import Dim, Function, SymDim, TensorType, dim_mul, dim_product, is_static
from weft.runtime.device import HOST, Device
from weft.support.dataclass import dataclass

if TYPE_CHECKING:
    from weft.ir.deferred import Array
    from weft.strategy.variants import Variant


class BufferKind(enum.Enum):
    """Where a buffer comes from; the values are kinds of arguments in a manifest."""

    INPUT = "input"
    OUTPUT = "output"
    CONSTANT = "const"
    TEMPORARY = "arena"
    STATE = "state"


@dataclass(frozen=True, slots=True)
class BufferRef:
    """The memory of one tensor: input, output, constant, temporary or state number ``index``."""

    kind: BufferKind
    index: int


@dataclass(frozen=True, slots=True)
class Port:
    """A named input or output of the program."""

    name: str
    type: TensorType


@dataclass(frozen=True, slots=True)
class KernelSource:
    """A primitive function to be built for ``device``; ``digest`` is its structural hash."""

    name: str
    digest: str
    function: Function
    text: str
    device: Device = HOST


@dataclass(frozen=True, slots=True)
class Guard:
    """A branch: taken if the boolean scalar in ``condition`` is ``expected``."""

    condition: BufferRef
    expected: bool


# The branches and loops around a step, outermost first.
Path: TypeAlias = "tuple[Guard | Loop, ...]"


def moved_path(path: Path, refs: Mapping[BufferRef, BufferRef]) -> Path:
    """The same path with its conditions in other buffers."""
    return tuple(
        Guard(refs.get(scope.condition, scope.condition), scope.expected)
        if isinstance(scope, Guard) else scope for scope in path
    )


def guards_of(path: Path) -> tuple[Guard, ...]:
    """The branches of a path."""
    return tuple(scope for scope in path if isinstance(scope, Guard))


@dataclass(frozen=True, slots=True)
class Jump:
    """Before step number ``at``, control that came along ``path`` goes back to ``loop``."""

    at: int
    loop: Loop
    path: Path


@dataclass(frozen=True, slots=True)
class Step:
    """Call kernel number ``kernel``; the last ``num_outputs`` buffers are written.

    ``path`` are all branches and loops around the step. The kernel runs on a stream of ``device``.
    A step with a ``source`` has no kernel: it copies a buffer of that device to one of ``device``.
    It runs after the writers of the buffers ``after``, which it does not read (control edges).
    """

    kernel: int
    buffers: tuple[BufferRef, ...]
    num_outputs: int
    path: Path = ()
    device: Device = HOST
    stream: int = 0
    source: Device | None = None
    after: tuple[BufferRef, ...] = ()

    @property
    def guards(self) -> tuple[Guard, ...]:
        return guards_of(self.path)

    @property
    def touched(self) -> tuple[BufferRef, ...]:
        """All buffers that the step reads or writes, conditions included."""
        return (*self.buffers, *(guard.condition for guard in self.guards))

    def moved(self, refs: Mapping[BufferRef, BufferRef]) -> Step:
        """The same step on other buffers."""
        return dataclasses.replace(self, buffers=tuple(refs.get(p, p) for p in self.buffers),
                                   path=moved_path(self.path, refs),
                                   after=tuple(refs.get(p, p) for p in self.after))

    @property
    def reads(self) -> tuple[BufferRef, ...]:
        return self.buffers[: len(self.buffers) - self.num_outputs]

    @property
    def writes(self) -> tuple[BufferRef, ...]:
        return self.buffers[len(self.buffers) - self.num_outputs :]


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """Kernel number ``kernel`` runs instead of a general one at sizes that meet the conditions.

    ``sizes`` are its symbols that the program does not have, as dimensions over the program's.
    """

    kernel: int
    conditions: Variant
    sizes: Mapping[str, SymDim] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CountedSize:
    """A symbol that step ``at`` determines: element ``which`` of the int64 tensor ``counts``.

    It is at most ``bound``, a size over symbols of the inputs and symbols that are counted before.
    """

    symbol: str
    at: int
    counts: BufferRef
    which: int
    bound: Dim


@dataclass(frozen=True, slots=True)
class Program:
    """``temporaries`` are sizes in bytes; ``constants`` are distinct arrays.

    ``states`` are tensors that the module keeps from call to call, ``counts`` are sizes that data
    determines, in the order of their steps. ``variants`` are kernels that
    replace another, by its number, at some sizes: the first whose conditions hold runs.
    ``conditions`` are sizes that are 0 or more wherever the program is right.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    output_is_tuple: bool
    constants: tuple[Array, ...]
    temporaries: tuple[Dim, ...]
    kernels: tuple[KernelSource, ...]
    steps: tuple[Step, ...]
    jumps: tuple[Jump, ...] = ()
    variants: Mapping[int, tuple[KernelVariant, ...]] = field(default_factory=dict)
    states: tuple[Port, ...] = ()
    counts: tuple[CountedSize, ...] = ()
    conditions: tuple[str, ...] = ()

    @property
    def is_symbolic(self) -> bool:
        """Whether an input has a symbolic size, or data determines one."""
        return bool(self.counts) or not all(is_static(port.type) for port in self.inputs)

    def on(self, device: Device) -> Program:
        """The same program with all kernels on ``device``."""
        return dataclasses.replace(
            self, steps=tuple(dataclasses.replace(step, device=device) for step in self.steps),
            kernels=tuple(dataclasses.replace(one, device=device) for one in self.kernels))


def bytes_of(type_: TensorType) -> Dim:
    """Bytes of a tensor."""
    return dim_mul(dim_product(type_.shape), type_.dtype.itemsize)


def buffer_bytes(program: Program, ref: BufferRef) -> Dim:
    """Bytes of a buffer."""
    if ref.kind is BufferKind.TEMPORARY:
        return program.temporaries[ref.index]
    if ref.kind is BufferKind.CONSTANT:
        return program.constants[ref.index].nbytes
    ports = {BufferKind.OUTPUT: program.outputs, BufferKind.STATE: program.states,
             BufferKind.INPUT: program.inputs}
    return bytes_of(ports[ref.kind][ref.index].type)
