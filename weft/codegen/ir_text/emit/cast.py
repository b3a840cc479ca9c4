"""Conversions between dtypes, and between values and their representation in memory."""

from __future__ import annotations

from weft.codegen.ir_text.floats.narrow_float import narrow, round_to_odd, widen
from weft.codegen.ir_text.types import is_narrow, splat, value_type, vector_of, zero_of
from weft.codegen.ir_text.vector.legal_width import split_to_legal_width
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir.dtype import DType, float32
from weft.support.errors import CodegenError


def emit_cast(out: FunctionWriter, value: str, source: DType, target: DType) -> str:
    """``value`` converted from ``source`` to ``target``.

    Floats truncate to integers, integers wrap, and nonzero values become true. A float outside of
    the integer's range gives an unspecified value, but not undefined behaviour. ``CodegenError``
    for addresses.
    """
    if source == target:
        return value
    if "handle" in (source.code, target.code):
        raise CodegenError("cast to or from an address", got=f"{source} to {target}")
    single = float32.vector(source.lanes)
    if source.is_narrow_float:
        return emit_cast(out, widen(out, value, source), single, target)
    if target.is_narrow_float:
        # By way of float32, a float64 would be rounded twice.
        if target.code == "float" and source.bits == 64 and source.is_float:
            return narrow(out, round_to_odd(out, value, source.lanes), target)
        return narrow(out, emit_cast(out, value, source, single), target)
    # Integer types of LLVM do not distinguish signed from unsigned.
    if value_type(source) == value_type(target):
        return value
    if target.is_bool:
        return _to_bool(out, value, source)
    if source.is_float:
        if target.is_float:
            return _convert(
                out, "fpext" if target.bits > source.bits else "fptrunc", value, source, target
            )
        return _float_to_int(out, value, source, target)
    signed = source.code == "int"
    if target.is_float:
        return _convert(out, "sitofp" if signed else "uitofp", value, source, target)
    if target.bits < source.bits:
        return _convert(out, "trunc", value, source, target)
    return _convert(out, "sext" if signed else "zext", value, source, target)


def _convert(out: FunctionWriter, op: str, value: str, source: DType, target: DType) -> str:
    """A conversion by the instruction ``op``, on whole vectors.

    LLVM splits vectors whose lanes are no power of two, and some back ends abort on the parts
    (``trunc <3 x i64>`` to bytes on AArch64), so such vectors get surplus lanes for the conversion.
    """
    whole = 1 << (source.lanes - 1).bit_length()
    before, after = (value_type(one.vector(whole)) for one in (source, target))
    return split_to_legal_width(
        out, [(value, value_type(source.element))], value_type(target.element), source.lanes, whole,
        lambda values: out.emit(f"{op} {before} {values[0]} to {after}"),
    )  # fmt: skip


def _to_bool(out: FunctionWriter, value: str, source: DType) -> str:
    if source.is_float:
        return out.emit(f"fcmp une {value_type(source)} {value}, {zero_of(source)}")
    return out.emit(f"icmp ne {value_type(source)} {value}, {zero_of(source)}")


def _float_to_int(out: FunctionWriter, value: str, source: DType, target: DType) -> str:
    # Convert to a wider signed integer first, so that negative values wrap as in NumPy. An
    # out-of-range conversion is poison; ``freeze`` makes it one arbitrary value.
    if target.code == "uint" and target.bits == 64:
        wide, op = target, "fptoui"
    else:
        # The upper half of uint32 exceeds int32.
        bits = 64 if target.bits == 64 or target == DType("uint", 32, target.lanes) else 32
        wide, op = DType("int", bits, target.lanes), "fptosi"
    kind = value_type(wide)
    raw = out.emit(f"{op} {value_type(source)} {value} to {kind}")
    frozen = out.emit(f"freeze {kind} {raw}")
    return frozen if wide.bits == target.bits else _convert(out, "trunc", frozen, wide, target)


def to_memory(out: FunctionWriter, value: str, dtype: DType) -> str:
    """``value`` in its memory representation: sub-byte types are zero-extended to a byte each."""
    if not is_narrow(dtype):
        return value
    return out.emit(f"zext {value_type(dtype)} {value} to {vector_of('i8', dtype.lanes)}")


def from_memory(out: FunctionWriter, value: str, dtype: DType) -> str:
    """A loaded element as a value of ``dtype``; for bool, any nonzero byte is true."""
    if not is_narrow(dtype):
        return value
    byte = vector_of("i8", dtype.lanes)
    if dtype.is_bool:
        return out.emit(f"icmp ne {byte} {value}, {splat('0', 'i8', dtype.lanes)}")
    return out.emit(f"trunc {byte} {value} to {value_type(dtype)}")
