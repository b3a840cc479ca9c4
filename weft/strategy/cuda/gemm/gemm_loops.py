"""The grid of a GEMM: which block computes which tile, split-K, and the epilogue.

The main loops (``MmaLoops``, ``WgmmaLoops``, ``SimtLoops``, ``GemvLoops``) compute the accumulators
of one tile of C; what is around them is the same for all of them. Invariants: a block has one tile
and one split of K; blocks are numbered along x as (matrix, tile), the split is y. Accumulators
beyond the edges of C are computed from zeros and not stored.
"""

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
    let,
    load_vector,
    serial,
    store_vector,
    vectorized,
)
from weft.strategy.cuda.gemm.operand import Operand, flat_index
from weft.support.dataclass import dataclass
from weft.te import Tensor, loads_of
from weft.tir import Analyzer, Buffer, BufferLoad, PrimExpr, Var, all_of, const, int_value, minimum
from weft.tir.stmt import Allocate, BufferStore, IfThenElse, Stmt, seq
from weft.tir.visitor import mentions, post_order

REDUCE_THREADS = 256
# Threadblock swizzle (CUTLASS): rows of tiles that consecutive blocks traverse together, so that
# the blocks that run at a time share operands in L2.
SWIZZLES = (8, 4, 2)


class BlockLoops(Protocol):
    """The main loop: how one block computes the accumulators of its tile."""

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
    """Tiles of ``bm`` x ``bn`` of C by ``bk`` of K; split-K among ``splits`` blocks."""

    bm: int
    bn: int
    bk: int
    splits: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class GemmLoops:
    """The body of a kernel (``te.ExternBody``): a GEMM and the operators fused after it."""

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
            return self._gemm(memory, outputs, None)
        # Partial sums in memory and a second launch, instead of atomics: the order of the additions
        # is fixed, so results are the same in each run.
        partial = Buffer("partial", (const(self.tiling.splits), *self._sizes[:3]),
                         self.contraction.accumulator)
        return Allocate(partial, seq([self._gemm(memory, outputs, partial),
                                      self._reduction(memory, outputs, partial)]))

    @property
    def _sizes(self) -> tuple[PrimExpr, PrimExpr, PrimExpr, PrimExpr]:
        return self.contraction.sizes

    def _gemm(
        self, memory: dict[te.Tensor, Buffer], outputs: Sequence[Buffer], partial: Buffer | None
    ) -> Stmt:
        """The grid of tiles; partial sums go to ``partial``."""
        batch, m_size, n_size, k_size = self._sizes
        tiling, analyzer = self.tiling, Analyzer()
        tiles_m, tiles_n = ceil_div(m_size, tiling.bm), ceil_div(n_size, tiling.bn)
        k_tiles = ceil_div(k_size, tiling.bk)
        of_split = ceil_div(k_tiles, tiling.splits)
        a, b = (o.with_buffers(memory.__getitem__) for o in self.operands)
        loops = self.make(a, b)
        shared = loops.shared()

        def thread_body(blocks: Sequence[PrimExpr], thread: PrimExpr) -> Stmt:
            tile, split = blocks
            z, tile = _matrix_and_tile(tile, tiles_m * tiles_n, batch)
            tile_m, tile_n = _swizzled(analyzer.simplify(tile), tiles_m, tiles_n)
            first = split * of_split

            def tiled(z: PrimExpr, tile_m: PrimExpr, tile_n: PrimExpr) -> Stmt:
                m, n = tile_m * tiling.bm, tile_n * tiling.bn

                def finish(sums: Sums) -> Stmt:
                    if partial is None:
                        return self._epilogue(sums, z, m, n, memory, outputs, analyzer)
                    return self._store_partial(sums, (split, z), m, n, partial, analyzer)

                # The last split may have fewer k-tiles, or none: then its partial sums are zeros.
                count = analyzer.simplify(minimum(of_split, k_tiles - first))
                work = Work(z, m, n, first, count, finish, analyzer)
                return loops.block(work, shared, thread)

            simplify = analyzer.simplify
            # Bound to variables with known ranges, so that the guards of inner tiles simplify away.
            return let("matrix", simplify(z), lambda z: let(
                "tile_m", simplify(tile_m), lambda tile_m: let(
                    "tile_n", simplify(tile_n), lambda tile_n: tiled(z, tile_m, tile_n), analyzer,
                    tiles_n),
                analyzer, tiles_m), analyzer, batch)

        grid = (analyzer.simplify(batch * tiles_m * tiles_n), const(tiling.splits))
        return kernel(grid, loops.threads, shared, thread_body, analyzer)

    def _epilogue(
        self, sums: Sums, z: PrimExpr, m: PrimExpr, n: PrimExpr,
        memory: dict[te.Tensor, Buffer], outputs: Sequence[Buffer], analyzer: Analyzer,
    ) -> Stmt:
        """Store the results of a thread's accumulators, as vectors where that is legal."""
        width = self._store_width(sums.width, outputs, memory)
        stored: list[Stmt] = []

        def stores(i: PrimExpr, j: PrimExpr, total: PrimExpr) -> list[BufferStore]:
            index = self.contraction.result_index(z, i, j)
            found = self.epilogue.stores(index, total, memory.__getitem__, outputs)
            return [s.replace(indices=tuple(analyzer.simplify(i) for i in s.indices))
                    for s in found]

        for at_m, at_n, register in sums.groups:
            for first in range(0, sums.width, width):
                i, j = m + at_m, n + at_n + first

                def one(e: PrimExpr, i: PrimExpr = i, j: PrimExpr = j,
                        register: int = register + first) -> Stmt:
                    if isinstance(e, Var):
                        analyzer.bind(e, 0, width)
                    return seq(stores(i, j + e, sums.registers.load(register + e)))

                stored.append(_if(self._inside(analyzer, i, j), vectorized(width, one)))
        return _if(sums.owns, seq(stored))

    def _store_width(self, width: int, outputs: Sequence[Buffer],
                     memory: dict[te.Tensor, Buffer]) -> int:
        """Elements of one vector store: a divisor of N, so that no vector crosses the edge of C."""
        n = int_value(self._sizes[2])
        while width > 1 and (n is None or n % width
                             or not self._is_contiguous(width, outputs, memory)):
            width //= 2
        return width

    def _is_contiguous(self, width: int, outputs: Sequence[Buffer],
                       memory: dict[te.Tensor, Buffer]) -> bool:
        """Whether ``width`` results along N from a multiple of ``width`` on are an aligned vector.

        It must hold of each output, and of each operand of the epilogue that differs along N. With
        ``j = q * width + r``, the last index must be ``r`` plus something without ``r``, and the
        position of ``r = 0`` a multiple of ``width``.
        """
        z, i, q, r = (Var(name, int64) for name in ("z", "i", "q", "r"))
        batch, m_size, n_size, _ = self._sizes
        analyzer = Analyzer()
        for var, extent in ((z, batch), (i, m_size), (r, const(width)),
                            (q, const((int_value(n_size) or 0) // width))):
            analyzer.bind(var, 0, extent)
        total = Var("total", self.epilogue.total.dtype)
        index = self.contraction.result_index(z, i, q * width + r)
        for store in self.epilogue.stores(index, total, memory.__getitem__, outputs):
            written = BufferLoad(store.buffer, store.indices)
            read = [e for e in post_order(store.value) if isinstance(e, BufferLoad)]
            for number, load in enumerate((written, *read)):
                *outer, last = [analyzer.simplify(x) for x in load.indices] or [const(0)]
                rest = analyzer.simplify(last - r)
                if number and not any(mentions(x, r) for x in (*outer, last)):
                    continue  # the same element for all of the vector
                if any(mentions(x, r) for x in (*outer, rest)) \
                        or int_value(analyzer.simplify((flat_index(load) - r) % width)) != 0:
                    return False
        return True

    def _store_partial(
        self, sums: Sums, at: tuple[PrimExpr, PrimExpr], m: PrimExpr, n: PrimExpr,
        partial: Buffer, analyzer: Analyzer,
    ) -> Stmt:
        """Store the accumulators of one split of K at ``at`` (split, matrix)."""
        known = int_value(self._sizes[2])
        width = sums.width if known is not None and known % sums.width == 0 else 1
        stored = []
        for at_m, at_n, register in sums.groups:
            for first in range(0, sums.width, width):
                i, j = m + at_m, n + at_n + first
                value = load_vector(sums.registers, register + first, width)
                store = store_vector(partial, j, value)
                stored.append(_if(self._inside(analyzer, i, j),
                                  store.replace(indices=(*at, i, *store.indices))))
        return _if(sums.owns, seq(stored))

    def _inside(self, analyzer: Analyzer, i: PrimExpr, j: PrimExpr) -> PrimExpr:
        """Whether (i, j) is an element of C."""
        _, m_size, n_size, _ = self._sizes
        return analyzer.simplify(all_of(i < m_size, j < n_size))

    def _reduction(
        self, memory: dict[te.Tensor, Buffer], outputs: Sequence[Buffer], partial: Buffer
    ) -> Stmt:
        """The launch that adds the splits in order: a thread per element of C."""
        batch, m_size, n_size, _ = self._sizes
        analyzer = Analyzer()
        elements = batch * m_size * n_size
        total = Buffer("total", (const(1),), partial.dtype, "local")

        def body(blocks: Sequence[PrimExpr], thread: PrimExpr) -> Stmt:
            item = blocks[0] * REDUCE_THREADS + thread
            j, i, z = item % n_size, item // n_size % m_size, item // (n_size * m_size)
            add = serial("split", self.tiling.splits, lambda s: BufferStore(
                total, total.load(0) + partial.load(s, z, i, j), (const(0),)))
            stores = self.epilogue.stores(self.contraction.result_index(z, i, j), total.load(0),
                                          memory.__getitem__, outputs)
            return _if(analyzer.simplify(item < elements), Allocate(total, seq([
                BufferStore(total, const(0, partial.dtype), (const(0),)), add, *stores])))

        return kernel((ceil_div(elements, REDUCE_THREADS),), REDUCE_THREADS, (), body, analyzer)


def _if(condition: PrimExpr, body: Stmt) -> Stmt:
    known = int_value(condition)
    return body if known else IfThenElse(condition, body)


def _matrix_and_tile(
    block: PrimExpr, tiles: PrimExpr, batch: PrimExpr
) -> tuple[PrimExpr, PrimExpr]:
    if int_value(batch) == 1:
        return const(0), block
    return block // tiles, block % tiles


def _swizzled(tile: PrimExpr, tiles_m: PrimExpr, tiles_n: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The position of tile number ``tile``: down ``swizzle`` rows of tiles, then along N.

    The largest swizzle that divides the rows, so that every tile has one number.
    """
    known = int_value(tiles_m)
    swizzle = next((g for g in SWIZZLES if known is not None and known % g == 0), 1)
    of_rows = tiles_n * swizzle
    inner = tile % of_rows
    return tile // of_rows * swizzle + inner % swizzle, inner // swizzle
