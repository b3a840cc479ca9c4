"""The loops of a product: which block computes which tile, split-K, and the stores of results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from weft import te
from weft.ir import int64
from weft.strategy.cuda.gemm.contraction import Contraction
from weft.strategy.cuda.gemm.epilogue import Epilogue
from weft.strategy.cuda.gemm.frame import (
    Sums,
    Work,
    ceil_div,
    kernel,
    lanes_at,
    let,
    serial,
    store_lanes,
    vectorized,
)
from weft.strategy.cuda.gemm.operand import Operand, flat_index
from weft.support.dataclass import dataclass
from weft.te import Tensor, loads_of
from weft.tir import Analyzer, Buffer, BufferLoad, PrimExpr, Var, all_of, const, int_value, minimum
from weft.tir.stmt import Allocate, BufferStore, IfThenElse, Stmt, seq
from weft.tir.visitor import mentions, post_order

REDUCE_THREADS = 256
GROUPS = (8, 4, 2)  # rows of tiles that blocks walk together, so that L2 keeps their operands


class BlockLoops(Protocol):
    """How one block computes the sums of its tile."""

    @property
    def threads(self) -> int:
        """Threads of a block."""
        ...

    def shared(self) -> tuple[Buffer, ...]:
        """The shared memory of a block."""
        ...

    def block(self, work: Work, shared: Sequence[Buffer], thread: PrimExpr) -> Stmt:
        """The statements of one thread."""
        ...


class MakeLoops(Protocol):
    """Makes the loops of a block for operands over buffers."""

    def __call__(self, a: Operand, b: Operand) -> BlockLoops: ...


@dataclass(frozen=True, slots=True)
class Tiling:
    """Tiles of ``bm`` x ``bn`` of C by ``bk`` of K; K is divided among ``splits`` blocks."""

    bm: int
    bn: int
    bk: int
    splits: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class ProductLoops:
    """The body of a kernel (``te.ExternBody``): a product and the operators fused after it."""

    contraction: Contraction
    operands: tuple[Operand, Operand]
    epilogue: Epilogue
    tiling: Tiling
    make: MakeLoops

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that the body reads, in the order of its input buffers."""
        read = [load.producer for o in self.operands for load in loads_of((o.element,))]
        return tuple(dict.fromkeys([*read, *self.epilogue.inputs()]))

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        memory = dict(zip(self.inputs, inputs, strict=True))
        if self.tiling.splits == 1:
            return self._product(memory, outputs, None)
        partial = Buffer("partial", (const(self.tiling.splits), *self._sizes[:3]),
                         self.contraction.accumulator)
        return Allocate(partial, seq([self._product(memory, outputs, partial),
                                      self._reduction(memory, outputs, partial)]))

    @property
    def _sizes(self) -> tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]:
        return self.contraction.sizes

    def _product(
        self, memory: dict[te.Tensor, Buffer], outputs: Sequence[Buffer], partial: Buffer | None
    ) -> Stmt:
        """The grid of tiles; partial sums go to ``partial``."""
        batch, rows, columns, depth = self._sizes
        tiling, analyzer = self.tiling, Analyzer()
        tiles_m, tiles_n = ceil_div(rows, tiling.bm), ceil_div(columns, tiling.bn)
        total = ceil_div(depth, tiling.bk)
        share = ceil_div(total, tiling.splits)
        a, b = (o.with_buffers(memory.__getitem__) for o in self.operands)
        loops = self.make(a, b)
        shared = loops.shared()

        def thread_body(blocks: Sequence[PrimExpr], thread: PrimExpr) -> Stmt:
            tile, split = blocks
            z, tile = _divided(tile, tiles_m * tiles_n, batch)
            m, n = _position(analyzer.simplify(tile), tiles_m, tiles_n)
            first = split * share

            def tiled(z: PrimExpr, m: PrimExpr, n: PrimExpr) -> Stmt:
                row, column = m * tiling.bm, n * tiling.bn

                def finish(sums: Sums) -> Stmt:
                    if partial is None:
                        return self._results(sums, z, row, column, memory, outputs, analyzer)
                    return self._partial(sums, (split, z), row, column, partial, analyzer)

                steps = analyzer.simplify(minimum(share, total - first))
                work = Work(z, row, column, first, steps, finish, analyzer)
                return loops.block(work, shared, thread)

            simplify = analyzer.simplify
            return let("matrix", simplify(z), lambda z: let(
                "tile_row", simplify(m), lambda m: let(
                    "tile_column", simplify(n), lambda n: tiled(z, m, n), analyzer, tiles_n),
                analyzer, tiles_m), analyzer, batch)

        grid = (analyzer.simplify(batch * tiles_m * tiles_n), const(tiling.splits))
        return kernel(grid, loops.threads, shared, thread_body, analyzer)

    def _results(
        self, sums: Sums, z: PrimExpr, row: PrimExpr, column: PrimExpr,
        memory: dict[te.Tensor, Buffer], outputs: Sequence[Buffer], analyzer: Analyzer,
    ) -> Stmt:
        """Store the results of a thread's sums: neighbours together where memory allows."""
        _, rows, columns, _ = self._sizes
        lanes = self._lanes(sums.width, outputs, memory)
        made: list[Stmt] = []

        def stores(i: PrimExpr, j: PrimExpr, total: PrimExpr) -> list[BufferStore]:
            index = self.contraction.result_index(z, i, j)
            found = self.epilogue.stores(index, total, memory.__getitem__, outputs)
            return [s.replace(indices=tuple(analyzer.simplify(i) for i in s.indices))
                    for s in found]

        for at_row, at_column, register in sums.groups:
            for first in range(0, sums.width, lanes):
                i, j = row + at_row, column + at_column + first

                def one(lane: PrimExpr, i: PrimExpr = i, j: PrimExpr = j,
                        register: int = register + first) -> Stmt:
                    if isinstance(lane, Var):
                        analyzer.bind(lane, 0, lanes)
                    return seq(stores(i, j + lane, sums.registers.load(register + lane)))

                made.append(_if(_inside(analyzer, i, rows, j, columns), vectorized(lanes, one)))
        return _if(sums.owns, seq(made))

    def _lanes(self, width: int, outputs: Sequence[Buffer],
               memory: dict[te.Tensor, Buffer]) -> int:
        """Sums of a group that are stored together."""
        columns = int_value(self._sizes[2])
        while width > 1 and (columns is None or columns % width
                             or not self._is_run(width, outputs, memory)):
            width //= 2
        return width

    def _is_run(self, width: int, outputs: Sequence[Buffer],
                memory: dict[te.Tensor, Buffer]) -> bool:
        """Whether the results of ``width`` sums from a multiple of ``width`` on are neighbours."""
        z, i, q, r = (Var(name, int64) for name in ("z", "i", "q", "r"))
        batch, rows, columns, _ = self._sizes
        analyzer = Analyzer()
        for var, extent in ((z, batch), (i, rows), (r, const(width)),
                            (q, const((int_value(columns) or 0) // width))):
            analyzer.bind(var, 0, extent)
        total = Var("total", self.epilogue.total.dtype)
        index = self.contraction.result_index(z, i, q * width + r)
        for store in self.epilogue.stores(index, total, memory.__getitem__, outputs):
            written = BufferLoad(store.buffer, store.indices)
            read = [e for e in post_order(store.value) if isinstance(e, BufferLoad)]
            for number, load in enumerate((written, *read)):
                *outer, last = [analyzer.simplify(x) for x in (*load.indices, )] or [const(0)]
                rest = analyzer.simplify(last - r)
                if number and not any(mentions(x, r) for x in (*outer, last)):
                    continue  # one element for all lanes
                if any(mentions(x, r) for x in (*outer, rest)) \
                        or int_value(analyzer.simplify((flat_index(load) - r) % width)) != 0:
                    return False
        return True

    def _partial(
        self, sums: Sums, at: tuple[PrimExpr, PrimExpr], row: PrimExpr, column: PrimExpr,
        partial: Buffer, analyzer: Analyzer,
    ) -> Stmt:
        """Store the sums of one share of K."""
        _, rows, columns, _ = self._sizes
        known = int_value(columns)
        lanes = sums.width if known is not None and known % sums.width == 0 else 1
        made = []
        for at_row, at_column, register in sums.groups:
            for first in range(0, sums.width, lanes):
                i, j = row + at_row, column + at_column + first
                value = lanes_at(sums.registers, register + first, lanes)
                store = store_lanes(partial, j, value)
                made.append(_if(_inside(analyzer, i, rows, j, columns),
                                store.replace(indices=(*at, i, *store.indices))))
        return _if(sums.owns, seq(made))

    def _reduction(
        self, memory: dict[te.Tensor, Buffer], outputs: Sequence[Buffer], partial: Buffer
    ) -> Stmt:
        """Add the shares of K in order, and store the results: a thread per element."""
        batch, rows, columns, _ = self._sizes
        analyzer = Analyzer()
        elements = batch * rows * columns
        total = Buffer("total", (const(1),), partial.dtype, "local")

        def body(blocks: Sequence[PrimExpr], thread: PrimExpr) -> Stmt:
            item = blocks[0] * REDUCE_THREADS + thread
            j, i, z = item % columns, item // columns % rows, item // (columns * rows)
            add = serial("split", self.tiling.splits, lambda s: BufferStore(
                total, total.load(0) + partial.load(s, z, i, j), (const(0),)))
            stores = self.epilogue.stores(self.contraction.result_index(z, i, j), total.load(0),
                                          memory.__getitem__, outputs)
            return _if(analyzer.simplify(item < elements), Allocate(total, seq([
                BufferStore(total, const(0, partial.dtype), (const(0),)), add, *stores])))

        return kernel((ceil_div(elements, REDUCE_THREADS),), REDUCE_THREADS, (), body, analyzer)


def _inside(analyzer: Analyzer, i: PrimExpr, rows: PrimExpr, j: PrimExpr,
            columns: PrimExpr) -> PrimExpr:
    return analyzer.simplify(all_of(i < rows, j < columns))


def _if(condition: PrimExpr, body: Stmt) -> Stmt:
    known = int_value(condition)
    return body if known else IfThenElse(condition, body)


def _divided(index: PrimExpr, inner: PrimExpr, outer: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    if int_value(outer) == 1:
        return const(0), index
    return index // inner, index % inner


def _position(tile: PrimExpr, tiles_m: PrimExpr, tiles_n: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The row and column of tile number ``tile``: columns of a few rows at a time."""
    known = int_value(tiles_m)
    group = next((g for g in GROUPS if known is not None and known % g == 0), 1)
    width = tiles_n * group
    inner = tile % width
    return tile // width * group + inner % group, inner // group
