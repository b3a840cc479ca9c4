"""What is known while one loop program becomes LLVM IR."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from weft.codegen.llvm.emit.alias import AliasScopes
from weft.codegen.llvm.text.writer import FunctionWriter, ModuleWriter, ScopedMemo
from weft.ir.dtype import int64
from weft.support.errors import InternalError
from weft.tir.buffer import Buffer
from weft.tir.expr import (
    Add,
    Broadcast,
    Cast,
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

# What index arithmetic may reach: the extents, offsets and sizes in bytes of arrays.
INDEX_LIMIT = 2**48

# Writes the instructions of one expression (of its own node type) and returns the operand.
Emitter: TypeAlias = "Callable[[FunctionState, Any], str]"


@dataclass(slots=True)
class Kernel:
    """Facts shared by the functions (the kernel and its parallel bodies) of one program."""

    name: str
    module: ModuleWriter
    written: Mapping[Buffer, None]
    local_accesses: Mapping[Buffer, Mapping[PrimExpr, None]]
    alias: AliasScopes
    workspace_offsets: Mapping[Buffer, int]
    attributes: str
    emitters: Mapping[type, Emitter]


@dataclass(slots=True)
class FunctionState:
    """Facts of one LLVM function: its text so far and what its values and buffers are called."""

    kernel: Kernel
    out: FunctionWriter
    memo: ScopedMemo = field(default_factory=ScopedMemo)
    pointers: dict[Buffer, str] = field(default_factory=dict)
    # The stack slots of local buffers: (first element, lanes) of each access to its slot.
    slots: dict[Buffer, dict[tuple[int, int], str]] = field(default_factory=dict)
    # Loop variables, and those bound to index arithmetic, that are at least 0.
    nonnegative: set[Var] = field(default_factory=set)
    in_parallel: bool = False
    workspace: str | None = None
    # Counts loads and calls: an expression that changed it must be evaluated again each time.
    effects: int = 0

    def note_range(self, var: Var, *, nonnegative: bool) -> None:
        """Whether ``var`` is at least 0 from here on; several loops may use one variable."""
        if nonnegative:
            self.nonnegative.add(var)
        else:
            self.nonnegative.discard(var)

    def pointer(self, buffer: Buffer) -> str:
        try:
            return self.pointers[buffer]
        except KeyError:
            raise InternalError(
                f"buffer {buffer.name} is used outside its allocation", where=self.kernel.name
            ) from None


def is_nonnegative(state: FunctionState, expr: PrimExpr) -> bool:
    """Whether an integer is certainly at least 0, from the ranges of loops (depth is small).

    Sums and products are so where they are index arithmetic; those of data may overflow.
    """
    match expr:
        case IntImm():
            return expr.value >= 0
        case Var():
            return expr in state.nonnegative
        case Broadcast():
            return is_nonnegative(state, expr.value)
        case Ramp():
            return is_bounded(state, expr.base) and is_bounded(state, expr.stride)
        case Add() | Mul():
            return is_bounded(state, expr.a) and is_bounded(state, expr.b)
        case FloorDiv() | Div() | Min():
            return is_nonnegative(state, expr.a) and is_nonnegative(state, expr.b)
        case Max():
            return is_nonnegative(state, expr.a) or is_nonnegative(state, expr.b)
        case FloorMod():
            return is_nonnegative(state, expr.b)
    return False


def is_bounded(state: FunctionState, expr: PrimExpr) -> bool:
    """Whether an integer is at least 0 and as small as an index: sums of such do not overflow."""
    match expr:
        case IntImm():
            return expr.dtype is int64 and 0 <= expr.value <= INDEX_LIMIT
        case Var():
            return expr.dtype is int64 and expr in state.nonnegative
        case Broadcast():
            return is_bounded(state, expr.value)
        case Ramp():
            return is_bounded(state, expr.base) and is_bounded(state, expr.stride)
        case Add() | Mul() | Max():
            return is_bounded(state, expr.a) and is_bounded(state, expr.b)
        case FloorDiv() | Div():
            return is_bounded(state, expr.a) and is_nonnegative(state, expr.b)
        case Min():
            a, b = expr.a, expr.b
            return is_nonnegative(state, a) and is_nonnegative(state, b) and (
                is_bounded(state, a) or is_bounded(state, b))
        case FloorMod():
            return is_bounded(state, expr.b)
        case Cast():
            source = expr.value.dtype
            return expr.dtype.element is int64 and source.code == "uint" and source.bits <= 32
    return False
