"""Cumulative sums, products, extrema and log-sum-exp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from weft import te
from weft.ir.dtype import DType, float32, float64, int64
from weft.support.dataclass import dataclass
from weft.tir import Buffer, PrimExpr, Var, const, if_then_else, int_value, maximum, minimum, select
from weft.tir.stmt import Allocate, BufferStore, For, ForKind, Stmt, seq
from weft.topi.elementwise import log1p
from weft.topi.indexing import COMBINE, Combine
from weft.topi.loop_nest import is_large, nest

_NEUTRAL = {"add": 0, "mul": 1}
_WIDER = {float32: float64, DType.of("float16"): float32, DType.of("bfloat16"): float32}


def _logaddexp(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """log(e**a + e**b); the difference of equal infinities counts as 0."""
    difference = select(a.equal(b), const(0, a.dtype), minimum(a, b) - maximum(a, b))
    return maximum(a, b) + log1p(te.exp(difference))


COMBINES: Mapping[str, Combine] = {**COMBINE, "logaddexp": _logaddexp}
# Rows that are interleaved, so that the latencies of their additions overlap.
# Eight additions are in flight on a core with two adders and a latency of four cycles.
ROWS_AT_ONCE = 8
# Columns whose running results are in registers: in float64, eight registers of 64 bytes.
COLUMNS_AT_ONCE = 64


def scan(
    x: te.Tensor, axis: int, dtype: DType, *, combine: str, exclusive: bool, reverse: bool
) -> te.Tensor:
    """``y[i] = combine(y[i - 1], x[i])`` along ``axis``; ``exclusive`` takes ``x[i - 1]``.

    ``reverse`` starts at the end. ``combine`` is "add", "mul", "max", "min" or "logaddexp"; only
    "add" and "mul" can be ``exclusive``, because they have an identity. Sums and products of
    float32 are carried in float64 from step to step, those of 16 bits in float32. Where sizes are
    unknown they are carried in the dtype of the result.
    """

    def build(inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        made = _Scan(inputs[0], outputs[0], axis, combine, exclusive, reverse)
        return made.loops()

    return te.extern([x.shape], [x], build, [dtype], f"cum_{combine}")[0]


@dataclass(frozen=True, slots=True)
class _Scan:
    source: Buffer
    target: Buffer
    axis: int
    combine: str
    exclusive: bool
    reverse: bool

    def loops(self) -> Stmt:
        shape = self.source.shape
        sizes = [int_value(size) for size in shape]
        # The other forms peel off step 0, which an axis of unknown or zero size may not have.
        if None in sizes or 0 in sizes:
            return nest(shape, self._one_step, independent=self.axis != 0)
        return self._along_rows() if self.axis == len(shape) - 1 else self._row_by_row()

    @property
    def size(self) -> PrimExpr:
        return self.source.shape[self.axis]

    @property
    def _combined(self) -> Combine:
        return COMBINES[self.combine]

    @property
    def _carried(self) -> DType:
        """The dtype of running results between steps."""
        dtype = self.target.dtype
        return _WIDER.get(dtype, dtype) if self.combine in _NEUTRAL else dtype

    def _at(self, i: Sequence[PrimExpr], step: PrimExpr) -> tuple[PrimExpr, ...]:
        position = self.size - 1 - step if self.reverse else step
        return (*i[:self.axis], position, *i[self.axis + 1:])

    def _first(self, i: Sequence[PrimExpr]) -> PrimExpr:
        """The result of step 0."""
        if self.exclusive:
            return const(_NEUTRAL[self.combine], self.target.dtype)
        return self._taken(i, const(0))

    def _taken(self, i: Sequence[PrimExpr], step: PrimExpr) -> PrimExpr:
        """The element that a step combines."""
        position = self._at(i, step - 1 if self.exclusive else step)
        return self.source.load(*position).astype(self.target.dtype)

    def _one_step(self, i: tuple[PrimExpr, ...]) -> Stmt:
        """One step for dynamic sizes."""
        step, here = i[self.axis], self._at(i, i[self.axis])
        before = self.target.load(*self._at(i, step - 1))
        later = self._combined(before, self._taken(i, step))
        return BufferStore(self.target, if_then_else(step.equal(0), self._first(i), later), here)

    def _row_by_row(self) -> Stmt:
        """Scan along an outer axis: block by block of columns, whose totals stay in registers."""
        *around, columns = range(self.source.ndim)
        i = [Var(f"i{axis}", int64) for axis in range(self.source.ndim)]
        size = int_value(self.source.shape[columns]) or 0
        blocks, rest = divmod(size, COLUMNS_AT_ONCE)
        block = Var("block", int64)
        parts: list[Stmt] = []
        if blocks:
            start = block * COLUMNS_AT_ONCE
            # Threads share the blocks of a matrix; more axes are shared by ``_outer``.
            shared = self.source.ndim == 2 and is_large(self.source.shape)
            kind = ForKind.PARALLEL if shared else ForKind.SERIAL
            parts.append(For(block, const(0), const(blocks), kind,
                             self._columns(i, start, COLUMNS_AT_ONCE)))
        if rest:
            parts.append(self._columns(i, const(size - rest), rest))
        body = seq(parts)
        for axis in reversed(around[self.axis + 1:]):
            body = For(i[axis], const(0), self.source.shape[axis], ForKind.SERIAL, body)
        return self._outer(tuple(i[:self.axis]), body)

    def _columns(self, i: Sequence[Var], start: PrimExpr, count: int) -> Stmt:
        """All steps of ``count`` columns of the innermost axis."""
        step, column = i[self.axis], i[-1]
        totals = Buffer("totals", (const(count),), self._carried, "local")
        at = (*i[:-1], start + column)
        kept = totals.load(column)
        later = self._combined(kept, self._taken(at, step).astype(self._carried))

        def put(value: PrimExpr, step: PrimExpr) -> Stmt:
            """Keep the totals of a step and store them."""
            return seq([
                For(column, const(0), const(count), ForKind.VECTORIZED, store)
                for store in (BufferStore(totals, value, (column,)),
                              BufferStore(self.target, kept.astype(self.target.dtype),
                                          self._at(at, step)))])

        first = put(self._first(at).astype(self._carried), const(0))
        rest = For(step, const(1), self.size - 1, ForKind.SERIAL, put(later, step))
        return Allocate(totals, seq([first, rest]))

    def _outer(self, i: tuple[Var, ...], body: Stmt) -> Stmt:
        """The loops over axes before the scanned one; the first is parallel with enough work."""
        for axis in reversed(range(len(i))):
            parallel = axis == 0 and is_large(self.source.shape)
            kind = ForKind.PARALLEL if parallel else ForKind.SERIAL
            body = For(i[axis], const(0), self.source.shape[axis], kind, body)
        return body

    def _along_rows(self) -> Stmt:
        """Scan along the innermost axis: several rows at once, to hide the latency of additions."""
        *outer, _ = (Var(f"i{axis}", int64) for axis in range(self.source.ndim))
        if not outer:
            return self._rows((), 1)
        *around, row = outer
        count = int_value(self.source.shape[self.axis - 1]) or 0
        groups, rest = divmod(count, ROWS_AT_ONCE)
        # Rows are shared among threads only without an outer axis: ``_outer`` shares that one.
        shared = not around and is_large(self.source.shape)
        kind = ForKind.PARALLEL if shared else ForKind.SERIAL
        statements = [
            For(row, const(0), const(times), kind, self._rows((*around, row * size + start), size))
            for start, size, times in ((0, ROWS_AT_ONCE, groups), (count - rest, rest, 1))
            if size and times
        ]
        return self._outer(tuple(around), seq(statements))

    def _rows(self, first: tuple[PrimExpr, ...], count: int) -> Stmt:
        """``count`` rows from ``first`` on, with their running results in registers."""
        totals = Buffer("total", (const(count),), self._carried, "local")
        step = Var("step", int64)
        starts: list[Stmt] = []
        steps: list[Stmt] = []
        # Written out row by row: each total has a constant index, and so its own register.
        for number in range(count):
            i = (*first[:-1], first[-1] + number, step) if first else (step,)
            at = (const(number),)
            total = totals.load(*at).astype(self.target.dtype)
            starts.append(BufferStore(totals, self._first(i).astype(self._carried), at))
            starts.append(BufferStore(self.target, total, self._at(i, const(0))))
            later = self._combined(totals.load(*at), self._taken(i, step).astype(self._carried))
            steps.append(BufferStore(totals, later, at))
            steps.append(BufferStore(self.target, total, self._at(i, step)))
        rest = For(step, const(1), self.size - 1, ForKind.SERIAL, seq(steps))
        return Allocate(totals, seq([*starts, rest]))
