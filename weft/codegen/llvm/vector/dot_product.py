"""Dot product instructions of x86-64 and AArch64 as tensor instructions.

All have one form: lane ``i`` of the accumulators gets the sum over a small group ``k`` of
``a[k] * b[i, k]``, the operands widened before they are multiplied. ``a`` is broadcast to all
lanes; ``b`` has the groups of the lanes side by side.

Integer sums wrap and are exact otherwise. The bfloat16 ones take denormal operands as zero, flush
denormal results, and round after each product, in an order of their own (Intel, "BFLOAT16 -
Hardware Numerics Definition", 2018); all else here rounds to nearest, ties to even.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from weft import te
from weft.codegen.llvm.text.types import value_type, vector_of
from weft.codegen.llvm.text.writer import FunctionWriter
from weft.ir.dtype import DType
from weft.tir.instruction import Emit, Instruction

X86, ARM = ("x86_64",), ("aarch64",)
# (writer, LLVM type of the accumulators, accumulators, a in every lane, b) -> the result
DotCall = Callable[[FunctionWriter, str, str, str, str], str]


def _intrinsic(name: str, operand: str, *, swapped: bool = False) -> DotCall:
    """A call of LLVM's ``name(accumulators, a, b)`` over vectors of ``operand``."""

    def call(out: FunctionWriter, kind: str, acc: str, a: str, b: str) -> str:
        x, y = (b, a) if swapped else (a, b)
        callee = out.module.declare(name, f"{kind} @({kind}, {operand}, {operand})")
        return out.emit(f"call {kind} {callee}({kind} {acc}, {operand} {x}, {operand} {y})")

    return call


def _multiply_then_add(name: str, operand: str) -> DotCall:
    """LLVM's ``name(a, b)``, whose result is added to the accumulators."""

    def call(out: FunctionWriter, kind: str, acc: str, a: str, b: str) -> str:
        callee = out.module.declare(name, f"{kind} @({operand}, {operand})")
        product = out.emit(f"call {kind} {callee}({operand} {a}, {operand} {b})")
        return out.emit(f"add {kind} {acc}, {product}")

    return call


def _emitter(call: DotCall, operand: str) -> Emit:
    """Brings the operands into the form of ``call``: ``a`` a word in every lane, as ``operand``."""

    def emit(
        out: FunctionWriter, dtype: DType, values: Sequence[str], dtypes: Sequence[DType]
    ) -> str:
        accumulators, a, b = values
        word = out.emit(f"bitcast {value_type(dtypes[1])} {a} to i32")
        words = vector_of("i32", dtype.lanes)
        broadcast = out.broadcast(word, "i32", dtype.lanes)
        operands = [
            text if kind == operand else out.emit(f"bitcast {kind} {text} to {operand}")
            for kind, text in ((words, broadcast), (value_type(dtypes[2]), b))
        ]
        return call(out, value_type(dtype), accumulators, *operands)

    return emit


def _dot(
    name: str, types: tuple[str, str, str], bits: int, call: DotCall, operand: str,
    archs: tuple[str, ...], *features: str,
) -> Instruction:
    """``types`` are those of ``a``, ``b`` and the accumulators, ``bits`` the register's width."""
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
    """Unsigned by signed bytes, four at a time; either may be the operand that is broadcast."""
    name, words = f"llvm.x86.avx512.vpdpbusd.{bits}", vector_of("i32", bits // 32)
    return (
        _dot(f"vpdpbusd_{bits}", ("uint8", "int8", "int32"), bits, _intrinsic(name, words), words,
             X86, feature),
        _dot(f"vpdpbusd_{bits}_swapped", ("int8", "uint8", "int32"), bits,
             _intrinsic(name, words, swapped=True), words, X86, feature),
    )


def _vpmaddwd(bits: int, name: str, feature: str) -> Instruction:
    """Signed 16-bit numbers in pairs: two instructions, on every CPU."""
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

# The first one that a CPU has is the best.
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
