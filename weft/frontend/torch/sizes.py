"""Sizes of a traced program: arithmetic on them, and input sizes checked against the trace."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import sympy
import torch

from weft.frontend.torch.complex_pairs import is_complex
from weft.frontend.torch.dims import (
    conditions_of,
    convert_size,
    expression_of,
    symbol_value,
)
from weft.frontend.torch.program import TorchProgram, program_at
from weft.ir.shape import (
    AnyDim,
    Dim,
    KnownDim,
    Shape,
    SymDim,
    as_shape,
    bounds_of,
    dim_floordiv,
    dim_max,
    dim_min,
    dim_mul,
    dim_sub,
    substitute_dim,
)
from weft.ir.symbol import SizeRange, common_range, common_symbols, name_of, range_of, symbol_text
from weft.ir.types import TensorType
from weft.support.errors import (
    InvalidInputError,
    InvalidModelError,
    TypeInferenceError,
    UnsupportedModelError,
)


def applied(function: Callable[..., Any], arguments: list[Any]) -> Any:
    """The result of a function on numbers and sizes; ``TypeError`` where it takes no sizes."""
    if not any(isinstance(argument, SymDim) for argument in arguments):
        return function(*arguments)
    result = _OF_SIZES.get(function, function)(*arguments)
    if isinstance(result, AnyDim):
        raise TypeError(f"{function.__name__} of {', '.join(map(str, arguments))}")
    return result


def _remainder(a: Dim, b: Dim) -> Dim:
    return dim_sub(a, dim_mul(b, dim_floordiv(a, b)))


def _no_comparison(*_sizes: Any) -> bool:
    raise TypeError("a comparison of symbolic sizes")


_OF_SIZES: Mapping[Callable[..., Any], Callable[..., Any]] = {
    torch.sym_max: lambda *sizes: reduce(dim_max, sizes),
    torch.sym_min: lambda *sizes: reduce(dim_min, sizes),
    operator.mod: _remainder,
    operator.eq: _no_comparison,
    operator.ne: _no_comparison,
}


def input_types(program: TorchProgram, shapes: Mapping[str, Sequence[object]]
                ) -> list[TensorType]:
    """The types of the inputs; dynamic sizes are symbols with the ranges for which the trace holds.

    Names of inner tensors are ignored. Raises ``InvalidInputError`` for other unknown names and for
    shapes of another rank.
    """
    names = [port.name for port in program.inputs]
    unknown = [name for name in shapes if name not in names]
    if unknown and not program.tensor_names().issuperset(unknown):
        raise InvalidInputError(f"unknown input {', '.join(map(repr, unknown))}",
                                expected=", ".join(map(repr, names)) or "no inputs")
    given = [as_shape(shapes[port.name]) if port.name in shapes else port.type.shape
             for port in program.inputs]
    for port, shape in zip(program.inputs, given, strict=True):
        if len(shape) != len(port.type.shape):
            raise InvalidInputError(f"input {port.name!r} has another rank",
                                    expected=str(port.type), got=str(shape))
    symbols = _narrowed(program, given, common_symbols(given))
    return [TensorType(tuple(substitute_dim(dim, symbols) for dim in shape), port.type.dtype)
            for port, shape in zip(program.inputs, given, strict=True)]


def _narrowed(program: TorchProgram, shapes: Sequence[Shape], symbols: Mapping[str, Dim]
              ) -> dict[str, Dim]:
    """The symbols, with the ranges of torch's symbols that they stand for."""
    found = dict(symbols)
    for name, value in _values(program, shapes).items():
        text = str(value)
        if isinstance(value, SymDim) and value.symbols() == {text}:
            own, own_name = range_of(text), name_of(text)
            sizes = common_range(own_name, common_range(own_name, own, _as_sizes(
                program.ranges.get(name, range(sys.maxsize)))), range_of(str(found[own_name])))
            found[own_name] = SymDim.symbol(symbol_text(own_name, sizes))
    return found


def _as_sizes(values: range) -> SizeRange:
    return SizeRange(values.start, None if values.stop >= sys.maxsize else values.stop - 1)


