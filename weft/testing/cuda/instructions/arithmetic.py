"""Integer and floating-point arithmetic.

NumPy rounds to nearest even; other modes, and FMAs, which round once, are in ``values.floats``.
Denormals are flushed before and after where the instruction says ``.ftz``.
The carry of extended-precision integer arithmetic is a predicate register of its own (PTX ISA,
"Extended-Precision Integer Arithmetic Instructions": ``CC.CF``).
"""

from __future__ import annotations

from weft.testing.cuda.block_writer import BlockWriter
from weft.testing.cuda.instructions.common import (
    HALF_KINDS,
    EmitterTable,
    element,
    float_operands,
    float_result,
    half_result,
    last_type,
    rounding,
    simple,
)
from weft.testing.cuda.ptx.module import WIDTHS, Instruction, Register

_SYMBOLS = {"add": "+", "sub": "-", "mul": "*"}
_PACKED_INTEGERS = ("u16x2", "s16x2")


def _add_sub(writer: BlockWriter, instruction: Instruction) -> None:
    kind, name = last_type(instruction), instruction.opcode
    if kind in HALF_KINDS:
        operands = [writer.read(operand, kind) for operand in instruction.operands[1:]]
        function = f"(lambda a, b: H.binary({name!r}, {element(kind)!r}, a, b))"
        half_result(writer, instruction, kind, function, operands)
    elif kind in {"f32", "f64"}:
        _float_binary(writer, instruction, kind)
    elif kind == "f32x2":
        _float_pairs(writer, instruction)
    elif kind in _PACKED_INTEGERS:
        _packed_integer(writer, instruction, _SYMBOLS[name])
    elif "cc" in instruction.modifiers:
        _with_carry(writer, instruction, carry_in=False)
    else:
        a, b = (writer.read(operand, kind) for operand in instruction.operands[1:])
        if "sat" in instruction.modifiers:
            function = "add_saturated" if name == "add" else "subtract_saturated"
            writer.write(instruction.operands[0], kind, f"I.{function}({a}, {b})")
        else:
            writer.write(instruction.operands[0], kind, f"{a} {_SYMBOLS[name]} {b}")


def _float_binary(writer: BlockWriter, instruction: Instruction, kind: str) -> None:
    a, b = float_operands(writer, instruction, kind)
    name, mode = instruction.opcode, rounding(instruction)
    if mode == "rn":
        float_result(writer, instruction, kind, f"{a} {_SYMBOLS[name]} {b}")
        return
    if name == "sub":  # a - b and a + (-b) round alike in every mode
        name, b = "add", f"(-{b})"
    if kind == "f64":
        value = f"F.directed64({name!r}, {a}, {b}, {mode!r})"
    else:
        value = f"F.{'sum32' if name == 'add' else 'product32'}({a}, {b}, {mode!r})"
    float_result(writer, instruction, kind, value)


def _float_pairs(writer: BlockWriter, instruction: Instruction) -> None:
    """``add mul fma .f32x2``: two float32 in a 64-bit register."""
    operands = [writer.read(operand, "u64") for operand in instruction.operands[1:]]
    if instruction.opcode == "fma":
        function = "F.fma32"
    else:
        function = f"(lambda a, b: a {_SYMBOLS[instruction.opcode]} b)"
    writer.write(instruction.operands[0], "f32x2", f"pairs({function}, {', '.join(operands)})")


def _packed_integer(writer: BlockWriter, instruction: Instruction, symbol: str) -> None:
    """Two 16-bit halves: each is masked, so that no carry reaches the other half."""
    a, b = (writer.read(operand, "u32") for operand in instruction.operands[1:])
    low = f"(({a} {symbol} {b}) & 65535)"
    high = f"((({a} >> 16) {symbol} ({b} >> 16)) << 16)"
    writer.write(instruction.operands[0], "b32", f"({low} | {high}).astype(u4)")


_CARRY = Register("%carry")


def _with_carry(writer: BlockWriter, instruction: Instruction, carry_in: bool) -> None:
    """``add.cc addc sub.cc subc``: the carry is a predicate register of its own."""
    kind = last_type(instruction)
    unsigned = f"u{WIDTHS[kind]}"
    a, b = (writer.read(operand, unsigned) for operand in instruction.operands[1:])
    carry = writer.read(_CARRY, "pred") if carry_in else "False"
    subtract = instruction.opcode.startswith("sub")
    function = "subtract_with_borrow" if subtract else "add_with_carry"
    both = writer.temporary(f"{function}({a}, {b}, {carry})")
    writer.write(instruction.operands[0], unsigned, f"{both}[0]")
    if "cc" in instruction.modifiers:
        writer.write(_CARRY, "pred", f"{both}[1]")


def _carry_in(writer: BlockWriter, instruction: Instruction) -> None:
    _with_carry(writer, instruction, carry_in=True)


