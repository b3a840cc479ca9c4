"""Which dot product instruction multiplies two narrow types, and what the operands become for it.

The instructions want certain signs. An operand of the other sign is moved by 128: what that adds
to the product is 128 times the sums of the other operand, and is taken off again.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft import te
from weft.codegen.llvm.vector.dot_product import DOT_PRODUCTS
from weft.ir.dtype import DType
from weft.target import CpuTarget
from weft.tir.expr import PrimExpr, const
from weft.tir.instruction import Instruction
from weft.tir.node import int_value

SHIFT = 128
_KEPT, _WIDENED, _SHIFTED = 0, 1, 2


@dataclass(frozen=True, slots=True)
class DotPlan:
    """How a product is computed. ``shifts_left``: the left panels hold ``x + 128`` of signed
    ``x``, or ``x - 128`` of unsigned ones, and likewise for the right ones; at most one does.
    """

    instruction: Instruction
    shifts_left: bool
    shifts_right: bool

    @property
    def left(self) -> DType:
        return self.instruction.operands[0].dtype

    @property
    def right(self) -> DType:
        return self.instruction.operands[1].dtype

    @property
    def accumulator(self) -> DType:
        return self.instruction.result.dtype

    @property
    def group(self) -> int:
        """Neighbouring depths that one lane adds up."""
        return int_value(self.instruction.operands[0].shape[0]) or 1

    @property
    def lanes(self) -> int:
        return int_value(self.instruction.result.shape[0]) or 1

    def convert(self, value: PrimExpr, wanted: DType) -> PrimExpr:
        """An element of an operand as an element of its panels."""
        if _change(value.dtype, wanted) != _SHIFTED:
            return value.astype(wanted)
        return te.bitwise_xor(value.astype("uint8"), SHIFT).astype(wanted)

    def zero(self, source: DType, wanted: DType) -> PrimExpr:
        """What a zero of an operand is in its panels."""
        is_shifted = _change(source, wanted) == _SHIFTED
        moved = 0 if not is_shifted else SHIFT if wanted.code == "uint" else -SHIFT
        return const(moved, wanted)

    def shift(self, *, right: bool) -> int:
        """What the panels of a side hold beyond the operand."""
        if not (self.shifts_right if right else self.shifts_left):
            return 0
        return SHIFT if (self.right if right else self.left).code == "uint" else -SHIFT


def plan_dot_product(
    left: DType, right: DType, target: CpuTarget, *, keeps_left: bool = False,
    keeps_right: bool = False,
) -> DotPlan | None:
    """The best plan for operands of these types; ``None`` where the CPU has no instruction.

    The wider the registers and the more products in a lane, the better; then the fewer shifts.
    With ``keeps_left`` or ``keeps_right`` the panels of that side hold the operand as it is.
    """
    plans: list[tuple[tuple[int, int, int], DotPlan]] = []
    for instruction in DOT_PRODUCTS:
        if not instruction.runs_on(target.arch, target.features):
            continue
        wanted = [b.dtype for b in instruction.operands]
        changes = [_change(have, want) for have, want in zip((left, right), wanted, strict=True)]
        if None in changes or changes == [_SHIFTED, _SHIFTED]:
            continue
        if any(keeps and change != _KEPT for keeps, change in
               zip((keeps_left, keeps_right), changes, strict=True)):
            continue
        plan = DotPlan(instruction, changes[0] == _SHIFTED, changes[1] == _SHIFTED)
        plans.append(((-plan.lanes, -plan.group, changes.count(_SHIFTED)), plan))
    return min(plans, key=lambda entry: entry[0])[1] if plans else None


def multiplies_bytes(left: DType, right: DType, target: CpuTarget) -> bool:
    """Whether the CPU has an instruction that multiplies these types and adds up in 32 bits."""
    return plan_dot_product(left, right, target) is not None


def _change(source: DType, wanted: DType) -> int | None:
    """How elements of ``source`` become ``wanted``; ``None`` where they cannot."""
    if source == wanted:
        return _KEPT
    if not (source.is_int and wanted.is_int) or source.bits != 8:
        return None
    return _SHIFTED if wanted.bits == 8 else _WIDENED
