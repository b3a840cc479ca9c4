"""Attention on tensor cores: tiles of query rows, an online softmax over blocks of keys.

After Dao, "FlashAttention-2" (2023): each warp has 16 query rows, and scores, weights and sums stay
in its registers. The scores that ``mma`` leaves in a thread are exactly the operand that the second
product needs, so weights never leave the registers. The next block of keys and values is copied
while this one is used. With keys divided among blocks (Flash-Decoding), each stores its sums with
their maximum, and a second kernel adds them in order.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.cuda.device_functions import device_function
from weft.ir import DType, float32, int32, int64
from weft.strategy.common.attention import LOWEST, KeySource, Row, SourceOf
from weft.strategy.cuda.attention.decide import STAGES, FlashPlan, padded
from weft.strategy.cuda.attention.rows import Partial, RowCopy, combine
from weft.strategy.cuda.gemm.frame import (
    WARP,
    barrier,
    ceil_div,
    fill,
    kernel,
    let,
    load_vector,
    registers,
    serial,
    shared_memory,
    store_vector,
    vectorized,
)
from weft.strategy.cuda.gemm.operand import K_MAJOR, MN_MAJOR
from weft.strategy.cuda.gemm.staging import TileLayout
from weft.strategy.cuda.gemm.tensor_core import MmaInstruction, Tile, load_a, load_b
from weft.support.dataclass import dataclass
from weft.tir import Analyzer, Broadcast, Buffer, PrimExpr, call, const, maximum, minimum, select
from weft.tir.row_major import element_count, unravel
from weft.tir.stmt import Allocate, BufferStore, Evaluate, IfThenElse, Stmt, seq

LOG2_E = 1.4426950408889634
HALVES = (0, 1)  # a thread holds two rows of its warp's 16: lane // 4, and that plus 8


@dataclass(frozen=True, slots=True, eq=False)
class FlashLoops:
    """The body of a kernel (``te.ExternBody``) for the operands that ``source_of`` makes."""

    plan: FlashPlan
    source_of: SourceOf

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        source = self.source_of(inputs, outputs[0])
        leads, rows = element_count(source.leads), source.queries * source.group
        tiles = ceil_div(rows, self.plan.rows)
        analyzer = Analyzer()
        partial = None
        if self.plan.splits > 1:
            shape = (const(self.plan.splits), leads, rows)
            partial = Partial(Buffer("partial_sums", (*shape, const(source.sizes[1])), float32),
                              Buffer("partial_top", shape, float32),
                              Buffer("partial_total", shape, float32))
        dtype = inputs[0].dtype
        shared = self._shared(source, dtype)

        def thread_body(blocks: Sequence[PrimExpr], thread: PrimExpr) -> Stmt:
            tile, split = blocks

            def at_lead(lead: PrimExpr) -> Stmt:
                at = tuple(analyzer.simplify(i) for i in unravel(lead, source.leads))
                first = analyzer.simplify(tile % tiles * self.plan.rows)
                return _Tile(self.plan, dtype, source, lead, at, first, rows, split, thread,
                             shared, analyzer, partial).build()

            return let("lead", analyzer.simplify(tile // tiles), at_lead, analyzer, leads)

        grid = (analyzer.simplify(leads * tiles), const(self.plan.splits))
        body = kernel(grid, self.plan.threads, shared, thread_body, analyzer)
        if partial is None:
            return body
        body = seq([body, combine(source, partial, self.plan.splits)])
        for memory in (partial.total, partial.top, partial.sums):
            body = Allocate(memory, body)
        return body

    def _shared(self, source: KeySource, dtype: DType) -> tuple[Buffer, ...]:
        depth, width = map(padded, source.sizes)
        sizes = (("queries", self.plan.rows * depth),
                 ("keys", STAGES * self.plan.block * depth),
                 ("values", STAGES * self.plan.block * width))
        return tuple(shared_memory(name, count, dtype) for name, count in sizes)


@dataclass(frozen=True, slots=True, eq=False)
class _Tile:
    """The rows from ``first`` on of the heads that share the keys at ``at``."""

    plan: FlashPlan
    dtype: DType
    source: KeySource
    lead: PrimExpr
    at: tuple[PrimExpr, ...]
    first: PrimExpr
    rows: PrimExpr
    split: PrimExpr
    thread: PrimExpr
    shared: tuple[Buffer, ...]
    analyzer: Analyzer
    partial: Partial | None

    @property
    def lane(self) -> PrimExpr:
        return self.thread % WARP

    @property
    def depth(self) -> int:
        return padded(self.source.sizes[0])

    @property
    def width(self) -> int:
        return padded(self.source.sizes[1])

    def build(self) -> Stmt:
        """The queries, the loop over blocks of keys, and the results."""
        group, block = self.source.group, self.plan.block
        last = minimum(self.first + (self.plan.rows - 1), self.rows - 1)
        low, high = self.source.span(self.at, self.first // group, last // group)
        scores = registers("scores", block // 2, float32)
        sums = registers("sums", self.width // 2, float32)
        # Per half: the maximum so far, the factor of earlier sums, and this thread's part of the
        # total: the four threads of a row add theirs at the end.
        tops, factors, totals = (registers(n, 2, float32) for n in ("top", "factor", "total"))
        state = _State(scores, sums, tops, factors, totals)

        def over_keys(low: PrimExpr, high: PrimExpr) -> Stmt:
            count = maximum(ceil_div(high - low, block), const(0, int64))
            share = ceil_div(count, self.plan.splits)
            start = self.split * share
            steps = maximum(minimum(share, count - start), const(0, int64))
            return seq([
                self._copy_queries(),
                IfThenElse(const(0) < steps, self._copy(low + start * block, high, const(0))),
                _commit(),
                fill(sums, self.width // 2, const(0, float32)),
                fill(tops, 2, const(LOWEST, float32)), fill(totals, 2, const(0, float32)),
                serial("step", steps, lambda n: self._step(state, low + start * block, high, n,
                                                           steps)),
                self._finish(state),
            ])

        body = let("low", low, lambda a: let("high", high, lambda b: over_keys(a, b),
                                             self.analyzer, 1 << 40), self.analyzer, 1 << 40)
        for memory in (totals, factors, tops, sums, scores):
            body = Allocate(memory, body)
        return body

    # copies

    def _row(self, row: PrimExpr) -> Row:
        """The query and head of a row; rows of the tile beyond the last query repeat the last one.

        Their loads stay in bounds, and their results are not stored.
        """
        number = minimum(self.first + row, self.rows - 1)
        return Row(number // self.source.group, number % self.source.group)

    def _copy_queries(self) -> Stmt:
        copy = RowCopy(self.plan.rows, self.source.sizes[0], self._layout(self.plan.rows),
                       self.plan.threads)
        return copy.statement(
            self.shared[0], const(0), self.thread,
            lambda row, d: self.source.query(self.at, self._row(row), d), None)

    def _copy(self, first: PrimExpr, high: PrimExpr, slot: PrimExpr) -> Stmt:
        """Start the copies of the block of keys and values from ``first`` on; zeros from ``high``
        on.
        """
        block, stmts = self.plan.block, []
        for memory, size, element in ((self.shared[1], 0, self.source.key),
                                      (self.shared[2], 1, self.source.value)):
            layout = self._layout(block, value=bool(size))
            copy = RowCopy(block, self.source.sizes[size], layout, self.plan.threads)
            stmts.append(copy.statement(
                memory, slot * layout.elements, self.thread,
                lambda row, d, element=element: element(
                    self.at, minimum(first + row, high - 1), d),
                lambda row: first + row < high))
        return seq(stmts)

    def _layout(self, rows: int, *, value: bool = False) -> TileLayout:
        """Rows of queries or keys, which run along the depth; or of values, along the width."""
        major, length = (MN_MAJOR, self.width) if value else (K_MAJOR, self.depth)
        return TileLayout(major, rows, length, 2, swizzled=True)

    # one block of keys

    def _step(self, state: _State, begin: PrimExpr, high: PrimExpr, number: PrimExpr,
              steps: PrimExpr) -> Stmt:
        block = self.plan.block
        start, slot, more = begin + number * block, number % STAGES, number + 1 < steps
        return seq([
            Evaluate(device_function("cp_async_wait")(None, const(0, "int32"))),
            barrier(),
            IfThenElse(more, self._copy(start + block, high, (number + 1) % STAGES)),
            _commit(),
            self._scores(state.scores, slot),
            self._mask(state.scores, start, high),
            *(self._softmax(state, half) for half in HALVES),
            self._weighted_values(state, slot),
        ])

    def _scores(self, scores: Buffer, slot: PrimExpr) -> Stmt:
        """The products of the warp's queries with the block of keys."""
        block, mma = self.plan.block, MmaInstruction(self.dtype, self.dtype)
        a, b = registers("query", 4, int32), registers("key", 4, int32)
        queries = Tile(self.shared[0], const(0), self._layout(self.plan.rows))
        layout = self._layout(block)
        keys = Tile(self.shared[1], slot * layout.elements, layout)
        row, stmts = self.thread // WARP * 16, [fill(scores, block // 2, const(0, float32))]
        for step in range(self.depth // 16):
            stmts.append(load_a(queries, a, 0, row, step, self.lane))
            for pair in range(block // 16):
                stmts.append(load_b(keys, b, 0, 2, const(pair * 16), step, self.lane))
                stmts += [_mma(mma, scores, (2 * pair + n) * 4, a, 0, b, n * 2)
                          for n in range(2)]
        return Allocate(a, Allocate(b, seq(stmts)))

    def _mask(self, scores: Buffer, start: PrimExpr, high: PrimExpr) -> Stmt:
        """Scale and mask the scores of a thread."""
        scale, hidden = const(self.source.scale, float32), const(float("-inf"), float32)
        stmts = []
        for half in HALVES:
            row = self._row(self._row_of(half))
            for n in range(self.plan.block // 8):
                for m in range(2):
                    at = n * 4 + half * 2 + m
                    number = start + (self.lane % 4 * 2 + (n * 8 + m))
                    score = self.source.masked(self.at, row, minimum(number, high - 1),
                                               scores.load(at) * scale)
                    stmts.append(BufferStore(
                        scores, select(number < high, score, hidden), (const(at),)))
        return seq(stmts)

    def _row_of(self, half: int) -> PrimExpr:
        return self.thread // WARP * 16 + self.lane // 4 + half * 8

    def _of_half(self, half: int, count: int) -> list[int]:
        """The registers of a row among groups of four."""
        return [n * 4 + half * 2 + m for n in range(count) for m in range(2)]

    def _softmax(self, state: _State, half: int) -> Stmt:
        """Replace the scores of a row by exponentials, and rescale its earlier sums."""
        x, here = state, (const(half),)
        mine = self._of_half(half, self.plan.block // 8)

        def greater(score: PrimExpr) -> Stmt:
            # A NaN does not change the maximum; it reaches the sums as NaN.
            best = x.tops.load(half)
            return BufferStore(x.tops, select(score > best, score, best), here)

        factor = x.factors.load(half)
        return seq([
            BufferStore(x.factors, x.tops.load(half), here),
            *(greater(x.scores.load(n)) for n in mine),
            *(greater(_other(x.tops.load(half), bit)) for bit in (1, 2)),
            # LOWEST at first: the factor is finite, and the sums that it scales are zero.
            BufferStore(x.factors, exp(factor - x.tops.load(half)), here),
            *(BufferStore(x.scores, exp(x.scores.load(n) - x.tops.load(half)), (const(n),))
              for n in mine),
            BufferStore(x.totals, x.totals.load(half) * factor, here),
            *(BufferStore(x.totals, x.totals.load(half) + x.scores.load(n), here) for n in mine),
            *(store_vector(x.sums, n, load_vector(x.sums, n, 2) * Broadcast(factor, 2))
              for n in self._of_half(half, self.width // 8)[::2]),
        ])

    def _weighted_values(self, state: _State, slot: PrimExpr) -> Stmt:
        """Add the values of the block, weighted."""
        block, mma = self.plan.block, MmaInstruction(self.dtype, self.dtype)
        a, b = registers("weight", 4, int32), registers("value", 4, int32)
        layout = self._layout(block, value=True)
        values = Tile(self.shared[2], slot * layout.elements, layout)
        stmts: list[Stmt] = []
        for step in range(block // 16):
            # Two neighbouring 8-key blocks of scores are one operand of 16 keys.
            stmts += [self._weight(a, half + 2 * n, state.scores, (2 * step + n) * 4 + half * 2)
                      for n in range(2) for half in HALVES]
            for pair in range(self.width // 16):
                stmts.append(load_b(values, b, 0, 2, const(pair * 16), step, self.lane))
                stmts += [_mma(mma, state.sums, (2 * pair + n) * 4, a, 0, b, n * 2)
                          for n in range(2)]
        return Allocate(a, Allocate(b, seq(stmts)))

    def _weight(self, into: Buffer, at: int, scores: Buffer, score: int) -> Stmt:
        """Two weights, rounded to the type of the values, in one register."""
        pair = load_vector(scores, score, 2).astype(self.dtype.vector(2))
        return BufferStore(into, call(int32, "reinterpret", pair), (const(at),))

    # results

    def _finish(self, state: _State) -> Stmt:
        x, stmts = state, []
        for half in HALVES:
            here = (const(half),)
            stmts += [BufferStore(x.totals, x.totals.load(half) + _other(x.totals.load(half), bit),
                                  here) for bit in (1, 2)]
        return seq([*stmts, *(self._store(state, half) for half in HALVES)])

    def _store(self, state: _State, half: int) -> Stmt:
        row = self._row_of(half)
        width = self.source.sizes[1]
        stmts: list[Stmt] = []
        for n in range(self.width // 8):
            first = self.lane % 4 * 2 + n * 8
            register = n * 4 + half * 2
            if width % 2 == 0 and self.partial is None:
                stored = vectorized(2, lambda m, first=first, r=register: self._element(
                    state, half, row, first + m, r + m))
                stmts.append(stored if n * 8 + 8 <= width
                             else IfThenElse(first < width, stored))
            else:
                stmts += [IfThenElse(first + m < width, self._element(
                    state, half, row, first + m, const(register + m))) for m in range(2)]
        if self.partial is not None:
            number = self.first + row
            stmts.append(IfThenElse((self.lane % 4).equal(0), seq([
                BufferStore(self.partial.top, state.tops.load(half),
                            (self.split, self.lead, number)),
                BufferStore(self.partial.total, state.totals.load(half),
                            (self.split, self.lead, number))])))
        return IfThenElse(self.first + row < self.rows, seq(stmts))

    def _element(self, state: _State, half: int, row: PrimExpr, e: PrimExpr,
                 register: PrimExpr) -> Stmt:
        value, total = state.sums.load(register), state.totals.load(half)
        if self.partial is not None:
            return BufferStore(self.partial.sums, value,
                               (self.split, self.lead, self.first + row, e))
        return self.source.store(self.at, self._row(row), e, value, total)


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """The registers of a thread."""

    scores: Buffer
    sums: Buffer
    tops: Buffer
    factors: Buffer
    totals: Buffer


def _mma(mma: MmaInstruction, sums: Buffer, at: int, a: Buffer, i: int, b: Buffer, j: int) -> Stmt:
    value = mma.function(float32.vector(4), load_vector(sums, at, 4), load_vector(a, i, 4),
                                load_vector(b, j, 2))
    return store_vector(sums, at, value)


def _other(value: PrimExpr, bit: int) -> PrimExpr:
    """The value of the thread whose lane differs in ``bit``: four lanes have one row."""
    return device_function("shfl_xor_f32")(float32, value, const(bit, "int32"))


def exp(x: PrimExpr) -> PrimExpr:
    """e**x by the special function unit, within a few units of 2**-22 (Dao 2022 does the same)."""
    return device_function("exp2_approx")(float32, x * const(LOG2_E, float32))


def _commit() -> Stmt:
    return Evaluate(device_function("cp_async_commit")(None))
