"""GEMM on tensor cores by ``mma.sync``: multistage ``cp.async``, ``ldmatrix``, swizzled tiles.

The structure is that of CUTLASS's multistage kernels for sm_80: while a block multiplies one tile
of ``bk``, the copies of the next ``stages - 1`` tiles are in flight. Every element type uses
32 bytes of K per instruction (16 elements of 16 bits, 32 bytes, 8 of tf32), so that ``ldmatrix``
loads the fragments of all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from weft.codegen.cuda.device_functions import DeviceFunction, device_function
from weft.ir import DType, float32, int32
from weft.strategy.cuda.gemm.frame import (
    WARP,
    Sums,
    Work,
    address,
    barrier,
    fill,
    load_vector,
    registers,
    serial,
    shared_memory,
    store_vector,
)
from weft.strategy.cuda.gemm.operand import BYTES, K_MAJOR, MN_MAJOR, Operand
from weft.strategy.cuda.gemm.staging import Staging, TileLayout, TileOrigin
from weft.support.dataclass import dataclass
from weft.tir import Allocate, Buffer, BufferStore, Evaluate, IfThenElse, Stmt, seq
from weft.tir.expr import BufferLoad, PrimExpr, call, const

STEP_BYTES = 32  # of K that one instruction multiplies
_MNEMONICS = {"float16": "f16", "bfloat16": "bf16", "float32": "tf32", "int8": "s8", "uint8": "u8"}
MMA_ROWS, MMA_COLUMNS = 16, 8


@dataclass(frozen=True, slots=True)
class MmaInstruction:
    """``mma.sync`` for two element types (PTX ISA, "Matrix multiply-accumulate")."""

    a: DType
    b: DType

    @property
    def accumulator(self) -> DType:
        return float32 if self.a.is_float else int32

    @property
    def function(self) -> DeviceFunction:
        a, b = _MNEMONICS[str(self.a)], _MNEMONICS[str(self.b)]
        named = a if a == b else f"{a}_{b}"
        sums = "f32" if self.a.is_float else "s32"
        return device_function(f"mma_m16n8k{STEP_BYTES // self.a.itemsize}_{sums}_{named}")

    @staticmethod
    def of(a: DType, b: DType, accumulator: DType) -> MmaInstruction | None:
        """The instruction that multiplies these types; ``None`` if there is none.

        float32 operands are rounded to tf32.
        """
        same_kind = a is b or {str(a), str(b)} <= {"int8", "uint8"}
        if str(a) not in _MNEMONICS or str(b) not in _MNEMONICS or not same_kind:
            return None
        found = MmaInstruction(a, b)
        return found if found.accumulator is accumulator else None


@dataclass(frozen=True, slots=True)
class MmaTile:
    """``warps_m`` x ``warps_n`` warps of ``wm`` x ``wn`` sums; ``bk_bytes`` of K per stage."""

    warps_m: int
    warps_n: int
    wm: int
    wn: int
    stages: int = 4
    bk_bytes: int = 64

    @property
    def threads(self) -> int:
        return self.warps_m * self.warps_n * WARP

    @property
    def bm(self) -> int:
        return self.warps_m * self.wm

    @property
    def bn(self) -> int:
        return self.warps_n * self.wn

    def bk(self, itemsize: int) -> int:
        """Elements of K per stage."""
        return self.bk_bytes // itemsize

    @property
    def shared_bytes(self) -> int:
        return self.stages * self.bk_bytes * (self.bm + self.bn)

    @property
    def registers(self) -> int:
        """32-bit registers of a thread for sums and fragments, and about 40 for addresses."""
        return self.wm * self.wn // WARP + self.wm // 4 + self.wn // 4 + 40

    def __str__(self) -> str:
        return (f"{self.bm}x{self.bn}x{self.bk_bytes} B in {self.threads // WARP} warps of "
                f"{self.wm}x{self.wn}, {self.stages} stages")


@dataclass(frozen=True, slots=True, eq=False)
class MmaLoops:
    """The sums of one block of C."""

    tile: MmaTile
    a: Operand
    b: Operand

    wide: ClassVar[int] = 2  # blocks of 8 columns whose fragments one ldmatrix.x4 loads

    @property
    def threads(self) -> int:
        return self.tile.threads

    @property
    def bk(self) -> int:
        return self.tile.bk(self.a.dtype.itemsize)

    @property
    def instruction(self) -> MmaInstruction:
        return MmaInstruction(self.a.dtype, self.b.dtype)

    def shared(self) -> tuple[Buffer, ...]:
        return tuple(
            shared_memory(name, self.tile.stages * self.layout(operand, outer).elements,
                          operand.dtype)
            for name, operand, outer in (("a_tile", self.a, self.tile.bm),
                                         ("b_tile", self.b, self.tile.bn)))

    def layout(self, operand: Operand, outer: int) -> TileLayout:
        """As the operand in memory: ``ldmatrix`` can transpose 16-bit elements, and no others."""
        itemsize = operand.dtype.itemsize
        contiguous = MN_MAJOR if operand.major != K_MAJOR and itemsize == 2 else K_MAJOR
        rows, length = (self.bk, outer) if contiguous == MN_MAJOR else (outer, self.bk)
        return TileLayout(contiguous, rows, length, itemsize, swizzled=True)

    def block(self, work: Work, shared: Sequence[Buffer], thread: PrimExpr) -> Stmt:
        """One block: the prologue of the pipeline, the main loop over K, and the epilogue."""
        tile = self.tile
        count = tile.wm * tile.wn // WARP
        sums = registers("sums", count, self.instruction.accumulator)
        sides = self._sides(work, shared)
        ahead = tile.stages - 1

        def step(number: PrimExpr) -> Stmt:
            fetched = number + ahead  # the k-tile whose copies start in this iteration
            more, slot = fetched < work.k_tiles, fetched % tile.stages
            return seq([
                Evaluate(device_function("cp_async_wait")(None, const(ahead - 1, "int32"))),
                barrier(),
                IfThenElse(more, seq([side.fetch(fetched, slot, thread) for side in sides])),
                _commit(),
                self._multiply(sums, sides, number % tile.stages, thread),
                _if_any(more, [side.store_staged(slot, thread) for side in sides]),
            ])

        prologue = [
            seq([IfThenElse(const(n) < work.k_tiles, seq([
                *(side.fetch(const(n), const(n), thread) for side in sides),
                *(side.store_staged(const(n), thread) for side in sides)])), _commit()])
            for n in range(ahead)]
        body = seq([
            fill(sums, count, const(0, sums.dtype)), *prologue,
            serial("step", work.k_tiles, step),
            work.finish(self._sums(sums, thread)),
        ])
        for memory in (*(side.prefetched for side in sides if not side.staging.is_async), sums):
            body = Allocate(memory, body)
        return body

    def _sides(self, work: Work, shared: Sequence[Buffer]) -> tuple[_Side, _Side]:
        tile = self.tile

        def side(name: str, operand: Operand, outer: int, first: PrimExpr, memory: Buffer) -> _Side:
            staging = Staging(operand, outer, self.bk, self.layout(operand, outer), tile.threads,
                              work.analyzer)
            prefetched = registers(f"{name}_next", staging.registers, operand.dtype)
            return _Side(staging, memory, prefetched, work, first)

        return (side("a", self.a, tile.bm, work.m, shared[0]),
                side("b", self.b, tile.bn, work.n, shared[1]))

    def _warp_at(self, thread: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
        warp = thread // WARP
        return warp // self.tile.warps_n * self.tile.wm, warp % self.tile.warps_n * self.tile.wn

    def _multiply(
        self, sums: Buffer, sides: tuple[_Side, _Side], slot: PrimExpr, thread: PrimExpr
    ) -> Stmt:
        """Add the products of one stage."""
        tile, lane = self.tile, thread % WARP
        rows, columns = tile.wm // MMA_ROWS, tile.wn // MMA_COLUMNS
        a, b = registers("a_fragment", 4 * rows, int32), registers("b_fragment", 2 * columns, int32)
        row, column = self._warp_at(thread)
        left, right = (side.slot(slot) for side in sides)
        steps: list[Stmt | None] = []
        for k in range(tile.bk_bytes // STEP_BYTES):
            steps += [load_a(left, a, i, row + i * MMA_ROWS, k, lane) for i in range(rows)]
            steps += [load_b(right, b, j, min(self.wide, columns - j), column + j * MMA_COLUMNS,
                              k, lane)
                      for j in range(0, columns, self.wide)]
            steps += self._rounded(a, b)
            steps += [self._one(sums, (i * columns + j) * 4, a, i * 4, b, j * 2)
                      for i in range(rows) for j in range(columns)]
        return Allocate(a, Allocate(b, seq(steps)))

    def _one(self, sums: Buffer, at: int, a: Buffer, i: int, b: Buffer, j: int) -> Stmt:
        mma = self.instruction
        value = mma.function(mma.accumulator.vector(4), load_vector(sums, at, 4),
                                    load_vector(a, i, 4), load_vector(b, j, 2))
        return store_vector(sums, at, value)

    def _rounded(self, *fragments: Buffer) -> list[Stmt]:
        """Fragments of float32 rounded to tf32: the instruction would cut the low bits off."""
        if self.a.dtype is not float32:
            return []
        cvt = device_function("cvt_rna_tf32")
        return [
            BufferStore(f, cvt(int32, call(float32, "reinterpret", f.load(n))), (const(n),))
            for f in fragments for n in range(f.static_shape[0] if f.static_shape else 0)]

    def _sums(self, sums: Buffer, thread: PrimExpr) -> Sums:
        """Pairs of neighbours along a row, by the layout of the instruction's result."""
        tile, lane = self.tile, thread % WARP
        row, column = self._warp_at(thread)
        rows, columns = tile.wm // MMA_ROWS, tile.wn // MMA_COLUMNS
        groups = tuple(
            (row + i * MMA_ROWS + half * 8 + lane // 4, column + j * MMA_COLUMNS + lane % 4 * 2,
             (i * columns + j) * 4 + half * 2)
            for i in range(rows) for half in range(2) for j in range(columns))
        return Sums(sums, 2, groups)


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """One operand in the pipeline: by ``cp.async``, or through the registers ``prefetched``."""

    staging: Staging
    memory: Buffer
    prefetched: Buffer
    work: Work
    first: PrimExpr

    def fetch(self, k_tile: PrimExpr, slot: PrimExpr, thread: PrimExpr) -> Stmt:
        """Start the copy of a k-tile, or load it into registers."""
        k = (self.work.first_k_tile + k_tile) * self.staging.bk
        origin = TileOrigin(self.work.z, self.first, k)
        if self.staging.is_async:
            return self.staging.copy_async(self.memory, self._start(slot), origin, thread)
        return self.staging.load(self.prefetched, origin, thread)

    def store_staged(self, slot: PrimExpr, thread: PrimExpr) -> Stmt | None:
        """Store a k-tile that went through registers to shared memory."""
        if self.staging.is_async:
            return None
        return self.staging.store(self.prefetched, self.memory, self._start(slot), thread)

    def slot(self, slot: PrimExpr) -> Tile:
        """The tile of a stage."""
        return Tile(self.memory, self._start(slot), self.staging.layout)

    def _start(self, slot: PrimExpr) -> PrimExpr:
        return slot * self.staging.layout.elements


