"""Kernels that the emulator must refuse, each with the line, block and thread."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.cuda.runtime.ptx_snippets import HEADER, kernel, run, upload
from weft.testing.cuda import CudaEmulationError, DeviceMemory, EmulationOptions, launch, load_ptx

_ZEROS = np.zeros(64, np.uint32)
_AT = "mul.wide.u32 %rd8, %r1, 4; add.s64 %rd9, %rd1, %rd8;\n"
_EXCHANGE = """.shared .align 4 .b8 tile[256];
mov.u64 %rd20, tile; mul.wide.u32 %rd8, %r0, 4; add.s64 %rd21, %rd20, %rd8;
st.shared.u32 [%rd21], %r0;
{barrier}
xor.b32 %r4, %r0, {distance}; mul.wide.u32 %rd10, %r4, 4; add.s64 %rd22, %rd20, %rd10;
ld.shared.u32 %r5, [%rd22]; add.s64 %rd9, %rd1, %rd8; st.global.u32 [%rd9], %r5;"""


def _run(body: str, block: int = 64, array: np.ndarray = _ZEROS, **options: object) -> np.ndarray:
    return run(kernel(body), [array], block=block, **options)[0]


def test_out_of_bounds_names_the_thread_and_the_source_line() -> None:
    body = ".loc 1 17 3\n" + _AT + "st.global.u32 [%rd9+8], %r0;"
    with pytest.raises(CudaEmulationError, match="out of bounds") as caught:
        _run(body)
    assert "thread (62, 0, 0)" in str(caught.value)
    assert "source line 1:17" in str(caught.value)
    assert "past the end" in str(caught.value)


def test_use_after_free() -> None:
    memory = DeviceMemory()
    address = upload(memory, _ZEROS)
    memory.free(address)
    with pytest.raises(CudaEmulationError, match="freed memory"):
        launch(load_ptx(kernel(_AT + "st.global.u32 [%rd9], %r0;")), "k", (1,), (64,), [address],
               memory)


def test_misaligned_vector_access() -> None:
    with pytest.raises(CudaEmulationError, match="misaligned access of 16 bytes"):
        _run("mul.wide.u32 %rd8, %r0, 8; add.s64 %rd9, %rd1, %rd8;\n"
             "ld.global.v4.u32 {%r4, %r5, %r6, %r7}, [%rd9];", block=8)


@pytest.mark.parametrize("distance", [1, 32])
def test_a_missing_barrier_is_a_race(distance: int) -> None:
    good = _EXCHANGE.format(barrier="bar.sync 0;", distance=distance)
    assert (_run(good) == (np.arange(64) ^ distance)).all()
    with pytest.raises(CudaEmulationError, match="data race in shared memory"):
        _run(_EXCHANGE.format(barrier="", distance=distance))


def test_a_warp_barrier_orders_a_warp_alone() -> None:
    inside = _EXCHANGE.format(barrier="bar.warp.sync -1;", distance=1)
    assert (_run(inside) == (np.arange(64) ^ 1)).all()
    with pytest.raises(CudaEmulationError, match="data race in shared memory"):
        _run(_EXCHANGE.format(barrier="bar.warp.sync -1;", distance=32))


def test_blocks_race_on_global_memory() -> None:
    body = "mul.wide.u32 %rd8, %r0, 4; add.s64 %rd9, %rd1, %rd8; st.global.u32 [%rd9], %r2;"
    with pytest.raises(CudaEmulationError, match="data race in global memory"):
        run(kernel(body), [_ZEROS], grid=2, block=32)
    atomic = body.replace("st.global.u32 [%rd9], %r2", "red.global.add.u32 [%rd9], 1")
    assert (run(kernel(atomic), [_ZEROS], grid=5, block=64)[0] == 5).all()


def test_a_read_races_with_the_write_of_another_block() -> None:
    body = ("mul.wide.u32 %rd8, %r1, 4; add.s64 %rd9, %rd1, %rd8; ld.global.u32 %r4, [%rd1];\n"
            "st.global.u32 [%rd9], %r4;")
    with pytest.raises(CudaEmulationError, match="data race"):
        run(kernel(body), [_ZEROS], grid=2, block=32)


def test_deadlock_at_a_barrier() -> None:
    body = ("setp.lt.u32 %p1, %r0, 32; @%p1 bra A; bar.sync 1, 64; bra E;\n"
            "A: bar.sync 2, 64;\nE:")
    with pytest.raises(CudaEmulationError, match="deadlock") as caught:
        _run(body)
    assert "wait at barrier 1" in str(caught.value)
    assert "wait at barrier 2" in str(caught.value)


def test_a_barrier_for_a_part_of_a_warp() -> None:
    with pytest.raises(CudaEmulationError, match="part of a warp"):
        _run("setp.lt.u32 %p1, %r0, 16; @%p1 bra A; bra E;\nA: bar.sync 0;\nE:")


def test_threads_that_exit_do_not_hold_a_barrier() -> None:
    body = "setp.ge.u32 %p1, %r0, 32; @%p1 exit; bar.sync 0;\n" + _AT + "st.global.u32 [%rd9], 7;"
    found = _run(body)
    assert found.tolist() == [7] * 32 + [0] * 32


def test_endless_loops_use_up_the_budget() -> None:
    with pytest.raises(CudaEmulationError, match="instruction budget"):
        _run("L: add.s32 %r4, %r4, 1; bra L;", instruction_budget=1000)


def test_new_memory_and_registers_are_poison() -> None:
    body = ".shared .align 4 .b8 tile[256];\nmov.u64 %rd20, tile; ld.shared.u32 %r4, [%rd20];\n"
    assert np.isnan(_run(body + _AT + "st.global.u32 [%rd9], %r4;").view(np.float32)).all()
    memory = DeviceMemory()
    assert np.isnan(memory.view(memory.allocate(8), 8).view(np.float32)).all()


def test_unknown_instructions_and_bad_text() -> None:
    with pytest.raises(CudaEmulationError, match="unknown instruction: frobnicate") as caught:
        _run("frobnicate.s32 %r4, %r5;")
    assert "PTX line" in str(caught.value)
    with pytest.raises(CudaEmulationError, match="does not parse"):
        load_ptx(HEADER + ".visible .entry k( {")


def test_bad_launches() -> None:
    module, memory = load_ptx(kernel("")), DeviceMemory()
    for grid, block, params, what in (
        ((1,), (2048,), [0], "block"), ((0,), (32,), [0], "grid"), ((1,), (32,), [], "arguments"),
    ):
        with pytest.raises(CudaEmulationError, match=what):
            launch(module, "k", grid, block, params, memory)
    with pytest.raises(CudaEmulationError, match="shared memory"):
        launch(module, "k", (1,), (32,), [0], memory, shared_bytes=300_000)


def test_divergence_and_loops() -> None:
    body = ("and.b32 %r4, %r0, 7; mov.u32 %r5, 0; mov.u32 %r6, 0;\n"
            "L: setp.ge.u32 %p1, %r6, %r4; @%p1 bra E; add.s32 %r5, %r5, %r0;\n"
            "add.s32 %r6, %r6, 1; bra L;\nE:\n" + _AT + "st.global.u32 [%rd9], %r5;")
    lane = np.arange(64)
    assert (_run(body) == lane * (lane & 7)).all()


def test_calls_are_inlined() -> None:
    top = (".func (.param .b32 out) twice(.param .b32 in) { .reg .b32 %r<3>; "
           "ld.param.b32 %r1, [in]; add.s32 %r2, %r1, %r1; st.param.b32 [out], %r2; ret; }")
    body = ("{ .param .b32 a; st.param.b32 [a], %r0; .param .b32 b; call.uni (b), twice, (a); "
            "ld.param.b32 %r5, [b]; }\n" + _AT + "st.global.u32 [%rd9], %r5;")
    found = run(kernel(body, top=top), [_ZEROS], block=64)[0]
    assert (found == 2 * np.arange(64)).all()


def test_counts() -> None:
    body = (_AT + "ld.global.f32 %f1, [%rd9]; fma.rn.f32 %f1, %f1, %f1, %f1;\n"
            "mul.wide.u32 %rd8, %r0, 128; add.s64 %rd10, %rd1, %rd8; ld.global.f32 %f2, [%rd10];")
    memory = DeviceMemory()
    address = upload(memory, np.zeros(2048, np.float32))
    counts = launch(load_ptx(kernel(body)), "k", (1,), (64,), [address], memory,
                    options=EmulationOptions(count=True))
    assert counts is not None
    assert [item.transactions for item in counts.memory] == [2 * 4, 64]
    assert counts.fma_flops == 128
    assert "ld.global.f32" in counts.table()
    assert '"kernel": "k"' in counts.to_json()


def test_bank_conflicts() -> None:
    body = ".shared .align 16 .b8 tile[8192];\nmov.u64 %rd20, tile;\n"
    for stride, conflicts in ((4, 0), (8, 1), (128, 31), (132, 0)):
        at = f"mul.wide.u32 %rd8, %r0, {stride}; add.s64 %rd21, %rd20, %rd8;\n"
        memory = DeviceMemory()
        counts = launch(load_ptx(kernel(body + at + "st.shared.u32 [%rd21], %r0;")), "k", (1,),
                        (32,), [memory.allocate(4)], memory, options=EmulationOptions(count=True))
        assert counts is not None
        assert counts.total("conflicts", "shared") == conflicts, stride


_SPECULATIVE = """.shared .align 4 .b8 cell[4];
setp.ne.u32 %p1, %r0, 0; mov.u32 %r5, 7; {early}
@%p1 bra ON; st.shared.u32 [cell], %r0; mov.u32 %r6, %r5;
ON: mov.u32 %r7, %r6; {barrier} @{use}%p1 bra OUT;
add.s32 %r5, %r7, 1;
OUT: mul.wide.u32 %rd8, %r0, 4; add.s64 %rd9, %rd1, %rd8; st.global.u32 [%rd9], %r5;"""


@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"])
def test_a_load_races_only_if_its_value_is_used(barrier: str) -> None:
    """Thread 0 writes the cell that all threads loaded early; only it uses the value, or others."""
    early = "ld.shared.u32 %r6, [cell];"
    unused = _SPECULATIVE.format(early=early, barrier=barrier, use="")
    assert (_run(unused)[1:] == 7).all()
    used = _SPECULATIVE.format(early=early, barrier=barrier, use="!")
    with pytest.raises(CudaEmulationError, match="data race in shared memory"):
        _run(used)
