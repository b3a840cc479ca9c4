"""Instructions of a warp: shuffles, votes, matrices, against definitions written out here."""

from __future__ import annotations

import numpy as np
import pytest

from tests.unit.cuda.runtime.ptx_snippets import kernel, run
from weft.testing.cuda import CudaEmulationError

_LOAD = "mul.wide.u32 %rd8, %r1, 4; add.s64 %rd9, %rd1, %rd8; ld.global.u32 %r10, [%rd9];\n"
_STORE = "add.s64 %rd9, %rd2, %rd8; st.global.u32 [%rd9], %r11;"
_VALUES = np.random.default_rng(0).integers(0, 2**32, 64, dtype=np.uint32)


def _through(body: str, block: int = 64, values: np.ndarray = _VALUES) -> np.ndarray:
    text = kernel(_LOAD + body + "\n" + _STORE, 2)
    return run(text, [values, np.zeros(values.shape, np.uint32)], block=block)[1]


@pytest.mark.parametrize("step", [0, 1, 5, 16, 31])
def test_shuffles(step: int) -> None:
    lane = np.arange(64) % 32
    warp = np.arange(64) - lane
    for mode, bound, target in (("down", 31, lane + step), ("up", 0, lane - step),
                                ("bfly", 31, lane ^ step), ("idx", 31, np.full(64, step))):
        found = _through(f"shfl.sync.{mode}.b32 %r11|%p1, %r10, {step}, {bound}, -1;")
        inside = (target >= 0) & (target < 32)
        assert (found == _VALUES[warp + np.where(inside, target, lane)]).all(), mode


def test_shuffle_in_segments() -> None:
    # Segments of 8 lanes: c holds the segment mask 0x18 and the clamp 0x1f.
    found = _through("shfl.sync.down.b32 %r11, %r10, 3, 0x181f, -1;")
    lane = np.arange(64)
    assert (found == _VALUES[np.where(lane % 8 + 3 < 8, lane + 3, lane)]).all()


