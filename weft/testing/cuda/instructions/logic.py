"""Bits, comparisons, selections and moves."""

from __future__ import annotations

from weft.testing.cuda.block_writer import BlockWriter
from weft.testing.cuda.instructions.common import (
    HALF_KINDS,
    EmitterTable,
    element,
    last_type,
    simple,
    unsigned_of,
)
from weft.testing.cuda.ptx.module import (
    WIDTHS,
    Immediate,
    Instruction,
    Pair,
    is_float,
)

_BITWISE = {"and": "&", "or": "|", "xor": "^"}
# Ordered comparisons are false for NaN, unordered ones (u) true; lo ls hi hs are unsigned.
_COMPARISONS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip
_UNORDERED = {"equ": "!=", "neu": "==", "ltu": ">=", "leu": ">", "gtu": "<=", "geu": "<"}


def _cnot(writer: BlockWriter, instruction: Instruction) -> None:
    """Logical negation, as in C: 1 for 0, else 0."""
    kind = unsigned_of(last_type(instruction))
    value = writer.read(instruction.operands[1], kind)
    writer.write(instruction.operands[0], kind, f"({value} == 0).astype(u{WIDTHS[kind] // 8})")


def _shift(writer: BlockWriter, instruction: Instruction) -> None:
    """``shl shr``: PTX clamps amounts above the width, NumPy leaves them undefined."""
    kind = last_type(instruction)
    if kind[0] == "b":
        kind = "u" + kind[1:]
    source, amount = instruction.operands[1:]
    value = writer.read(source, kind)
    width = WIDTHS[kind]
    if isinstance(amount, Immediate) and 0 <= amount.value < width:
        symbol = "<<" if instruction.opcode == "shl" else ">>"
        shift = writer.names.constant(amount.value, kind)
        writer.write(instruction.operands[0], kind, f"{value} {symbol} {shift}")
        return
    name = "shift_left" if instruction.opcode == "shl" else "shift_right"
    count = writer.read(amount, "u32")
    writer.write(instruction.operands[0], kind, f"I.{name}({value}, {count})")


def _bfind(writer: BlockWriter, instruction: Instruction) -> None:
    """The most significant bit that is not a sign bit; ``.shiftamt`` counts from the left."""
    value = writer.read(instruction.operands[1], last_type(instruction))
    shift = "shiftamt" in instruction.modifiers
    writer.write(instruction.operands[0], "u32", f"I.find_leading({value}, {shift})")


def _szext(writer: BlockWriter, instruction: Instruction) -> None:
    """The low ``length`` bits, extended by sign or zero: a field that starts at bit 0."""
    mode, kind = instruction.modifiers
    value, length = writer.read(instruction.operands[1], kind), writer.read(
        instruction.operands[2], "u32")
    if mode == "wrap":
        length = f"({length} & 31)"
    zero = writer.names.constant(0, "u32")
    writer.write(instruction.operands[0], kind, f"I.extract_field({value}, {zero}, {length})")


def _bmsk(writer: BlockWriter, instruction: Instruction) -> None:
    """``length`` ones from bit ``start`` on: a field of ones inserted into zero."""
    start, length = (writer.read(operand, "u32") for operand in instruction.operands[1:])
    if instruction.modifiers[0] == "wrap":
        start, length = f"({start} & 31)", f"({length} & 31)"
    ones, zero = writer.names.constant(-1, "u32"), writer.names.constant(0, "u32")
    value = f"I.insert_field({ones}, {zero}, {start}, {length})"
    writer.write(instruction.operands[0], "u32", value)


def _shf(writer: BlockWriter, instruction: Instruction) -> None:
    left, wrap = instruction.modifiers[0] == "l", instruction.modifiers[1] == "wrap"
    values = ", ".join(writer.read(operand, "u32") for operand in instruction.operands[1:])
    writer.write(instruction.operands[0], "u32", f"I.funnel_shift({values}, {left}, {wrap})")


def _prmt(writer: BlockWriter, instruction: Instruction) -> None:
    mode = instruction.modifiers[1] if len(instruction.modifiers) > 1 else ""
    values = ", ".join(writer.read(operand, "u32") for operand in instruction.operands[1:])
    writer.write(instruction.operands[0], "u32", f"I.permute_bytes({values}, {mode!r})")


def _lop3(writer: BlockWriter, instruction: Instruction) -> None:
    """Any function of three bits: bit ``4a + 2b + c`` of the immediate is its value."""
    table = instruction.operands[4]
    if not isinstance(table, Immediate) or len(instruction.operands) > 5:
        raise writer.fail("form not supported")
    values = ", ".join(writer.read(operand, "u32") for operand in instruction.operands[1:4])
    writer.write(instruction.operands[0], "u32", f"I.logic_3({values}, {table.value})")


def comparison(name: str, kind: str, a: str, b: str) -> str:
    """The expression of a comparison of two values of ``kind``."""
    if kind == "bf16":
        a, b = f"H.bf16_to_f32({a})", f"H.bf16_to_f32({b})"
    if name in {"num", "nan"}:
        either = f"(np.isnan({a}) | np.isnan({b}))"
        return either if name == "nan" else f"(~{either})"
    # PTX: "ne" is ordered, so false for NaN; NumPy's != is true for NaN, like "neu".
    if name == "ne" and is_float(kind):
        return f"(({a} < {b}) | ({a} > {b}))"
    if name == "equ":
        return f"(~(({a} < {b}) | ({a} > {b})))"
    if name == "neu":
        return f"({a} != {b})"
    if name in _UNORDERED:
        return f"(~({a} {_UNORDERED[name]} {b}))"
    return f"({a} {_COMPARISONS[name]} {b})"


