"""What is known while one loop program becomes LLVM IR."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from weft.codegen.llvm.alias import AliasScopes
from weft.codegen.llvm.writer import FunctionWriter, ModuleWriter, ScopedMemo
from weft.support.errors import InternalError
from weft.target import Target
from weft.tir.buffer import Buffer
from weft.tir.expr import (
    Add,
    Broadcast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Ramp,
    Var,
)


@dataclass(slots=True)
class Kernel:
    """Facts shared by the functions (the kernel and its parallel bodies) of one program."""

    name: str
    module: ModuleWriter
    target: Target
    written: Mapping[Buffer, None]
    local_accesses: Mapping[Buffer, Mapping[PrimExpr, None]]
    alias: AliasScopes
    workspace_offsets: Mapping[Buffer, int]
    attributes: str


@dataclass(slots=True)
class LocalSlots:
    """Stack slots of a ``local`` buffer that LLVM promotes to registers.

    With ``lanes`` every access moves one whole slot; ``slots`` maps an offset to it. Without, the
    buffer is one array.
    """

    lanes: int
    slots: dict[int, str]


@dataclass(slots=True)
class FunctionState:
    """Facts of one LLVM function: its text so far and what its values and buffers are called."""

    kernel: Kernel
    out: FunctionWriter = field(default_factory=FunctionWriter)
    memo: ScopedMemo = field(default_factory=ScopedMemo)
    pointers: dict[Buffer, str] = field(default_factory=dict)
    locals: dict[Buffer, LocalSlots] = field(default_factory=dict)
    nonnegative: dict[Var, None] = field(default_factory=dict)
    mask: str | None = None
    mask_lanes: int = 1
    in_parallel: bool = False
    workspace: str | None = None
    # Counts loads and calls: an expression that changed it must be evaluated again each time.
    effects: int = 0

    def pointer(self, buffer: Buffer) -> str:
        try:
            return self.pointers[buffer]
        except KeyError:
            raise InternalError(
                f"buffer {buffer.name} is used outside its allocation", where=self.kernel.name
            ) from None


def is_nonnegative(state: FunctionState, expr: PrimExpr) -> bool:
    """Whether an integer is certainly at least 0, from the ranges of loops (depth is small)."""
    match expr:
        case IntImm():
            return expr.value >= 0
        case Var():
            return expr in state.nonnegative
        case Broadcast():
            return is_nonnegative(state, expr.value)
        case Ramp():
            return is_nonnegative(state, expr.base) and is_nonnegative(state, expr.stride)
        case Add() | Mul() | FloorDiv() | Div() | Min():
            return is_nonnegative(state, expr.a) and is_nonnegative(state, expr.b)
        case Max():
            return is_nonnegative(state, expr.a) or is_nonnegative(state, expr.b)
        case FloorMod():
            return is_nonnegative(state, expr.b)
    return False