@dataclass(frozen=True, slots=True, eq=False)
class Tile:
    """A tile in shared memory: the elements of ``memory`` from ``start`` on, in ``layout``."""

    memory: Buffer
    start: PrimExpr
    layout: TileLayout

    @property
    def width(self) -> int:
        """Elements of 16 bytes."""
        return BYTES // self.layout.itemsize

    def fragments(self, into: Buffer, at: int, count: int, outer: PrimExpr, k: PrimExpr) -> Stmt:
        """Load ``count`` 8x8 matrices, whose rows the lanes name by ``outer`` and ``k``."""
        suffix = "" if self.layout.contiguous == K_MAJOR else "_trans"
        load = device_function(f"ldmatrix_x{count}{suffix}")
        source = BufferLoad(self.memory, (self.start + self.layout.offset(outer, k),))
        return store_vector(into, at, load(int32.vector(count), address(source)))


def load_a(tile: Tile, into: Buffer, i: int, row: PrimExpr, step: int, lane: PrimExpr) -> Stmt:
    """The four matrices of 16 rows: two blocks of 8 rows, then the same of the next 16 bytes."""
    first = step * 2 * tile.width
    if tile.layout.contiguous == K_MAJOR:
        return tile.fragments(into, i * 4, 4, row + lane % 16, first + lane // 16 * tile.width)
    block = lane // 8
    return tile.fragments(into, i * 4, 4, row + block % 2 * 8, first + lane % 8 + block // 2 * 8)


def load_b(tile: Tile, into: Buffer, j: int, blocks: int, column: PrimExpr, step: int,
            lane: PrimExpr) -> Stmt:
    """The two matrices of each block of 8 columns: 16 bytes of K each."""
    first, block = step * 2 * tile.width, lane // 8
    if tile.layout.contiguous == K_MAJOR:
        return tile.fragments(into, j * 2, 2 * blocks, column + lane % 8 + block // 2 % blocks * 8,
                              first + block % 2 * tile.width)
    return tile.fragments(into, j * 2, 2 * blocks, column + block // 2 % blocks * 8,
                          first + lane % 8 + block % 2 * 8)


def _commit() -> Stmt:
    return Evaluate(device_function("cp_async_commit")(None))


def _if_any(condition: PrimExpr, stmts: Sequence[Stmt | None]) -> Stmt | None:
    given = [stmt for stmt in stmts if stmt is not None]
    return IfThenElse(condition, seq(given)) if given else None
