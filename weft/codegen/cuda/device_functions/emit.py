"""Calls of device functions as LLVM IR: inline assembly that LLVM 22 and NVVM 7 both accept."""

from __future__ import annotations

from collections.abc import Sequence
from string import Template
from typing import Protocol, TypeAlias

from weft.codegen.cuda.device_functions.record import (
    ADDRESSES,
    REGISTERS,
    DeviceFunction,
    Kind,
    Operand,
)
from weft.support.errors import CodegenError

Value: TypeAlias = tuple[str, str]  # LLVM type, value


class Writer(Protocol):
    """What emission needs of the writer of a function."""

    def emit(self, instruction: str) -> str:
        """Append an instruction with a result, and return the result's name."""
        ...

    def do(self, instruction: str) -> None:
        """Append an instruction without a result."""
        ...


def emit_device_call(
    out: Writer, function: DeviceFunction, operands: Sequence[Value], result_type: str | None = None
) -> str:
    """Write a call and return its result, of LLVM type ``result_type`` (empty without a result).

    Addresses are pointers of either dialect (``ptr addrspace(3)``, ``float addrspace(3)*``) or
    integers; immediates are literals. Raises ``CodegenError`` for an immediate that is not known.
    """
    registers = [_registers(out, function, declared, *value)
                 for declared, value in zip(function.operands, operands, strict=True)]
    outputs = _result_registers(function)
    text = _assembly(function, outputs, [len(group) for group in registers])
    inputs = [each for group in registers for each in group]
    constraints = [f"={letter}" for _, letter in outputs]
    if function.result is not None and _tied(function) is not None:
        tied = iter(range(len(outputs)))
    else:
        tied = iter(())
    for declared, group in zip(function.operands, registers, strict=True):
        letter = REGISTERS[declared.kind][1]
        is_tied = declared == _tied(function)
        constraints += [str(next(tied)) if is_tied else letter for _ in group]
    if not function.is_pure:
        constraints.append("~{memory}")
    kind = _struct([type_ for type_, _ in outputs])
    effect = "" if function.is_pure else " sideeffect"
    arguments = ", ".join(f"{type_} {value}" for type_, value in inputs)
    attributes = " convergent nounwind" if function.converges else " nounwind"
    call = (f'call {kind} asm{effect} "{text}", "{",".join(constraints)}"({arguments})'
            f"{attributes}")
    if function.result is None or result_type is None:
        out.do(call)
        return ""
    return _joined(out, out.emit(call), outputs, result_type)


def _tied(function: DeviceFunction) -> Operand | None:
    """The operand that the instruction updates in place."""
    return next((o for o in function.operands
                 if function.result is not None and o.name == function.result.name), None)


def _result_registers(function: DeviceFunction) -> list[tuple[str, str]]:
    if function.result is None:
        return []
    type_, letter, _ = REGISTERS[function.result.kind]
    return [(type_, letter)] * function.result.count


def _assembly(function: DeviceFunction, outputs: Sequence[object], counts: Sequence[int]) -> str:
    """The PTX with LLVM's operand numbers instead of names."""
    names: dict[str, str] = {}
    first = 0
    if function.result is not None:
        names[function.result.name] = _list(0, len(outputs), function.result.count)
        first = len(outputs)
    for declared, count in zip(function.operands, counts, strict=True):
        names.setdefault(declared.name, _list(first, count, declared.count))
        first += count
    text = Template(function.ptx).substitute(names)
    return text.replace("\n", "\\0A\\09").replace("\t", "\\09")


def _list(first: int, count: int, declared: int) -> str:
    numbers = ", ".join(f"${first + i}" for i in range(count))
    return numbers if declared == 1 else f"{{{numbers}}}"


def _struct(types: Sequence[str]) -> str:
    if not types:
        return "void"
    return types[0] if len(types) == 1 else "{ " + ", ".join(types) + " }"


def _registers(
    out: Writer, function: DeviceFunction, declared: Operand, type_: str, value: str
) -> list[Value]:
    """An operand split into registers."""
    register = REGISTERS[declared.kind][0]
    if declared.kind is Kind.IMMEDIATE:
        if not value.lstrip("-").isdigit():
            raise CodegenError(f"operand {declared.name} of {function.name} must be a literal",
                               got=value)
        return [(register, value)]
    if declared.kind in ADDRESSES:
        return [(register, _address(out, register, type_, value))]
    if declared.count == 1:
        if type_ != register:
            value = out.emit(f"bitcast {type_} {value} to {register}")
        return [(register, value)]
    vector = f"<{declared.count} x {register}>"
    if type_ != vector:
        value = out.emit(f"bitcast {type_} {value} to {vector}")
    return [(register, out.emit(f"extractelement {vector} {value}, i32 {i}"))
            for i in range(declared.count)]


def _address(out: Writer, register: str, type_: str, value: str) -> str:
    if type_ == register:
        return value
    if "*" in type_ or type_.startswith("ptr"):
        return out.emit(f"ptrtoint {type_} {value} to {register}")
    return out.emit(f"{'trunc' if register == 'i32' else 'zext'} {type_} {value} to {register}")


def _joined(
    out: Writer, call: str, outputs: Sequence[tuple[str, str]], result_type: str
) -> str:
    """The result registers as one value of ``result_type``."""
    register, count = outputs[0][0], len(outputs)
    if count == 1:
        value, made = call, register
    else:
        made, value = f"<{count} x {register}>", "undef"
        struct = _struct([type_ for type_, _ in outputs])
        for i in range(count):
            part = out.emit(f"extractvalue {struct} {call}, {i}")
            value = out.emit(f"insertelement {made} {value}, {register} {part}, i32 {i}")
    if made == result_type:
        return value
    return out.emit(f"bitcast {made} {value} to {result_type}")
