"""Dot-product instructions of x86-64 and AArch64 as tensor instructions.

All compute ``acc[i] += sum over k of a[k] * b[i, k]`` for a group of 2 or 4 values of ``k``, with
the operands upcast before the multiplication. ``a`` is one group, broadcast to all lanes; ``b``
holds one group per lane.

Integer accumulators wrap. ``vdpbf16ps`` treats denormal operands as zero, flushes denormal results
and rounds after each product in an order that the hardware defines (Intel, "BFLOAT16 - Hardware
Numerics Definition", 2018). Other float results round to nearest, ties to even.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import te
from weft.codegen.ir_text.types import value_type, vector_of
from weft.codegen.ir_text.writer import FunctionWriter
from weft.codegen.llvm.vector.byte_product import BYTE_PRODUCTS
from weft.ir.dtype import DType
from weft.tir.instruction import Emit, Instruction

__all__ = ["BYTE_PRODUCTS", "DOT_PRODUCTS"]

X86, ARM = ("x86_64",), ("aarch64",)
# (writer, LLVM type of the accumulators, accumulators, broadcast a, b) -> the result
DotCall = Callable[[FunctionWriter, str, str, str, str], str]


def _intrinsic(name: str, operand: str, *, swapped: bool = False) -> DotCall:
    """The LLVM intrinsic ``name(accumulators, a, b)``; ``a`` and ``b`` have type ``operand``."""

    def call(out: FunctionWriter, kind: str, acc: str, a: str, b: str) -> str:
        x, y = (b, a) if swapped else (a, b)
        callee = out.module.declare(name, f"{kind} @({kind}, {operand}, {operand})")
        return out.emit(f"call {kind} {callee}({kind} {acc}, {operand} {x}, {operand} {y})")

    return call


def _multiply_then_add(name: str, operand: str) -> DotCall:
    """The LLVM intrinsic ``name(a, b)`` and an addition to the accumulators."""

    def call(out: FunctionWriter, kind: str, acc: str, a: str, b: str) -> str:
        callee = out.module.declare(name, f"{kind} @({operand}, {operand})")
        product = out.emit(f"call {kind} {callee}({operand} {a}, {operand} {b})")
        return out.emit(f"add {kind} {acc}, {product}")

    return call


def _emitter(call: DotCall, operand: str) -> Emit:
    """The emitter of an instruction: broadcasts ``a`` as i32 lanes, and casts to ``operand``."""

    def emit(
        out: FunctionWriter, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
    ) -> str:
        accumulators, a, b = values
        group = out.emit(f"bitcast {value_type(dtypes[1])} {a} to i32")
        i32s = vector_of("i32", dtype.lanes)
        broadcast = out.broadcast(group, "i32", dtype.lanes)
        operands = [
            text if kind == operand else out.emit(f"bitcast {kind} {text} to {operand}")
            for kind, text in ((i32s, broadcast), (value_type(dtypes[2]), b))
        ]
        return call(out, value_type(dtype), accumulators, *operands)

    return emit


def _dot(
    name: str, types: tuple[str, str, str], bits: int, call: DotCall, operand: str,
    archs: tuple[str, ...], *features: str,
) -> Instruction:
    """A dot-product instruction on registers of ``bits``.

    ``types`` are the dtypes of ``a``, ``b`` and the accumulators.
    """
    left, right, result = types
    lanes, group = bits // 32, 32 // DType.of(left).bits
    a, b = te.placeholder((group,), left, "a"), te.placeholder((lanes, group), right, "b")
    k = te.reduce_axis(group, "k")
    c = te.compute(
        (lanes,), lambda i: te.sum(a[k].astype(result) * b[i, k].astype(result), axis=k), name="c"
    )
    return te.instruction(name, [a, b], c, _emitter(call, operand), archs=archs,
                          features=features)


def _vpdpbusd(bits: int, feature: str) -> tuple[Instruction, Instruction]:
    """uint8 by int8 in groups of four; one instruction for either operand as the broadcast one."""
    name, i32s = f"llvm.x86.avx512.vpdpbusd.{bits}", vector_of("i32", bits // 32)
    return (
        _dot(f"vpdpbusd_{bits}", ("uint8", "int8", "int32"), bits, _intrinsic(name, i32s), i32s,
             X86, feature),
        _dot(f"vpdpbusd_{bits}_swapped", ("int8", "uint8", "int32"), bits,
             _intrinsic(name, i32s, swapped=True), i32s, X86, feature),
    )


def _vpmaddwd(bits: int, name: str, feature: str) -> Instruction:
    """int16 by int16 in pairs: a multiply-add of pairs, then a vector addition."""
    pairs = vector_of("i16", bits // 16)
    return _dot(f"vpmaddwd_{bits}", ("int16", "int16", "int32"), bits,
                _multiply_then_add(name, pairs), pairs, X86, feature)


def _vdpbf16ps(bits: int, *features: str) -> Instruction:
    pairs = vector_of("bfloat", bits // 16)
    call = _intrinsic(f"llvm.x86.avx512bf16.dpbf16ps.{bits}", pairs)
    return _dot(f"vdpbf16ps_{bits}", ("bfloat16", "bfloat16", "float32"), bits, call, pairs, X86,
                *features)


def _neon(name: str, types: tuple[str, str, str], operand: str, suffix: str,
          feature: str) -> Instruction:
    call = _intrinsic(f"llvm.aarch64.neon.{name}.{suffix}", operand)
    return _dot(f"{name}_128", types, 128, call, operand, ARM, "neon", feature)


_BYTES, _PAIRS = "<16 x i8>", "<8 x bfloat>"

# From the fastest to the slowest: take the first one that the CPU supports.
DOT_PRODUCTS: tuple[Instruction, ...] = (
    *_vpdpbusd(512, "avx512vnni"),
    *_vpdpbusd(256, "avxvnni"),
    _vdpbf16ps(512, "avx512bf16"),
    _vpmaddwd(512, "llvm.x86.avx512.pmaddw.d.512", "avx512bw"),
    _vpmaddwd(256, "llvm.x86.avx2.pmadd.wd", "avx2"),
    _neon("sdot", ("int8", "int8", "int32"), _BYTES, "v4i32.v16i8", "dotprod"),
    _neon("udot", ("uint8", "uint8", "uint32"), _BYTES, "v4i32.v16i8", "dotprod"),
    _neon("usdot", ("uint8", "int8", "int32"), _BYTES, "v4i32.v16i8", "i8mm"),
    _neon("bfdot", ("bfloat16", "bfloat16", "float32"), _PAIRS, "v4f32.v8bf16", "bf16"),
)
