"""Tensor instructions: the semantics of a machine instruction as loops, and its code generator.

As in Exo (Ikarashi et al., "Exocompilation for Productive Programming of Hardware Accelerators",
2022), an instruction is a small loop program, which defines its semantics, with a code generator. A
schedule marks the loops to replace, and ``weft.tir.match_instruction`` checks that they compute the
same. The evaluator interprets the semantics, so schedules can be tested on CPUs without the
instruction.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.ir.dtype import DType
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.support.registry import Registry
from weft.tir.buffer import Buffer
from weft.tir.eval import evaluator_of
from weft.tir.expr import Call, PrimExpr, Var, const, int_value
from weft.tir.func import PrimFunc
from weft.tir.intrinsics import INTRINSICS, Intrinsic
from weft.tir.stmt import BufferStore, For, ForKind, Stmt
from weft.tir.visitor import loads_from

# (function writer, result dtype, operands, their dtypes) -> the result. The writer belongs to the
# code generator, a higher layer, so its type is not known here.
Emit: TypeAlias = Callable[[Any, DType, Sequence[str], Sequence[DType]], str]


@dataclass(frozen=True, slots=True, eq=False)
class Instruction:
    """One tensor instruction. Its semantics are ``loops`` around ``store``.

    ``result`` is the buffer that ``store`` writes. It is the first operand of the call if the store
    also reads it (``accumulates``); ``operands`` are the other buffers. Buffers are compact, have
    constant shapes, and are passed as vectors of their elements in row-major order. ``archs`` and
    ``features`` say which CPUs support the instruction; ``emit`` generates the call.
    """

    name: str
    loops: tuple[tuple[Var, int], ...]
    store: BufferStore
    operands: tuple[Buffer, ...]
    archs: tuple[str, ...]
    features: tuple[str, ...]
    emit: Emit

    @property
    def result(self) -> Buffer:
        return self.store.buffer

    @property
    def accumulates(self) -> bool:
        """Whether the instruction reads its result as the accumulator."""
        return loads_from(self.store.value, self.result)

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The arguments of the call."""
        return (self.result, *self.operands) if self.accumulates else self.operands

    def runs_on(self, arch: str, features: Collection[str]) -> bool:
        """Whether a CPU of ``arch`` with ``features`` supports the instruction."""
        return (not self.archs or arch in self.archs) and set(self.features) <= set(features)

    def body(self) -> Stmt:
        """The semantics as a statement."""
        body: Stmt = self.store
        for var, extent in reversed(self.loops):
            body = For(var, const(0), const(extent), ForKind.SERIAL, body)
        return body


INSTRUCTIONS: Registry[Instruction] = Registry("instruction")


def lanes_of(buffer: Buffer) -> int:
    """The number of elements of an instruction's buffer."""
    return math.prod(int_value(size) or 0 for size in buffer.shape)


def register_instruction(instruction: Instruction) -> Instruction:
    """Register ``instruction`` for schedules, and as an intrinsic.

    Raises ``LoweringError`` for symbolic shapes and ``RegistryError`` for a registered name.
    """
    for buffer in (instruction.result, *instruction.operands):
        if buffer.static_shape is None:
            raise LoweringError(
                f"instruction {instruction.name}: operand {buffer.name} has a symbolic size",
                got=buffer.shape, expected="integers",
            )
    INSTRUCTIONS.register(instruction.name, instruction)
    INTRINSICS.register(instruction.name, Intrinsic(
        instruction.name, len(instruction.buffers), "any", f"the instruction {instruction.name}",
        functools.partial(_evaluate, instruction),
    ))
    return instruction


def _evaluate(instruction: Instruction, *operands: Any) -> np.ndarray:
    """The result vector, by interpreting the semantics on the operand vectors."""
    arrays = {
        buffer: np.array(value, buffer.dtype.numpy).reshape(buffer.static_shape or ())
        for buffer, value in zip(instruction.buffers, operands, strict=True)
    }
    result = instruction.result
    if result not in arrays:
        arrays[result] = np.zeros(result.static_shape or (), result.dtype.numpy)
    _semantics(instruction)(arrays[result], *(arrays[b] for b in instruction.operands))
    return arrays[result].reshape(-1)


@functools.lru_cache(maxsize=64)
def _semantics(instruction: Instruction) -> Callable[..., None]:
    params = (instruction.result, *instruction.operands)
    return evaluator_of(PrimFunc("semantics", params, instruction.body()))


def call_of(instruction: Instruction, operands: Sequence[PrimExpr]) -> PrimExpr:
    """The call of ``instruction`` on one vector per buffer, in the order of its ``buffers``."""
    result = instruction.result
    return Call(result.dtype.vector(lanes_of(result)), instruction.name, tuple(operands))
