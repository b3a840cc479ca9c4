"""Asynchronous copies, barriers in memory, TMA and warpgroup products under emulation."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.cuda.runtime.ptx_snippets import HEADER, download, kernel, run, upload
from weft.testing.cuda import CudaEmulationError, DeviceMemory, encode_tensor_map, launch, load_ptx

_COPY = """.shared .align 16 .b8 tile[1024];
mov.u64 %rd20, tile; mul.wide.u32 %rd8, %r0, 16; add.s64 %rd21, %rd20, %rd8;
cvt.u32.u64 %r30, %rd21; add.s64 %rd9, %rd1, %rd8;
st.shared.v4.u32 [%rd21], {{%r2, %r2, %r2, %r2}};
cp.async.cg.shared.global [%r30], [%rd9], 16, {used};
cp.async.commit_group; {wait} bar.sync 0;
xor.b32 %r4, %r0, 33; mul.wide.u32 %rd10, %r4, 16; add.s64 %rd22, %rd20, %rd10;
ld.shared.v4.u32 {{%r20, %r21, %r22, %r23}}, [%rd22]; add.s64 %rd9, %rd2, %rd8;
st.global.v4.u32 [%rd9], {{%r20, %r21, %r22, %r23}};"""
_DATA = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)


def _copied(wait: str, used: str = "16") -> np.ndarray:
    return run(kernel(_COPY.format(wait=wait, used=used), 2), [_DATA, np.zeros_like(_DATA)],
               block=64)[1]


def test_copies_are_visible_after_the_wait_and_not_before() -> None:
    wanted = _DATA[np.arange(64) ^ 33]
    assert (_copied("cp.async.wait_group 0;") == wanted).all()
    assert (_copied("cp.async.wait_all;") == wanted).all()
    assert np.isnan(_copied("cp.async.wait_group 1;")).all()


def test_copies_fill_with_zeros() -> None:
    found = _copied("cp.async.wait_group 0;", used="%r2")  # %r2 is 0: the block number
    assert (found == 0).all()
    half = _copied("cp.async.wait_group 0;", used="8")
    assert (half[:, :2] == _DATA[np.arange(64) ^ 33][:, :2]).all()
    assert (half[:, 2:] == 0).all()


def test_copies_need_a_barrier_after_the_wait() -> None:
    text = kernel(_COPY.format(wait="cp.async.wait_group 0;", used="16"), 2).replace(
        "bar.sync 0;", "")
    with pytest.raises(CudaEmulationError, match="data race"):
        run(text, [_DATA, np.zeros_like(_DATA)], block=64)


# Warps 0 and 1: the producer fills a tile, the consumer waits for it, doubles and releases it.
_PIPELINE = """.shared .align 8 .b8 full[8]; .shared .align 8 .b8 empty[8];
.shared .align 16 .b8 tile[128];
mov.u64 %rd20, tile; mov.u64 %rd23, full; mov.u64 %rd24, empty;
cvt.u32.u64 %r40, %rd23; cvt.u32.u64 %r41, %rd24;
setp.ne.u32 %p1, %r0, 0; @%p1 bra READY;
mbarrier.init.shared.b64 [%r40], 32; mbarrier.init.shared.b64 [%r41], 32;
READY: bar.sync 0;
and.b32 %r4, %r0, 31; mul.wide.u32 %rd8, %r4, 4; add.s64 %rd21, %rd20, %rd8;
mov.u32 %r5, 0; setp.ge.u32 %p2, %r0, 32; @%p2 bra CONSUMER;
PRODUCER: xor.b32 %r6, %r5, 1; and.b32 %r6, %r6, 1;
WAIT_EMPTY: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r41], %r6; @!%p3 bra WAIT_EMPTY;
shl.b32 %r8, %r5, 5; add.s32 %r8, %r8, %r4; mul.wide.u32 %rd10, %r8, 4; add.s64 %rd9, %rd1, %rd10;
ld.global.u32 %r9, [%rd9]; st.shared.u32 [%rd21], %r9;
mbarrier.arrive.shared::cta.b64 _, [%r40];
add.s32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 4; @%p4 bra PRODUCER; bra DONE;
CONSUMER: and.b32 %r6, %r5, 1;
WAIT_FULL: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r40], %r6; @!%p3 bra WAIT_FULL;
xor.b32 %r7, %r4, 5; mul.wide.u32 %rd11, %r7, 4; add.s64 %rd22, %rd20, %rd11;
ld.shared.u32 %r9, [%rd22]; add.s32 %r9, %r9, %r9;
mbarrier.arrive.shared::cta.b64 _, [%r41];
shl.b32 %r8, %r5, 5; add.s32 %r8, %r8, %r7; mul.wide.u32 %rd10, %r8, 4; add.s64 %rd9, %rd2, %rd10;
st.global.u32 [%rd9], %r9;
add.s32 %r5, %r5, 1; setp.lt.u32 %p4, %r5, 4; @%p4 bra CONSUMER;
DONE:"""


def test_warps_that_produce_and_consume() -> None:
    data = np.arange(128, dtype=np.uint32)
    found = run(kernel(_PIPELINE, 2), [data, np.zeros_like(data)], block=64)[1]
    assert (found == 2 * data).all()


def test_an_mbarrier_that_nobody_completes_is_a_deadlock() -> None:
    data = np.arange(128, dtype=np.uint32)
    text = kernel(_PIPELINE.replace("mbarrier.arrive.shared::cta.b64 _, [%r41];", ""), 2)
    with pytest.raises(CudaEmulationError, match="phase never ends") as caught:
        run(text, [data, np.zeros_like(data)], block=64)
    assert "threads poll" in str(caught.value)


def test_an_mbarrier_must_be_initialised() -> None:
    data = np.arange(128, dtype=np.uint32)
    text = kernel(_PIPELINE.replace("mbarrier.init.shared.b64 [%r41], 32;", ""), 2)
    with pytest.raises(CudaEmulationError, match="not initialised"):
        run(text, [data, np.zeros_like(data)], block=64)


def _tma_kernel(rows: int, nbytes: int, width: int) -> str:
    """Thread 0 loads a box of ``rows`` rows; all threads copy the tile out as it lies."""
    total = rows * nbytes
    return f"""{HEADER}.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out,
