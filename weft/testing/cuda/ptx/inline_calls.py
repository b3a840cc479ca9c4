"""Calls of device functions, replaced by the bodies of the functions."""

from __future__ import annotations

from dataclasses import replace

from weft.testing.cuda.errors import CudaEmulationError
from weft.testing.cuda.ptx.module import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Pair,
    PtxFunction,
    PtxModule,
    Register,
    Symbol,
    Vector,
)

_DEPTH_LIMIT = 64


def inline_calls(module: PtxModule, function: PtxFunction) -> PtxFunction:
    """A copy of ``function`` without calls. Recursion and calls by pointer are errors."""
    result = replace(
        function, registers=dict(function.registers), variables=list(function.variables),
        body=list(function.body), labels=dict(function.labels), tables=dict(function.tables))
    for depth in range(_DEPTH_LIMIT):
        calls = [at for at, item in enumerate(result.body) if item.opcode == "call"]
        if not calls:
            _params_to_local(result, depth)
            return result
        for number, at in enumerate(reversed(calls)):
            _inline(module, result, at, f"@call{depth}.{number}")
    raise CudaEmulationError(f"calls in {function.name} nest deeper than {_DEPTH_LIMIT}",
                             help="the emulator inlines calls, so it cannot run recursion")


def _inline(module: PtxModule, caller: PtxFunction, at: int, suffix: str) -> None:
    call = caller.body[at]
    operands = list(call.operands)
    results = operands.pop(0) if isinstance(operands[0], Vector) else Vector(())
    name = operands.pop(0)
    arguments = operands.pop(0) if operands else Vector(())
    callee = module.functions.get(name.name) if isinstance(name, Symbol) else None
    if callee is None or not isinstance(results, Vector) or not isinstance(arguments, Vector):
        raise CudaEmulationError("call of an unknown function", where=f"PTX line {call.line}",
                                 got=str(getattr(name, "name", name)))
    names: dict[str, str] = {}
    passed = [*zip(callee.results, results.elements, strict=True),
              *zip(callee.parameters, arguments.elements, strict=True)]
    for parameter, argument in passed:
        assert isinstance(argument, Symbol | Register)
        names[parameter.name] = argument.name
    for register, kind in callee.registers.items():
        names[register] = register + suffix
        caller.registers[register + suffix] = kind
    for variable in callee.variables:
        if variable.space != "shared":
            names[variable.name] = variable.name + suffix
        caller.variables.append(replace(variable, name=names.get(variable.name, variable.name)))
    for label in (*callee.labels, *callee.tables):
        names[label] = label + suffix
    end = f"$return{suffix}"
    body = [_renamed(item, names, end) for item in callee.body]
    grown = len(body) - 1
    for label, index in caller.labels.items():
        if index > at:
            caller.labels[label] = index + grown
    for label, index in callee.labels.items():
        caller.labels[names[label]] = index + at
    for table, targets in callee.tables.items():
        caller.tables[names[table]] = tuple(names[item] for item in targets)
    caller.labels[end] = at + len(body)
    caller.body[at : at + 1] = body


def _renamed(instruction: Instruction, names: dict[str, str], end: str) -> Instruction:
    if instruction.opcode == "ret":
        return replace(instruction, opcode="bra", modifiers=(), operands=(Symbol(end),),
                       guard=_guard(instruction, names))
    guard = _guard(instruction, names)
    return replace(instruction, guard=guard,
                   operands=tuple(_operand(item, names) for item in instruction.operands))


def _guard(instruction: Instruction, names: dict[str, str]) -> Register | None:
    guard = instruction.guard
    return guard and replace(guard, name=names.get(guard.name, guard.name))


def _operand(operand: Operand, names: dict[str, str]) -> Operand:
    match operand:
        case Register(name):
            return replace(operand, name=names.get(name, name))
        case Symbol(name):
            return Symbol(names.get(name, name))
        case Address(base, _, coordinates):
            inner = _operand(base, names)
            assert isinstance(inner, Register | Symbol | Immediate)
            return replace(operand, base=inner,
                           coordinates=tuple(_operand(item, names) for item in coordinates))
        case Vector(elements):
            return Vector(tuple(_operand(item, names) for item in elements))
        case Pair(first, second):
            return Pair(_operand(first, names), _operand(second, names))
        case _:
            return operand


def _params_to_local(function: PtxFunction, depth: int) -> None:
    """The ``.param`` space of calls is private memory: its accesses become local ones."""
    if not depth:
        return
    own = {item.name for item in function.variables if item.space == "param"}
    for at, instruction in enumerate(function.body):
        if instruction.opcode in {"ld", "st"} and "param" in instruction.modifiers and any(
            isinstance(item, Address) and isinstance(item.base, Symbol) and item.base.name in own
            for item in instruction.operands
        ):
            modifiers = tuple("local" if m == "param" else m for m in instruction.modifiers)
            function.body[at] = replace(instruction, modifiers=modifiers)
