"""Serialisation of virtual machine programs to JSON data, with verification on reading."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from weft.runtime.dtypes import numpy_dtype
from weft.runtime.json_fields import as_size, as_text
from weft.runtime.vm.bytecode import INSTRUCTIONS, Instruction, Role, roles_of
from weft.runtime.vm.program import (
    SpecialKernel,
    SymbolicKernel,
    TensorForm,
    VmFunction,
    VmKernel,
    VmProgram,
)
from weft.support.errors import ArtifactError


def to_plain(program: VmProgram) -> dict[str, Any]:
    """The program as lists, dictionaries, numbers and strings."""
    plain = {
        "entry": program.entry,
        "returns_value": program.returns_value,
        "kernels": [asdict(kernel) for kernel in program.kernels],
        "functions": [
            {"name": f.name, "num_captured": f.num_captured, "num_params": f.num_params,
             "num_registers": f.num_registers, "code": [_instruction(i) for i in f.code]}
            for f in program.functions
        ],
    }
    for name in ("special", "symbolic"):
        if kernels := getattr(program, name):
            plain[name] = [*map(asdict, kernels)]
    return plain


def _instruction(instruction: Instruction) -> list[Any]:
    values = (getattr(instruction, name) for name, _ in roles_of(type(instruction)))
    return [instruction.opcode, *(list(v) if isinstance(v, tuple) else v for v in values)]


def from_plain(plain: Mapping[str, Any], num_constants: int) -> VmProgram:
    """The program from plain data; ``ArtifactError``, or Python's own error for malformed data."""
    program = VmProgram(
        functions=tuple(_read_function(f) for f in plain["functions"]),
        kernels=tuple(_read_kernel(k) for k in plain["kernels"]),
        entry=as_size(plain["entry"]),
        returns_value=bool(plain["returns_value"]),
        special=tuple(_read_special(s) for s in plain.get("special", ())),
        symbolic=tuple(SymbolicKernel(as_size(s["number"]), as_text(s["text"]), _counted(s))
                       for s in plain.get("symbolic", ())),
    )
    check_program(program, num_constants)
    return program


def _read_function(plain: Mapping[str, Any]) -> VmFunction:
    return VmFunction(str(plain["name"]), as_size(plain["num_captured"]),
                      as_size(plain["num_params"]), as_size(plain["num_registers"]),
                      tuple(_read_instruction(i) for i in plain["code"]))


def _read_instruction(plain: list[Any]) -> Instruction:
    opcode, *fields = plain
    kind = INSTRUCTIONS[opcode]
    declared = dataclasses.fields(kind)
    if len(fields) != len(declared):
        raise ArtifactError("corrupt program", where=opcode, got=f"{len(fields)} fields")
    return kind(*map(_read_field, declared, fields))


def _read_field(field: dataclasses.Field[Any], value: Any) -> Any:
    if field.metadata["role"] is Role.TEXT:
        return str(value)
    if str(field.type).startswith("tuple"):
        return tuple(map(as_size, value))
    return as_size(value)


def _read_kernel(plain: Mapping[str, Any]) -> VmKernel:
    outputs = tuple(TensorForm(as_text(o["dtype"]), tuple(map(as_size, o["shape"])))
                    for o in plain.get("outputs", ()))
    for form in outputs:
        numpy_dtype(form.dtype)
    # Absent in the first artifacts of this format.
    input_shapes = tuple(tuple(map(as_size, s)) for s in plain.get("input_shapes", ()))
    kernel = VmKernel(
        as_text(plain["symbol"]), as_size(plain["num_inputs"]), outputs,
        as_size(plain["workspace_bytes"]), as_text(plain["implementation"]), as_text(plain["op"]),
        as_size(plain["flops"]), as_size(plain["bytes_moved"]), as_text(plain["source"]),
        input_shapes, _counted(plain), tuple(map(as_size, plain.get("value_args", ()))))
    _check_kernel(kernel)
    return kernel


def _counted(plain: Mapping[str, Any]) -> tuple[tuple[int, int, int], ...]:
    return tuple((as_size(o), as_size(a), as_size(n)) for o, a, n in plain.get("counted", ()))


def _read_special(plain: Mapping[str, Any]) -> SpecialKernel:
    values = tuple(bytes.fromhex(text).hex() for text in plain["values"])
    shapes = tuple(tuple(map(as_size, shape)) for shape in plain["shapes"])
    return SpecialKernel(as_size(plain["number"]), shapes, values, _read_kernel(plain["kernel"]))


def _check_kernel(kernel: VmKernel) -> None:
    sized = all(o < len(kernel.outputs) and a < len(kernel.outputs[o].shape)
                for o, a, _ in kernel.counted)
    valued = all(a < kernel.num_inputs for a in kernel.value_args)
    if not sized or not valued or len(kernel.input_shapes) not in (0, kernel.num_inputs):
        raise ArtifactError("corrupt program", where=kernel.op, got="inconsistent arguments")


def check_program(program: VmProgram, num_constants: int) -> None:
    """Verify all table indices; ``ArtifactError`` names the function and position."""
    limits = {Role.FUNCTION: len(program.functions), Role.KERNEL: len(program.kernels),
              Role.CONSTANT: num_constants}
    if program.entry >= len(program.functions):
        raise ArtifactError("corrupt program", got=f"entry {program.entry}")
    for special in program.special:
        if special.number >= len(program.kernels) or special.kernel.is_dynamic \
                or not program.kernels[special.number].is_dynamic:
            raise ArtifactError("corrupt program", got=f"a kernel for number {special.number}")
    for symbolic in program.symbolic:
        if symbolic.number >= len(program.kernels) \
                or not program.kernels[symbolic.number].is_dynamic:
            raise ArtifactError("corrupt program", got=f"a kernel for number {symbolic.number}")
    for function in program.functions:
        own = {**limits, Role.READS: function.num_registers, Role.WRITES: function.num_registers,
               Role.TARGET: len(function.code)}
        _check_function(function, own)


def _check_function(function: VmFunction, limits: Mapping[Role, int]) -> None:
    for position, instruction in enumerate(function.code):
        for role, limit in limits.items():
            if any(number >= limit for number in instruction.numbers(role)):
                raise ArtifactError("corrupt program", where=f"@{function.name}, {position}",
                                    got=f"{instruction.opcode} {role.value} beyond {limit}")
    if not function.code or not function.code[-1].ends_block:
        raise ArtifactError("corrupt program", where=f"@{function.name}", got="code without an end")
    if function.num_entry > function.num_registers:
        raise ArtifactError("corrupt program", where=f"@{function.name}", got="too few registers")
