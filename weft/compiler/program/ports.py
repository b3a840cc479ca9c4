"""The inputs and outputs of ``main`` as tensors, with their names."""

from __future__ import annotations

from weft.compiler.program.program import Port
from weft.ir import AnyDim, Function, IRModule, TensorType, TupleType, Type, size_of_dim
from weft.ir.module import port_names
from weft.runtime.manifest import TensorSpec
from weft.support.errors import UnsupportedModelError
from weft.transform.analysis.graph import type_of


def input_ports(mod: IRModule, main: Function) -> tuple[Port, ...]:
    """One port per tensor that ``main`` takes, with the input names of the module."""
    ports: list[Port] = []
    for parameter in main.params:
        types = tensors_of(type_of(parameter))
        suffixes = [""] if len(types) == 1 else [f".{i}" for i in range(len(types))]
        ports += [Port(parameter.name + s, t) for s, t in zip(suffixes, types, strict=True)]
    names = mod.attrs.get("input_names")
    if isinstance(names, (tuple, list)) and len(names) == len(ports):
        ports = [Port(str(n), p.type) for n, p in zip(names, ports, strict=True)]
    return tuple(ports)


def output_ports(mod: IRModule, result_type: Type) -> tuple[Port, ...]:
    """One port per tensor of a result, with the output names of the module."""
    types = tensors_of(result_type)
    names = port_names(mod.attrs.get("output_names"), "output", len(types))
    return tuple(Port(n, t) for n, t in zip(names, types, strict=True))


def tensors_of(type_: Type) -> list[TensorType]:
    """The tensor types of a (nested) tuple, in order; ``UnsupportedModelError`` for others."""
    flat: list[TensorType] = []
    pending = [type_]
    while pending:
        current = pending.pop()
        if isinstance(current, TupleType):
            pending.extend(reversed(current.fields))
        elif isinstance(current, TensorType):
            flat.append(current)
        else:
            raise UnsupportedModelError("unsupported type of a program input or output",
                                        expected="tensors and tuples of tensors",
                                        got=str(current))
    return flat


def spec_of(port: Port) -> TensorSpec:
    """An input or output as the manifest describes it; symbolic dimensions are texts."""
    shape = tuple("?" if isinstance(size, AnyDim) else size_of_dim(size)
                  for size in port.type.shape)
    return TensorSpec(port.name, str(port.type.dtype), shape)
