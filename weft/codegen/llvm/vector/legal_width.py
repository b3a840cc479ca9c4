"""Vectors of any lane count through instructions that take one width."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.llvm.text.types import vector_of
from weft.codegen.llvm.text.writer import FunctionWriter

# Registers of each operand -> the register of the result
OnRegisters = Callable[[Sequence[str]], str]


def split_to_legal_width(
    out: FunctionWriter, operands: Sequence[tuple[str, str]], result: str, lanes: int, width: int,
    on_registers: OnRegisters,
) -> str:  # fmt: skip
    """``on_registers`` for ``width`` lanes of the operands after the other.

    An operand is its text and the type of its elements; ``result`` is the element type of what
    comes out, ``lanes`` of them. The lanes that the last registers have too many are anything.
    """
    if lanes == width:
        return on_registers([text for text, _ in operands])
    found = [
        on_registers([_lanes(out, text, scalar, range(start, start + width), lanes)
                      for text, scalar in operands])
        for start in range(0, lanes, width)
    ]
    while len(found) & (len(found) - 1):
        found.append("poison")
    total = width
    while len(found) > 1:
        pairs = zip(found[::2], found[1::2], strict=True)
        found = [_joined(out, a, b, result, total) for a, b in pairs]
        total *= 2
    return found[0] if total == lanes else _lanes(out, found[0], result, range(lanes), total)


def _lanes(out: FunctionWriter, value: str, scalar: str, lanes: range, of: int) -> str:
    """Some lanes of a vector; those past its end are anything."""
    kind = vector_of(scalar, of)
    chosen = ", ".join(f"i32 {i}" if i < of else "i32 poison" for i in lanes)
    return out.emit(f"shufflevector {kind} {value}, {kind} poison, <{len(lanes)} x i32> <{chosen}>")


def _joined(out: FunctionWriter, low: str, high: str, scalar: str, lanes: int) -> str:
    kind = vector_of(scalar, lanes)
    chosen = ", ".join(f"i32 {i}" for i in range(2 * lanes))
    return out.emit(f"shufflevector {kind} {low}, {kind} {high}, <{2 * lanes} x i32> <{chosen}>")
