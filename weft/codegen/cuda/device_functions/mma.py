"""Matrix products of a warp (PTX ISA, ``mma.sync``), and the elements that each thread holds.

With ``g = lane // 4`` and ``t = lane % 4``, for the 16 x 8 result C: registers 0 and 1 hold
``C[g, 2t]`` and ``C[g, 2t + 1]``, registers 2 and 3 the same of row ``g + 8``. For 16-bit operands
and K = 16: A (16 x 16, row-major) has pairs ``A[g, 2t..]``, ``A[g + 8, 2t..]``, ``A[g, 2t + 8..]``,
``A[g + 8, 2t + 8..]``; B (16 x 8) has ``B[2t.., g]``, ``B[2t + 8.., g]``. For 32-bit elements a
register holds one element instead of a pair, with K = 8; for bytes four, with K = 32.
"""

from __future__ import annotations

from weft.codegen.cuda.device_functions.record import DeviceFunction, Kind, reg


def _mma(k: int, accumulator: str, a: str, b: str, suffix: str = "") -> DeviceFunction:
    kind = Kind.F32 if accumulator == "f32" else Kind.B32
    named = a if a == b else f"{a}_{b}"
    return DeviceFunction(
        f"mma_m16n8k{k}_{accumulator}_{named}",
        f"mma.sync.aligned.m16n8k{k}.row.col{suffix}.{accumulator}.{a}.{b}.{accumulator} "
        "$d, $a, $b, $c;",
        (reg("c", kind, 4), reg("a", Kind.B32, 4), reg("b", Kind.B32, 2)), reg("d", kind, 4),
        is_pure=True, converges=True, doc=f"C + A * B of 16 x 8 elements, {k} of them along K")


FUNCTIONS = (
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