.param .u32 x, .param .u32 y)
{{ .reg .pred %p<4>; .reg .b32 %r<20>; .reg .b64 %rd<20>;
.shared .align 1024 .b8 tile[{total}]; .shared .align 8 .b8 bar[8];
mov.u32 %r1, %tid.x; mov.u64 %rd1, map; cvta.param.u64 %rd2, %rd1;
ld.param.u64 %rd3, [out]; ld.param.u32 %r2, [x]; ld.param.u32 %r3, [y];
mov.u32 %r4, tile; mov.u32 %r5, bar;
setp.ne.u32 %p1, %r1, 0; @%p1 bra GO;
mbarrier.init.shared.b64 [%r5], 1; fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r5], {total};
cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes
 [%r4], [%rd2, {{%r2, %r3}}], [%r5];
GO: bar.sync 0;
{{ .reg .pred p;
WAIT: mbarrier.try_wait.parity.shared::cta.b64 p, [%r5], 0;
@!p bra WAIT; }}
mov.u32 %r6, %r1;
LOOP: setp.ge.u32 %p2, %r6, {total // 4}; @%p2 bra DONE;
shl.b32 %r7, %r6, 2; add.s32 %r8, %r4, %r7; ld.shared.u32 %r9, [%r8];
mul.wide.u32 %rd4, %r6, 4; add.s64 %rd5, %rd3, %rd4; st.global.u32 [%rd5], %r9;
add.s32 %r6, %r6, {width}; bra LOOP;
DONE: ret; }}"""


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_tma_swizzles_and_fills(swizzle: int) -> None:
    tensor = np.random.default_rng(1).standard_normal((20, 48)).astype(np.float16)
    row_bytes = swizzle or 64
    box = (row_bytes // 2, 16)
    memory = DeviceMemory()
    address = upload(memory, tensor)
    tile = np.zeros((16, row_bytes // 16, 8), np.float16)
    out = upload(memory, tile)
    encoded = encode_tensor_map(address, 2, (48, 20), (96,), box, swizzle=swizzle)
    start = (24, 10)  # beyond the tensor in both directions
    launch(load_ptx(_tma_kernel(16, row_bytes, 64)), "k", (1,), (64,),
           [encoded, out, *start], memory)
    found = download(memory, out, tile)
    padded = np.zeros((64, 128), np.float16)
    padded[:20, :48] = tensor
    wanted = padded[start[1] : start[1] + 16, start[0] : start[0] + box[0]]
    units = row_bytes // 16
    for row in range(16):
        for unit in range(units):
            # PTX ISA: the 16-byte unit is exclusive-or'ed with the row modulo its pattern.
            linear = row * row_bytes + unit * 16
            flipped = linear ^ ((linear >> 7 & {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]) << 4)
            got = found.reshape(-1)[flipped // 2 : flipped // 2 + 8]
            assert (got == wanted[row, unit * 8 : unit * 8 + 8]).all()


def test_tma_counts_its_bytes() -> None:
    memory = DeviceMemory()
    address = upload(memory, np.zeros((16, 64), np.float16))
    encoded = encode_tensor_map(address, 2, (64, 16), (128,), (64, 16), swizzle=128)
    text = _tma_kernel(16, 128, 64).replace("[%r5], 2048;", "[%r5], 4096;")
    with pytest.raises(CudaEmulationError, match="phase never ends"):
        launch(load_ptx(text), "k", (1,), (64,),
               [encoded, memory.allocate(2048), 0, 0], memory)


def test_tensor_maps_are_checked() -> None:
    with pytest.raises(CudaEmulationError, match="wider than the swizzle"):
        encode_tensor_map(0x1000, 2, (64, 64), (128,), (64, 8), swizzle=64)
    with pytest.raises(CudaEmulationError, match="multiples of 16"):
        encode_tensor_map(0x1000, 2, (63, 64), (126,), (8, 8))


def _wgmma_kernel(columns: int, trans: tuple[int, int], steps: int, advance: int,
                  commit: str = "wgmma.commit_group.sync.aligned;", late: str = "") -> str:
    sums = ", ".join(f"%f{at}" for at in range(columns // 2))
    products = "".join(
        f"""wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.f16.f16 {{{sums}}}, %rd4, %rd5,
 %p{1 if step else 2}, 1, 1, {trans[0]}, {trans[1]};
