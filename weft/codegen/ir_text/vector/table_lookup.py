"""Table lookup: each lane selects one of a few constants by its own index.

A register permute does this without memory accesses: AVX2 and AVX-512 permute 32-bit (and 64-bit)
lanes, AVX-512 also across two registers, AArch64 (``tbl``) bytes. On other CPUs the table is in
memory and each lane loads its entry. Neighbouring entries are one load from memory everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from weft.codegen.ir_text.emit.state import FunctionState, emit
from weft.codegen.ir_text.types import float_constant, int_constant, splat, value_type, vector_of
from weft.codegen.ir_text.vector.legal_width import split_to_legal_width
from weft.codegen.ir_text.writer import FunctionWriter
from weft.ir import DType
from weft.support.dataclass import dataclass
from weft.support.errors import CodegenError
from weft.target.llvm_target import LlvmTarget
from weft.tir import Broadcast, Call, FloatImm, IntImm, PrimExpr, Ramp, int_value

# (writer, indices, constant table registers) -> the selected entries, one register
Permute = Callable[[FunctionWriter, str, list[str]], str]


@dataclass(frozen=True, slots=True)
class _PermuteUnit:
    """The permute instruction of a CPU: ``lanes`` indices of ``bits`` select from ``entries``."""

    bits: int
    lanes: int
    entries: int
    emit: Permute

    @property
    def integer(self) -> str:
        return f"i{self.bits}"

    @property
    def vector(self) -> str:
        return vector_of(self.integer, self.lanes)


def emit_table_lookup(state: FunctionState, e: Call) -> str:
    """The selected entries.

    Raises ``CodegenError`` unless there are 2**k constant entries, as wide as the index.
    """
    index, *entries = e.args
    if len(entries) & (len(entries) - 1) or index.dtype.bits != e.dtype.bits:
        raise CodegenError(
            "unsupported table for table_lookup",
            where=state.kernel.name,
            expected="2**k entries with as many bits as the index",
            got=f"{len(entries)} entries of {e.dtype}, index of {index.dtype}",
        )
    constants = [_constant(entry, e.dtype) for entry in entries]
    if isinstance(index, Ramp) and int_value(index.stride) == 1:
        return _lookup_of_run(state.out, e.dtype, emit(state, index.base), constants)
    indices = emit(state, index)
    unit = _permute_unit(state.kernel.module.target, e.dtype)
    if unit is None or e.dtype.lanes == 1:
        return _lookup_in_memory(state.out, e.dtype, indices, constants)
    return _lookup_in_registers(state.out, e.dtype, indices, constants, unit)


def _constant(entry: PrimExpr, dtype: DType) -> str:
    value = entry.value if isinstance(entry, Broadcast) else entry
    if isinstance(value, FloatImm):
        return float_constant(value.value, dtype.element)
    if isinstance(value, IntImm):
        return int_constant(value.value, dtype.element)
    raise CodegenError("table_lookup of an entry that is not a constant", got=entry)


def _permute_unit(target: LlvmTarget, dtype: DType) -> _PermuteUnit | None:
    if dtype.bits == 8:
        return _byte_unit(target)
    if dtype.bits == 32 and target.arch == "aarch64":
        return _PermuteUnit(32, 4, 16, _permute_bytes)
    if target.arch != "x86_64" or dtype.bits < 32:
        return None
    if target.has("avx512f"):
        lanes = 512 // dtype.bits
        return _PermuteUnit(dtype.bits, lanes, 2 * lanes, _permute_avx512)
    has_avx2 = dtype.bits == 32 and target.has("avx2")
    return _PermuteUnit(32, 8, 8, _permute_avx2) if has_avx2 else None


def _byte_unit(target: LlvmTarget) -> _PermuteUnit | None:
    """A table of 16 bytes in each 128 bits of a register."""
    if target.arch == "aarch64":
        return _byte_shuffle("aarch64.neon.tbl1.v16i8", 16)
    if target.arch != "x86_64":
        return None
    for feature, lanes, name in (("avx512bw", 64, "avx512.pshuf.b.512"),
                                 ("avx2", 32, "avx2.pshuf.b"), ("ssse3", 16, "ssse3.pshuf.b.128")):
        if target.has(feature):
            return _byte_shuffle(f"x86.{name}", lanes)
    return None


def _byte_shuffle(name: str, lanes: int) -> _PermuteUnit:
    return _PermuteUnit(8, lanes, 16, functools.partial(_shuffle_bytes, name, lanes))


# lookup in registers


def _lookup_in_registers(
    out: FunctionWriter, dtype: DType, indices: str, constants: list[str], unit: _PermuteUnit
) -> str:
    """One permute per register-wide part of the indices."""
    typed = [f"{value_type(dtype.element)} {c}" for c in constants]
    entries = split_to_legal_width(
        out, [(indices, unit.integer)], unit.integer, dtype.lanes, unit.lanes,
        lambda registers: _permuted(out, registers[0], typed, unit),
    )  # fmt: skip
    kind = vector_of(unit.integer, dtype.lanes)
    return out.emit(f"bitcast {kind} {entries} to {value_type(dtype)}")


def _permuted(out: FunctionWriter, indices: str, constants: list[str], unit: _PermuteUnit) -> str:
    """One register of entries as integers.

    A table too large for one permute is looked up in halves; the top index bit selects the half.
    """
    if len(constants) > unit.entries:
        half = len(constants) // 2
        low, high = (
            _permuted(out, indices, entries, unit)
            for entries in (constants[:half], constants[half:])
        )
        top_bit = splat(str(half), unit.integer, unit.lanes)
        bit = out.emit(f"and {unit.vector} {indices}, {top_bit}")
        is_high = out.emit(f"icmp ne {unit.vector} {bit}, zeroinitializer")
        flags = vector_of("i1", unit.lanes)
        return out.emit(
            f"select {flags} {is_high}, {unit.vector} {high}, {unit.vector} {low}"
        )
    if len(constants) < unit.lanes:
        # A permute takes the index modulo its lanes. Repeating the table makes that modulo the
        # entries.
        constants = constants * (unit.lanes // len(constants))
    kind = vector_of(constants[0].partition(" ")[0], unit.lanes)
    tables: list[str] = []
    for start in range(0, len(constants), unit.lanes):
        values = f"<{', '.join(constants[start : start + unit.lanes])}>"
        same = kind == unit.vector
        tables.append(values if same else f"bitcast ({kind} {values} to {unit.vector})")
    return unit.emit(out, indices, tables)


def _permute_avx512(out: FunctionWriter, indices: str, tables: list[str]) -> str:
    if "i64" in tables[0]:
        kind, one, two = "<8 x i64>", "permvar.di", "vpermi2var.q"
    else:
        kind, one, two = "<16 x i32>", "permvar.si", "vpermi2var.d"
    if len(tables) == 1:
        callee = out.module.declare(f"llvm.x86.avx512.{one}.512", f"{kind} @({kind}, {kind})")
        return out.emit(f"call {kind} {callee}({kind} {tables[0]}, {kind} {indices})")
    callee = out.module.declare(f"llvm.x86.avx512.{two}.512", f"{kind} @({kind}, {kind}, {kind})")
    return out.emit(
        f"call {kind} {callee}({kind} {tables[0]}, {kind} {indices}, {kind} {tables[1]})"
    )


def _permute_avx2(out: FunctionWriter, indices: str, tables: list[str]) -> str:
    kind = "<8 x i32>"
    callee = out.module.declare("llvm.x86.avx2.permd", f"{kind} @({kind}, {kind})")
    return out.emit(f"call {kind} {callee}({kind} {tables[0]}, {kind} {indices})")


def _shuffle_bytes(name: str, lanes: int, out: FunctionWriter, indices: str, tables: list[str]
                   ) -> str:
    kind = vector_of("i8", lanes)
    low = out.emit(f"and {kind} {indices}, {splat('15', 'i8', lanes)}")
    callee = out.module.declare(f"llvm.{name}", f"{kind} @({kind}, {kind})")
    return out.emit(f"call {kind} {callee}({kind} {tables[0]}, {kind} {low})")


def _permute_bytes(out: FunctionWriter, indices: str, tables: list[str]) -> str:
    """AArch64 ``tbl``: entry ``n`` consists of the bytes ``4n`` to ``4n + 3`` of the table."""
    kind, octets = "<4 x i32>", "<16 x i8>"
    mask = splat(str(4 * len(tables) - 1), "i32", 4)
    entry = out.emit(f"and {kind} {indices}, {mask}")
    first = out.emit(f"mul {kind} {entry}, {splat(str(0x04040404), 'i32', 4)}")
    bytewise = out.emit(f"add {kind} {first}, {splat(str(0x03020100), 'i32', 4)}")
    index = out.emit(f"bitcast {kind} {bytewise} to {octets}")
    count = len(tables)
    signature = ", ".join([octets] * (count + 1))
    callee = out.module.declare(f"llvm.aarch64.neon.tbl{count}.v16i8", f"{octets} @({signature})")
    arguments = ", ".join(f"{octets} bitcast ({kind} {t} to {octets})" for t in tables)
    found = out.emit(f"call {octets} {callee}({arguments}, {octets} {index})")
    return out.emit(f"bitcast {octets} {found} to {kind}")


# lookup in memory


def _lookup_of_run(out: FunctionWriter, dtype: DType, start: str, constants: list[str]) -> str:
    """One load of the entries from ``start`` on; after the last entry the first ones follow."""
    repeated = constants + [constants[n % len(constants)] for n in range(dtype.lanes - 1)]
    address = _entry_address(out, dtype, start, repeated, len(constants))
    return out.emit(f"load {value_type(dtype)}, ptr {address}, align {dtype.element.itemsize}")


def _entry_address(out: FunctionWriter, dtype: DType, index: str, array: list[str], count: int
                   ) -> str:
    """Where the entry ``index`` modulo ``count`` of a constant array of the module is."""
    scalar, word = value_type(dtype.element), f"i{dtype.bits}"
    kind = f"[{len(array)} x {scalar}]"
    table = out.module.constant(kind, f"[{', '.join(f'{scalar} {c}' for c in array)}]")
    # Modulo the entries, as a permute does: other bits of the index must not leave the table.
    place = out.emit(f"and {word} {index}, {count - 1}")
    wide = place if word == "i64" else out.emit(f"zext {word} {place} to i64")
    return out.emit(f"getelementptr inbounds {kind}, ptr {table}, i64 0, i64 {wide}")


def _lookup_in_memory(out: FunctionWriter, dtype: DType, indices: str, constants: list[str]) -> str:
    """One load per lane from a constant array of the module."""
    scalar, kind = value_type(dtype.element), value_type(dtype)

    def entry(index: str) -> str:
        address = _entry_address(out, dtype, index, constants, len(constants))
        return out.emit(f"load {scalar}, ptr {address}")

    if dtype.lanes == 1:
        return entry(indices)
    result, integer = "poison", vector_of(f"i{dtype.bits}", dtype.lanes)
    for lane in range(dtype.lanes):
        position = out.emit(f"extractelement {integer} {indices}, i64 {lane}")
        result = out.emit(f"insertelement {kind} {result}, {scalar} {entry(position)}, i64 {lane}")
    return result
