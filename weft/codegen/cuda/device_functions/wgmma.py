"""Asynchronous matrix products of a warpgroup of 128 threads (PTX ISA, ``wgmma``; sm_90a).

A (64 rows) and B are in shared memory, given by descriptors. Thread ``t`` of the warpgroup, in warp
``w = t // 32``, holds for each 8 columns the four elements that ``mma.sync`` would give it of rows
``16 * w`` on. Accumulators stay the same registers from ``wgmma_fence`` to ``wgmma_wait``, so both
take and return them.
"""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, Operand, reg

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
FUNCTIONS = (
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