add.s64 %rd4, %rd4, {advance}; add.s64 %rd5, %rd5, {advance};\n""" for step in range(steps))
    stores = "".join(f"st.global.f32 [%rd9+{4 * at}], %f{at};\n" for at in range(columns // 2))
    return f"""{HEADER}.visible .entry k(.param .u64 a, .param .u64 b, .param .u64 d,
.param .u64 da, .param .u64 db, .param .u32 na, .param .u32 nb)
{{ .reg .pred %p<6>; .reg .b32 %r<20>; .reg .b64 %rd<20>; .reg .f32 %f<{columns // 2}>;
.shared .align 1024 .b8 ta[16384]; .shared .align 1024 .b8 tb[16384];
mov.u32 %r1, %tid.x; ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; ld.param.u64 %rd3, [d];
ld.param.u32 %r2, [na]; ld.param.u32 %r3, [nb];
mov.u32 %r4, ta; mov.u32 %r5, tb; shl.b32 %r6, %r1, 2;
LA: setp.ge.u32 %p3, %r6, %r2; @%p3 bra LB0;
cvt.u64.u32 %rd6, %r6; add.s64 %rd7, %rd1, %rd6; ld.global.u32 %r7, [%rd7];
add.s32 %r8, %r4, %r6; st.shared.u32 [%r8], %r7; add.s32 %r6, %r6, 512; bra LA;
LB0: shl.b32 %r6, %r1, 2;
LB: setp.ge.u32 %p3, %r6, %r3; @%p3 bra GO;
cvt.u64.u32 %rd6, %r6; add.s64 %rd7, %rd2, %rd6; ld.global.u32 %r7, [%rd7];
add.s32 %r8, %r5, %r6; st.shared.u32 [%r8], %r7; add.s32 %r6, %r6, 512; bra LB;
GO: fence.proxy.async.shared::cta; bar.sync 0;
ld.param.u64 %rd4, [da]; ld.param.u64 %rd5, [db];
shr.u32 %r9, %r4, 4; cvt.u64.u32 %rd8, %r9; or.b64 %rd4, %rd4, %rd8;
shr.u32 %r9, %r5, 4; cvt.u64.u32 %rd8, %r9; or.b64 %rd5, %rd5, %rd8;
setp.ne.u32 %p1, 1, 0; setp.ne.u32 %p2, 0, 0;
wgmma.fence.sync.aligned;
{products}{commit}
{late}
wgmma.wait_group.sync.aligned 0;
mul.wide.u32 %rd9, %r1, {2 * columns}; add.s64 %rd9, %rd3, %rd9;
{stores}ret; }}"""


def _descriptor(leading: int, stride: int, swizzle: int) -> int:
    code = {0: 0, 128: 1, 64: 2, 32: 3}[swizzle]
    return leading >> 4 << 16 | stride >> 4 << 32 | code << 62


def _swizzled(linear: int, swizzle: int) -> int:
    return linear ^ ((linear >> 7 & {0: 0, 32: 1, 64: 3, 128: 7}[swizzle]) << 4)


def _stored(matrix: np.ndarray, swizzle: int) -> tuple[np.ndarray, int]:
    """A (rows, depth) matrix as TMA lays it out, K contiguous: the bytes and the descriptor.

    Rows of ``swizzle`` bytes, groups of eight rows one after another; without a swizzle, cores of
    8 rows of 16 bytes, those along K side by side.
    """
    rows, depth = matrix.shape
    bits = matrix.view(np.uint16)
    out = np.zeros(rows * depth, np.uint16)
    for row in range(rows):
        for k in range(depth):
            if swizzle:
                at = _swizzled(row * swizzle + 2 * k, swizzle)
            else:
                at = row // 8 * 16 * depth + k // 8 * 128 + row % 8 * 16 + k % 8 * 2
            out[at // 2] = bits[row, k]
    if swizzle:
        return out, _descriptor(16, 8 * swizzle, swizzle)
    return out, _descriptor(128, 16 * depth, 0)


def _across(matrix: np.ndarray) -> tuple[np.ndarray, int]:
    """A (rows, depth) matrix with its rows contiguous, 128-byte swizzle: 64 rows by 8 per atom."""
    rows, depth = matrix.shape
    bits = matrix.view(np.uint16)
    out = np.zeros(rows * depth, np.uint16)
    for row in range(rows):
        for k in range(depth):
            linear = row // 64 * (depth * 128) + k * 128 + row % 64 * 2
            out[_swizzled(linear, 128) // 2] = bits[row, k]
    return out, _descriptor(depth * 128, 1024, 128)


def _multiply(stored_a: tuple[np.ndarray, int], stored_b: tuple[np.ndarray, int], columns: int,
              trans: tuple[int, int], steps: int, advance: int, **options: str) -> np.ndarray:
    memory = DeviceMemory()
    sums = np.zeros((128, columns // 2), np.float32)
    (a, da), (b, db) = stored_a, stored_b
    addresses = [upload(memory, item) for item in (a, b, sums)]
    text = _wgmma_kernel(columns, trans, steps, advance, **options)
    launch(load_ptx(text), "k", (1,), (128,), [*addresses, da, db, a.nbytes, b.nbytes], memory)
    found = download(memory, addresses[2], sums)
    result = np.zeros((64, columns), np.float32)
    for thread in range(128):  # PTX ISA: layout of D for wgmma m64nNk16
        for i in range(columns // 2):
            row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2)
            result[row, 8 * (i // 4) + 2 * (thread % 4) + i % 2] = found[thread, i]
    return result


def _operands(columns: int, depth: int) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(5)
    return tuple(random.integers(-4, 5, (rows, depth)).astype(np.float16)  # type: ignore[return]
                 for rows in (64, columns))


@pytest.mark.parametrize("swizzle", [0, 32, 64, 128])
def test_wgmma_of_operands_along_k(swizzle: int) -> None:
    depth = swizzle // 2 or 16
    a, b = _operands(32, depth)
    found = _multiply(_stored(a, swizzle), _stored(b, swizzle), 32, (0, 0), depth // 16, 2)
    assert (found == a.astype(np.float32) @ b.astype(np.float32).T).all()


def test_wgmma_of_transposed_operands() -> None:
    a, b = _operands(64, 16)
    found = _multiply(_across(a), _across(b), 64, (1, 1), 1, 0)
    assert (found == a.astype(np.float32) @ b.astype(np.float32).T).all()
    wrong = _multiply(_across(a), _stored(b, 32), 64, (1, 1), 1, 0)
    assert (wrong != a.astype(np.float32) @ b.astype(np.float32).T).any()


def test_wgmma_operands_may_not_change_before_the_wait() -> None:
    a, b = _operands(8, 16)
    late = "setp.ne.u32 %p4, %r1, 0; @%p4 bra ON; st.shared.u32 [%r4], 0x7bff7bff;\nON:"
    with pytest.raises(CudaEmulationError, match="overwritten before the wait"):
        _multiply(_stored(a, 32), _stored(b, 32), 8, (0, 0), 1, 0, late=late)


def test_a_descriptor_out_of_bounds() -> None:
    a, b = _operands(8, 16)
    data, _ = _stored(a, 32)
    with pytest.raises(CudaEmulationError, match="outside of shared memory"):
        _multiply((data, _descriptor(16, 0x3FF00, 32)), _stored(b, 32), 8, (0, 0), 1, 0)


def test_clusters_share_memory() -> None:
    body = f"""{HEADER}.visible .entry k(.param .u64 out)
{{ .reg .b32 %r<20>; .reg .b64 %rd<10>; .shared .align 4 .b8 tile[128];
mov.u32 %r1, %tid.x; mov.u32 %r2, %cluster_ctarank; mov.u32 %r3, %ctaid.x;
mov.u32 %r4, tile; shl.b32 %r5, %r1, 2; add.s32 %r6, %r4, %r5;
mad.lo.s32 %r7, %r3, 100, %r1; st.shared.u32 [%r6], %r7;
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
xor.b32 %r8, %r2, 1; mapa.shared::cluster.u32 %r9, %r6, %r8;
ld.shared::cluster.u32 %r10, [%r9];
barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;
ld.param.u64 %rd1, [out]; mad.lo.s32 %r11, %r3, 32, %r1; mul.wide.u32 %rd2, %r11, 4;
add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r10; ret; }}"""
    memory = DeviceMemory()
    out = np.zeros((4, 32), np.uint32)
    address = upload(memory, out)
    launch(load_ptx(body), "k", (4,), (32,), [address], memory, cluster=(2, 1, 1))
    found = download(memory, address, out)
    assert (found == (np.arange(4) ^ 1)[:, None] * 100 + np.arange(32)).all()
