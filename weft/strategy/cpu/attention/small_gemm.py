"""Matrix products of operands in the private caches: register tiles, without packing.

The inner kernel of BLIS (Van Zee and van de Geijn, 2015): ``rows`` elements of A are broadcast, one
at a time, and multiplied with vectors of a row of B; the tile of C stays in registers for all of K.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.ir import float32
from weft.strategy.cpu.attention.fused_tile import in_tiles, loop
from weft.support.dataclass import dataclass
from weft.target import CpuTarget
from weft.tir import Allocate, Buffer, BufferStore, ForKind, PrimExpr, Stmt, const, seq

Element = Callable[[PrimExpr, PrimExpr], PrimExpr]
RESERVED = 2  # registers for an element of A and a vector of B


@dataclass(frozen=True, slots=True)
class SmallGemm:
    """Register tiles of ``rows`` by ``vectors`` vectors of ``lanes`` float32."""

    lanes: int
    rows: int
    vectors: int

    @staticmethod
    def of(target: CpuTarget) -> SmallGemm:
        """The tile that leaves registers for the operands: 6 by 4 of 32 registers, 6 by 2 of 16."""
        vectors = 4 if target.vector_registers >= 32 else 2
        rows = (target.vector_registers - RESERVED - vectors) // vectors
        return SmallGemm(target.lanes("float32"), min(rows, 6), vectors)

    def product(
        self, size: tuple[int, int, int], a: Element, b: Element, c: Buffer, *, add: bool
    ) -> Stmt:
        """``c[m, n] = sum over k of a(m, k) * b(k, n)``, or ``+=`` with ``add``.

        ``size`` is M, N, K; N is a multiple of ``lanes``, and consecutive ``n`` are contiguous in
        ``b`` and ``c``.
        """
        rows, columns, depth = size

        def panel(n: PrimExpr, width: int) -> Stmt:
            # Rows inside: the panel of B, which is K by ``width``, stays in L1 for all of them.
            return in_tiles(rows, self.rows, lambda m, height: self._tile(
                (m, height), (n, width // self.lanes), depth, a, b, c, add=add))

        return in_tiles(columns, self.vectors * self.lanes, panel)

    def _tile(
        self, rows: tuple[PrimExpr, int], columns: tuple[PrimExpr, int], depth: int, a: Element,
        b: Element, c: Buffer, *, add: bool,
    ) -> Stmt:
        (first, height), (column, vectors) = rows, columns
        acc = Buffer("acc", tuple(map(const, (height, vectors, self.lanes))), float32, "local")

        def registers(body: Callable[[PrimExpr, PrimExpr, PrimExpr], Stmt]) -> Stmt:
            def vector(m: PrimExpr, n: PrimExpr) -> Stmt:
                return loop("lane", self.lanes, lambda lane: body(m, n, lane), ForKind.VECTORIZED)

            return loop("row", height, lambda m: loop(
                "vector", vectors, lambda n: vector(m, n), ForKind.UNROLLED), ForKind.UNROLLED)

        def at(m: PrimExpr, n: PrimExpr, lane: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
            return first + m, column + n * self.lanes + lane

        def step(k: PrimExpr) -> Stmt:
            return registers(lambda m, n, lane: BufferStore(
                acc, acc.load(m, n, lane) + a(first + m, k) * b(k, at(m, n, lane)[1]),
                (m, n, lane)))

        def result(m: PrimExpr, n: PrimExpr, lane: PrimExpr) -> Stmt:
            here, total = at(m, n, lane), acc.load(m, n, lane)
            return BufferStore(c, c.load(*here) + total if add else total, here)

        # From zero with ``add`` too: a sum over many blocks is one of short sums.
        start = registers(lambda m, n, lane: BufferStore(acc, const(0, float32), (m, n, lane)))
        return Allocate(acc, seq([start, loop("k", depth, step), registers(result)]))
