"""Lowers a module in the ``lowered`` phase to a program for the virtual machine.

The entry function takes the tensors of the module's inputs one by one, and returns those of its
outputs as a flat tuple. ``main`` and the functions that it reaches keep their types.
"""

from __future__ import annotations

import numpy as np

from weft.compiler.program.ports import input_ports, output_ports, tensors_of
from weft.compiler.program.program import KernelSource, Port
from weft.compiler.vm.function_builder import FunctionBuilder
from weft.compiler.vm.lower_function import lower_function
from weft.compiler.vm.tables import Tables
from weft.ir.expr import Function, GlobalVar
from weft.ir.module import IRModule
from weft.ir.types import FuncType, RefType, TupleType, Type, component_types, is_flat
from weft.runtime.vm.bytecode import Call, MakeTuple, Return, TailCall
from weft.runtime.vm.program import ENTRY, VmFunction
from weft.support.dataclass import dataclass
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.graph import type_of


@dataclass(frozen=True, slots=True)
class VmSource:
    """A program before its kernels are built.

    With ``returns_value``, the result is not just tensors and ``outputs`` is empty.
    """

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    output_is_tuple: bool
    returns_value: bool
    functions: tuple[VmFunction, ...]
    entry: int
    kernels: tuple[KernelSource, ...]
    constants: tuple[np.ndarray, ...]


def lower_module(mod: IRModule) -> VmSource:
    """Lower ``main`` and all functions that it reaches.

    Raises ``UnsupportedModelError`` for inputs other than tensors, and for results that contain
    functions or references.
    """
    main = mod["main"]
    result_type = type_of(main.body)
    _check_result(result_type)
    tables = Tables(mod)
    entry = tables.reserve()
    functions = {entry: _entry_function(main, result_type, tables)}
    while tables.pending:
        number, pending = tables.pending.popleft()
        functions[number] = lower_function(pending, tables)
    returns_value = not is_flat(result_type)
    return VmSource(
        input_ports(mod, main), () if returns_value else output_ports(mod, result_type),
        isinstance(result_type, TupleType), returns_value,
        tuple(functions[n] for n in range(tables.count)), entry,
        tuple(tables.kernels.sources), tuple(tables.arrays),
    )


def _entry_function(main: Function, result_type: Type, tables: Tables) -> VmFunction:
    types = [type_of(p) for p in main.params]
    counts = [len(tensors_of(t)) for t in types]
    builder = FunctionBuilder("entry", 0, sum(counts))
    args, at = [], 0
    for type_, count in zip(types, counts, strict=True):
        args.append(builder.assemble(range(at, at + count), type_))
        at += count
    callee = tables.global_function(GlobalVar(ENTRY))
    if is_flat(result_type):
        result, flat = builder.new_register(), builder.new_register()
        builder.emit(Call(result, callee, tuple(args)))
        builder.emit(MakeTuple(flat, tuple(builder.flatten(result, result_type))))
        builder.emit(Return(flat))
    else:
        builder.emit(TailCall(callee, tuple(args)))
    return builder.finish()


def _check_result(type_: Type) -> None:
    pending = [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, (FuncType, RefType)):
            raise UnsupportedModelError(
                "unsupported result type of a compiled program", got=str(type_),
                expected="tensors, tuples and ADTs",
                help="call the function, or read the reference, in the program",
            )
        pending.extend(component_types(current))
