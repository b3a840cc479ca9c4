"""Matrix instructions: fragments from shared memory, products of a warp and of a warpgroup.

``ldmatrix`` and ``stmatrix`` (PTX ISA) move 8x8 matrices of 16-bit elements. Thread ``8 * i + r``
gives the address of row ``r`` of matrix ``i``, 16 bytes, aligned to 16. Thread ``t`` receives
elements ``(t // 4, 2 * (t % 4))`` and the next one of each matrix, one register per matrix; with
``trans`` those of the transposed matrix.

``mma.sync`` multiplies in a warp. With ``g = lane // 4`` and ``t = lane % 4``, for the 16 x 8
result C: registers 0 and 1 hold ``C[g, 2t]`` and ``C[g, 2t + 1]``, registers 2 and 3 those of row
``g + 8``. For 16-bit operands and K = 16: A (16 x 16, row-major) has pairs ``A[g, 2t..]``,
``A[g + 8, 2t..]``, ``A[g, 2t + 8..]``, ``A[g + 8, 2t + 8..]``; B (16 x 8) has ``B[2t.., g]``,
``B[2t + 8.., g]``. For 32-bit elements a register holds one element instead of a pair, with K = 8;
for bytes four, with K = 32.

``wgmma`` (sm_90a) multiplies asynchronously in a warpgroup of 128 threads. A (64 rows) and B are in
shared memory, given by descriptors. Thread ``t`` of the warpgroup, in warp ``w = t // 32``, holds
for each 8 columns the four elements that ``mma.sync`` would give it of rows ``16 * w`` on.
Accumulators stay the same registers from ``wgmma_fence`` to ``wgmma_wait``, so both take and return
them.
"""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, Operand, reg


def _load(count: int, *, transposes: bool) -> DeviceFunction:
    suffix, trans = ("_trans", ".trans") if transposes else ("", "")
    registers = "$d" if count > 1 else "{$d}"
    return DeviceFunction(
        f"ldmatrix_x{count}{suffix}",
        f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {registers}, [$row];",
        (reg("row", Kind.SHARED),), reg("d", Kind.B32, count), converges=True,
        doc=f"{count} matrices" + (", each transposed" if transposes else ""))


def _store(count: int) -> DeviceFunction:
    return DeviceFunction(
        f"stmatrix_x{count}", f"stmatrix.sync.aligned.m8n8.x{count}.shared.b16 [$row], $value;",
        (reg("row", Kind.SHARED), reg("value", Kind.B32, count)), converges=True,
        capability=(9, 0), ptx_version=(7, 8), doc=f"store {count} matrices")


_LDMATRIX = (
    *(_load(count, transposes=t) for count in (1, 2, 4) for t in (False, True)),
    _store(2), _store(4),
    DeviceFunction("shared_address", "mov.u32 $d, $at;", (reg("at", Kind.SHARED),),
                   reg("d", Kind.B32), is_pure=True, doc="an address in shared memory as a number"),
)


def _mma(k: int, accumulator: str, a: str, b: str, suffix: str = "") -> DeviceFunction:
    kind = Kind.F32 if accumulator == "f32" else Kind.B32
    named = a if a == b else f"{a}_{b}"
    return DeviceFunction(
        f"mma_m16n8k{k}_{accumulator}_{named}",
        f"mma.sync.aligned.m16n8k{k}.row.col{suffix}.{accumulator}.{a}.{b}.{accumulator} "
        "$d, $a, $b, $c;",
        (reg("c", kind, 4), reg("a", Kind.B32, 4), reg("b", Kind.B32, 2)), reg("d", kind, 4),
        is_pure=True, converges=True, doc=f"C + A * B of 16 x 8 elements, {k} of them along K")


_MMA = (
    _mma(16, "f32", "f16", "f16"),
    _mma(16, "f32", "bf16", "bf16"),
    _mma(8, "f32", "tf32", "tf32"),
    *(_mma(32, "s32", a, b) for a in ("s8", "u8") for b in ("s8", "u8")),
    DeviceFunction("dp4a_s32_s8", "dp4a.s32.s32 $d, $a, $b, $c;",
                   (reg("c", Kind.B32), reg("a", Kind.B32), reg("b", Kind.B32)),
                   reg("d", Kind.B32), is_pure=True,
                   doc="c + the sum of the products of four signed bytes"),
    DeviceFunction("cvt_rna_tf32", "cvt.rna.tf32.f32 $d, $x;", (reg("x", Kind.F32),),
                   reg("d", Kind.B32), is_pure=True,
                   doc="float32 rounded to the 10 bits of fraction of tf32"),
    DeviceFunction("exp2_approx", "ex2.approx.ftz.f32 $d, $x;", (reg("x", Kind.F32),),
                   reg("d", Kind.F32), is_pure=True,
                   doc="2**x with a relative error below 2**-22, denormals as zero"),
)


COLUMNS = (8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)


def _hopper(name: str, ptx: str, operands: tuple[Operand, ...] = (),
            result: Operand | None = None, doc: str = "") -> DeviceFunction:
    return DeviceFunction(name, ptx, operands, result, converges=True, capability=(9, 0),
                          is_specific=True, ptx_version=(8, 0), doc=doc)


def _wgmma(columns: int, dtype: str) -> DeviceFunction:
    sums = reg("d", Kind.F32, columns // 2)
    return _hopper(
        f"wgmma_m64n{columns}k16_f32_{dtype}",
        "{ .reg .pred p; setp.ne.b32 p, $accumulates, 0;\n"
        f"wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{dtype}.{dtype} "
        "$d, $a, $b, p, 1, 1, $trans_a, $trans_b; }",
        (sums, reg("a", Kind.B64), reg("b", Kind.B64), reg("accumulates", Kind.B32),
         reg("trans_a", Kind.IMMEDIATE), reg("trans_b", Kind.IMMEDIATE)), sums,
        f"D + A * B (A * B if ``accumulates`` is 0) of 64 x {columns} elements, 16 along K")


def _with_sums(name: str, ptx: str, columns: int, doc: str, *rest: Operand) -> DeviceFunction:
    sums = reg("d", Kind.F32, columns // 2)
    return _hopper(f"{name}_n{columns}", ptx, (sums, *rest), sums, doc)


# Accumulators are operands of the fence and the wait, so that no compiler moves them in between.
_WGMMA = (
    *(_wgmma(columns, dtype) for columns in COLUMNS for dtype in ("f16", "bf16")),
    *(_with_sums("wgmma_fence", "wgmma.fence.sync.aligned;", columns,
                 "the accumulators may be read and written by ``wgmma`` from here on")
      for columns in COLUMNS),
    *(_with_sums("wgmma_wait", "wgmma.wait_group.sync.aligned $pending;", columns,
                 "wait until at most ``pending`` groups are incomplete; returns the sums",
                 reg("pending", Kind.IMMEDIATE))
      for columns in COLUMNS),
    _hopper("wgmma_commit", "wgmma.commit_group.sync.aligned;",
            doc="the products since the last commit are a group"),
    _hopper("setmaxnreg_inc", "setmaxnreg.inc.sync.aligned.u32 $count;",
            (reg("count", Kind.IMMEDIATE),), doc="raise the registers of each thread of the warp"),
    _hopper("setmaxnreg_dec", "setmaxnreg.dec.sync.aligned.u32 $count;",
            (reg("count", Kind.IMMEDIATE),), doc="lower the registers of each thread of the warp"),
)
FUNCTIONS = (*_LDMATRIX, *_MMA, *_WGMMA)
