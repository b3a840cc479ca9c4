"""Roots of unity between the passes of a Fourier transform, from tables in the program."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from weft.ir.dtype import DType, int32, int64
from weft.support.dataclass import dataclass
from weft.tir import PrimExpr, Ramp, call, const

# More positions than this are sums of two, each with a table.
_LONGEST = 256


@dataclass(frozen=True, slots=True)
class Roots:
    """``exp(-2 pi i step (p + first) / size)`` for positions p below ``count``."""

    step: int
    size: int
    count: int
    first: int = 0

    def at(self, start: PrimExpr, lanes: int, dtype: DType) -> tuple[PrimExpr, PrimExpr]:
        """Cosine and sine, with the sign of ``cosine - i sine``, of positions from ``start`` on.

        Vectors start at multiples of ``lanes``, but for the last one, which ends with the last
        position.
        """
        position = start.astype(int32 if dtype.bits == 32 else int64)
        if self.count <= _LONGEST:
            found = self._tables(range(self.count), self.first, _run(position, lanes), dtype)
            return found[0], found[1]
        low = 1 << (self.count.bit_length() // 2)
        is_aligned = self.count % lanes == 0 and low % lanes == 0
        where = position if is_aligned else _run(position, lanes)
        rest = _run(position % low, lanes) if is_aligned else where % low
        cosine, sine = self._tables(range(0, self.count, low), 0, where // low, dtype)
        fine_cosine, fine_sine = self._tables(range(low), self.first, rest, dtype)
        return (cosine * fine_cosine - sine * fine_sine, sine * fine_cosine + cosine * fine_sine)

    def _tables(self, positions: Iterable[int], first: int, index: PrimExpr, dtype: DType
                ) -> list[PrimExpr]:
        turns = [self.step * (p + first) % self.size / self.size for p in positions]
        return [_looked_up(function, turns, index, dtype) for function in (math.cos, math.sin)]


def _run(start: PrimExpr, lanes: int) -> PrimExpr:
    return start if lanes == 1 else Ramp(start, const(1, start.dtype), lanes)


def _looked_up(function: Callable[[float], float], turns: list[float], index: PrimExpr,
               dtype: DType) -> PrimExpr:
    entries = [const(function(2 * math.pi * turn), dtype) for turn in turns]
    if len(entries) == 1:
        return entries[0]
    padding = (1 << (len(entries) - 1).bit_length()) - len(entries)
    return call(dtype.vector(index.dtype.lanes), "table_lookup", index, *entries,
                *entries[:1] * padding)
