"""Printer of bytecode."""

from __future__ import annotations

from collections.abc import Iterable

from weft.runtime.vm.bytecode import Instruction, Role, roles_of
from weft.runtime.vm.program import VmFunction, VmKernel, VmProgram


def as_text(program: VmProgram) -> str:
    """The text of a program: functions with one line per instruction, then the kernels."""
    parts = [_function_text(function, program) for function in program.functions]
    kernels = [_kernel_text(n, kernel) for n, kernel in enumerate(program.kernels)]
    return "\n\n".join([*parts, "\n".join(kernels)] if kernels else parts)


def _function_text(function: VmFunction, program: VmProgram) -> str:
    captured = _registers(range(function.num_captured))
    params = _registers(range(function.num_captured, function.num_entry))
    head = f"@{function.name}({params})" + (f" captures ({captured})" if captured else "")
    targets = {t for i in function.code for t in i.numbers(Role.TARGET)}
    lines = [f"{head}, {function.num_registers} registers:"]
    for position, instruction in enumerate(function.code):
        mark = f"{position:>4}:" if position in targets else "     "
        lines.append(f"{mark} {_instruction_text(instruction, program)}")
    return "\n".join(lines)


def _instruction_text(instruction: Instruction, program: VmProgram) -> str:
    written = _registers(instruction.numbers(Role.WRITES))
    operands = [_operand(role, getattr(instruction, name), program)
                for name, role in roles_of(type(instruction)) if role is not Role.WRITES]
    line = " ".join([instruction.opcode, *operands])
    if instruction.opcode == "free":
        return f"{line} {written}"
    return f"{written} = {line}" if written else line


def _operand(role: Role, value: object, program: VmProgram) -> str:
    if isinstance(value, tuple):
        inside = _registers(value) if role is Role.READS else ", ".join(map(str, value))
        return f"({inside})"
    if role is Role.READS:
        return f"%{value}"
    if role is Role.FUNCTION and isinstance(value, int):
        return f"@{program.functions[value].name}"
    if role is Role.KERNEL and isinstance(value, int):
        return f"kernel[{value}]"
    if role is Role.CONSTANT:
        return f"constant[{value}]"
    return f"-> {value}" if role is Role.TARGET else str(value)


def _registers(numbers: Iterable[int]) -> str:
    return ", ".join(f"%{n}" for n in numbers)


def _kernel_text(number: int, kernel: VmKernel) -> str:
    if kernel.is_dynamic:
        return f"kernel[{number}]: {kernel.op}, compiled for the sizes it meets"
    results = ", ".join(f"Tensor[{form.shape}, {form.dtype}]" for form in kernel.outputs)
    chosen = f" ({kernel.implementation})" if kernel.implementation else ""
    return f"kernel[{number}]: {kernel.op} -> {results}{chosen} {kernel.symbol}"
