"""The interpreter loop of the virtual machine: a stack of frames, one handler per instruction.

Calls push a frame, so recursion is limited only by memory. Tail calls replace the frame, so loops
run in constant space.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from weft.runtime.vm import bytecode as bc
from weft.runtime.vm.kernels import KernelTable, LoadedKernel, Scratch
from weft.runtime.vm.program import VmFunction, VmProgram
from weft.runtime.vm.value import Closure, Data, Ref, Value
from weft.support.errors import InvalidInputError

# A kernel, and the times before and after it ran, in seconds.
Reading: TypeAlias = "tuple[LoadedKernel, float, float]"


class Frame:
    """An activation record; ``result`` is the caller's register for the return value."""

    __slots__ = ("closure", "code", "position", "registers", "result")

    def __init__(self, function: LinkedFunction, registers: list[Value], closure: Closure | None,
                 result: int) -> None:
        self.code = function.code
        self.position = 0
        self.registers = registers
        self.closure = closure
        self.result = result


class LinkedFunction:
    """The code with the handler of each instruction."""

    __slots__ = ("code", "free_registers", "name")

    def __init__(self, function: VmFunction) -> None:
        self.name = function.name
        self.code = [(_HANDLERS[type(i)], i) for i in function.code]
        self.free_registers = function.num_registers - function.num_entry

    def registers(self, values: Sequence[Value]) -> list[Value]:
        return [*values, *[None] * self.free_registers]


class Image:
    """The state shared by all runs of a program."""

    __slots__ = ("constants", "functions", "kernels")

    def __init__(self, program: VmProgram, kernels: KernelTable,
                 constants: Sequence[np.ndarray]) -> None:
        self.functions = [LinkedFunction(f) for f in program.functions]
        self.kernels = kernels
        self.constants = constants


class Machine:
    """One run of a program; ``readings``, if it is a list, collects the times of kernels."""

    __slots__ = ("functions", "image", "readings", "result", "scratch", "stack")

    def __init__(self, image: Image, scratch: Scratch,
                 readings: list[Reading] | None = None) -> None:
        self.image = image
        self.functions = image.functions
        self.scratch = scratch
        self.readings = readings
        self.stack: list[Frame] = []
        self.result: Value = None

    def run(self, function: int, args: Sequence[Value], check: Callable[[], None] | None = None
            ) -> Value:
        """The result of a function; ``InvalidInputError`` if no clause of a match matches.

        ``check`` is called ahead of each instruction, and may raise.
        """
        linked = self.functions[function]
        stack = self.stack
        stack.append(Frame(linked, linked.registers(args), None, 0))
        while check is not None and stack:
            check()
            frame = stack[-1]
            handler, instruction = frame.code[frame.position]
            frame.position += 1
            handler(self, frame, instruction)
        while stack:
            frame = stack[-1]
            handler, instruction = frame.code[frame.position]
            frame.position += 1
            handler(self, frame, instruction)
        return self.result


def _load_constant(machine: Machine, frame: Frame, i: bc.LoadConstant) -> None:
    frame.registers[i.result] = machine.image.constants[i.constant]


def _move(_: Machine, frame: Frame, i: bc.Move) -> None:
    frame.registers[i.result] = frame.registers[i.source]


def _free(_: Machine, frame: Frame, i: bc.Free) -> None:
    for register in i.registers:
        frame.registers[register] = None


def _invoke_kernel(machine: Machine, frame: Frame, i: bc.InvokeKernel) -> None:
    registers = frame.registers
    args = [registers[a] for a in i.args]
    kernel = machine.image.kernels.find(i.kernel, args)
    if machine.readings is None:
        results = kernel(args, machine.scratch)
    else:
        start = time.perf_counter()
        results = kernel(args, machine.scratch)
        machine.readings.append((kernel, start, time.perf_counter()))
    for register, result in zip(i.results, results, strict=True):
        registers[register] = result


def _reshape(_: Machine, frame: Frame, i: bc.Reshape) -> None:
    frame.registers[i.result] = frame.registers[i.source].reshape(i.shape)


def _make_tuple(_: Machine, frame: Frame, i: bc.MakeTuple) -> None:
    frame.registers[i.result] = tuple([frame.registers[f] for f in i.fields])


def _get_item(_: Machine, frame: Frame, i: bc.GetItem) -> None:
    frame.registers[i.result] = frame.registers[i.source][i.index]


