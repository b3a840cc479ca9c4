"""Rows of attention: their copies to shared memory, and the sum of partial results.

With the keys split among blocks (Flash-Decoding), each block stores its weighted sums with the
maximum and the total of the exponentials; ``combine`` rescales and adds them in order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft.codegen.cuda.device_functions import device_function
from weft.ir import float32
from weft.strategy.common.attention import LOWEST, KeySource, Row
from weft.strategy.cuda.gemm.frame import address, ceil_div, kernel, registers, serial
from weft.strategy.cuda.gemm.operand import K_MAJOR
from weft.strategy.cuda.gemm.staging import TileLayout
from weft.support.dataclass import dataclass
from weft.support.errors import InternalError
from weft.te import exp
from weft.tir import Allocate, Buffer, BufferStore, Evaluate, IfThenElse, Stmt, seq
from weft.tir.expr import TRUE, BufferLoad, PrimExpr, all_of, const, if_then_else, int_value, select
from weft.tir.row_major import unravel
from weft.tir.simplify import Analyzer, simplify

VECTOR = 8  # 16-bit elements of a 16-byte copy


@dataclass(frozen=True, slots=True)
class Partial:
    """The results of each share of the keys: weighted sums, maxima and totals of rows."""

    sums: Buffer
    top: Buffer
    total: Buffer


@dataclass(frozen=True, slots=True)
class RowCopy:
    """The copy of ``rows`` rows of ``size`` elements, padded with zeros to those of ``layout``."""

    rows: int
    size: int
    layout: TileLayout
    threads: int

    def statement(
        self, memory: Buffer, start: PrimExpr, thread: PrimExpr,
        element: Callable[[PrimExpr, PrimExpr], PrimExpr],
        exists: Callable[[PrimExpr], PrimExpr] | None,
    ) -> Stmt:
        """Copy ``element(row, d)`` to ``memory[start]`` on; zeros for rows that do not exist.

        Copies of 16 bytes are asynchronous, and belong to the group of the next commit.
        """
        chunks = self.layout.length // VECTOR
        total = self.rows * chunks

        def one(item: PrimExpr) -> Stmt:
            row, d = item // chunks, item % chunks * VECTOR
            inside = exists(row) if exists is not None else TRUE
            if self.size % VECTOR == 0:
                return self._chunk(memory, start, row, d, element, inside)
            return seq([self._element(memory, start, row, d + n, element, inside)
                        for n in range(VECTOR)])

        stmts: list[Stmt] = []
        for n in range(-(-total // self.threads)):
            item = simplify(thread + n * self.threads)
            whole = (n + 1) * self.threads <= total
            stmts.append(one(item) if whole else IfThenElse(item < total, one(item)))
        return seq(stmts)

    def _offset(self, start: PrimExpr, row: PrimExpr, d: PrimExpr) -> PrimExpr:
        is_k_major = self.layout.contiguous == K_MAJOR
        return start + (self.layout.offset(row, d) if is_k_major else self.layout.offset(d, row))

    def _chunk(self, memory: Buffer, start: PrimExpr, row: PrimExpr, d: PrimExpr,
               element: Callable[[PrimExpr, PrimExpr], PrimExpr], inside: PrimExpr) -> Stmt:
        is_padded = self.size < self.layout.length
        condition = all_of(inside, d < self.size) if is_padded else inside
        load = element(row, select(d < self.size, d, const(0)) if is_padded else d)
        if not isinstance(load, BufferLoad):
            raise InternalError("an operand of attention is not a load", got=load)
        to = BufferLoad(memory, (self._offset(start, row, d),))
        always = int_value(condition)
        nbytes = const(16, "int32") if always else select(condition, const(16, "int32"),
                                                          const(0, "int32"))
        return Evaluate(device_function("cp_async_16")(None, address(to), address(load), nbytes))

    def _element(self, memory: Buffer, start: PrimExpr, row: PrimExpr, d: PrimExpr,
                 element: Callable[[PrimExpr, PrimExpr], PrimExpr], inside: PrimExpr) -> Stmt:
        value = element(row, d)
        zero = const(0, value.dtype)
        return BufferStore(memory, if_then_else(all_of(inside, d < self.size), value, zero),
                           (self._offset(start, row, d),))


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

        at = unravel(lead, source.leads)
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
