"""Instructions of a warp: exchange of registers, votes, matrices.

The lanes of a batch are grouped by 32 (``W``, ``M``). All threads that ``mask`` names must take
part: the helpers fail with the site where some have exited or diverged (PTX ISA, ``shfl.sync``,
``vote.sync``, ``mma.sync``; the layouts of fragments are in ``matrices``).
"""

from __future__ import annotations

import re

from weft.testing.cuda.block_writer import BlockWriter
from weft.testing.cuda.instructions.common import EmitterTable, last_type
from weft.testing.cuda.instructions.memory import address_of
from weft.testing.cuda.ptx.module import WIDTHS, Instruction, Operand, Pair, Sink, Vector


def targets(operand: Operand) -> tuple[Operand, Operand]:
    """The two destinations of ``d|p``; a missing one is dropped."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, Sink())


def _shfl(writer: BlockWriter, instruction: Instruction) -> None:
    if instruction.modifiers[0] != "sync":
        raise writer.fail("shfl without .sync does not exist on sm_70 and later")
    mode = instruction.modifiers[1]
    values = ", ".join(writer.read(operand, "u32") for operand in instruction.operands[1:])
    both = writer.temporary(
        f"W.shuffle(x, {mode!r}, {values}, {writer.guard}, {writer.site()})")
    _write_both(writer, instruction.operands[0], "b32", both)


def _write_both(writer: BlockWriter, operand: Operand, kind: str, both: str) -> None:
    value, predicate = targets(operand)
    if not isinstance(value, Sink):
        writer.write(value, kind, f"{both}[0]")
    if not isinstance(predicate, Sink):
        writer.write(predicate, "pred", f"{both}[1]")


def _vote(writer: BlockWriter, instruction: Instruction) -> None:
    mode, kind = instruction.modifiers[1], last_type(instruction)
    predicate = writer.read(instruction.operands[1], "pred")
    mask = writer.read(instruction.operands[2], "u32")
    value = f"W.vote(x, {mode!r}, {predicate}, {mask}, {writer.guard}, {writer.site()})"
    writer.write(instruction.operands[0], "pred" if kind == "pred" else "b32", value)


def _activemask(writer: BlockWriter, instruction: Instruction) -> None:
    writer.write(instruction.operands[0], "b32", f"W.active_mask(x, {writer.guard})")


def _match(writer: BlockWriter, instruction: Instruction) -> None:
    mode, kind = instruction.modifiers[0], last_type(instruction)
    value = writer.read(instruction.operands[1], f"u{WIDTHS[kind]}")
    mask = writer.read(instruction.operands[2], "u32")
    both = writer.temporary(
        f"W.match(x, {mode!r}, {value}, {mask}, {writer.guard}, {writer.site()})")
    _write_both(writer, instruction.operands[0], "b32", both)


def _redux(writer: BlockWriter, instruction: Instruction) -> None:
    operation, kind = instruction.modifiers[1], last_type(instruction)
    kind = "u32" if kind == "b32" else kind
    value = writer.read(instruction.operands[1], kind)
    mask = writer.read(instruction.operands[2], "u32")
    writer.write(instruction.operands[0], kind,
                 f"W.reduce(x, {operation!r}, {value}, {mask}, {writer.guard}, {writer.site()})")


def _elect(writer: BlockWriter, instruction: Instruction) -> None:
    mask = writer.read(instruction.operands[1], "u32")
    both = writer.temporary(f"W.elect(x, {mask}, {writer.guard}, {writer.site()})")
    _write_both(writer, instruction.operands[0], "b32", both)


def warp_barrier(writer: BlockWriter, instruction: Instruction) -> None:
    """``bar.warp.sync mask``."""
    mask = writer.read(instruction.operands[0], "u32")
    writer.line(f"W.warp_sync(x, {mask}, {writer.guard}, {writer.site()})")


_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def shape_of(writer: BlockWriter, instruction: Instruction) -> tuple[int, int, int]:
    """The shape modifier ``m16n8k16``."""
    for modifier in instruction.modifiers:
        found = _SHAPE.fullmatch(modifier)
        if found is not None:
            return int(found[1]), int(found[2]), int(found[3])
    raise writer.fail("shape missing")


def elements(operand: Operand) -> tuple[Operand, ...]:
    """The registers of a vector operand, or the operand itself."""
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _mma(writer: BlockWriter, instruction: Instruction) -> None:
    kinds = instruction.modifiers[-4:]
    shape = shape_of(writer, instruction)
    if "row" not in instruction.modifiers or "col" not in instruction.modifiers:
        raise writer.fail("mma layout not supported")
    if shape[:2] not in {(16, 8), (8, 8)} or "sp" in instruction.modifiers or (
        "satfinite" in instruction.modifiers
    ):
        raise writer.fail("mma shape not supported")
    texts = []
    for operand, kind in zip(instruction.operands[1:4], kinds[1:], strict=True):
        width = "u64" if kind == "f64" else "u32"
        texts.append("".join(f"{writer.read(item, width)}, " for item in elements(operand)))
    result = writer.temporary(
        f"M.multiply(x, {shape}, {kinds}, ({texts[0]}), ({texts[1]}), ({texts[2]}), "
        f"{writer.guard}, {writer.site()})")
    kind = "b64" if kinds[0] == "f64" else "b32"
    for index, item in enumerate(elements(instruction.operands[0])):
        writer.write(item, kind, f"{result}[{index}]")


def _matrix_count(instruction: Instruction) -> int:
    return next(int(item[1]) for item in instruction.modifiers if item in {"x1", "x2", "x4"})


def _check_matrix(writer: BlockWriter, instruction: Instruction) -> None:
    if "m8n8" not in instruction.modifiers or "b16" not in instruction.modifiers:
        raise writer.fail("matrix form not supported")


def _ldmatrix(writer: BlockWriter, instruction: Instruction) -> None:
    _check_matrix(writer, instruction)
    address = address_of(writer, instruction.operands[1], "shared")
    result = writer.temporary(
        f"M.load_matrices(x, {address}, {_matrix_count(instruction)}, "
        f"{'trans' in instruction.modifiers}, {writer.guard}, {writer.site()})")
    for index, item in enumerate(elements(instruction.operands[0])):
        writer.write(item, "b32", f"{result}[{index}]")


def _stmatrix(writer: BlockWriter, instruction: Instruction) -> None:
    _check_matrix(writer, instruction)
    address = address_of(writer, instruction.operands[0], "shared")
    values = "".join(
        f"{writer.read(item, 'u32')}, " for item in elements(instruction.operands[1]))
    writer.line(f"M.store_matrices(x, {address}, ({values}), {'trans' in instruction.modifiers}, "
                f"{writer.guard}, {writer.site()})")


def _bar(writer: BlockWriter, instruction: Instruction) -> None:
    if instruction.modifiers[:1] != ("warp",):
        raise writer.fail("barrier form not supported")
    warp_barrier(writer, instruction)


WARP: EmitterTable = {
    "shfl": _shfl, "vote": _vote, "activemask": _activemask, "match": _match, "redux": _redux,
    "elect": _elect, "mma": _mma, "ldmatrix": _ldmatrix, "stmatrix": _stmatrix, "bar": _bar,
}  # fmt: skip