def test_a_shuffle_waits_for_the_threads_of_its_mask() -> None:
    body = ("and.b32 %r12, %r0, 1; setp.eq.u32 %p1, %r12, 0; mov.u32 %r11, 0; @%p1 bra SKIP;\n"
            "shfl.sync.idx.b32 %r11, %r10, 0, 31, -1;\nSKIP:")
    with pytest.raises(CudaEmulationError, match="member mask is elsewhere"):
        _through(body)
    half = body.replace(", -1;", ", 0xaaaaaaaa;")
    found = _through(half.replace("%r10, 0, 31", "%r10, 1, 31"))
    lane = np.arange(64)
    assert (found == np.where(lane % 2, _VALUES[lane // 32 * 32 + 1], 0)).all()


def test_votes() -> None:
    bits = (_VALUES & 1).astype(bool)
    head = "and.b32 %r12, %r10, 1; setp.ne.u32 %p1, %r12, 0;\n"
    ballot = _through(head + "vote.sync.ballot.b32 %r11, %p1, -1;")
    wanted = [sum(1 << i for i in range(32) if bits[32 * w + i]) for w in range(2)]
    assert ballot.tolist() == [wanted[t // 32] for t in range(64)]
    some = _through(head + "vote.sync.any.pred %p2, %p1, -1; selp.u32 %r11, 1, 0, %p2;")
    assert some.all()
    every = _through(head + "vote.sync.all.pred %p2, %p1, -1; selp.u32 %r11, 1, 0, %p2;")
    assert not every.any()


def test_redux_match_and_elect() -> None:
    small = _VALUES % 5
    total = _through("redux.sync.add.u32 %r11, %r10, -1;", values=small)
    assert total.tolist() == [small[t // 32 * 32 : t // 32 * 32 + 32].sum() for t in range(64)]
    same = _through("match.any.sync.b32 %r11, %r10, -1;", values=small)
    assert same.tolist() == [
        sum(1 << i for i in range(32) if small[t // 32 * 32 + i] == small[t]) for t in range(64)]
    leader = _through("elect.sync _|%p1, -1; selp.u32 %r11, 1, 0, %p1;")
    assert np.flatnonzero(leader).tolist() == [0, 32]


def _fragments(matrix: np.ndarray, lane: int) -> list[np.ndarray]:
    """The 16-bit elements of A (16 x 16) in the registers of a lane, from the PTX ISA's text."""
    group, thread = lane >> 2, lane % 4
    registers = []
    for register in range(4):
        pair = []
        for i in (2 * register, 2 * register + 1):
            row = group if i < 2 or 4 <= i < 6 else group + 8
            column = thread * 2 + (i & 1) + (8 if i >= 4 else 0)
            pair.append(matrix[row, column])
        registers.append(np.array(pair))
    return registers


def _b_fragments(matrix: np.ndarray, lane: int) -> list[np.ndarray]:
    group, thread = lane >> 2, lane % 4
    return [np.array([matrix[thread * 2 + (i & 1) + (8 if i >= 2 else 0), group] for i in pair])
            for pair in ((0, 1), (2, 3))]


def _mma_kernel(name: str) -> str:
    sums = "{%f1, %f2, %f3, %f4}"
    lines = ["mul.wide.u32 %rd8, %r0, 16; add.s64 %rd9, %rd1, %rd8;",
             "ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd9];",
             "mul.wide.u32 %rd8, %r0, 8; add.s64 %rd9, %rd2, %rd8;",
             "ld.global.v2.u32 {%r24, %r25}, [%rd9];",
             "mul.wide.u32 %rd8, %r0, 16; add.s64 %rd9, %rd3, %rd8;",
             "ld.global.v4.f32 {%f1, %f2, %f3, %f4}, [%rd9];",
             f"{name} {sums}, {{%r20, %r21, %r22, %r23}}, {{%r24, %r25}}, {sums};",
             "st.global.v4.f32 [%rd9], {%f1, %f2, %f3, %f4};"]
    return kernel("\n".join(lines), 3)


def test_mma_fragments() -> None:
    random = np.random.default_rng(3)
    a, b = (random.integers(-8, 8, shape).astype(np.float16) for shape in ((16, 16), (16, 8)))
    c = random.integers(-8, 8, (16, 8)).astype(np.float32)
    registers_a = np.stack([np.concatenate(_fragments(a, lane)) for lane in range(32)])
    registers_b = np.stack([np.concatenate(_b_fragments(b, lane)) for lane in range(32)])
    places = [[((lane >> 2) + (8 if i >= 2 else 0), 2 * (lane % 4) + (i & 1)) for i in range(4)]
              for lane in range(32)]
    sums = np.array([[c[place] for place in row] for row in places], dtype=np.float32)
    text = _mma_kernel("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    found = run(text, [registers_a, registers_b, sums])[2]
    wanted = a.astype(np.float64) @ b.astype(np.float64) + c
    assert (found == np.array([[wanted[place] for place in row] for row in places])).all()


def test_mma_needs_the_whole_warp() -> None:
    text = _mma_kernel("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    text = text.replace("mma.sync", "setp.lt.u32 %p1, %r0, 16;\n@%p1 bra L; bra E; L:\nmma.sync")
    text = text.replace("st.global", "E:\nst.global")
    zeros = [np.zeros((32, 8), np.float16), np.zeros((32, 4), np.float16),
             np.zeros((32, 4), np.float32)]
    with pytest.raises(CudaEmulationError, match="by a part of it"):
        run(text, zeros)


_FILL = """.shared .align 16 .b8 tile[512];
mov.u64 %rd20, tile; mul.wide.u32 %rd8, %r0, 16; add.s64 %rd9, %rd1, %rd8;
ld.global.v4.u32 {%r20, %r21, %r22, %r23}, [%rd9]; add.s64 %rd21, %rd20, %rd8;
st.shared.v4.u32 [%rd21], {%r20, %r21, %r22, %r23}; bar.sync 0;
"""


@pytest.mark.parametrize("transposed", [False, True])
def test_ldmatrix(transposed: bool) -> None:
    data = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    trans = ".trans" if transposed else ""
    body = _FILL + (
        f"ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{%r30, %r31, %r32, %r33}}, [%rd21];\n"
        "add.s64 %rd9, %rd2, %rd8; st.global.v4.u32 [%rd9], {%r30, %r31, %r32, %r33};")
    found = run(kernel(body, 2), [data, np.zeros((32, 8), np.uint16)])[1].reshape(32, 4, 2)
    for lane in range(32):
        for matrix in range(4):
            tile = data[matrix].T if transposed else data[matrix]
            row, column = lane // 4, 2 * (lane % 4)
            assert found[lane, matrix].tolist() == tile[row, column : column + 2].tolist()


def test_stmatrix_inverts_ldmatrix() -> None:
    data = np.arange(256, dtype=np.uint16)
    body = _FILL + """ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r30, %r31, %r32, %r33}, [%rd21];
bar.sync 0; mov.u32 %r40, 0;
st.shared.v4.u32 [%rd21], {%r40, %r40, %r40, %r40}; bar.sync 0;
stmatrix.sync.aligned.m8n8.x4.shared.b16 [%rd21], {%r30, %r31, %r32, %r33}; bar.sync 0;
ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%rd21]; add.s64 %rd9, %rd2, %rd8;
st.global.v4.u32 [%rd9], {%r20, %r21, %r22, %r23};"""
    found = run(kernel(body, 2), [data, np.zeros_like(data)])[1]
    assert (found == data).all()
