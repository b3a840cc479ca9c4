"""Which dot-product instruction multiplies two narrow dtypes, and how the operands are converted.

The instructions take bytes of certain signs. An operand of the other sign is shifted by 128, which
adds 128 times the sums of the other operand to the result; a correction subtracts them.
"""

from __future__ import annotations

from weft import te
from weft.codegen import CPU_BACKEND
from weft.ir import DType
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.tir import Instruction, PrimExpr, const
from weft.tir.node import int_value

SHIFT = 128
_KEPT, _WIDENED, _SHIFTED = 0, 1, 2
# An instruction adds two or four products to each lane of 32 bits.
_WIDEST_OPERAND = 16


@dataclass(frozen=True, slots=True)
class DotInstruction:
    """A dot-product instruction and the conversions of its operands.

    ``shifts_left``: the packed left operand holds ``x + 128`` for signed ``x`` and ``x - 128`` for
    unsigned ``x``; ``shifts_right`` likewise. At most one operand is shifted.
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
    def k_group(self) -> int:
        """How many neighbours along K one lane accumulates."""
        return int_value(self.instruction.operands[0].shape[0]) or 1

    @property
    def lanes(self) -> int:
        return int_value(self.instruction.result.shape[0]) or 1

    def convert(self, value: PrimExpr, wanted: DType) -> PrimExpr:
        """An element of an operand, converted as its packed form holds it."""
        if _change(value.dtype, wanted) != _SHIFTED:
            return value.astype(wanted)
        return te.bitwise_xor(value.astype("uint8"), SHIFT).astype(wanted)

    def zero(self, source: DType, wanted: DType) -> PrimExpr:
        """A zero of an operand of dtype ``source``, as its packed form holds it."""
        is_shifted = _change(source, wanted) == _SHIFTED
        moved = 0 if not is_shifted else SHIFT if wanted.code == "uint" else -SHIFT
        return const(moved, wanted)

    def shift(self, *, right: bool) -> int:
        """What packing adds to each element of an operand: 128, -128 or 0."""
        if not (self.shifts_right if right else self.shifts_left):
            return 0
        return SHIFT if (self.right if right else self.left).code == "uint" else -SHIFT


def select_dot_instruction(
    left: DType, right: DType, target: CpuTarget, *, keeps_left: bool = False,
    keeps_right: bool = False,
) -> DotInstruction | None:
    """The best instruction for operands of these dtypes; ``None`` if the CPU has none.

    Wider registers come first, then more products per lane, then fewer shifts. ``keeps_left`` and
    ``keeps_right`` rule out conversions of an operand: it was packed at compile time.
    """
    if max(left.bits, right.bits) > _WIDEST_OPERAND:
        return None
    plans: list[tuple[tuple[int, int, int], DotInstruction]] = []
    for instruction in CPU_BACKEND.tensor_instructions:
        if not instruction.runs_on(target.arch, target.features):
            continue
        wanted = [b.dtype for b in instruction.operands]
        changes = [_change(have, want) for have, want in zip((left, right), wanted, strict=True)]
        if None in changes or changes == [_SHIFTED, _SHIFTED]:
            continue
        if any(keeps and change != _KEPT for keeps, change in
               zip((keeps_left, keeps_right), changes, strict=True)):
            continue
        plan = DotInstruction(instruction, changes[0] == _SHIFTED, changes[1] == _SHIFTED)
        plans.append(((-plan.lanes, -plan.k_group, changes.count(_SHIFTED)), plan))
    return min(plans, key=lambda entry: entry[0])[1] if plans else None


def upcast_dtype(left: DType, right: DType, target: CpuTarget) -> DType | None:
    """The dtype to which both operands are converted ahead of a contraction with a constant weight.

    ``None`` where the best instruction takes the weight as it is, or where there is none. CPUs that
    multiply only int16 by int16 read 8-bit weights as int16 from their packed form.
    """
    plan = select_dot_instruction(left, right, target)
    if plan is None or right in (plan.left, plan.right):
        return None
    return plan.right if plan.left == plan.right else None


def features_for(left: DType, right: DType, target: CpuTarget) -> tuple[str, ...]:
    """The CPU features of the best instruction for these dtypes on the target's architecture.

    Empty if the architecture has no such instruction.
    """
    if max(left.bits, right.bits) > _WIDEST_OPERAND:
        return ()
    for instruction in CPU_BACKEND.tensor_instructions:
        wanted = [b.dtype for b in instruction.operands]
        changes = [_change(have, want) for have, want in zip((left, right), wanted, strict=True)]
        is_possible = None not in changes and changes != [_SHIFTED, _SHIFTED]
        if is_possible and instruction.runs_on(target.arch, instruction.features):
            return instruction.features
    return ()


def _change(source: DType, wanted: DType) -> int | None:
    """How elements of ``source`` are converted to ``wanted``; ``None`` if they cannot be."""
    if source == wanted:
        return _KEPT
    if not (source.is_int and wanted.is_int) or source.bits != 8:
        return None
    return _SHIFTED if wanted.bits == 8 else _WIDENED