def _compared(writer: BlockWriter, instruction: Instruction, kind: str) -> list[str]:
    """The result of a comparison for each number of ``kind`` (two if it is packed)."""
    name = instruction.modifiers[0]
    if name in {"lo", "ls", "hi", "hs"}:
        kind = "u" + kind[1:]
    a, b = (writer.read(operand, kind) for operand in instruction.operands[1:3])
    if "ftz" in instruction.modifiers and kind == "f32":
        a, b = writer.temporary(f"F.flush({a})"), writer.temporary(f"F.flush({b})")
    part = element(kind)
    if part == kind:
        return [writer.temporary(comparison(name, kind, a, b))]
    pairs = [writer.temporary(f"H.halves({value}, {part!r})") for value in (a, b)]
    return [writer.temporary(comparison(name, part, f"{pairs[0]}[{half}]", f"{pairs[1]}[{half}]"))
            for half in range(2)]


def _boolean(instruction: Instruction) -> str | None:
    return next((item for item in instruction.modifiers[1:] if item in _BITWISE), None)


def _setp(writer: BlockWriter, instruction: Instruction) -> None:
    results = _compared(writer, instruction, last_type(instruction))
    combine = _boolean(instruction)
    second = f"(~{results[0]})" if len(results) == 1 else results[1]
    first = results[0]
    if combine is not None:
        other = writer.read(instruction.operands[3], "pred")
        first = f"{first} {_BITWISE[combine]} {other}"
        second = f"{second} {_BITWISE[combine]} {other}"
    target = instruction.operands[0]
    if not isinstance(target, Pair):
        writer.write(target, "pred", first)
        return
    value = writer.temporary(second)  # before the first result replaces what it reads
    writer.write(target.first, "pred", first)
    writer.write(target.second, "pred", value)


def _set(writer: BlockWriter, instruction: Instruction) -> None:
    result, kind = instruction.modifiers[-2:]
    values = _compared(writer, instruction, kind)
    combine = _boolean(instruction)
    if combine is not None:
        other = writer.read(instruction.operands[3], "pred")
        values = [f"({value} {_BITWISE[combine]} {other})" for value in values]
    target = instruction.operands[0]
    if result == "f32":
        writer.write(target, "f32", f"({values[0]}).astype(f4)")
    elif result in HALF_KINDS:
        # The bits of 1.0: 0x3F80 in bfloat16, 0x3C00 in float16.
        one = "16256" if result.startswith("b") else "15360"
        terms = [f"(({value}).astype(u4) * {one} << {16 * at})" for at, value in enumerate(values)]
        writer.write(target, f"b{WIDTHS[result]}",
                     f"({' | '.join(terms)}).astype(u{WIDTHS[result] // 8})")
    elif len(values) == 2:
        terms = [f"(({value}).astype(u4) * 65535 << {16 * at})" for at, value in enumerate(values)]
        writer.write(target, "b32", f"({' | '.join(terms)}).astype(u4)")
    else:
        signed = f"s{WIDTHS[result]}"
        writer.write(target, signed, f"-({values[0]}).astype(i{WIDTHS[result] // 8})")


def _slct(writer: BlockWriter, instruction: Instruction) -> None:
    kind, condition = instruction.modifiers[-2:]
    a, b = (writer.read(operand, kind) for operand in instruction.operands[1:3])
    test = writer.read(instruction.operands[3], condition)
    writer.write(instruction.operands[0], kind, f"where({test} >= 0, {a}, {b})")


def _mov(writer: BlockWriter, instruction: Instruction) -> None:
    kind = last_type(instruction)
    target, source = instruction.operands
    if kind == "b128":
        raise writer.fail("128-bit registers are not supported")
    writer.write(target, kind, writer.read(source, kind))


LOGIC: EmitterTable = {
    **{name: simple(f"{{0}} {symbol} {{1}}") for name, symbol in _BITWISE.items()},
    "not": simple("~{0}"), "cnot": _cnot, "shl": _shift, "shr": _shift,
    "popc": simple("I.count_ones({0})", "u32", "bits"),
    "clz": simple("I.count_leading_zeros({0})", "u32", "bits"),
    "brev": simple("I.reverse_bits({0})", "bits"), "bfind": _bfind,
    "bfe": simple("I.extract_field({0}, {1}, {2})", "type", "type", "u32"),
    "bfi": simple("I.insert_field({0}, {1}, {2}, {3})", "bits", "bits", "bits", "u32"),
    "fns": simple("I.find_nth_set({0}, {1}, {2})", "u32"), "szext": _szext, "bmsk": _bmsk,
    "shf": _shf, "prmt": _prmt, "lop3": _lop3, "setp": _setp, "set": _set,
    "selp": simple("where({2}, {0}, {1})", "type", "type", "type", "pred"), "slct": _slct,
    "mov": _mov,
}  # fmt: skip