def _mul(writer: BlockWriter, instruction: Instruction) -> None:
    kind = last_type(instruction)
    if kind in HALF_KINDS:
        _add_sub(writer, instruction)
    elif kind in {"f32", "f64"}:
        _float_binary(writer, instruction, kind)
    elif kind == "f32x2":
        _float_pairs(writer, instruction)
    else:
        a, b = (writer.read(operand, kind) for operand in instruction.operands[1:])
        writer.write(instruction.operands[0], *_product(instruction, kind, a, b))


def _product(instruction: Instruction, kind: str, a: str, b: str) -> tuple[str, str]:
    """The expression of an integer product and its type: ``.lo`` is what remains modulo 2**n."""
    if "wide" in instruction.modifiers:
        return f"{kind[0]}{WIDTHS[kind] * 2}", f"I.multiply_wide({a}, {b})"
    if instruction.opcode.endswith("24"):
        return kind, f"I.multiply_24({a}, {b}, {'hi' in instruction.modifiers})"
    if "hi" in instruction.modifiers:
        return kind, f"I.multiply_high({a}, {b})"
    return kind, f"{a} * {b}"


def _mad(writer: BlockWriter, instruction: Instruction) -> None:
    kind = last_type(instruction)
    if kind in {"f32", "f64"}:
        _fma(writer, instruction)
        return
    if "cc" in instruction.modifiers or instruction.opcode == "madc":
        _mad_with_carry(writer, instruction, kind)
        return
    first, second, third = instruction.operands[1:]
    a, b = writer.read(first, kind), writer.read(second, kind)
    result, product = _product(instruction, kind, a, b)
    addend = writer.read(third, result)
    if "sat" in instruction.modifiers:
        writer.write(instruction.operands[0], result, f"I.add_saturated({product}, {addend})")
    else:
        writer.write(instruction.operands[0], result, f"{product} + {addend}")


def _mad_with_carry(writer: BlockWriter, instruction: Instruction, kind: str) -> None:
    unsigned = f"u{WIDTHS[kind]}"
    a, b = (writer.read(operand, kind) for operand in instruction.operands[1:3])
    addend = writer.read(instruction.operands[3], unsigned)
    _, product = _product(instruction, kind, a, b)
    carry = writer.read(_CARRY, "pred") if instruction.opcode == "madc" else "False"
    both = writer.temporary(
        f"add_with_carry(({product}).view(u{WIDTHS[kind] // 8}), {addend}, {carry})")
    writer.write(instruction.operands[0], unsigned, f"{both}[0]")
    if "cc" in instruction.modifiers:
        writer.write(_CARRY, "pred", f"{both}[1]")


def _fma(writer: BlockWriter, instruction: Instruction) -> None:
    kind = last_type(instruction)
    if kind in HALF_KINDS:
        operands = [writer.read(operand, kind) for operand in instruction.operands[1:]]
        function = f"(lambda a, b, c: H.fma({element(kind)!r}, a, b, c))"
        half_result(writer, instruction, kind, function, operands)
        return
    if kind == "f32x2":
        _float_pairs(writer, instruction)
        return
    a, b, c = float_operands(writer, instruction, kind)
    mode = rounding(instruction)
    if kind == "f64":
        if mode != "rn":
            raise writer.fail("rounding of fma.f64 not supported")
        value = f"F.fma64({a}, {b}, {c})"
    elif mode == "rn":
        value = f"F.fma32({a}, {b}, {c})"
    else:
        value = f"F.fma32_directed({a}, {b}, {c}, {mode!r})"
    float_result(writer, instruction, kind, value)


def _div(writer: BlockWriter, instruction: Instruction) -> None:
    kind = last_type(instruction)
    if kind not in {"f32", "f64"}:
        a, b = (writer.read(operand, kind) for operand in instruction.operands[1:])
        writer.write(instruction.operands[0], kind, f"I.divide({a}, {b})")
        return
    a, b = float_operands(writer, instruction, kind)
    mode = rounding(instruction)
    if kind == "f64" and mode != "rn":
        raise writer.fail("rounding of div.f64 not supported")
    value = f"{a} / {b}" if mode == "rn" else f"F.quotient32({a}, {b}, {mode!r})"
    float_result(writer, instruction, kind, value)


