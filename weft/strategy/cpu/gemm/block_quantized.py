"""The loops of a matmul whose weight is quantised in blocks.

A task is a panel of ``lanes`` rows of the weight. One row of the data (decoding) is multiplied with
elements that are dequantised in registers; for more, the panel is dequantised once into a buffer
that stays in L2, which register tiles of ``mr`` rows read. Both add in the same order, lane by lane
along K, so the bits of a row do not depend on the number of rows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator

from weft import te
from weft.codegen.cost_model import tensor_types, typical_elements
from weft.ir import Call, Expr, TensorType, float32, int64
from weft.op.nn.block_quantized import BlockQuantizedDenseAttrs
from weft.strategy.cpu.attention.decode_loops import unrolled, with_row_sums
from weft.strategy.cpu.attention.fused_tile import loop
from weft.strategy.cpu.attention.strategy import schedule_attention
from weft.strategy.cpu.default import schedule_default
from weft.strategy.cpu.gemm.block_int8 import BlockInt8Loops, tile_for, unit_of
from weft.strategy.cpu.gemm.byte_products import byte_products
from weft.strategy.cpu.machine_model import machine_model
from weft.strategy.implementation import Implementation, attrs_of
from weft.strategy.registry import strategy
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.te.math import prefetch
from weft.tir import (
    Allocate,
    Buffer,
    BufferStore,
    Evaluate,
    ForKind,
    IfThenElse,
    LetStmt,
    Ramp,
    Stmt,
    seq,
)
from weft.tir.expr import PrimExpr, Var, const, int_value, minimum
from weft.tir.row_major import element_count, unravel
from weft.tir.task_scratch import MAX_STACK_BYTES
from weft.topi.nn.block_formats import RUN, BlockFormat, block_format
from weft.topi.nn.block_quantized import (
    GROUP,
    Activations,
    LoopBlocks,
    quant_range,
    store_block,
)
from weft.topi.nn.dense import accumulator_dtype

NR = 4  # rows of the weight in a register tile: their FMAs hide each other's latency


@strategy("nn.block_quantized_dense", target="cpu", complete=True)
def block_quantized_dense(call: Call, target: CpuTarget) -> Iterator[Implementation]:
    """Dequantisation in registers, where vectors divide a run of elements."""
    attrs = attrs_of(call, BlockQuantizedDenseAttrs)
    lanes = _lanes_of_panels(target, _known(call.args[0], -1) or 0)
    form = block_format(attrs.format)
    is_rounded = attrs.activations == Activations.INT8 and quant_range(form) is not None
    rows, elements = _sizes(call, form)
    model = machine_model(target)
    data = call.args[0].checked_type
    sums = accumulator_dtype(data.dtype) if isinstance(data, TensorType) else None
    if not is_rounded and lanes >= NR and RUN % lanes == 0 and sums is float32:
        mr = max((target.vector_registers - NR - 1) // NR, 1)
        compute = functools.partial(_compute, loops=BlockQuantizedLoops(form, lanes, mr))
        expansion = elements / lanes * model.dequantize_vector_cycles
        products = (rows - 1) * elements / lanes / model.fma_per_cycle
        transfer = model.weight_cycles(elements / form.elements * form.nbytes)
        cycles = max(expansion + products, transfer)
        yield Implementation("nn.block_quantized_dense.cpu.registers", schedule_attention, compute,
                             model.seconds(cycles))
    if is_rounded and sums is float32:
        yield from _with_int8(call, form, target, rows, elements)
    scalar = rows * elements * (model.unblocked_fma_cycles + model.dequantize_vector_cycles)
    yield Implementation("nn.block_quantized_dense.cpu.generic", schedule_default,
                         seconds=model.seconds(scalar))


def _lanes_of_panels(target: CpuTarget, depth: int) -> int:
    """Lanes that are rows of a panel of floats: on the stacks of threads, it is none of the weight.

    In the workspace each task would have a panel, which together are the weight as floats.
    """
    lanes = target.lanes("float32")
    while lanes > NR and lanes * depth * float32.itemsize > MAX_STACK_BYTES:
        lanes //= 2
    return lanes


def _with_int8(call: Call, form: BlockFormat, target: CpuTarget, rows: float, elements: float
               ) -> Iterator[Implementation]:
    """Products of bytes, where the CPU has them and sizes are whole."""
    columns, depth = (_known(call.args[1], 0), _known(call.args[0], -1))
    found = quant_range(form)
    products = None if found is None else byte_products(target, *found)
    if products is None or not depth or depth % GROUP or (columns or 0) < products.rows:
        return
    model, unit = machine_model(target), unit_of(form)
    tile = tile_for(products, target.vector_registers, columns or 0,
                    model.fma_latency * model.fma_per_cycle)
    loops = BlockInt8Loops(form, products, tile, unit)
    per_unit = products.instructions(unit) + loops.scalings
    units = elements / unit / products.rows
    unpacking = elements / products.bits * 8 * model.dequantize_vector_cycles
    transfer = model.weight_cycles(elements / form.elements * form.nbytes)
    cycles = max(unpacking + rows * units * per_unit / model.fma_per_cycle, transfer)
    yield Implementation("nn.block_quantized_dense.cpu.int8", schedule_attention,
                         functools.partial(_compute, loops=loops), model.seconds(cycles))


def _known(arg: Expr, axis: int) -> int | None:
    kind = arg.checked_type
    size = kind.shape[axis] if isinstance(kind, TensorType) else None
    return size if isinstance(size, int) else None


def _sizes(call: Call, form: BlockFormat) -> tuple[float, float]:
    """The rows of the data, and the elements of the weight."""
    data, weight = (typical_elements(t) for arg in call.args
                    for t in tensor_types(arg.checked_type))
    elements = weight / form.nbytes * form.elements
    outputs = sum(typical_elements(t) for t in tensor_types(call.checked_type))
    # (M * K) * (M * N) / (N * K) is the square of M.
    return max(1.0, math.sqrt(data * outputs / max(elements, 1))), elements


def _compute(data: te.Tensor, weight: te.Tensor, attrs: BlockQuantizedDenseAttrs, *,
             loops: Callable[[tuple[Buffer, ...], tuple[Buffer, ...]], Stmt]) -> te.Tensor:
    del attrs
    return te.extern([(*data.shape[:-1], weight.shape[0])], (data, weight), loops, [data.dtype],
                     "block_quantized_dense")[0]


@dataclass(frozen=True, slots=True)
class BlockQuantizedLoops:
    """Builds the statement over ``(data, weight)`` and ``(out,)``; ``mr`` rows of data a tile."""

    form: BlockFormat
    lanes: int
    mr: int

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        data, weight = inputs
        panels = (weight.shape[0] + (self.lanes - 1)) // self.lanes
        return loop("task", panels, lambda panel: _Task(
            self.form, self.lanes, self.mr, data, weight, outputs[0], panel * self.lanes).build(),
            ForKind.PARALLEL)


@dataclass(frozen=True, slots=True)
class _Task:
    form: BlockFormat
    lanes: int
    mr: int
    data: Buffer
    weight: Buffer
    out: Buffer
    first: PrimExpr  # row of the weight

    def build(self) -> Stmt:
        rows, depth = element_count(self.data.shape[:-1]), self.data.shape[-1]
        panel = Buffer("panel", (const(self.lanes), depth), float32)
        full = rows // self.mr

        def row_of(n: PrimExpr) -> PrimExpr:
            return minimum(self.first + n, self.weight.shape[0] - 1)

        def expand(n: PrimExpr) -> Stmt:
            return loop("block", depth // self.form.elements, lambda b: store_block(
                self.form, self._block(row_of(n), b), panel, (n,), b * self.form.elements,
                self.lanes))

        def with_panel(first: PrimExpr, count: int) -> Stmt:
            return self._rows(first, count, lambda acc, n: self._from_panel(acc, panel, first, n))

        many = Allocate(panel, seq([
            loop("row", self.lanes, expand),
            loop("tile", full, lambda t: with_panel(t * self.mr, self.mr)),
            *(IfThenElse((rows - full * self.mr).equal(rest), with_panel(full * self.mr, rest))
              for rest in range(1, self.mr))]))
        one = self._rows(const(0), 1, lambda acc, n: self._from_blocks(
            acc, [row_of(n + r) for r in range(NR)]))
        known = int_value(rows)
        if known is not None:
            return one if known == 1 else many
        return IfThenElse(rows.equal(1), one, many)

    def _block(self, row: PrimExpr, number: PrimExpr) -> LoopBlocks:
        return LoopBlocks(self.weight, (row,), number * self.form.nbytes)

    def _rows(self, first: PrimExpr, count: int,
              accumulate: Callable[[Buffer, PrimExpr], Stmt]) -> Stmt:
        """``count`` rows of the result from ``first`` on, in the columns of the panel."""
        lanes = self.lanes
        acc = Buffer("acc", tuple(map(const, (count, NR, lanes))), float32, "local")
        sums = Buffer("sums", tuple(map(const, (count, lanes, lanes))), float32)
        totals = Buffer("totals", (const(count), const(lanes)), float32)

        def every(body: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]) -> Stmt:
            return unrolled(count, lambda m: unrolled(NR, lambda r: self._vector(
                lambda lane: body(m, r, lane))))

        def tile(number: PrimExpr) -> Stmt:
            return Allocate(acc, seq([
                every(lambda m, r, lane: BufferStore(acc, const(0, float32), (m, r, lane))),
                accumulate(acc, number * NR),
                every(lambda m, r, lane: BufferStore(
                    sums, acc.load(m, r, lane), (m, number * NR + r, lane)))]))

        def write(m: PrimExpr) -> Stmt:
            row = Buffer("square", (const(lanes), const(lanes)), float32, "local")
            copied = unrolled(lanes, lambda r: self._vector(lambda lane: BufferStore(
                row, sums.load(m, r, lane), (r, lane))))
            store = with_row_sums(row, lanes, lambda total: BufferStore(
                totals, total, (m, Ramp(const(0), const(1), lanes))))
            return seq([Allocate(row, seq([copied, store])), self._vector(
                lambda lane: self._store(first + m, lane, totals.load(m, lane)))])

        body = seq([loop("part", lanes // NR, tile), loop("row", count, write)])
        return Allocate(sums, Allocate(totals, body))

    def _store(self, m: PrimExpr, lane: PrimExpr, value: PrimExpr) -> Stmt:
        place = (*unravel(m, self.out.shape[:-1]), self.first + lane)
        store = BufferStore(self.out, value.astype(self.out.dtype), place)
        columns = int_value(self.out.shape[-1])
        is_whole = columns is not None and columns % self.lanes == 0
        return store if is_whole else IfThenElse(place[-1] < self.out.shape[-1], store)

    def _vector(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        return loop("lane", self.lanes, body, ForKind.VECTORIZED)

    def _x(self, m: PrimExpr, k: PrimExpr) -> PrimExpr:
        return self.data.load(*unravel(m, self.data.shape[:-1]), k).astype(float32)

    def _add(self, acc: Buffer, place: tuple[PrimExpr, ...], weight: PrimExpr, x: PrimExpr
             ) -> Stmt:
        # An explicit FMA: other sums are cut into blocks that depend on the size of the tile.
        return BufferStore(acc, te.fma(x, weight, acc.load(*place)), place)

    def _from_panel(self, acc: Buffer, panel: Buffer, first: PrimExpr, n: PrimExpr) -> Stmt:
        count = int_value(acc.shape[0]) or 1

        def at(k: PrimExpr, lane: PrimExpr) -> PrimExpr:
            return k * self.lanes + lane

        def step(k: PrimExpr) -> Stmt:
            return unrolled(count, lambda m: unrolled(NR, lambda r: self._vector(
                lambda lane: self._add(acc, (m, r, lane), panel.load(n + r, at(k, lane)),
                                       self._x(first + m, at(k, lane))))))

        return loop("k", self.data.shape[-1] // self.lanes, step)

    def _from_blocks(self, acc: Buffer, rows: list[PrimExpr]) -> Stmt:
        """Blocks of ``NR`` rows times one row of the data, dequantised in registers."""
        names = [Var("weight_row", int64) for _ in rows]

        def hint(r: int, number: PrimExpr) -> Stmt:
            # The rows of the next tile: the rows of this one are too short to be foreseen.
            row = minimum(names[r] + NR, self.weight.shape[0] - 1)
            return Evaluate(prefetch(self.weight.load(row, number * self.form.nbytes)))

        def block(number: PrimExpr) -> Stmt:
            runs = [self._run(acc, names, number, run, start) for run in range(self.form.runs)
                    for start in range(0, RUN, self.lanes)]
            return seq([*(hint(r, number) for r in range(NR)), *runs])

        body = loop("block", self.data.shape[-1] // self.form.elements, block)
        for name, row in zip(names, rows, strict=True):
            body = LetStmt(name, row, body)
        return body

    def _run(self, acc: Buffer, rows: list[Var], number: PrimExpr, run: int, start: int) -> Stmt:
        at = number * self.form.elements + (RUN * run + start)

        def element(r: int, lane: PrimExpr) -> Stmt:
            value = self.form.value(self._block(rows[r], number), run, lane + start)
            return self._add(acc, (const(0), const(r), lane), value, self._x(const(0), at + lane))

        return seq([self._vector(functools.partial(element, r)) for r in range(len(rows))])
