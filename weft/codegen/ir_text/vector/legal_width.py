"""Splitting vectors to the legal width of an instruction, and joining the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.ir_text.types import vector_of
from weft.codegen.ir_text.writer import FunctionWriter

# (one register-wide vector per operand) -> the vector of the result
OnRegisters = Callable[[Sequence[str]], str]


def split_to_legal_width(
    out: FunctionWriter, operands: Sequence[tuple[str, str]], result: str, lanes: int, width: int,
    on_registers: OnRegisters,
) -> str:  # fmt: skip
    """Apply ``on_registers`` to each ``width`` lanes of the operands, and join the results.

    An operand is its LLVM text and element type; ``result`` is the element type of the result.
    Operands and result have ``lanes`` lanes. Surplus lanes of the last register are poison.
    """
    if lanes == width:
        return on_registers([text for text, _ in operands])
    results = [
        on_registers([_extract(out, text, scalar, range(start, start + width), lanes)
                      for text, scalar in operands])
        for start in range(0, lanes, width)
    ]
    # ``shufflevector`` joins two vectors of one type, so pairs are joined up to a power of two.
    while len(results) & (len(results) - 1):
        results.append("poison")
    total = width
    while len(results) > 1:
        pairs = zip(results[::2], results[1::2], strict=True)
        results = [_concat(out, a, b, result, total) for a, b in pairs]
        total *= 2
    return results[0] if total == lanes else _extract(out, results[0], result, range(lanes), total)


def _extract(out: FunctionWriter, value: str, scalar: str, lanes: range, of: int) -> str:
    """The lanes ``lanes`` of a vector of ``of`` lanes; those past its end are poison."""
    kind = vector_of(scalar, of)
    chosen = ", ".join(f"i32 {i}" if i < of else "i32 poison" for i in lanes)
    return out.emit(f"shufflevector {kind} {value}, {kind} poison, <{len(lanes)} x i32> <{chosen}>")


def _concat(out: FunctionWriter, low: str, high: str, scalar: str, lanes: int) -> str:
    kind = vector_of(scalar, lanes)
    chosen = ", ".join(f"i32 {i}" for i in range(2 * lanes))
    return out.emit(f"shufflevector {kind} {low}, {kind} {high}, <{2 * lanes} x i32> <{chosen}>")
