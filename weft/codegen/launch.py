"""The launches of a program as plain data: what a back end needs to generate its main function.

The compiler has planned memory and built the kernels: arguments are offsets, kernels are symbols.
"""

from __future__ import annotations

from typing import TypeAlias

from weft.runtime.device import HOST, Device
from weft.runtime.manifest import Argument, CountSpec, VariantSpec
from weft.runtime.sizes import Size
from weft.support.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class LaunchGuard:
    """A branch: taken if the boolean scalar at ``condition`` is ``expected``."""

    condition: Argument
    expected: bool


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop whose body begins at step ``first``; a jump to it starts the next iteration."""

    number: int
    first: int


# The branches and loops around a launch, outermost first.
LaunchPath: TypeAlias = "tuple[LaunchGuard | Loop, ...]"


@dataclass(frozen=True, slots=True)
class Launch:
    """Run the kernel ``symbol`` on the addresses of ``args``, on a stream of a device.

    The first of ``variants`` that takes the sizes of the call runs instead.
    """

    symbol: str
    args: tuple[Argument, ...]
    path: LaunchPath = ()
    device: Device = HOST
    stream: int = 0
    variants: tuple[VariantSpec, ...] = ()


@dataclass(frozen=True, slots=True)
class LaunchJump:
    """Before launch number ``at``, control that came along ``path`` goes back to ``loop``."""

    at: int
    loop: Loop
    path: LaunchPath


@dataclass(frozen=True, slots=True)
class LaunchProgram:
    """``jumps`` are in ascending order of ``at``.

    ``symbols``, ``sizes`` and ``counts`` are those of the manifest. The main function finds the
    pointers to the states behind those to the inputs, and behind them, if there are symbols, the
    address of their values as int64. If there are counts, it writes them to one more output, an
    int64 tensor.
    """

    num_inputs: int
    num_outputs: int
    launches: tuple[Launch, ...]
    jumps: tuple[LaunchJump, ...] = ()
    symbols: tuple[str, ...] = ()
    sizes: tuple[Size, ...] = ()
    num_states: int = 0
    counts: tuple[CountSpec, ...] = ()
