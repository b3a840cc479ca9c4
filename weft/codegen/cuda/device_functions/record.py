"""``DeviceFunction``: a PTX instruction under a name that loop programs call.

The PTX text is the only body. Both back ends emit it as inline assembly, and the emulator runs the
instruction, so the three cannot disagree about operands.
"""

from __future__ import annotations

import enum

from weft.ir.dtype import DType, handle
from weft.support.dataclass import dataclass
from weft.support.errors import LoweringError
from weft.tir.expr import Call, ExprLike, PrimExpr, as_prim


class Kind(enum.StrEnum):
    """What an operand is in PTX."""

    SHARED = "shared"  # a 32-bit address in shared memory, from ``address_of``
    GLOBAL = "global"  # a 64-bit address in global memory, from ``address_of``
    TENSOR_MAP = "tensor map"  # the generic address of a tensor map, which is a kernel parameter
    B16 = "b16"
    B32 = "b32"
    B64 = "b64"
    F32 = "f32"
    F64 = "f64"
    IMMEDIATE = "immediate"  # an integer literal in the instruction


# LLVM type, letter of the constraint in inline assembly, bits.
REGISTERS: dict[Kind, tuple[str, str, int]] = {
    Kind.SHARED: ("i32", "r", 32),
    Kind.GLOBAL: ("i64", "l", 64),
    Kind.TENSOR_MAP: ("i64", "l", 64),
    Kind.B16: ("i16", "h", 16),
    Kind.B32: ("i32", "r", 32),
    Kind.B64: ("i64", "l", 64),
    Kind.F32: ("float", "f", 32),
    Kind.F64: ("double", "d", 64),
    Kind.IMMEDIATE: ("i32", "n", 32),
}
ADDRESSES = (Kind.SHARED, Kind.GLOBAL, Kind.TENSOR_MAP)


@dataclass(frozen=True, slots=True)
class Operand:
    """``count`` registers; in a call they are one scalar or vector of as many bits."""

    name: str
    kind: Kind
    count: int = 1

    @property
    def bits(self) -> int:
        return REGISTERS[self.kind][2] * self.count


@dataclass(frozen=True, slots=True)
class DeviceFunction:
    """One function.

    ``ptx`` names operands as ``$name``; several registers are written in braces. ``result`` has the
    name of an operand if the instruction updates that operand in place. ``is_pure``: equal operands
    give equal results, so calls may be moved or removed. ``converges``: all threads of a warp (or
    more) execute it together. ``capability`` is that of the oldest device that has it (``(9, 0)``);
    ``is_specific`` asks for the ``a`` variant of that architecture. ``ptx_version`` is the oldest
    PTX ISA with the instruction.
    """

    name: str
    ptx: str
    operands: tuple[Operand, ...] = ()
    result: Operand | None = None
    is_pure: bool = False
    converges: bool = False
    capability: tuple[int, int] = (8, 0)
    is_specific: bool = False
    ptx_version: tuple[int, int] = (7, 0)
    doc: str = ""

    def __call__(self, dtype: DType | str | None, *args: ExprLike) -> PrimExpr:
        """A call in a loop program; ``dtype`` is that of the result, ``None`` without one.

        Raises ``LoweringError`` for operands or a result of another size.
        """
        operands = tuple(as_prim(a) for a in args)
        if len(operands) != len(self.operands):
            raise LoweringError(f"{self.name} takes {len(self.operands)} operands",
                                got=len(operands))
        for declared, given in zip(self.operands, operands, strict=True):
            self._check(declared, given.dtype)
        if (dtype is None) != (self.result is None):
            raise LoweringError(f"{self.name} has {'a' if self.result else 'no'} result", got=dtype)
        if dtype is None or self.result is None:
            return Call(handle, self.name, operands)
        self._check(self.result, DType.of(dtype))
        return Call(DType.of(dtype), self.name, operands)

    def _check(self, declared: Operand, given: DType) -> None:
        if declared.kind in (*ADDRESSES, Kind.IMMEDIATE):
            fits = (given.code == "handle") is (declared.kind is not Kind.IMMEDIATE)
        else:
            fits = given.bits * given.lanes == declared.bits
        if not fits:
            raise LoweringError(f"operand {declared.name} of {self.name} has another size",
                                expected=f"{declared.count} x {declared.kind}", got=given)


def reg(name: str, kind: Kind, count: int = 1) -> Operand:
    return Operand(name, kind, count)
