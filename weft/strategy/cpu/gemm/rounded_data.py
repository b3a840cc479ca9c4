"""Rows of data rounded to int8 in groups of 32, once for all panels of the weight."""

from __future__ import annotations

from collections.abc import Callable

from weft import te
from weft.ir.dtype import DType, float32, int32
from weft.strategy.cpu.attention.fused_tile import loop
from weft.strategy.cpu.gemm.block_vectors import Lets, consecutive
from weft.support.dataclass import dataclass
from weft.tir import (
    Allocate,
    Buffer,
    BufferStore,
    ForKind,
    PrimExpr,
    Ramp,
    Shuffle,
    Stmt,
    const,
    int_value,
    seq,
)
from weft.tir.expr import Broadcast, maximum
from weft.tir.row_major import element_count, unravel
from weft.topi.nn.block_quantized import GROUP, LEVELS, SMALLEST

_PARALLEL_ROWS = 8  # fewer rows are rounded before a second thread would have started


@dataclass(frozen=True, slots=True)
class RoundedData:
    """Scratch buffers of the rounded rows.

    ``sums`` holds ``base`` times the sums of the quants of each unit, which kept quants that are
    less by ``base`` lack; ``offsets`` the sums times the scale, which offsets of the weight take.
    """

    source: Buffer
    lanes: int
    unit: int  # elements of a sum: one or two runs
    base: int
    quants: Buffer
    scales: Buffer
    sums: Buffer | None
    offsets: Buffer | None

    @staticmethod
    def of(source: Buffer, lanes: int, unit: int, base: int, dtype: DType, *, has_offsets: bool
           ) -> RoundedData:
        rows, depth = element_count(source.shape[:-1]), source.shape[-1]

        def per_unit(name: str, dtype: DType) -> Buffer:
            return Buffer(name, (rows, depth // unit), dtype)

        return RoundedData(
            source, lanes, unit, base, Buffer("quants", (rows, depth), dtype),
            Buffer("scales", (rows, depth // GROUP), float32),
            per_unit("sums", int32) if base else None,
            per_unit("offsets", float32) if has_offsets else None)

    def around(self, body: Stmt) -> Stmt:
        """``body`` after the rounding, with the buffers in scope."""
        rows = self.quants.shape[0]
        known = int_value(rows)
        is_few = known is not None and known < _PARALLEL_ROWS
        whole = seq([loop("row", rows, lambda m: loop(
            "group", self.quants.shape[1] // GROUP, lambda g: self._group(m, g)),
            ForKind.SERIAL if is_few else ForKind.PARALLEL), body])
        for buffer in (self.quants, self.scales, self.sums, self.offsets):
            whole = whole if buffer is None else Allocate(buffer, whole)
        return whole

    def _group(self, m: PrimExpr, g: PrimExpr) -> Stmt:
        lets = Lets()
        at = (*unravel(m, self.source.shape[:-1]),)
        starts = range(0, GROUP, self.lanes)
        data = [lets.named(consecutive(self.source, at, g * GROUP + start, self.lanes)
                           .astype(float32)) for start in starts]
        top = lets.named(_folded([te.abs(x) for x in data], maximum))
        is_zero = lets.named(top < SMALLEST)
        inverse = lets.named(te.select(is_zero, 0.0, const(LEVELS, float32) / top))
        scale = lets.named(te.select(is_zero, 0.0, top / LEVELS))

        def rounded(x: PrimExpr) -> PrimExpr:
            value = x * Broadcast(inverse, self.lanes)
            # What is not finite has no integer; the scale makes the sums infinite or NaN.
            finite = te.select(value.equal(value), te.round(value), const(0, value.dtype))
            return lets.named(finite.astype(int32))

        quants = [rounded(x) for x in data]
        stores: list[Stmt] = [BufferStore(self.scales, scale, (m, g))]
        stores += [BufferStore(self.quants, q.astype(self.quants.dtype), (m, Ramp(
            g * GROUP + start, const(1), self.lanes)))
            for q, start in zip(quants, starts, strict=True)]
        if self.sums is not None or self.offsets is not None:
            per = self.unit // self.lanes
            for n in range(GROUP // self.unit):
                total = lets.named(_folded(quants[n * per:(n + 1) * per], lambda a, b: a + b))
                place = (m, g * (GROUP // self.unit) + n)
                if self.sums is not None:
                    stores.append(BufferStore(self.sums, total * self.base, place))
                if self.offsets is not None:
                    stores.append(BufferStore(self.offsets, total.astype(float32) * scale, place))
        return lets.around(seq(stores))


def _folded(vectors: list[PrimExpr], combine: Callable[[PrimExpr, PrimExpr], PrimExpr]
            ) -> PrimExpr:
    """One number of all lanes, by halves."""
    value = vectors[0]
    for other in vectors[1:]:
        value = combine(value, other)
    while value.dtype.lanes > 1:
        half = value.dtype.lanes // 2
        low, high = (tuple(range(start, start + half)) for start in (0, half))
        value = combine(Shuffle((value,), low), Shuffle((value,), high))
    return value
