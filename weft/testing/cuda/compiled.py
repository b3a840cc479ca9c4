"""A kernel compiled to Python functions, one for each basic block, and the sizes of a launch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from weft.support.dataclass import dataclass
from weft.testing.cuda.block_writer import KernelNames
from weft.testing.cuda.ptx.module import Instruction, PtxFunction, PtxModule


@dataclass(frozen=True, slots=True)
class BlockUses:
    """What a block does with registers that hold values when it starts, as bit sets.

    ``uses`` are read by an instruction other than a move, ``copies`` are the moves (target,
    source), ``writes`` are assigned without one of the deferred loads of the block.
    """

    uses: int
    copies: tuple[tuple[int, int], ...]
    writes: int


@dataclass(slots=True)
class CompiledBlock:
    """A basic block: its function, the instruction that ends it (or None) and its successors."""

    function: Callable[..., object]
    end: Instruction | None
    successors: list[int]
    instructions: int
    uses: BlockUses
    kinds: dict[str, int] = field(default_factory=dict)
    site: int = 0


@dataclass(slots=True)
class Program:
    """A compiled entry point."""

    module: PtxModule
    function: PtxFunction
    names: KernelNames
    blocks: list[CompiledBlock]
    shared: dict[str, int]
    static_shared_bytes: int
    dynamic_shared: tuple[str, ...]
    dynamic_alignment: int
    local: dict[str, int]
    local_bytes: int


@dataclass(frozen=True, slots=True)
class LaunchShape:
    """The sizes of a launch."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    dynamic_shared_bytes: int

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return self.block[0] * self.block[1] * self.block[2]
