"""Small tables of constants that each lane reads at a place of its own.

A permutation of a register is such a table: AVX-512 and AVX2 permute words, AVX-512 also those of
two registers at once, and AArch64 bytes. Elsewhere the table lies in memory and the lanes read it
one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.codegen.llvm.emit.dispatch import emit
from weft.codegen.llvm.emit.state import FunctionState
from weft.codegen.llvm.text.types import float_constant, int_constant, splat, value_type, vector_of
from weft.codegen.llvm.text.writer import FunctionWriter
from weft.codegen.llvm.vector.legal_width import split_to_legal_width
from weft.ir.dtype import DType
from weft.support.errors import CodegenError
from weft.target import CpuTarget
from weft.tir.expr import Broadcast, Call, FloatImm, IntImm, PrimExpr

# (writer, numbers of the register's lanes, constants of as many registers as it reads) -> entries
Permute = Callable[[FunctionWriter, str, list[str]], str]


@dataclass(frozen=True, slots=True)
class _Register:
    """How a machine looks words of ``bits`` up: ``lanes`` at a time, among ``entries`` at most."""

    bits: int
    lanes: int
    entries: int
    permute: Permute

    @property
    def word(self) -> str:
        return f"i{self.bits}"

    @property
    def words(self) -> str:
        return vector_of(self.word, self.lanes)


def emit_table_lookup(state: FunctionState, e: Call) -> str:
    """The entry of each lane. Entries other than constants raise ``CodegenError``."""
    number, *entries = e.args
    if len(entries) & (len(entries) - 1) or number.dtype.bits != e.dtype.bits:
        raise CodegenError(
            "a table that cannot be looked up",
            where=state.kernel.name,
            expected="a power of two of entries, as wide as their numbers",
            got=f"{len(entries)} of {e.dtype}, numbered by {number.dtype}",
        )
    constants = [_constant(entry, e.dtype) for entry in entries]
    numbers = emit(state, number)
    register = _register(state.kernel.module.target, e.dtype)
    if register is None or e.dtype.lanes == 1:
        return _from_memory(state.out, e.dtype, numbers, constants)
    return _from_registers(state.out, e.dtype, numbers, constants, register)


def _constant(entry: PrimExpr, dtype: DType) -> str:
    value = entry.value if isinstance(entry, Broadcast) else entry
    if isinstance(value, FloatImm):
        return float_constant(value.value, dtype.element)
    if isinstance(value, IntImm):
        return int_constant(value.value, dtype.element)
    raise CodegenError("a table is looked up that is not constant", got=entry)


def _register(target: CpuTarget, dtype: DType) -> _Register | None:
    if dtype.bits == 32 and target.arch == "aarch64":
        return _Register(32, 4, 16, _permute_bytes)
    if target.arch != "x86_64" or dtype.bits < 32:
        return None
    if target.has("avx512f"):
        lanes = 512 // dtype.bits
        return _Register(dtype.bits, lanes, 2 * lanes, _permute_avx512)
    return _Register(32, 8, 8, _permute_avx2) if dtype.bits == 32 and target.has("avx2") else None


# from registers


def _from_registers(
    out: FunctionWriter, dtype: DType, numbers: str, constants: list[str], register: _Register
) -> str:
    """Register by register."""
    typed = [f"{value_type(dtype.element)} {c}" for c in constants]
    words = split_to_legal_width(
        out, [(numbers, register.word)], register.word, dtype.lanes, register.lanes,
        lambda part: _among(out, part[0], typed, register),
    )  # fmt: skip
    kind = vector_of(register.word, dtype.lanes)
    return out.emit(f"bitcast {kind} {words} to {value_type(dtype)}")


def _among(out: FunctionWriter, numbers: str, constants: list[str], register: _Register) -> str:
    """Entries as words: each half of a table too large for one permutation, then a choice."""
    if len(constants) > register.entries:
        half = len(constants) // 2
        low, high = (
            _among(out, numbers, part, register) for part in (constants[:half], constants[half:])
        )
        place = splat(str(half), register.word, register.lanes)
        bit = out.emit(f"and {register.words} {numbers}, {place}")
        is_high = out.emit(f"icmp ne {register.words} {bit}, zeroinitializer")
        flags = vector_of("i1", register.lanes)
        return out.emit(
            f"select {flags} {is_high}, {register.words} {high}, {register.words} {low}"
        )
    if len(constants) < register.lanes:
        constants = constants * (register.lanes // len(constants))
    kind = vector_of(constants[0].partition(" ")[0], register.lanes)
    tables: list[str] = []
    for start in range(0, len(constants), register.lanes):
        values = f"<{', '.join(constants[start : start + register.lanes])}>"
        same = kind == register.words
        tables.append(values if same else f"bitcast ({kind} {values} to {register.words})")
    return register.permute(out, numbers, tables)


def _permute_avx512(out: FunctionWriter, numbers: str, tables: list[str]) -> str:
    if "i64" in tables[0]:
        kind, one, two = "<8 x i64>", "permvar.di", "vpermi2var.q"
    else:
        kind, one, two = "<16 x i32>", "permvar.si", "vpermi2var.d"
    if len(tables) == 1:
        callee = out.module.declare(f"llvm.x86.avx512.{one}.512", f"{kind} @({kind}, {kind})")
        return out.emit(f"call {kind} {callee}({kind} {tables[0]}, {kind} {numbers})")
    callee = out.module.declare(f"llvm.x86.avx512.{two}.512", f"{kind} @({kind}, {kind}, {kind})")
    return out.emit(
        f"call {kind} {callee}({kind} {tables[0]}, {kind} {numbers}, {kind} {tables[1]})"
    )


def _permute_avx2(out: FunctionWriter, numbers: str, tables: list[str]) -> str:
    kind = "<8 x i32>"
    callee = out.module.declare("llvm.x86.avx2.permd", f"{kind} @({kind}, {kind})")
    return out.emit(f"call {kind} {callee}({kind} {tables[0]}, {kind} {numbers})")


def _permute_bytes(out: FunctionWriter, numbers: str, tables: list[str]) -> str:
    """The four bytes of word ``n`` are at ``4n`` to ``4n + 3``; past the end is zero."""
    kind, octets = "<4 x i32>", "<16 x i8>"
    mask = splat(str(4 * len(tables) - 1), "i32", 4)
    word = out.emit(f"and {kind} {numbers}, {mask}")
    first = out.emit(f"mul {kind} {word}, {splat(str(0x04040404), 'i32', 4)}")
    places = out.emit(f"add {kind} {first}, {splat(str(0x03020100), 'i32', 4)}")
    index = out.emit(f"bitcast {kind} {places} to {octets}")
    count = len(tables)
    signature = ", ".join([octets] * (count + 1))
    callee = out.module.declare(f"llvm.aarch64.neon.tbl{count}.v16i8", f"{octets} @({signature})")
    arguments = ", ".join(f"{octets} bitcast ({kind} {t} to {octets})" for t in tables)
    found = out.emit(f"call {octets} {callee}({arguments}, {octets} {index})")
    return out.emit(f"bitcast {octets} {found} to {kind}")


# from memory


def _from_memory(out: FunctionWriter, dtype: DType, numbers: str, constants: list[str]) -> str:
    """Loads from a constant of the module, a lane at a time."""
    scalar, word = value_type(dtype.element), f"i{dtype.bits}"
    array = f"[{len(constants)} x {scalar}]"
    table = out.module.constant(array, f"[{', '.join(f'{scalar} {c}' for c in constants)}]")
    integer = vector_of(word, dtype.lanes)
    low = splat(str(len(constants) - 1), word, dtype.lanes)
    places = out.emit(f"and {integer} {numbers}, {low}")

    def entry(place: str) -> str:
        wide = place if word == "i64" else out.emit(f"zext {word} {place} to i64")
        address = out.emit(f"getelementptr inbounds {array}, ptr {table}, i64 0, i64 {wide}")
        return out.emit(f"load {scalar}, ptr {address}")

    if dtype.lanes == 1:
        return entry(places)
    result, kind = "poison", value_type(dtype)
    for lane in range(dtype.lanes):
        place = out.emit(f"extractelement {integer} {places}, i64 {lane}")
        result = out.emit(f"insertelement {kind} {result}, {scalar} {entry(place)}, i64 {lane}")
    return result