def _min_max(writer: BlockWriter, instruction: Instruction) -> None:
    kind = last_type(instruction)
    name = "minimum" if instruction.opcode == "min" else "maximum"
    if "NaN" in instruction.modifiers:
        name += "_nan"
    if kind in HALF_KINDS:
        operands = [writer.read(operand, kind) for operand in instruction.operands[1:]]
        function = f"(lambda a, b: H.extreme({name!r}, {element(kind)!r}, a, b))"
        half_result(writer, instruction, kind, function, operands)
    elif kind in {"f32", "f64"}:
        values = float_operands(writer, instruction, kind)
        value = f"F.{name}({values[0]}, {values[1]})"
        if len(values) == 3:
            value = f"F.{name}({value}, {values[2]})"
        if "xorsign" in instruction.modifiers:
            raise writer.fail("modifier not supported")
        float_result(writer, instruction, kind, value)
    elif kind in _PACKED_INTEGERS:
        a, b = (writer.read(operand, "u32") for operand in instruction.operands[1:])
        function = f"packed_integers(np.{name}, {kind[0] + '16'!r}, {a}, {b})"
        writer.write(instruction.operands[0], "b32", function)
    else:
        a, b = (writer.read(operand, kind) for operand in instruction.operands[1:])
        value = f"np.{name}({a}, {b})"
        if "relu" in instruction.modifiers:
            value = f"np.maximum({value}, {writer.names.constant(0, kind)})"
        writer.write(instruction.operands[0], kind, value)


def _abs_neg(writer: BlockWriter, instruction: Instruction) -> None:
    """Narrow floats by their sign bits: NumPy has no bfloat16, and a NaN keeps its payload."""
    kind = last_type(instruction)
    source = instruction.operands[1]
    if kind in HALF_KINDS:
        unsigned = f"u{WIDTHS[kind]}"
        sign = 0x80008000 if kind.endswith("x2") else 0x8000
        bits = writer.read(source, unsigned)
        if instruction.opcode == "neg":
            value = f"{bits} ^ {writer.names.constant(sign, unsigned)}"
        else:
            value = f"{bits} & {writer.names.constant(~sign, unsigned)}"
        writer.write(instruction.operands[0], unsigned, value)
        return
    (value,) = float_operands(writer, instruction, kind)
    expression = f"np.abs({value})" if instruction.opcode == "abs" else f"-{value}"
    if kind in {"f32", "f64"}:
        float_result(writer, instruction, kind, expression)
    else:
        writer.write(instruction.operands[0], kind, expression)


def _function(writer: BlockWriter, instruction: Instruction) -> None:
    """``rcp sqrt rsqrt ex2 lg2 sin cos tanh``."""
    kind, name = last_type(instruction), instruction.opcode
    if kind in HALF_KINDS:
        operands = [writer.read(operand, kind) for operand in instruction.operands[1:]]
        function = f"(lambda v: H.approx({name!r}, {element(kind)!r}, v))"
        half_result(writer, instruction, kind, function, operands)
        return
    (value,) = float_operands(writer, instruction, kind)
    mode = rounding(instruction)
    if kind == "f64" and mode != "rn" and "approx" not in instruction.modifiers:
        raise writer.fail("rounding not supported")
    if mode != "rn":
        one = writer.names.constant(0x3F800000, "f32")
        expression = (f"F.root32({value}, {mode!r})" if name == "sqrt"
                      else f"F.quotient32({one}, {value}, {mode!r})")
    elif name == "sqrt":
        expression = f"np.sqrt({value})"
    elif name == "rcp":
        expression = f"np.reciprocal({value})"
    else:
        expression = f"F.approx({name!r}, {value})"
    float_result(writer, instruction, kind, expression)


def _dot_product(writer: BlockWriter, instruction: Instruction) -> None:
    """``dp4a.atype.btype`` and ``dp2a.mode.atype.btype``."""
    a_type, b_type = instruction.modifiers[-2:]
    a, b, c = (writer.read(operand, "u32") for operand in instruction.operands[1:])
    signs = f"{a_type == 's32'}, {b_type == 's32'}"
    if instruction.opcode == "dp4a":
        value = f"I.dot_product({a}, {b}, {c}, {signs})"
    else:
        value = f"I.dot_product_2({a}, {b}, {c}, {signs}, {instruction.modifiers[0] == 'hi'})"
    writer.write(instruction.operands[0], "u32", value)


def _testp(writer: BlockWriter, instruction: Instruction) -> None:
    test, kind = instruction.modifiers
    value = writer.read(instruction.operands[1], kind)
    writer.write(instruction.operands[0], "pred", f"F.classify({value}, {test!r})")


_FUNCTIONS = ("rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh")

ARITHMETIC: EmitterTable = {
    "add": _add_sub, "sub": _add_sub, "addc": _carry_in, "subc": _carry_in, "mul": _mul,
    "mul24": _mul, "mad": _mad, "mad24": _mad, "madc": _mad, "fma": _fma, "div": _div,
    "rem": simple("I.remainder({0}, {1})"), "min": _min_max, "max": _min_max, "abs": _abs_neg,
    "neg": _abs_neg, "sad": simple("I.absolute_difference({0}, {1}, {2})"),
    "dp4a": _dot_product, "dp2a": _dot_product, "testp": _testp,
    "copysign": simple("np.copysign({1}, {0})"),  # the sign is the first operand
    **dict.fromkeys(_FUNCTIONS, _function),
}  # fmt: skip
