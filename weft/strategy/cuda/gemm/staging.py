"""Copies of operand tiles from global to shared memory by the threads of a block."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

from weft.codegen.cuda.device_functions import device_function
from weft.strategy.cuda.gemm.frame import address, load_vector, store_vector
from weft.strategy.cuda.gemm.operand import BYTES, K_MAJOR, MN_MAJOR, Operand, as_vector, is_always
from weft.support.dataclass import dataclass
from weft.tir import Analyzer, Buffer, BufferStore, Evaluate, IfThenElse, Stmt, all_of, const, seq
from weft.tir.expr import Broadcast, BufferLoad, PrimExpr, ProducerLoad, if_then_else, select
from weft.tir.intrinsics import intrinsic


@dataclass(frozen=True, slots=True)
class TileLayout:
    """The position of element (outer, k) of a tile in shared memory.

    ``contiguous`` is the index along which rows of ``length`` elements run; the other one counts
    the ``rows``. Rows are ``padding`` elements apart, or their 16-byte chunks are permuted
    (``swizzled``) so that the 8 rows that ``ldmatrix`` reads at once are in different banks.
    """

    contiguous: str
    rows: int
    length: int
    itemsize: int
    padding: int = 0
    swizzled: bool = False

    @property
    def elements(self) -> int:
        return self.rows * (self.length + self.padding)

    def offset(self, outer: PrimExpr, k: PrimExpr) -> PrimExpr:
        row, column = (outer, k) if self.contiguous == K_MAJOR else (k, outer)
        if not self.swizzled:
            return row * (self.length + self.padding) + column
        width = BYTES // self.itemsize
        return row * self.length + self.chunk(row, column // width) * width + column % width

    def chunk(self, row: PrimExpr, chunk: PrimExpr) -> PrimExpr:
        """The position of a 16-byte chunk in its row: XOR with bits of the row, as in CUTLASS."""
        sharing, patterns = permutations(self.length * self.itemsize // BYTES)
        if patterns == 1:
            return chunk
        return intrinsic("bitwise_xor", chunk, row // sharing % patterns)


@functools.cache
def permutations(chunks: int) -> tuple[int, int]:
    """How many neighbouring rows of ``chunks`` chunks share a permutation, and how many there are.

    A permutation XORs bits that all chunk numbers may have. Of eight rows, as many as possible have
    one chunk in different banks; 128 bytes are all of them.
    """
    patterns = math.gcd(chunks, 8)

    def banks(sharing: int) -> int:
        return len({(row * chunks + (row // sharing % patterns)) % 8 for row in range(8)})

    return max((1, 2, 4, 8), key=banks), patterns


@dataclass(frozen=True, slots=True)
class TileOrigin:
    """Where the tile of a block begins in an operand: matrix, index of M or N, index of K."""

    z: PrimExpr
    outer: PrimExpr
    k: PrimExpr


@dataclass(frozen=True, slots=True, eq=False)
class Staging:
    """The copy of ``outer`` x ``bk`` tiles of ``operand`` by the threads of a block."""

    operand: Operand
    outer: int
    bk: int
    layout: TileLayout
    threads: int
    analyzer: Analyzer

    @property
    def vector(self) -> int:
        """Elements that one access moves."""
        return self.operand.vector_length

    @property
    def major(self) -> str:
        """The index along which neighbouring threads access neighbouring elements."""
        return self.operand.major or MN_MAJOR

    @property
    def is_async(self) -> bool:
        """Whether ``cp.async`` can copy: neighbours in memory stay neighbours."""
        nbytes = self.vector * self.operand.dtype.itemsize
        return (self.operand.is_plain and self.major == self.layout.contiguous and nbytes >= 4
                and self.operand.dtype.bits >= 8)

    @property
    def items(self) -> int:
        """Accesses of each thread, rounded up."""
        return -(-(self.outer * self.bk // self.vector) // self.threads)

    @property
    def registers(self) -> int:
        """Elements that each thread keeps in registers between ``load`` and ``store``."""
        return self.items * self.vector

    def copy_async(
        self, memory: Buffer, start: PrimExpr, origin: TileOrigin, thread: PrimExpr
    ) -> Stmt:
        """Start the copy of a tile to ``memory[start]`` on; needs ``is_async``."""
        nbytes = self.vector * self.operand.dtype.itemsize
        copy = device_function(f"cp_async_{nbytes}")

        def one(outer: PrimExpr, k: PrimExpr) -> Stmt:
            condition, load = self._source(origin, outer, k)
            to = BufferLoad(memory, (start + self.layout.offset(outer, k),))
            size = const(nbytes, "int32") if is_always(condition) else \
                select(condition, const(nbytes, "int32"), const(0, "int32"))
            return Evaluate(copy(None, address(to), address(_clamped(load, condition)), size))

        return seq([self._in_tile(number, thread, one)
                    for number in range(self.items)])

    def load(self, registers: Buffer, origin: TileOrigin, thread: PrimExpr) -> Stmt:
        """Load a tile into the registers of the threads."""
        return seq([
            self._in_tile(number, thread, lambda o, k, n=number: self._load_one(
                registers, n * self.vector, origin, o, k))
            for number in range(self.items)])

    def store(self, registers: Buffer, memory: Buffer, start: PrimExpr, thread: PrimExpr) -> Stmt:
        """Store what ``load`` loaded to ``memory[start]`` on."""
        return seq([
            self._in_tile(number, thread, lambda o, k, n=number: self._store_one(
                registers, n * self.vector, memory, start, o, k))
            for number in range(self.items)])

    def _load_one(
        self, registers: Buffer, first: int, origin: TileOrigin, outer: PrimExpr, k: PrimExpr
    ) -> Stmt:
        vector = self._vector(origin, outer, k) if self.vector > 1 else None
        if vector is not None:
            return store_vector(registers, first, vector)
        return seq([
            BufferStore(registers, self._element(origin, o, kk), (const(first + lane),))
            for lane, (o, kk) in enumerate(self._elements_from(outer, k))])

    def _vector(self, origin: TileOrigin, outer: PrimExpr, k: PrimExpr) -> PrimExpr | None:
        """The neighbours as one vector; ``None`` where they are not in one row of a buffer."""
        condition, load = self._source(origin, outer, k)
        whole = as_vector(load, self.vector) if isinstance(load, BufferLoad) else None
        if whole is None:
            return None
        zero = Broadcast(const(0, self.operand.dtype), self.vector)
        return if_then_else(condition, whole, zero)

    def _element(self, origin: TileOrigin, outer: PrimExpr, k: PrimExpr) -> PrimExpr:
        return self.operand.guarded(origin.z, origin.outer + outer, origin.k + k, self.analyzer)

    def _store_one(
        self, registers: Buffer, first: int, memory: Buffer, start: PrimExpr,
        outer: PrimExpr, k: PrimExpr,
    ) -> Stmt:
        if self.major == self.layout.contiguous:
            value = load_vector(registers, first, self.vector)
            return store_vector(memory, start + self.layout.offset(outer, k),
                               value.astype(memory.dtype.vector(self.vector)))
        return seq([
            BufferStore(memory, registers.load(first + lane).astype(memory.dtype),
                        (start + self.layout.offset(o, kk),))
            for lane, (o, kk) in enumerate(self._elements_from(outer, k))])

    def _elements_from(self, outer: PrimExpr, k: PrimExpr) -> Iterator[tuple[PrimExpr, PrimExpr]]:
        for lane in range(self.vector):
            yield (outer, k + lane) if self.major == K_MAJOR else (outer + lane, k)

    def _source(
        self, origin: TileOrigin, outer: PrimExpr, k: PrimExpr
    ) -> tuple[PrimExpr, BufferLoad | ProducerLoad]:
        """The condition under which an element exists, and its load."""
        i, kk = origin.outer + outer, origin.k + k
        condition, load = self.operand.load_at(origin.z, i, kk)
        return self.analyzer.simplify(all_of(self.operand.inside(i, kk), condition)), load

    def _in_tile(self, number: int, thread: PrimExpr, body: object) -> Stmt:
        """``body(outer, k)`` of access ``number`` of a thread, unless the tile ends before it."""
        item = thread + number * self.threads
        if self.major == K_MAJOR:
            chunks = self.bk // self.vector
            outer, k = item // chunks, item % chunks * self.vector
        else:
            chunks = self.outer // self.vector
            outer, k = item % chunks * self.vector, item // chunks
        simplify = self.analyzer.simplify
        statement = body(simplify(outer), simplify(k))  # type: ignore[operator]
        count = self.outer * self.bk // self.vector
        if (number + 1) * self.threads <= count:
            return statement
        return IfThenElse(item < count, statement)


def _clamped(load: BufferLoad | ProducerLoad, condition: PrimExpr) -> PrimExpr:
    """The load of an element that exists in any case, so that its address is valid."""
    assert isinstance(load, BufferLoad)
    if is_always(condition):
        return load
    return BufferLoad(load.buffer, tuple(select(condition, i, const(0)) for i in load.indices))
