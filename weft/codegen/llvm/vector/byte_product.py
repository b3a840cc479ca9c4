"""Products of two vectors of bytes (or int16), for loops that are written with vectors.

All take vectors of whole registers. The sums of ``vpmaddubsw`` are of 16 bits, which the hardware
saturates: a loop must use it for operands whose sums fit.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft import te
from weft.codegen.ir_text.types import value_type, vector_of
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir.dtype import DType
from weft.tir.expr import PrimExpr
from weft.tir.instruction import Emit, Instruction

GROUP = 4  # bytes of a lane of 32 bits


def _intrinsic(name: str, operand: str) -> Emit:
    """The LLVM intrinsic ``name``; ``operand`` is the type of those that are bytes."""

    def emit(out: FunctionWriter, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
             ) -> str:
        typed: list[str] = []
        for text, kind in zip(values, dtypes, strict=True):
            given = value_type(kind)
            if kind.bits == 8 and given != operand:
                typed.append(f"{operand} {out.emit(f'bitcast {given} {text} to {operand}')}")
            else:
                typed.append(f"{given} {text}")
        result = value_type(dtype)
        kinds = ", ".join(t.partition("> ")[0] + ">" for t in typed)
        callee = out.module.declare(name, f"{result} @({kinds})")
        return out.emit(f"call {result} {callee}({', '.join(typed)})")

    return emit


def _dot(name: str, left: str, bits: int, emit: Emit, arch: str, *features: str) -> Instruction:
    """``acc[i] += sum over k of a[i, k] * b[i, k]``, for ``left`` by int8."""
    shape = (bits // 32, GROUP)
    a, b = te.placeholder(shape, left, "a"), te.placeholder(shape, "int8", "b")
    k = te.reduce_axis(GROUP, "k")
    c = te.compute(shape[:1], lambda i: te.sum(
        a[i, k].astype("int32") * b[i, k].astype("int32"), axis=k), name="c")
    return te.instruction(name, [a, b], c, emit, archs=(arch,), features=features)


def _pair_sums(bits: int, name: str, feature: str) -> Instruction:
    """int16 sums of two neighbouring products of uint8 by int8."""
    shape = (bits // 16, 2)
    a, b = te.placeholder(shape, "uint8", "a"), te.placeholder(shape, "int8", "b")

    def product(i: PrimExpr, k: int) -> PrimExpr:
        return a[i, k].astype("int16") * b[i, k].astype("int16")

    c = te.compute(shape[:1], lambda i: product(i, 0) + product(i, 1), name="c")
    return te.instruction(f"vpmaddubsw_{bits}", [a, b], c,
                          _intrinsic(name, vector_of("i8", bits // 8)), archs=("x86_64",),
                          features=(feature,))


def _wide_dot(bits: int, name: str, feature: str) -> Instruction:
    """int16 by int16 in pairs: a multiply-add of pairs, then a vector addition."""
    shape, pairs = (bits // 32, 2), vector_of("i16", bits // 16)

    def emit(out: FunctionWriter, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
             ) -> str:
        del dtypes
        kind, (acc, a, b) = value_type(dtype), values
        callee = out.module.declare(name, f"{kind} @({pairs}, {pairs})")
        product = out.emit(f"call {kind} {callee}({pairs} {a}, {pairs} {b})")
        return out.emit(f"add {kind} {acc}, {product}")

    a, b = te.placeholder(shape, "int16", "a"), te.placeholder(shape, "int16", "b")
    k = te.reduce_axis(2, "k")
    c = te.compute(shape[:1], lambda i: te.sum(
        a[i, k].astype("int32") * b[i, k].astype("int32"), axis=k), name="c")
    return te.instruction(f"vpmaddwd_lanes_{bits}", [a, b], c, emit, archs=("x86_64",),
                          features=(feature,))


_VPDPBUSD = "llvm.x86.avx512.vpdpbusd"
BYTE_PRODUCTS: tuple[Instruction, ...] = (
    _dot("vpdpbusd_lanes_512", "uint8", 512, _intrinsic(f"{_VPDPBUSD}.512", "<16 x i32>"),
         "x86_64", "avx512vnni"),
    _dot("vpdpbusd_lanes_256", "uint8", 256, _intrinsic(f"{_VPDPBUSD}.256", "<8 x i32>"),
         "x86_64", "avxvnni"),
    _dot("sdot_lanes_128", "int8", 128, _intrinsic("llvm.aarch64.neon.sdot.v4i32.v16i8",
                                                   "<16 x i8>"), "aarch64", "neon", "dotprod"),
    _pair_sums(512, "llvm.x86.avx512.pmaddubs.w.512", "avx512bw"),
    _pair_sums(256, "llvm.x86.avx2.pmadd.ub.sw", "avx2"),
    _wide_dot(512, "llvm.x86.avx512.pmaddw.d.512", "avx512bw"),
    _wide_dot(256, "llvm.x86.avx2.pmadd.wd", "avx2"),
)