def _traced(program: TorchProgram) -> list[list[sympy.Expr]]:
    """The traced sizes of the inputs, with the axis for the two parts of a complex one."""
    nodes = {node.name: node.meta["val"] for node in program.graph.nodes
             if node.op == "placeholder"}
    return [[expression_of(size) for size in (*nodes[port.name].shape,
                                              *((2,) if is_complex(nodes[port.name]) else ()))]
            for port in program.inputs]


def _values(program: TorchProgram, shapes: Sequence[Shape]) -> dict[str, Dim]:
    """Torch's symbols as sizes of the inputs."""
    found: dict[str, Dim] = {}
    for sizes, shape in zip(_traced(program), shapes, strict=True):
        for expr, dim in zip(sizes, shape, strict=True):
            known = symbol_value(expr, dim)
            # ``s`` itself is exact, a part of ``2*s`` is rounded.
            if known is not None and (known[0] not in found or expr.is_Symbol):
                found[known[0]] = known[1]
    return found


def conditions(program: TorchProgram, types: Sequence[TensorType]) -> tuple[SymDim, ...]:
    """Sizes that are 0 or more for all inputs of these types for which the trace holds.

    Raises ``UnsupportedModelError`` for a condition that is no comparison of sizes, and for one
    that never holds.
    """
    values = _values(program, [type_.shape for type_ in types])
    found: dict[SymDim, None] = {}
    for text, size in _needed(program, types, values):
        low, high = bounds_of(size)
        if high is not None and high < 0:
            raise UnsupportedModelError("the model was not traced for such sizes", expected=text,
                                        got=", ".join(f"{n} = {v}" for n, v in values.items()))
        if isinstance(size, SymDim) and (low is None or low < 0):
            found[size] = None
    return tuple(found)


def _needed(program: TorchProgram, types: Sequence[TensorType], values: Mapping[str, Dim]
            ) -> Iterator[tuple[str, KnownDim]]:
    """Sizes that may not be negative, each with the condition that it comes from."""
    guards = [*program.guards]
    for name, sizes in program.ranges.items():
        symbol = sympy.Symbol(name, integer=True)
        guards.append(symbol >= sizes.start)
        if sizes.stop < sys.maxsize:
            guards.append(symbol < sizes.stop)
    for guard in guards:
        sizes = _sizes_of(guard, values)
        yield from ((str(guard), size) for size in sizes)
    for traced, type_ in zip(_traced(program), types, strict=True):
        for expr, dim in zip(traced, type_.shape, strict=True):
            difference = dim_sub(convert_size(expr, values), dim)
            for side in (difference, dim_sub(0, difference)):
                if not isinstance(side, AnyDim):
                    yield f"{expr} == {dim}", side


def _sizes_of(guard: sympy.Basic, values: Mapping[str, Dim]) -> list[KnownDim]:
    try:
        sizes = conditions_of(guard, values)
    except TypeInferenceError:  # a division by zero
        sizes = None
    if sizes is None:
        raise UnsupportedModelError("the traced model depends on a condition on its sizes",
                                    got=str(guard))
    return sizes


def at_sizes(program: TorchProgram, types: Sequence[TensorType]) -> TorchProgram:
    """The program for inputs of these fixed sizes, for which the trace does not hold.

    Raises ``InvalidInputError`` with the sizes if torch refuses them.
    """
    try:
        return program_at(program, [as_numbers(type_) for type_ in types])
    except InvalidModelError as error:
        sizes = [f"{port.name!r} has size {size} (axis {axis}, {declared})"
                 for port, type_ in zip(program.inputs, types, strict=True)
                 for axis, (declared, size) in enumerate(zip(port.type.shape, type_.shape,
                                                             strict=True))
                 if not isinstance(declared, int)]
        raise InvalidInputError(f"torch does not run the model where input {', '.join(sizes)}",
                                expected=", ".join(f"{p.name}: {p.type}" for p in program.inputs),
                                got=error.got) from error


def as_numbers(type_: TensorType) -> tuple[int, ...]:
    """The sizes of a static type."""
    return tuple(dim for dim in type_.shape if isinstance(dim, int))
