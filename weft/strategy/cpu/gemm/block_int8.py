"""The loops of a matmul of data rounded to int8 and a weight quantised in blocks.

A task is a panel of rows of the weight, a row per lane of its vectors of sums. One row of the data
(decoding) is multiplied with the blocks as they are stored; for more, quants are first unpacked
into a buffer in L2. The products of a unit (the 32 or 16 neighbours that share a scale) are summed
exactly, and units are added in order, so the bits of a row do not depend on the number of rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft import te
from weft.ir.dtype import DType, float32, int64
from weft.strategy.cpu.attention.fused_tile import loop
from weft.strategy.cpu.gemm.block_vectors import (
    QUARTERS,
    Lets,
    QuantVectors,
    ScaleVectors,
    as_type,
    consecutive,
    repeated,
    row_sums,
    transposed,
)
from weft.strategy.cpu.gemm.byte_products import ByteProducts, ProductSum
from weft.strategy.cpu.gemm.rounded_data import RoundedData
from weft.support.dataclass import dataclass
from weft.te.math import prefetch
from weft.tir import (
    Allocate,
    Buffer,
    BufferStore,
    Evaluate,
    ForKind,
    IfThenElse,
    LetStmt,
    PrimExpr,
    Ramp,
    Stmt,
    Var,
    const,
    int_value,
    seq,
)
from weft.tir.expr import Broadcast, minimum
from weft.tir.row_major import unravel
from weft.topi.nn.block_formats import RUN, BlockFormat
from weft.topi.nn.block_quantized import GROUP

_LINE = 64
_REGISTERS_FOR_FLOATS = 32


def unit_of(form: BlockFormat) -> int:
    """The neighbours whose products are summed as integers: two runs of one scale, or one."""
    if form.elements % GROUP:
        return RUN
    buffer = Buffer("block", (const(1), const(form.nbytes)), DType.of("uint8"))
    block = ScaleVectors(buffer, (const(0),), const(0), form.nbytes)
    for run in range(0, form.runs, 2):
        numbers = [(form.scale(block, r), form.offset(block, r) if form.offset else None)
                   for r in (run, run + 1)]
        if numbers[0][0] is not numbers[1][0] or numbers[0][1] is not numbers[1][1]:
            return RUN
    return GROUP


@dataclass(frozen=True, slots=True)
class Int8Tile:
    """Rows of data by vectors of rows of the weight; ``spills``: float sums are in memory."""

    mr: int
    vectors: int
    spills: bool


@dataclass(frozen=True, slots=True)
class BlockInt8Loops:
    """Builds the statement over ``(data, weight)`` and ``(out,)``."""

    form: BlockFormat
    products: ByteProducts
    tile: Int8Tile
    unit: int

    @property
    def scalings(self) -> int:
        """Vector instructions that add the integers of a unit to the float sums."""
        return 3 + (self.products.base != 0) + (self.form.offset is not None)

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        data, weight = inputs
        lanes = self.products.rows
        rounded = RoundedData.of(data, min(lanes, RUN), self.unit, self.products.base,
                                 self.products.data_dtype, has_offsets=self.form.offset is not None)
        rows = rounded.quants.shape[0]

        def panels(width: int, body: Callable[[_Panel], Stmt]) -> Stmt:
            last = weight.shape[0] - width

            def task(index: PrimExpr) -> Stmt:
                # The last panel overlaps the one before: both write the same bits.
                first = Var("first", int64)
                panel = _Panel(self, rounded, weight, outputs[0], first, width // lanes)
                return LetStmt(first, minimum(index * width, last), body(panel))

            return loop("task", (weight.shape[0] + (width - 1)) // width, task, ForKind.PARALLEL)

        one = panels(lanes, lambda panel: panel.one_row())
        many = panels(lanes * self.tile.vectors, lambda panel: panel.many_rows())
        known = int_value(rows)
        if known is not None:
            return rounded.around(one if known == 1 else many)
        return rounded.around(IfThenElse(rows.equal(1), one, many))


@dataclass(frozen=True, slots=True)
class _Panel:
    """The rows of the weight from ``first`` on, ``vectors`` registers of them."""

    of: BlockInt8Loops
    data: RoundedData
    weight: Buffer
    out: Buffer
    first: PrimExpr
    vectors: int

    @property
    def lanes(self) -> int:
        return self.of.products.rows

    @property
    def span(self) -> int:
        """Elements of a step over blocks: whole blocks and whole groups of data."""
        return math.lcm(self.of.form.elements, GROUP)

    @property
    def steps(self) -> PrimExpr:
        return self.data.quants.shape[1] // self.span

    def _block(self, step: PrimExpr, run: int) -> tuple[PrimExpr, int]:
        """The byte of a row at which the block of a run of the step begins, and the run in it."""
        form = self.of.form
        block, inside = divmod(run, form.runs)
        return (step * (self.span // form.elements) + block) * form.nbytes, inside

    def _quants(self, v: PrimExpr | int, step: PrimExpr, run: int) -> list[list[PrimExpr]]:
        """The stored quants of a run of all rows of a vector of rows: registers by quarter."""
        start, inside = self._block(step, run)

        def quarter(i: int) -> list[PrimExpr]:
            rows = tuple(self.first + v * self.lanes + (QUARTERS * part + i)
                         for part in range(self.of.products.parts))
            vectors = QuantVectors(self.weight, rows, start)
            quant = self.of.form.quant(vectors, inside, np.arange(RUN))
            return self.of.products.stored(quant)

        return [quarter(i) for i in range(QUARTERS)]

    def _numbers(self, v: PrimExpr | int, step: PrimExpr, run: int
                 ) -> tuple[PrimExpr, PrimExpr | None]:
        """The scales and the offsets of a run, a row per lane."""
        start, inside = self._block(step, run)
        rows = tuple(self.first + v * self.lanes + r for r in range(self.lanes))
        block, form = ScaleVectors(self.weight, rows, start, self.of.form.nbytes), self.of.form
        return (form.scale(block, inside),
                None if form.offset is None else form.offset(block, inside))

    def _added(self, lets: Lets, acc: PrimExpr, total: PrimExpr, m: PrimExpr, unit: PrimExpr,
               numbers: tuple[PrimExpr, PrimExpr | None]) -> PrimExpr:
        """``acc`` and the products of a unit of row ``m``, whose integers are ``total``."""
        scale, offset = numbers
        sums, lanes = self.data.sums, self.lanes
        if sums is not None:
            total = total + Broadcast(sums.load(m, unit), lanes)
        of_data = Broadcast(self.data.scales.load(m, unit * self.of.unit // GROUP), lanes)
        acc = lets.named(te.fma(total.astype(float32), scale * of_data, acc))
        if offset is None or self.data.offsets is None:
            return acc
        return lets.named(te.fma(offset, Broadcast(self.data.offsets.load(m, unit), lanes), acc))

    def _vector_of(self, buffer: Buffer, *leading: PrimExpr | int) -> PrimExpr:
        indices = tuple(const(i) if isinstance(i, int) else i for i in leading)
        return consecutive(buffer, indices, const(0), self.lanes)

    def _put(self, buffer: Buffer, value: PrimExpr, *leading: PrimExpr | int) -> Stmt:
        indices = tuple(const(i) if isinstance(i, int) else i for i in leading)
        return BufferStore(buffer, value, (*indices, Ramp(const(0), const(1), value.dtype.lanes)))

    def _write(self, m: PrimExpr, v: PrimExpr | int, value: PrimExpr) -> Stmt:
        place = unravel(m, self.out.shape[:-1])
        column = Ramp(self.first + v * self.lanes, const(1), self.lanes)
        return BufferStore(self.out, value.astype(self.out.dtype), (*place, column))

    # one row of data

    def one_row(self) -> Stmt:
        """The products of the only row with the blocks as they are stored."""
        acc = Buffer("acc", (const(self.lanes),), float32, "local")
        zero = const(0, float32.vector(self.lanes))
        return Allocate(acc, seq([
            self._put(acc, zero),
            loop("step", self.steps, lambda step: seq(
                [*self._prefetches(step), *(self._unit(acc, step, n)
                                            for n in range(self.span // self.of.unit))])),
            self._write(const(0), 0, self._vector_of(acc))]))

    def _prefetches(self, step: PrimExpr) -> list[Stmt]:
        """Hints for the next panel, as much of it as the step reads of this one."""
        rows = self.lanes * self.vectors
        moved = rows * self.span // self.of.form.elements * self.of.form.nbytes
        ahead = self.weight.shape[1] * rows
        at = self.first * self.weight.shape[1] + ahead + step * moved
        last = self.weight.shape[0] * self.weight.shape[1] - 1
        return [Evaluate(prefetch(self.weight.load(const(0), minimum(at + n, last))))
                for n in range(0, moved, _LINE)]

    def _unit(self, acc: Buffer, step: PrimExpr, number: int) -> Stmt:
        runs = range(number * self.of.unit // RUN, (number + 1) * self.of.unit // RUN)
        lets, zero = Lets(), const(0)
        quarters = [self.of.products.start()] * QUARTERS
        width, parts = 4 * self.of.products.group, self.of.products.parts
        for run in runs:
            stored = self._quants(0, step, run)
            for n, start in enumerate(range(0, RUN, width)):
                at = step * self.span + (run * RUN + start)
                data = consecutive(self.data.quants, (zero,), at, width)
                register = lets.named(repeated(data, parts))
                quarters = [q.add(quarter[n], register).held(lets.named)
                            for q, quarter in zip(quarters, stored, strict=True)]
        total = lets.named(row_sums([lets.named(q.result()) for q in quarters]))
        unit = step * (self.span // self.of.unit) + number
        value = self._added(lets, self._vector_of(acc), total, zero, unit,
                            self._numbers(0, step, runs[0]))
        return lets.around(self._put(acc, value))

    # several rows of data

    def many_rows(self) -> Stmt:
        """Tiles of rows with the quants of the panel, which are unpacked once."""
        rows, depth = self.data.quants.shape
        mr, lanes = self.of.tile.mr, self.lanes
        units = depth // self.of.unit
        group = self.of.products.group
        quants = Buffer("panel", (depth // group, const(self.vectors), const(group * lanes)),
                        self.of.products.dtype)
        scales = Buffer("panel_scales", (units, const(self.vectors), const(lanes)), float32)
        offsets = None if self.of.form.offset is None else Buffer(
            "panel_offsets", scales.shape, float32)
        full = rows // mr

        def tile(first: PrimExpr, count: int) -> Stmt:
            return self._tile(quants, scales, offsets, first, count)

        body = seq([
            loop("step", self.steps, lambda step: seq([*self._prefetches(step), loop(
                "vector", self.vectors,
                lambda v: self._unpack(quants, scales, offsets, v, step))])),
            loop("tile", full, lambda t: tile(t * mr, mr)),
            *(IfThenElse((rows - full * mr).equal(rest), tile(full * mr, rest))
              for rest in range(1, mr))])
        for buffer in (quants, scales, offsets):
            body = body if buffer is None else Allocate(buffer, body)
        return body

    def _unpack(self, quants: Buffer, scales: Buffer, offsets: Buffer | None, v: PrimExpr,
                step: PrimExpr) -> Stmt:
        group, runs = self.of.products.group, self.of.unit // RUN
        stmts: list[Stmt] = []
        for run in range(self.span // RUN):
            lets = Lets()
            stored = self._quants(v, step, run)
            words = [word for n in range(len(stored[0]))
                     for word in transposed([lets.named(quarter[n]) for quarter in stored])]
            first = step * (self.span // group) + run * (RUN // group)
            stmts.append(lets.around(seq([self._put(quants, word, first + n, v)
                                          for n, word in enumerate(words)])))
            if run % runs == 0:
                unit = step * (self.span // self.of.unit) + run // runs
                scale, offset = self._numbers(v, step, run)
                stmts.append(self._put(scales, scale, unit, v))
                if offset is not None and offsets is not None:
                    stmts.append(self._put(offsets, offset, unit, v))
        return seq(stmts)

    def _tile(self, quants: Buffer, scales: Buffer, offsets: Buffer | None, first: PrimExpr,
              count: int) -> Stmt:
        """``count`` rows of data from ``first`` on by all rows of the panel."""
        places = [(m, v) for m in range(count) for v in range(self.vectors)]
        scope = "global" if self.of.tile.spills else "local"
        acc = Buffer("acc", tuple(map(const, (count, self.vectors, self.lanes))), float32, scope)
        zero = const(0, float32.vector(self.lanes))

        def unit(number: PrimExpr) -> Stmt:
            lets = Lets()
            sums = self._products(lets, quants, first, count, number)
            numbers = [(lets.named(self._vector_of(scales, number, v)),
                        None if offsets is None else
                        lets.named(self._vector_of(offsets, number, v)))
                       for v in range(self.vectors)]
            stores = [self._put(acc, self._added(
                lets, self._vector_of(acc, m, v), sums[m, v], first + m, number, numbers[v]), m, v)
                for m, v in places]
            return lets.around(seq(stores))

        return Allocate(acc, seq([
            *(self._put(acc, zero, m, v) for m, v in places),
            loop("unit", scales.shape[0], unit),
            *(self._write(first + m, v, self._vector_of(acc, m, v)) for m, v in places)]))

    def _products(self, lets: Lets, quants: Buffer, first: PrimExpr, count: int,
                  number: PrimExpr) -> dict[tuple[int, int], PrimExpr]:
        """The integer sums of a unit, by row of data and vector of rows of the weight."""
        products = self.of.products
        group, words = products.group, self.of.unit // products.group
        sums: dict[tuple[int, int], ProductSum] = {}
        for word in range(words):
            at = number * words + word
            stored = [lets.named(consecutive(quants, (at, const(v)), const(0), group * self.lanes))
                      for v in range(self.vectors)]
            for m in range(count):
                word_of = as_type(consecutive(self.data.quants, (first + m,), at * group, group),
                                  "int32")
                data = lets.named(as_type(Broadcast(word_of, self.lanes),
                                          str(products.data_dtype)))
                for v in range(self.vectors):
                    so_far = sums.get((m, v)) or products.start()
                    sums[m, v] = so_far.add(stored[v], data).held(lets.named)
        return {place: lets.named(total.result()) for place, total in sums.items()}


def tile_for(products: ByteProducts, registers: int, columns: int, latency: float) -> Int8Tile:
    """The rows by vectors whose sums the registers hold: integers, and floats if they fit too.

    Where floats are in memory, one vector of as many rows as hide the ``latency`` of products, in
    products, is as fast as any tile.
    """
    spills = registers < _REGISTERS_FOR_FLOATS
    vectors = 2 if columns >= 2 * products.rows and not spills else 1
    # Beside the sums: quants, a register of data, and a product.
    free = registers - vectors - 2 - (products.widen is not None)
    kept = products.sums_of(GROUP // products.group) + (not spills)
    rows = max(1, free // (vectors * kept))
    return Int8Tile(min(rows, math.ceil(latency)) if spills else rows, vectors, spills)
