"""``cvt``, and conversions of addresses between state spaces.

A conversion to an integer saturates and gives 0 for NaN; a float result rounds once, from the exact
value (PTX ISA, ``cvt``). Packed sources and results are handled by halves: the first source operand
is the high half.
"""

from __future__ import annotations

from weft.testing.cuda.block_writer import BlockWriter
from weft.testing.cuda.instructions.common import EmitterTable, rounding
from weft.testing.cuda.ptx.module import NUMPY, WIDTHS, Instruction, is_float

_INTEGRAL = ("rni", "rzi", "rmi", "rpi")


def _cvt(writer: BlockWriter, instruction: Instruction) -> None:
    target, source = instruction.modifiers[-2:]
    if instruction.modifiers[0] == "pack":
        _pack(writer, instruction)
    elif target.endswith("x2") or source.endswith("x2"):
        _cvt_pair(writer, instruction, target, source)
    elif target == "tf32":
        mode = rounding(instruction)
        value = writer.read(instruction.operands[1], "f32")
        writer.write(instruction.operands[0], "f32", f"H.to_tf32({value}, {mode!r})")
    else:
        _cvt_number(writer, instruction, target, source)


def _cvt_number(writer: BlockWriter, instruction: Instruction, target: str, source: str) -> None:
    modifiers = instruction.modifiers
    value = writer.read(instruction.operands[1], source)
    flush = "ftz" in modifiers
    if flush and source == "f32":
        value = f"F.flush({value})"
    mode = rounding(instruction)
    saturate = "sat" in modifiers
    match is_float(source), is_float(target):
        case False, False:
            result = f"C.integer_to_integer({value}, {NUMPY[target]!r}, {saturate})"
        case False, True:
            result = f"C.integer_to_float({value}, {target!r}, {mode!r})"
        case True, False:
            mode = mode if mode in _INTEGRAL else "rzi"
            value = f"C.widen({value}, {source!r})"
            result = f"C.float_to_integer({value}, {NUMPY[target]!r}, {mode!r})"
        case _:
            result = _float_to_float(value, source, target, mode)
    if is_float(target):
        if saturate and target != "bf16":
            result = f"F.saturate({result})"
        if "relu" in modifiers:
            result = (f"H.relu({result}, {target!r})" if target in {"f16", "bf16"}
                      else f"np.maximum({result}, 0)")
        if flush and target == "f32":
            result = f"F.flush({result})"
    writer.write(instruction.operands[0], target, result)


def _float_to_float(value: str, source: str, target: str, mode: str) -> str:
    if source == target and mode in _INTEGRAL:
        rounded = f"C.rounded_to_integer(C.widen({value}, {source!r}), {mode!r})"
        return f"H.f32_to_bf16({rounded})" if source == "bf16" else rounded
    if mode in _INTEGRAL:
        value = f"C.rounded_to_integer(C.widen({value}, {source!r}), {mode!r})"
        return f"C.float_to_float({value}, 'f64', {target!r}, 'rn')"
    return f"C.float_to_float({value}, {source!r}, {target!r}, {mode!r})"


def _cvt_pair(writer: BlockWriter, instruction: Instruction, target: str, source: str) -> None:
    """``cvt.rn.bf16x2.f32 d, a, b``: a becomes the high half, b the low one."""
    mode, relu = rounding(instruction), "relu" in instruction.modifiers
    if target in {"e4m3x2", "e5m2x2"}:
        _to_f8(writer, instruction, target[:4], source, relu)
        return
    if source in {"e4m3x2", "e5m2x2"}:
        bits = writer.read(instruction.operands[1], "u16")
        low, high = f"({bits} & 255).astype(u1)", f"({bits} >> 8).astype(u1)"
        kind = repr(source[:4])
        writer.write(instruction.operands[0], "b32",
                     f"H.pack(H.f8_to_f16({low}, {kind}), H.f8_to_f16({high}, {kind}))")
        return
    if source != "f32" or target not in {"f16x2", "bf16x2"}:
        raise writer.fail("conversion not supported")
    part = target[:-2]
    halves = []
    for operand in reversed(instruction.operands[1:3]):
        value = f"C.float_to_float({writer.read(operand, 'f32')}, 'f32', {part!r}, {mode!r})"
        halves.append(f"H.relu({value}, {part!r})" if relu else value)
    writer.write(instruction.operands[0], "b32", f"H.pack({halves[0]}, {halves[1]})")


def _to_f8(
    writer: BlockWriter, instruction: Instruction, kind: str, source: str, relu: bool
) -> None:
    if source == "f32":
        high, low = (writer.read(operand, "f32") for operand in instruction.operands[1:3])
    else:
        pair = writer.temporary(f"H.halves({writer.read(instruction.operands[1], 'u32')}, 'f16')")
        low, high = f"{pair}[0].astype(f4)", f"{pair}[1].astype(f4)"
    parts = [f"H.f32_to_f8({value}, {kind!r}, {relu}).astype(u2)" for value in (low, high)]
    writer.write(instruction.operands[0], "b16", f"{parts[0]} | ({parts[1]} << 8).astype(u2)")


def _pack(writer: BlockWriter, instruction: Instruction) -> None:
    """``cvt.pack.sat.dtype.s32[.b32] d, a, b[, c]``: saturated a above b (above c)."""
    kind = instruction.modifiers[2]
    width = WIDTHS[kind]
    a, b = (writer.read(operand, "s32") for operand in instruction.operands[1:3])
    unsigned = f"u{width // 8}"
    parts = [f"C.integer_to_integer({value}, {NUMPY[kind]!r}, True).view({unsigned}).astype(u4)"
             for value in (a, b)]
    result = f"({parts[0]} << {width}) | {parts[1]}"
    if len(instruction.operands) == 4:
        rest = writer.read(instruction.operands[3], "u32")
        result = f"({result}) | ({rest} << {2 * width})"
    writer.write(instruction.operands[0], "b32", f"({result}).astype(u4)")


def _cvta(writer: BlockWriter, instruction: Instruction) -> None:
    """``cvta[.to].space.u64``: to generic addresses and back."""
    kind = instruction.modifiers[-1]
    to_space = instruction.modifiers[0] == "to"
    space = instruction.modifiers[1 if to_space else 0].split("::")[0]
    value = writer.read(instruction.operands[1], kind)
    function = "from_generic" if to_space else "to_generic"
    writer.write(instruction.operands[0], kind, f"x.{function}({space!r}, {value})")


def _isspacep(writer: BlockWriter, instruction: Instruction) -> None:
    space = instruction.modifiers[0].split("::")[0]
    value = writer.read(instruction.operands[1], "u64")
    writer.write(instruction.operands[0], "pred", f"x.is_space({space!r}, {value})")


CONVERT: EmitterTable = {"cvt": _cvt, "cvta": _cvta, "isspacep": _isspacep}
