"""The loops of a grouped GEMM: register tiles of the rows of a group by panels of its matrix.

The numbers of rows are data. A task is a panel of one matrix and all rows of its group: a matrix is
read once, one without rows not at all. Full tiles have ``mr`` rows; the last tile of a group is one
of ``mr - 1`` versions with the number of rows that are left, so no row is computed in vain.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import float32, int64
from weft.strategy.cpu.attention.decode_loops import unrolled
from weft.strategy.cpu.attention.fused_tile import loop
from weft.strategy.cpu.common.register_tile import RegisterTile
from weft.support.dataclass import dataclass
from weft.tir import Allocate, Buffer, BufferStore, ForKind, IfThenElse, LetStmt, Stmt, seq
from weft.tir.expr import PrimExpr, Var, const, int_value, maximum, minimum


@dataclass(frozen=True, slots=True)
class GroupedLoops:
    """Builds the statement over ``(data, weight, sizes)`` and ``(out,)``.

    ``data``: float32 (M, K); ``weight``: (groups, panels, K, nr), whose surplus columns are zero;
    ``sizes``: (groups,) integers; ``out``: (M, N).
    """

    tile: RegisterTile
    lanes: int

    def __call__(self, inputs: tuple[Buffer, ...], outputs: tuple[Buffer, ...]) -> Stmt:
        data, weight, sizes = inputs
        out, groups = outputs[0], sizes.shape[0]
        ends = Buffer("ends", (groups + 1,), int64)
        rows = data.shape[0]

        def next_end(g: PrimExpr) -> Stmt:
            # Sizes are data: whatever they are, rows stay inside the operands.
            size = maximum(sizes.load(g).astype(int64), const(0, int64))
            return BufferStore(ends, minimum(ends.load(g) + size, rows), (g + 1,))

        def task(index: PrimExpr) -> Stmt:
            # The groups of one panel are neighbours: each thread gets a share of every matrix.
            panel, group = index // groups, index % groups
            return _Task(self.tile, self.lanes, data, weight, out, panel, group).build(
                ends.load(group), ends.load(group + 1))

        def clear(n: PrimExpr) -> Stmt:
            first = ends.load(groups)
            return loop("column", out.shape[1], lambda column: BufferStore(
                out, const(0, out.dtype), (first + n, column)))

        return Allocate(ends, seq([
            BufferStore(ends, const(0, int64), (const(0),)),
            loop("group", groups, next_end),
            loop("task", weight.shape[1] * groups, task, ForKind.PARALLEL),
            loop("row", rows - ends.load(groups), clear),
        ]))


@dataclass(frozen=True, slots=True)
class _Task:
    tile: RegisterTile
    lanes: int
    data: Buffer
    weight: Buffer
    out: Buffer
    panel: PrimExpr
    group: PrimExpr

    def build(self, begin: PrimExpr, end: PrimExpr) -> Stmt:
        """All rows from ``begin`` to ``end``."""
        first, count, height = Var("first", int64), Var("count", int64), self.tile.mr
        done = count // height * height
        body = seq([
            loop("tile", count // height, lambda n: self._rows(first + n * height, height)),
            *(IfThenElse((count - done).equal(rest), self._rows(first + done, rest))
              for rest in range(1, height)),
        ])
        return LetStmt(first, begin, LetStmt(count, maximum(end - begin, const(0, int64)), body))

    def _rows(self, first: PrimExpr, rows: int) -> Stmt:
        """The register tile of ``rows`` rows."""
        vectors, depth = self.tile.nr_vectors, self.data.shape[1]
        acc = Buffer("acc", tuple(map(const, (rows, vectors, self.lanes))), float32, "local")

        def every(body: Callable[[tuple[PrimExpr, ...], PrimExpr], Stmt]) -> Stmt:
            # Vectors inside rows: a broadcast element serves all vectors of its row at once.
            return unrolled(rows, lambda r: unrolled(vectors, lambda v: loop(
                "lane", self.lanes, lambda lane: body((r, v, lane), v * self.lanes + lane),
                ForKind.VECTORIZED)))

        def step(k: PrimExpr) -> Stmt:
            def element(i: tuple[PrimExpr, ...], column: PrimExpr) -> Stmt:
                factor = self.weight.load(self.group, self.panel, k, column).astype(float32)
                value = acc.load(*i) + self.data.load(first + i[0], k) * factor
                return BufferStore(acc, value, i)

            return every(element)

        def write(i: tuple[PrimExpr, ...], column: PrimExpr) -> Stmt:
            at = self.panel * (vectors * self.lanes) + column
            store = BufferStore(self.out, acc.load(*i).astype(self.out.dtype), (first + i[0], at))
            width = int_value(self.out.shape[1])
            is_whole = width is not None and width % (vectors * self.lanes) == 0
            return store if is_whole else IfThenElse(at < self.out.shape[1], store)

        return Allocate(acc, seq([
            every(lambda i, _: BufferStore(acc, const(0, float32), i)), loop("k", depth, step),
            every(write),
        ]))
