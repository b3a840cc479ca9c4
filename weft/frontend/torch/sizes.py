"""The input sizes for an import, checked against the traced sizes."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from weft.frontend.torch.program import TorchProgram
from weft.ir.shape import Dim, SymDim, as_shape, substitute_dim
from weft.ir.types import TensorType, is_static
from weft.support.errors import InvalidInputError


def input_types(program: TorchProgram, shapes: Mapping[str, Sequence[object]]
                ) -> list[TensorType]:
    """The static types of the inputs.

    Raises ``InvalidInputError`` for an unknown input and for a dynamic size.
    """
    names = [port.name for port in program.inputs]
    unknown = [name for name in shapes if name not in names]
    if unknown:
        raise InvalidInputError(f"unknown input {', '.join(map(repr, unknown))}",
                                expected=", ".join(map(repr, names)) or "no inputs")
    types = []
    for port in program.inputs:
        given = shapes.get(port.name)
        type_ = port.type if given is None else TensorType(as_shape(given), port.type.dtype)
        if not is_static(type_):
            raise InvalidInputError(f"input {port.name!r} has dynamic sizes",
                                    got=str(type_), help=f'inputs={{"{port.name}": (1, 3, …)}}')
        types.append(type_)
    return types


def _range_text(values: range) -> str:
    last = "" if values.stop >= sys.maxsize else f" to {values.stop - 1}"
    return f"from {values.start}{last}"


def check_sizes(program: TorchProgram, types: Sequence[TensorType]) -> None:
    """Raise ``InvalidInputError`` if sizes of one name or sizes fixed by the trace differ."""
    symbols: dict[str, Dim] = {}
    pairs = [(port, declared, given)
             for port, type_ in zip(program.inputs, types, strict=True)
             for declared, given in zip(port.type.shape, type_.concrete_shape, strict=True)]
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