def _make_data(_: Machine, frame: Frame, i: bc.MakeData) -> None:
    fields = tuple([frame.registers[f] for f in i.fields])
    frame.registers[i.result] = Data(i.tag, i.name, fields)


def _get_field(_: Machine, frame: Frame, i: bc.GetField) -> None:
    frame.registers[i.result] = frame.registers[i.source].fields[i.index]


def _make_ref(_: Machine, frame: Frame, i: bc.MakeRef) -> None:
    frame.registers[i.result] = Ref(frame.registers[i.value])


def _read_ref(_: Machine, frame: Frame, i: bc.ReadRef) -> None:
    frame.registers[i.result] = frame.registers[i.ref].value


def _write_ref(_: Machine, frame: Frame, i: bc.WriteRef) -> None:
    frame.registers[i.ref].value = frame.registers[i.value]


def _make_closure(_: Machine, frame: Frame, i: bc.MakeClosure) -> None:
    captured = tuple([frame.registers[c] for c in i.captured])
    frame.registers[i.result] = Closure(i.function, captured)


def _load_self(_: Machine, frame: Frame, i: bc.LoadSelf) -> None:
    frame.registers[i.result] = frame.closure


def _call(machine: Machine, frame: Frame, i: bc.Call) -> None:
    linked = machine.functions[i.function]
    registers = linked.registers([frame.registers[a] for a in i.args])
    machine.stack.append(Frame(linked, registers, None, i.result))


def _call_closure(machine: Machine, frame: Frame, i: bc.CallClosure) -> None:
    closure = frame.registers[i.closure]
    linked = machine.functions[closure.function]
    registers = linked.registers([*closure.captured, *[frame.registers[a] for a in i.args]])
    machine.stack.append(Frame(linked, registers, closure, i.result))


def _tail_call(machine: Machine, frame: Frame, i: bc.TailCall) -> None:
    linked = machine.functions[i.function]
    registers = linked.registers([frame.registers[a] for a in i.args])
    machine.stack[-1] = Frame(linked, registers, None, frame.result)


def _tail_call_closure(machine: Machine, frame: Frame, i: bc.TailCallClosure) -> None:
    closure = frame.registers[i.closure]
    linked = machine.functions[closure.function]
    registers = linked.registers([*closure.captured, *[frame.registers[a] for a in i.args]])
    machine.stack[-1] = Frame(linked, registers, closure, frame.result)


def _jump(_: Machine, frame: Frame, i: bc.Jump) -> None:
    frame.position = i.target


def _jump_unless(_: Machine, frame: Frame, i: bc.JumpUnless) -> None:
    if not frame.registers[i.condition]:
        frame.position = i.target


def _jump_unless_tag(_: Machine, frame: Frame, i: bc.JumpUnlessTag) -> None:
    if frame.registers[i.source].tag != i.tag:
        frame.position = i.target


def _return(machine: Machine, frame: Frame, i: bc.Return) -> None:
    stack = machine.stack
    stack.pop()
    value = frame.registers[i.value]
    if stack:
        stack[-1].registers[frame.result] = value
    else:
        machine.result = value


def _fail(_: Machine, frame: Frame, i: bc.Fail) -> None:  # noqa: ARG001
    raise InvalidInputError("no clause of the match expression matches", where=i.message,
                            help="add a clause for it; match? leaves cases out on purpose")


_HANDLERS: dict[type[bc.Instruction], Callable[[Machine, Frame, Any], None]] = {
    bc.LoadConstant: _load_constant,
    bc.Move: _move,
    bc.Free: _free,
    bc.InvokeKernel: _invoke_kernel,
    bc.Reshape: _reshape,
    bc.MakeTuple: _make_tuple,
    bc.GetItem: _get_item,
    bc.MakeData: _make_data,
    bc.GetField: _get_field,
    bc.MakeRef: _make_ref,
    bc.ReadRef: _read_ref,
    bc.WriteRef: _write_ref,
    bc.MakeClosure: _make_closure,
    bc.LoadSelf: _load_self,
    bc.Call: _call,
    bc.CallClosure: _call_closure,
    bc.TailCall: _tail_call,
    bc.TailCallClosure: _tail_call_closure,
    bc.Jump: _jump,
    bc.JumpUnless: _jump_unless,
    bc.JumpUnlessTag: _jump_unless_tag,
    bc.Return: _return,
    bc.Fail: _fail,
}
