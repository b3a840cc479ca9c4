"""GEMM on sm_90a: TMA copies by one warpgroup, ``wgmma`` by the others.

The structure is that of CUTLASS's warp-specialised kernels for Hopper: the first warpgroup gives up
registers and starts the copies of tiles of A and B, two more take them and multiply. Full and empty
barriers of each stage hand it from one role to the other. Tiles lie in shared memory as TMA writes
them with the 128-byte swizzle, which ``wgmma`` reads through descriptors (PTX ISA, "Matrix
descriptor").
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.cuda.device_functions import device_function
from weft.codegen.cuda.device_functions.memory import MapFields, tensor_map
from weft.ir import float32, int32, int64
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
from weft.strategy.cuda.gemm.operand import K_MAJOR, Operand, StoredMatrix
from weft.support.dataclass import dataclass
from weft.tir import Allocate, Buffer, BufferLoad, Evaluate, IfThenElse, PrimExpr, Stmt, const, seq
from weft.tir.intrinsics import intrinsic

WARPGROUP = 128
ATOM_BYTES, ATOM_ROWS = 128, 8  # a swizzled row, and the rows after which the pattern repeats
BK = 64  # elements of 16 bits in a swizzled row
WGMMA_M, WGMMA_K = 64, 16
# Of 64K registers, 168 belong to each of 384 threads at the start (setmaxnreg: multiples of 8).
PRODUCER_REGISTERS, CONSUMER_REGISTERS = 40, 232
_MNEMONICS = {"float16": "f16", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True)
class WgmmaTile:
    """Two consumer warpgroups of 64 x ``bn`` sums each; ``stages`` tiles of 64 elements of K."""

    bn: int
    stages: int
    consumers: int = 2

    @property
    def bm(self) -> int:
        return self.consumers * WGMMA_M

    @property
    def threads(self) -> int:
        return (1 + self.consumers) * WARPGROUP

    @property
    def stage_bytes(self) -> int:
        return (self.bm + self.bn) * ATOM_BYTES

    @property
    def shared_bytes(self) -> int:
        return self.stages * (self.stage_bytes + 16)

    def __str__(self) -> str:
        return (f"{self.bm}x{self.bn}x{BK}, {self.consumers} warpgroups of 64x{self.bn} and one "
                f"for copies, {self.stages} stages")


@dataclass(frozen=True, slots=True, eq=False)
class WgmmaLoops:
    """The sums of one block of C."""

    tile: WgmmaTile
    a: Operand
    b: Operand

    @property
    def threads(self) -> int:
        return self.tile.threads

    def shared(self) -> tuple[Buffer, ...]:
        tile = self.tile
        return (
            shared_memory("a_tile", tile.stages * tile.bm * BK, self.a.dtype, 1024),
            shared_memory("b_tile", tile.stages * tile.bn * BK, self.b.dtype, 1024),
            shared_memory("full", tile.stages, int64), shared_memory("empty", tile.stages, int64))

    def block(self, work: Work, shared: Sequence[Buffer], thread: PrimExpr) -> Stmt:
        """One block: barriers, then each warpgroup in its role."""
        return seq([
            IfThenElse(thread.equal(0), self._start(shared)),
            barrier(),
            IfThenElse(thread < WARPGROUP, self._producer(work, shared, thread),
                       self._consumer(work, shared, thread)),
        ])

    def _start(self, shared: Sequence[Buffer]) -> Stmt:
        """A stage is full after one arrival and its bytes, empty after all consumers arrived."""
        init = device_function("mbarrier_init")
        return seq([
            *(Evaluate(init(None, address(memory.load(n)), const(count, int32)))
              for memory, count in ((shared[2], 1), (shared[3], self.tile.consumers))
              for n in range(self.tile.stages)),
            Evaluate(device_function("mbarrier_fence")(None)),
        ])

    def _producer(self, work: Work, shared: Sequence[Buffer], thread: PrimExpr) -> Stmt:
        """One thread starts all copies."""
        tile, (_, _, full, empty) = self.tile, shared
        copies = [_Copy(StoredMatrix.of(self.a), work.m, tile.bm, shared[0]),
                  _Copy(StoredMatrix.of(self.b), work.n, tile.bn, shared[1])]

        def step(number: PrimExpr) -> Stmt:
            slot, parity = number % tile.stages, number // tile.stages % 2
            k = (work.first_k_tile + number) * BK
            return seq([
                # The wait for the phase before the first one returns at once (PTX ISA,
                # "mbarrier.test_wait"): in the first pass over the stages all are empty.
                _wait(empty, slot, 1 - parity),
                Evaluate(device_function("mbarrier_expect")(
                    None, address(full.load(slot)), const(tile.stage_bytes, int32))),
                *(copy.start(slot, work.z, k, full) for copy in copies),
            ])

        return seq([
            Evaluate(device_function("setmaxnreg_dec")(None, const(PRODUCER_REGISTERS, int32))),
            IfThenElse(thread.equal(0), serial("step", work.k_tiles, step)),
        ])

    def _consumer(self, work: Work, shared: Sequence[Buffer], thread: PrimExpr) -> Stmt:
        """A warpgroup multiplies; one group of products is in flight while it waits for tiles."""
        tile, (_, _, full, empty) = self.tile, shared
        sums = registers("sums", tile.bn // 2, float32)
        group = thread // WARPGROUP - 1
        is_first = (thread % WARPGROUP).equal(0)

        def release(number: PrimExpr) -> Stmt:
            slot = number % tile.stages
            return IfThenElse(is_first, Evaluate(device_function("mbarrier_arrive")(
                None, address(empty.load(slot)))))

        def step(number: PrimExpr) -> Stmt:
            slot, parity = number % tile.stages, number // tile.stages % 2
            return seq([
                _wait(full, slot, parity),
                self._with_sums("wgmma_fence", sums),
                *(self._multiply(sums, shared, slot, group, k) for k in range(BK // WGMMA_K)),
                Evaluate(device_function("wgmma_commit")(None)),
                self._with_sums("wgmma_wait", sums, 1),
                IfThenElse(const(0) < number, release(number + (tile.stages - 1))),
            ])

        return Allocate(sums, seq([
            Evaluate(device_function("setmaxnreg_inc")(None, const(CONSUMER_REGISTERS, int32))),
            fill(sums, tile.bn // 2, const(0, float32)),
            serial("step", work.k_tiles, step),
            self._with_sums("wgmma_wait", sums, 0),
            work.finish(self._sums(sums, thread, group)),
        ]))

    def _with_sums(self, name: str, sums: Buffer, *rest: int) -> Stmt:
        function = device_function(f"{name}_n{self.tile.bn}")
        count = self.tile.bn // 2
        return store_vector(sums, 0, function(
            float32.vector(count), load_vector(sums, 0, count), *(const(n, int32) for n in rest)))

    def _multiply(self, sums: Buffer, shared: Sequence[Buffer], slot: PrimExpr, group: PrimExpr,
                  step: int) -> Stmt:
        """Add the products of 16 elements of K."""
        tile, count = self.tile, self.tile.bn // 2
        name = _MNEMONICS[str(self.a.dtype)]
        a_first = slot * (tile.bm * BK) + (group * WGMMA_M * BK)
        a = _descriptor(shared[0], a_first, self.a.major == K_MAJOR, step)
        b = _descriptor(shared[1], slot * (tile.bn * BK), self.b.major == K_MAJOR, step)
        product = device_function(f"wgmma_m64n{tile.bn}k16_f32_{name}")
        return store_vector(sums, 0, product(
            float32.vector(count), load_vector(sums, 0, count), a, b, const(1, int32),
            *(const(int(o.major != K_MAJOR), int32) for o in (self.a, self.b))))

    def _sums(self, sums: Buffer, thread: PrimExpr, group: PrimExpr) -> Sums:
        warp, lane = thread // WARP % 4, thread % WARP
        row = group * WGMMA_M + warp * 16 + lane // 4
        groups = tuple((row + half * 8, lane % 4 * 2 + j * 8, j * 4 + half * 2)
                       for half in range(2) for j in range(self.tile.bn // 8))
        return Sums(sums, 2, groups)


@dataclass(frozen=True, slots=True, eq=False)
class _Copy:
    """The copies of one operand's tiles: boxes of one swizzled row's width."""

    matrix: StoredMatrix
    first: PrimExpr
    outer: int
    memory: Buffer

    def start(self, slot: PrimExpr, z: PrimExpr, k: PrimExpr, full: Buffer) -> Stmt:
        """Copy a tile: one box along K, or a box for each 64 rows that are contiguous."""
        matrix, base = self.matrix, slot * (self.outer * BK)
        boxes = 1 if matrix.major == K_MAJOR else self.outer // BK
        rows = self.outer if matrix.major == K_MAJOR else BK
        fields = MapFields(str(matrix.buffer.dtype), matrix.shape, matrix.strides,
                           (BK, rows, 1)[:matrix.rank], ATOM_BYTES)
        load = device_function(f"tma_load_{matrix.rank}d")

        def copy(n: int) -> Stmt:
            across = self.first + n * BK
            at = (k, across, z) if matrix.major == K_MAJOR else (across, k, z)
            return Evaluate(load(
                None, address(self.memory.load(base + n * BK * BK)),
                tensor_map(matrix.buffer, fields), address(full.load(slot)),
                *(i.astype("int32") for i in at[:matrix.rank])))

        return seq([copy(n) for n in range(boxes)])


def _descriptor(memory: Buffer, first: PrimExpr, is_k_major: bool, step: int) -> PrimExpr:
    """The descriptor of a tile in the 128-byte swizzle, ``step`` instructions along K.

    Fields in units of 16 bytes: the address; at bit 16 the distance of blocks of 64 rows that are
    contiguous; at bit 32 that of groups of 8 swizzled rows; at bit 62 the swizzle, 1.
    """
    # Within a swizzled row the steps along K are 32 bytes apart; across rows, 16 rows.
    offset = step * WGMMA_K if is_k_major else step * WGMMA_K * BK
    start = device_function("shared_address")(
        int32, address(BufferLoad(memory, (first + offset,))))
    encoded = intrinsic("bitwise_and", intrinsic("shift_right", start, const(4, int32)),
                        const(0x3FFF, int32)).astype(int64)
    leading = 1 if is_k_major else BK * ATOM_BYTES // 16
    fields = leading << 16 | (ATOM_ROWS * ATOM_BYTES // 16) << 32 | 1 << 62
    return intrinsic("bitwise_or", encoded, const(fields, int64))


def _wait(memory: Buffer, slot: PrimExpr, parity: PrimExpr) -> Stmt:
    return Evaluate(device_function("mbarrier_wait")(None, address(memory.load(slot)),
                                                     parity.astype("int32")))
