"""What emitters share: types, modifiers, rounding modes, and tables of simple instructions.

An emitter writes one PTX instruction as Python source over NumPy arrays, one element per thread.
The values that it reads are names or expressions of arrays of the register's type; arithmetic on
them wraps around and rounds as IEEE 754 says, because NumPy does so for these types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from weft.testing.cuda.block_writer import BlockWriter
from weft.testing.cuda.ptx.module import WIDTHS, Instruction

Emitter: TypeAlias = Callable[[BlockWriter, Instruction], None]
EmitterTable: TypeAlias = Mapping[str, Emitter]

ROUNDINGS = ("rn", "rz", "rm", "rp", "rna", "rni", "rzi", "rmi", "rpi", "rs")
HALF_KINDS = ("f16", "bf16", "f16x2", "bf16x2")


def rounding(instruction: Instruction, default: str = "rn") -> str:
    """The rounding modifier."""
    return next((item for item in instruction.modifiers if item in ROUNDINGS), default)


def last_type(instruction: Instruction) -> str:
    """The type modifier: the last modifier."""
    return instruction.modifiers[-1]


def unsigned_of(kind: str) -> str:
    """The unsigned type of as many bits."""
    return f"u{WIDTHS[kind]}"


def simple(template: str, result: str = "type", *sources: str) -> Emitter:
    """The emitter of an instruction whose result is ``template`` of its source operands.

    ``template`` names the sources ``{0}``, ``{1}`` and so on. ``result`` and ``sources`` are types:
    ``"type"`` for that of the instruction, ``"bits"`` for the unsigned one of as many bits, else a
    PTX type. The last of ``sources`` stands for all that follow.
    """
    def emit(writer: BlockWriter, instruction: Instruction) -> None:
        kind = last_type(instruction)
        types = {"type": kind, "bits": unsigned_of(kind) if kind in WIDTHS else kind}
        kinds = [types.get(each, each) for each in sources or (result,)]
        operands = instruction.operands[1:]
        kinds += kinds[-1:] * (len(operands) - len(kinds))
        values = [writer.read(o, k) for o, k in zip(operands, kinds, strict=True)]
        writer.write(instruction.operands[0], types.get(result, result), template.format(*values))

    return emit


def element(kind: str) -> str:
    """The type of one number of a packed type."""
    return kind.removesuffix("x2")


def float_result(writer: BlockWriter, instruction: Instruction, kind: str, value: str) -> None:
    """Write a float32 or float64 result with ``.ftz`` and ``.sat`` applied."""
    if "ftz" in instruction.modifiers and kind == "f32":
        value = f"F.flush({value})"
    if "sat" in instruction.modifiers:
        value = f"F.saturate({value})"
    writer.write(instruction.operands[0], kind, value)


def float_operands(writer: BlockWriter, instruction: Instruction, kind: str) -> list[str]:
    """The source operands, flushed if the instruction says ``.ftz``."""
    values = [writer.read(operand, kind) for operand in instruction.operands[1:]]
    if "ftz" in instruction.modifiers and kind == "f32":
        values = [writer.temporary(f"F.flush({value})") for value in values]
    return values


def half_result(writer: BlockWriter, instruction: Instruction, kind: str, function: str,
                operands: list[str]) -> None:
    """Apply ``function`` (an expression of a callable on elements) to a single or packed type."""
    part = element(kind)
    wrapped = function
    if "sat" in instruction.modifiers:
        wrapped = f"(lambda *o: H.write(F.saturate(H.read({wrapped}(*o), {part!r})), {part!r}))"
    if "relu" in instruction.modifiers:
        wrapped = f"(lambda *o: H.relu({wrapped}(*o), {part!r}))"
    arguments = ", ".join(operands)
    if kind != part:
        writer.write(instruction.operands[0], kind, f"H.packed({wrapped}, {part!r}, {arguments})")
    else:
        writer.write(instruction.operands[0], kind, f"{wrapped}({arguments})")
