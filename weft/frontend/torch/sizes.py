"""The input sizes for an import, checked against the traced sizes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from weft.frontend.torch.program import TorchProgram
from weft.ir.shape import Dim, SymDim, as_shape, substitute_dim
from weft.ir.symbol import SizeRange, symbol_text
from weft.ir.types import TensorType
from weft.support.errors import InvalidInputError


def input_types(program: TorchProgram, shapes: Mapping[str, Sequence[object]]
                ) -> list[TensorType]:
    """The types of the inputs; dynamic sizes are symbols with the ranges that torch found.

    Names of inner tensors are ignored. Raises ``InvalidInputError`` for other unknown names.
    """
    names = [port.name for port in program.inputs]
    unknown = [name for name in shapes if name not in names]
    if unknown and not program.tensor_names().issuperset(unknown):
        raise InvalidInputError(f"unknown input {', '.join(map(repr, unknown))}",
                                expected=", ".join(map(repr, names)) or "no inputs")
    types, symbols = [], _symbols(program)
    for port in program.inputs:
        given = shapes.get(port.name)
        shape = port.type.shape if given is None else as_shape(given)
        types.append(TensorType(tuple(substitute_dim(dim, symbols) for dim in shape),
                                port.type.dtype))
    return types


def _symbols(program: TorchProgram) -> dict[str, Dim]:
    """The symbols of the trace, by name, with their ranges; torch traces for sizes from 1 on."""
    found: dict[str, Dim] = {}
    for port in program.inputs:
        for dim in port.type.shape:
            for name in dim.symbols() if isinstance(dim, SymDim) else ():
                values = program.ranges.get(name, range(sys.maxsize))
                high = None if values.stop >= sys.maxsize else values.stop - 1
                sizes = SizeRange(max(values.start, 1), high)
                found[name] = SymDim.symbol(symbol_text(name, sizes))
    return found


def _range_text(values: range) -> str:
    last = "" if values.stop >= sys.maxsize else f" to {values.stop - 1}"
    return f"from {values.start}{last}"


def check_sizes(program: TorchProgram, types: Sequence[TensorType]) -> None:
    """Raise ``InvalidInputError`` if sizes of one name or sizes fixed by the trace differ."""
    symbols: dict[str, Dim] = {}
    pairs = [(port, declared, given)
             for port, type_ in zip(program.inputs, types, strict=True)
             for declared, given in zip(port.type.shape, type_.shape, strict=True)
             if isinstance(given, int)]
    for port, declared, given in pairs:
        if isinstance(declared, SymDim) and str(declared).isidentifier():
            name = str(declared)
            symbols.setdefault(name, given)
            if given not in program.ranges.get(name, range(given + 1)):
                raise InvalidInputError(
                    f"input {port.name!r} has a size that the model was not traced for",
                    expected=f"{name} {_range_text(program.ranges[name])}", got=str(given),
                    help="the bounds come from torch.export")
    for port, declared, given in pairs:
        expected = substitute_dim(declared, symbols)
        if isinstance(expected, int) and expected != given:
            raise InvalidInputError(f"input {port.name!r} has a size that does not match",
                                    expected=f"{port.type}, where {declared} is {expected}",
                                    got=str(given))
