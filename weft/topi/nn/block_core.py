"""What a format of weights quantised in blocks is: formulas for the elements of a block.

A block holds ``elements`` neighbours of a row in ``nbytes`` bytes. Runs of ``RUN`` elements share a
scale and an offset, and the bits of their bytes: an element is ``scale * quant + offset``. The
formulas are written over ``Block``, whose bytes are numbers of NumPy or expressions of loops.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from weft.support.dataclass import dataclass

RUN = 16
Value = Any  # an array of NumPy, or a PrimExpr


class Block(Protocol):
    """The bytes of a block, as int32 and float32."""

    def byte(self, at: Value) -> Value: ...

    def signed(self, at: Value) -> Value: ...

    def half(self, at: int) -> Value:
        """The float16 of two bytes, as float32."""
        ...

    def single(self, at: int) -> Value:
        """The float32 of four bytes."""
        ...

    def half_of(self, bits: Value) -> Value:
        """The float16 of an int32 that holds its bits, as float32."""
        ...

    def number(self, value: Value) -> Value:
        """An int32 (or a float32) as float32."""
        ...

    def shift_right(self, value: Value, bits: Value) -> Value: ...

    def bit(self, at: int, lane: Value) -> Value:
        """Bit ``lane`` of two bytes, 0 or 1."""
        ...

    def lookup(self, table: tuple[int, ...], index: Value) -> Value: ...


@dataclass(frozen=True, slots=True)
class BlockFormat:
    """``quant(block, run, lane)`` is an int32, or a float32 of 8-bit floats.

    ``scale`` and ``offset`` are those of a run.
    """

    name: str
    elements: int
    nbytes: int
    quant: Callable[[Block, int, Value], Value]
    scale: Callable[[Block, int], Value]
    offset: Callable[[Block, int], Value] | None = None

    @property
    def runs(self) -> int:
        return self.elements // RUN

    def row_bytes(self, elements: int) -> int:
        """Bytes of a row; ``elements`` is a multiple of those of a block."""
        return elements // self.elements * self.nbytes

    def value(self, block: Block, run: int, lane: Value) -> Value:
        """Element ``lane`` of a run, float32."""
        scaled = block.number(self.quant(block, run, lane)) * self.scale(block, run)
        return scaled if self.offset is None else scaled + self.offset(block, run)
