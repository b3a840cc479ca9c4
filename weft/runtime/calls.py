"""The calls of a program as its manifest lists them: kernels, their arguments, and jumps."""

from __future__ import annotations

from collections.abc import Sequence

from weft.runtime.device import HOST, Device
from weft.runtime.sizes import Size
from weft.support.dataclass import dataclass

# The symbol of a call that copies between memories.
DEVICE_COPY = "device_copy"

# An argument of a kernel: ("input", number), ("output", number), ("const", byte offset), ("arena",
# byte offset), ("state", number), or (the space of another arena, byte offset in it). Programs with
# symbols also have
# ("slot", n), the arena at the byte offset ``sizes[n]``, and the integer ("size", n), ``sizes[n]``.
ARGUMENT_KINDS = ("input", "output", "const", "arena", "state", "slot", "size")
Argument = tuple[str, int]
# The boolean scalar of a branch, and its value if the branch is taken.
Condition = tuple[Argument, bool]


@dataclass(frozen=True, slots=True)
class SizeTest:
    """Whether a size is a multiple of ``multiple`` from ``low`` to ``high`` (``None``: no end).

    ``size`` is the number of an entry of ``Manifest.sizes``.
    """

    size: int
    low: int
    high: int | None
    multiple: int = 1

    def holds(self, size: int) -> bool:
        """Whether this value of the entry passes the test."""
        return (self.low <= size and (self.high is None or size <= self.high)
                and size % self.multiple == 0)


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """A kernel that runs instead of the general one if all ``tests`` hold.

    ``args`` are all arguments of the kernel. ``seconds`` are as for ``KernelCall``.
    """

    kernel: str
    args: tuple[Argument, ...]
    tests: tuple[SizeTest, ...]
    implementation: str = ""
    seconds: float = 0.0

    def takes(self, sizes: Sequence[int]) -> bool:
        """Whether the variant runs where ``sizes`` are the values of ``Manifest.sizes``."""
        return all(test.holds(sizes[test.size]) for test in self.tests)


@dataclass(frozen=True, slots=True)
class KernelCall:
    """One kernel call of a program, made only if the scalar of every guard is as expected.

    ``op`` is the text of the operators fused into the kernel; ``flops`` and ``bytes_moved`` are
    of one call, ``seconds`` are predicted for one core (symbolic kernels: estimated for typical
    sizes; 0: unknown), and ``spent`` says on what. The kernel runs on a stream of ``device``. The
    first of ``variants`` that takes the sizes of a call runs instead.

    A call of ``DEVICE_COPY`` has no kernel: it copies ``bytes_moved`` bytes from its first
    argument, in memory of ``source``, to its second, in memory of ``device``.

    Where devices run at the same time, the call starts after those of its own device before it, and
    after the calls ``waits`` of other devices and links.
    """

    symbol: str
    args: tuple[Argument, ...]
    implementation: str = ""
    op: str = ""
    flops: Size = 0
    bytes_moved: Size = 0
    guards: tuple[Condition, ...] = ()
    device: Device = HOST
    stream: int = 0
    variants: tuple[VariantSpec, ...] = ()
    seconds: float = 0.0
    source: Device = HOST
    waits: tuple[int, ...] = ()
    spent: str = ""


@dataclass(frozen=True, slots=True)
class BackJump:
    """The end of an iteration: before call ``at``, go back to call ``to`` if all guards hold."""

    at: int
    to: int
    guards: tuple[Condition, ...] = ()
