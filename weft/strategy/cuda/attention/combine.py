"""The sum of the shares of attention whose keys were divided among blocks."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import float32
from weft.strategy.common.attention import LOWEST, KeySource, Row
from weft.strategy.common.row_major import unravel
from weft.strategy.cuda.attention.rows import Partial
from weft.strategy.cuda.gemm.frame import ceil_div, kernel, registers, serial
from weft.te import exp
from weft.tir import Allocate, Analyzer, BufferStore, IfThenElse, PrimExpr, Stmt, const, select, seq

THREADS = 128


def combine(source: KeySource, partial: Partial, splits: int) -> Stmt:
    """A thread per element of the result: shares are rescaled to the largest maximum, in order."""
    _, leads, rows, width = partial.sums.shape
    elements = leads * rows * width
    analyzer = Analyzer()
    state = registers("state", 3, float32)  # the maximum, the total, the weighted sum
    top, total, value = ((const(n),) for n in range(3))

    def body(blocks: Sequence[PrimExpr], thread: PrimExpr) -> Stmt:
        item = blocks[0] * THREADS + thread
        e, row, lead = item % width, item // width % rows, item // (width * rows)

        def highest(split: PrimExpr) -> Stmt:
            found, best = partial.top.load(split, lead, row), state.load(0)
            return BufferStore(state, select(found > best, found, best), top)

        def add(split: PrimExpr) -> Stmt:
            factor = exp(partial.top.load(split, lead, row) - state.load(0))
            return seq([
                BufferStore(state, state.load(1) + partial.total.load(split, lead, row) * factor,
                            total),
                BufferStore(state, state.load(2) + partial.sums.load(split, lead, row, e) * factor,
                            value)])

        at = tuple(unravel(lead, source.leads))
        group = source.group
        return IfThenElse(item < elements, Allocate(state, seq([
            BufferStore(state, const(LOWEST, float32), top),
            BufferStore(state, const(0, float32), total),
            BufferStore(state, const(0, float32), value),
            serial("split", splits, highest), serial("split", splits, add),
            source.store(at, Row(row // group, row % group), e, state.load(2),
                         state.load(1)),
        ])))

    grid = (analyzer.simplify(ceil_div(elements, THREADS)),)
    return kernel(grid, THREADS, (), body, analyzer)
